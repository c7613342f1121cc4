"""All of PubMed: its yearly baseline and daily update files, downloaded, checked and filtered.

NLM publishes them as https://ftp.ncbi.nlm.nih.gov/pubmed/baseline/pubmed26n0001.xml.gz and so on, some 30,000
records each; https://ftp.ncbi.nlm.nih.gov/pubmed/updatefiles/ continues the numbers. A later file replaces
and deletes the records of earlier ones (https://pubmed.ncbi.nlm.nih.gov/download/).
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from sentence_experts.corpus.formats.articles import read_articles
from sentence_experts.corpus.formats.mesh import MeshTree, under_any
from sentence_experts.corpus.formats.packed import unpacked
from sentence_experts.corpus.formats.secure_xml import UnreadableArticleError
from sentence_experts.corpus.paper import Deletion, Paper
from sentence_experts.errors import InputError, UsageError
from sentence_experts.progress import progress
from sentence_experts.storage import replacing

logger = logging.getLogger(__name__)

_NAME = re.compile(r"pubmed(\d\d)n(\d{4,6})\.xml\.gz")
_LINK = re.compile(rf'href\s*=\s*["\']?(?:[^"\'>\s]*/)?({_NAME.pattern})["\'>\s]', re.IGNORECASE)
_DIGEST = re.compile(r"\b[0-9a-f]{32}\b", re.IGNORECASE)


class Getter(Protocol):
    """Something that downloads an address, such as `sources.http.Client`."""

    def get(self, url: str) -> bytes:
        """The body of the answer."""


def download(client: Getter, base_url: str, folder: Path) -> list[Path]:
    """Download the PubMed files that a page lists into `folder`, in the order of their names.

    A file that is there with its checksum is not downloaded again, so the same call continues where it was
    interrupted.

    Raises:
        InputError: the page lists no such file, or a file twice had the wrong checksum.
    """
    base_url = base_url.rstrip("/") + "/"
    page = client.get(base_url).decode("utf-8", "replace")
    names = sorted({match.group(1) for match in _LINK.finditer(page)})
    if not names:
        raise InputError(f"{base_url} lists no PubMed files (pubmed26n0001.xml.gz and so on)")
    folder.mkdir(parents=True, exist_ok=True)
    with progress("PubMed files", len(names)) as advance:
        for name in names:
            _fetch(client, base_url + name, folder / name)
            advance()
    return [folder / name for name in names]


def _fetch(client: Getter, url: str, path: Path) -> None:
    checksum = checksum_file(path)
    if not checksum.exists():
        stated = client.get(f"{url}.md5")
        _digest_in(stated, f"{url}.md5")
        _write(checksum, stated)
    expected = _digest_in(checksum.read_bytes(), str(checksum))
    if path.exists() and _digest_of(path) == expected:
        return
    for _ in range(2):
        content = client.get(url)
        if hashlib.md5(content, usedforsecurity=False).hexdigest() == expected:
            _write(path, content)
            return
    # The stored checksum may be wrong: the next run downloads it again.
    checksum.unlink()
    raise InputError(f"{url}: twice had another MD5 checksum than {expected}; try again later")


def _write(path: Path, content: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def checksum_file(path: Path) -> Path:
    """The file with the checksum of a PubMed file, beside it as on NLM's server."""
    return path.with_name(f"{path.name}.md5")


def _digest_in(content: bytes, where: str) -> str:
    """The digest in `MD5(pubmed26n0001.xml.gz)= 0123...`."""
    match = _DIGEST.search(content.decode("ascii", "replace"))
    if not match:
        raise InputError(f"{where}: holds no MD5 checksum")
    return match.group().lower()


def _digest_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def select_papers(
    folder: Path, mesh: Sequence[str] = (), years: tuple[int, int] | None = None, tree: MeshTree | None = None
) -> Iterator[Paper]:
    """The papers with one of some headings in the PubMed files under `folder`, as they are after all updates.

    The files are read once, from the last to the first, so that the last state of each record comes first;
    memory holds the matches of one file and a bit per PMID. Of several versions of a record, the highest in
    the last file that has any counts.

    Args:
        folder: holds the files, in any subfolders; a checksum file beside one is checked.
        mesh: headings (names, unique ids, tree numbers), each with what stands under it; none for all papers.
        years: the first and the last year of the papers; those without a year are left out then.
        tree: knows what stands under a heading. Without it a heading stands for itself only.

    Raises:
        InputError: there is no PubMed file, or one is not whole.
        UsageError: the tree does not know a heading, or the years are out of order.
    """
    if years is not None and years[0] > years[1]:
        raise UsageError(f"years {years[0]}-{years[1]}: the first year must come before the last")
    headings = under_any(mesh, tree) if mesh else None
    files = _files(folder)

    def wanted(paper: Paper) -> bool:
        in_time = years is None or (paper.year is not None and years[0] <= paper.year <= years[1])
        return in_time and (headings is None or any(map(headings, paper.mesh)))

    return _newest_first(files, wanted)


def _newest_first(files: list[Path], wanted: Callable[[Paper], bool]) -> Iterator[Paper]:
    mentioned, settled = _Pmids(), _Pmids()
    with progress("PubMed files", len(files)) as advance:
        for path in reversed(files):
            last_states = _last_states(path, wanted)
            for pmid, version in sorted(last_states, key=lambda key: (int(key[0]), -key[1])):
                state = last_states[pmid, version]
                new = mentioned.add(pmid, version) and state is not _State.GONE and settled.add(pmid)
                if new and isinstance(state, Paper):
                    yield state
            advance()


class _State(Enum):
    """The last state of a record in a file, if the paper is not to be kept."""

    GONE = "deleted"
    OTHER = "not wanted"


def _last_states(path: Path, wanted: Callable[[Paper], bool]) -> dict[tuple[str, int], Paper | _State]:
    """The last state of each record in one file, by PMID and version."""
    checksum = checksum_file(path)
    if checksum.exists() and _digest_of(path) != _digest_in(checksum.read_bytes(), str(checksum)):
        raise InputError(f"{path}: its MD5 checksum is not that of {checksum.name}; fetch it again")
    states: dict[tuple[str, int], Paper | _State] = {}
    try:
        with open(path, "rb") as file:
            for outcome in read_articles(unpacked(file)):
                if isinstance(outcome, Deletion):
                    states[outcome.pmid, outcome.version] = _State.GONE
                elif isinstance(outcome, Paper) and outcome.pmid and outcome.version:
                    key = (outcome.pmid, outcome.version)
                    states[key] = outcome if wanted(outcome) else _State.OTHER
                elif isinstance(outcome, UnreadableArticleError) and outcome.reason != "no-pmid":
                    raise outcome
    except (OSError, UnreadableArticleError) as error:
        raise InputError(f"{path}: cannot be read as a PubMed file ({error}); fetch it again") from error
    return states


def _files(folder: Path) -> list[Path]:
    """The PubMed files under a folder in the order of their numbers; logs gaps."""
    files = {path.name: path for path in sorted(Path(folder).rglob("*.xml.gz")) if _NAME.fullmatch(path.name)}
    if not files:
        raise InputError(f"{folder}: holds no PubMed files (pubmed26n0001.xml.gz and so on)")
    names = sorted(files, key=_place)
    missing = _gaps(map(_place, names))
    if missing:
        logger.info(
            f"warning: {folder} lacks {len(missing)} of the PubMed files between its first and last "
            f"({', '.join(missing[:3])}): their records and revisions are missing"
        )
    return [files[name] for name in names]


def _place(name: str) -> tuple[int, int]:
    year, number = _NAME.fullmatch(name).groups()  # type: ignore[union-attr]
    return int(year), int(number)


def _gaps(places: Iterable[tuple[int, int]]) -> list[str]:
    return [f"pubmed{year:02}n{missing:04}" for (year, before), (year_after, after) in pairwise(places)
            if year == year_after for missing in range(before + 1, after)]  # fmt: skip


class _Pmids:
    """A set of PMIDs with one bit each (5 MB for all of PubMed), and of the rare later versions."""

    def __init__(self) -> None:
        self._bits = bytearray()
        self._later: set[tuple[str, int]] = set()

    def add(self, pmid: str, version: int = 1) -> bool:
        """Add a PMID; returns whether it is new."""
        if version > 1:
            before = len(self._later)
            self._later.add((pmid, version))
            return len(self._later) > before
        byte, bit = divmod(int(pmid), 8)
        if byte >= len(self._bits):
            self._bits.extend(bytes(byte + 1 - len(self._bits)))
        new = not self._bits[byte] & (1 << bit)
        self._bits[byte] |= 1 << bit
        return new
