"""The texts of a corpus that are searched, one per paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_experts.errors import InputError
from sentence_experts.storage import sha256_text, sha256_unchanging

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

# (title of the section, text) in reading order.
Sections = Iterable[tuple[str | None, str]]


def joined(fields: Mapping[str, Any], unit: str, sections: Sections = ()) -> str:
    """Join the text of a paper: its fields, and its sections with their titles."""
    pieces = [fields.get(name) for name in UNITS[unit]]
    pieces += [piece for section in sections for piece in section]
    return SEPARATOR.join(piece for piece in pieces if piece)


def texts_of(corpus: CorpusFolder, unit: str) -> Iterator[tuple[int, str]]:
    """Yield (row in papers.parquet, text) of each paper that has the unit's text."""
    bodies = _bodies(corpus.bodies) if unit == PASSAGES and corpus.bodies else iter(())
    body = next(bodies, None)
    for row, record in enumerate(_records(corpus.papers, ["paper_id", *UNITS[unit]])):
        sections: Sections = ()
        if body is not None and body[0] == record["paper_id"]:
            sections, body = body[1], next(bodies, None)
        if (text := joined(record, unit, sections)).strip():
            yield row, text
    if body is not None:
        raise InputError(f"{corpus.bodies}: the text of {body[0]} is in another order than the papers")


def _bodies(file: Path) -> Iterator[tuple[str, list[tuple[str | None, str]]]]:
    """Yield (paper id, its sections), in the order of the papers."""
    for paper, rows in groupby(_records(file), itemgetter("paper_id")):
        yield paper, [(each["section"], each["text"]) for each in rows]


def _records(file: Path, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq  # the command line starts without it

    for batch in pq.ParquetFile(file).iter_batches(1024, columns=columns):
        yield from batch.to_pylist()


def sections_of(corpus: CorpusFolder, ids: Iterable[str]) -> dict[str, list[tuple[str | None, str]]]:
    """Return the sections of some papers, by paper id; none of those without a full text."""
    import pyarrow.parquet as pq  # the command line starts without it

    by_paper: dict[str, list[tuple[str | None, str]]] = {one: [] for one in ids}
    if corpus.bodies is not None:
        table = pq.read_table(corpus.bodies, filters=[("paper_id", "in", list(by_paper))])
        for each in table.to_pylist():
            by_paper[each["paper_id"]].append((each["section"], each["text"]))
    return by_paper


def texts_fingerprint(corpus: CorpusFolder, unit: str) -> str:
    """Return a hash of the tables that a unit's texts come from; for papers.parquet alone its SHA-256."""
    hashes = []
    for file in (corpus.papers, corpus.bodies if unit == PASSAGES else None):
        if file is not None:
            hashes.append(sha256_unchanging(file))
            if corpus.hashes.get(file.name, hashes[-1]) != hashes[-1]:
                raise corpus.describe_change(file.name)
    return hashes[0] if len(hashes) == 1 else sha256_text(*hashes)
