"""The texts of a corpus that are searched, one per paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_experts.errors import InputError
from sentence_experts.storage import sha256_file, sha256_text

if TYPE_CHECKING:
    from sentence_experts.corpus.corpus_folder import CorpusFolder

PASSAGES = "passages"  # of title, abstract and full text
UNITS = {
    "title+abstract": ("title", "abstract"),
    "abstract": ("abstract",),
    "title": ("title",),
    PASSAGES: ("title", "abstract"),
}
SEPARATOR = "\n"  # between title and abstract, as in pairs of unit title+abstract
_TABLES = ("papers_file", "bodies_file")

# (title of the section, text) in reading order.
Sections = Iterable[tuple[str | None, str]]


def joined(fields: Mapping[str, Any], unit: str, sections: Sections = ()) -> str:
    """The text of a paper: of its fields, and of its sections with their titles."""
    pieces = [fields.get(name) for name in UNITS[unit]]
    pieces += [piece for section in sections for piece in section]
    return SEPARATOR.join(piece for piece in pieces if piece)


def texts_of(corpus: CorpusFolder, unit: str) -> Iterator[tuple[int, str]]:
    """(row in papers.parquet, text) of each paper that has the unit's text."""
    import pyarrow.parquet as pq  # the command line starts without it

    columns = list(UNITS[unit])
    bodies = _bodies(corpus.bodies) if unit == PASSAGES and corpus.bodies else iter(())
    body = next(bodies, None)
    row = 0
    for batch in pq.ParquetFile(corpus.papers).iter_batches(columns=["paper_id", *columns]):
        for record in batch.to_pylist():
            sections: Sections = ()
            if body is not None and body[0] == record["paper_id"]:
                sections, body = body[1], next(bodies, None)
            text = joined(record, unit, sections)
            if text.strip():
                yield row, text
            row += 1
    if body is not None:
        raise InputError(f"{corpus.bodies}: the text of {body[0]} is in another order than the papers")


def _bodies(file: Path) -> Iterator[tuple[str, list[tuple[str | None, str]]]]:
    """(paper id, its sections), in the order of the papers."""
    import pyarrow.parquet as pq  # the command line starts without it

    paper = ""
    sections: list[tuple[str | None, str]] = []
    for batch in pq.ParquetFile(file).iter_batches(1024):
        for each in batch.to_pylist():
            if each["paper_id"] != paper:
                if sections:
                    yield paper, sections
                paper, sections = each["paper_id"], []
            sections.append((each["section"], each["text"]))
    if sections:
        yield paper, sections


def sections_of(corpus: CorpusFolder, ids: Iterable[str]) -> dict[str, list[tuple[str | None, str]]]:
    """The sections of some papers, by paper id; none of those without a full text."""
    import pyarrow.parquet as pq  # the command line starts without it

    by_paper: dict[str, list[tuple[str | None, str]]] = {one: [] for one in ids}
    if corpus.bodies is not None:
        table = pq.read_table(corpus.bodies, filters=[("paper_id", "in", list(by_paper))])
        for each in table.to_pylist():
            by_paper[each["paper_id"]].append((each["section"], each["text"]))
    return by_paper


def stamp(file: Path) -> dict[str, Any]:
    """What tells a file from any other: its hash, and its size and time, by which it is known faster."""
    status = file.stat()
    return {"sha256": sha256_file(file), "bytes": status.st_size, "changed_ns": status.st_mtime_ns}


def stamps(corpus: CorpusFolder, unit: str) -> dict[str, Any]:
    """The stamps of the tables that a unit's texts come from, by their names in an index's notes."""
    return {name: stamp(file) for name, file in _tables(corpus, unit).items()}


def _tables(corpus: CorpusFolder, unit: str) -> dict[str, Path]:
    files = dict(zip(_TABLES, (corpus.papers, corpus.bodies if unit == PASSAGES else None), strict=True))
    return {name: file for name, file in files.items() if file is not None}


def are_of(noted: Mapping[str, Any], corpus: CorpusFolder, unit: str) -> bool:
    """Whether notes hold the stamps of a corpus as it is.

    Raises:
        InputError: a table has changed since it was written.
    """
    tables = _tables(corpus, unit)
    return {name for name in _TABLES if name in noted} == set(tables) and all(
        _fingerprint(corpus, file, noted[name]) == noted[name]["sha256"] for name, file in tables.items()
    )


def texts_fingerprint(corpus: CorpusFolder, unit: str) -> str:
    """A hash of the tables that a unit's texts come from; of papers.parquet alone it is the SHA-256.

    Raises:
        InputError: a table has changed since it was written.
    """
    hashes = [_fingerprint(corpus, file) for file in _tables(corpus, unit).values()]
    return hashes[0] if len(hashes) == 1 else sha256_text(*hashes)


def _fingerprint(corpus: CorpusFolder, file: Path, noted: Mapping[str, Any] = {}) -> str:
    """The SHA-256 of a table, which `noted` saves if it describes the same file."""
    status = file.stat()
    same = (noted.get("bytes"), noted.get("changed_ns")) == (status.st_size, status.st_mtime_ns)
    digest: str = noted["sha256"] if same else sha256_file(file)
    expected = corpus.hashes.get(file.name)
    if expected and digest != expected:
        raise corpus.describe_change(file.name)
    return digest
