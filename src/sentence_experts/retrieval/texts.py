"""The texts of a corpus that are searched: one per paper, or its passages."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from sentence_experts.config import Config
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.sources import notes_of, warn_of_notes
from sentence_experts.storage import sha256_text, sha256_unchanging

if TYPE_CHECKING:
    import pyarrow as pa

    from sentence_experts.corpus.corpus_folder import CorpusFolder
    from sentence_experts.encoding.encoder import BatchEncoder

PASSAGES = "passages"  # passages of title, abstract and full text
UNITS = {
    "title+abstract": ("title", "abstract"),
    "abstract": ("abstract",),
    "title": ("title",),
    PASSAGES: ("title", "abstract"),
}
SEPARATOR = "\n"  # separator of title and abstract, as in pairs of unit title+abstract
_UNBOUNDED = 1_000_000  # tokens: what a tokenizer states that has no limit
_OVERLAP = 5  # a fifth of a window is in common with the next one
_TEXTS_AT_ONCE = 64

# (title of the section, text) in reading order.
Sections = Iterable[tuple[str | None, str]]
Span = tuple[int, int]


class PaperTexts(Config):
    """The text of a paper that is searched."""

    unit: Literal["title+abstract", "abstract", "title"] | None = Field(
        None, description="Text of a paper. Default: the one that the model was trained on, or title+abstract"
    )
    passages: bool = Field(
        False,
        description="Search title, abstract and full text, if the corpus has it, in overlapping passages as "
        "long as the model reads; a paper counts by its best one",
    )

    @model_validator(mode="after")
    def _check_unit(self) -> PaperTexts:
        if self.passages and self.unit is not None:
            raise ValueError("`passages` are of title, abstract and full text: leave out `unit`")
        return self

    def texts_for(self, models: Mapping[str, Any]) -> str:
        """Choose the unit, or "passages", for models by name; warn of those trained on another text."""
        notes = {name: notes_of(model) for name, model in models.items()}
        units = {each["unit"] for each in notes.values() if "unit" in each}
        trained = units.pop() if len(units) == 1 else "title+abstract"
        unit = PASSAGES if self.passages else self.unit or trained
        for name, each in notes.items():
            warn_of_notes(name, each, unit)
        return unit


def joined(fields: Mapping[str, Any], unit: str, sections: Sections = ()) -> str:
    """Join the text of a paper: its fields, and its sections with their titles."""
    parts = [fields.get(name) for name in UNITS[unit]]
    parts += [part for section in sections for part in section]
    return SEPARATOR.join(part for part in parts if part)


def texts_of(corpus: CorpusFolder, unit: str) -> Iterator[tuple[int, str]]:
    """Yield (row in papers.parquet, text) of each paper that has the unit's text."""
    bodies = groupby(_records(corpus.bodies), itemgetter("paper_id")) if unit == PASSAGES else iter(())
    body, sections = next(bodies, (None, ()))
    for row, record in enumerate(_records(corpus.papers, ["paper_id", *UNITS[unit]])):
        own: Sections = ()
        if body == record["paper_id"]:
            own = [(each["section"], each["text"]) for each in sections]
            body, sections = next(bodies, (None, ()))
        if (text := joined(record, unit, own)).strip():
            yield row, text
    if body is not None:
        raise InputError(f"{corpus.bodies}: the text of {body} is in another order than the papers")


def _records(file: Path | None, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq  # the command line starts without it

    for batch in () if file is None else pq.ParquetFile(file).iter_batches(1024, columns=columns):
        yield from batch.to_pylist()


def sections_of(bodies: pa.NativeFile | None, ids: Iterable[str]) -> dict[str, list[tuple[str | None, str]]]:
    """Return the sections of some papers in a table of full texts, by paper id."""
    import pyarrow.parquet as pq  # the command line starts without it

    by_paper: dict[str, list[tuple[str | None, str]]] = {one: [] for one in ids}
    if bodies is not None:
        for each in pq.read_table(bodies, filters=[("paper_id", "in", list(by_paper))]).to_pylist():
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


def passages_of(
    texts: Iterable[tuple[int, str]], encoder: BatchEncoder, route: str | None
) -> Iterator[tuple[int, str, Span]]:
    """Cut (row, text) into overlapping windows of a model's tokens, as long as it reads.

    A window that turns out some tokens longer than the model reads, because words were cut apart differently
    alone, loses nothing: its end is the beginning of the next one.

    Yields:
        (row, passage, its start and end in the text).
    """
    texts, size = iter(texts), window_size(encoder, route)
    tokenizer: Any = encoder.model.tokenizer
    if size and not getattr(tokenizer, "is_fast", False):
        raise UsageError(f"`passages` needs a fast tokenizer, not {type(tokenizer).__name__}")
    options = {"add_special_tokens": False, "truncation": False, "padding": False, "verbose": False}
    while size and (group := list(itertools.islice(texts, _TEXTS_AT_ONCE))):
        tokens = tokenizer([text for _, text in group], return_offsets_mapping=True, **options)
        for (row, text), offsets in zip(group, tokens["offset_mapping"], strict=True):
            for start, end in windows(text, offsets, size, size // _OVERLAP):
                yield row, text[start:end], (start, end)
    yield from ((row, text, (0, len(text))) for row, text in texts)


def window_size(encoder: BatchEncoder, route: str | None) -> int | None:
    """Return the number of tokens that a model reads, besides prompt and special ones; None for all."""
    longest = encoder.model.max_seq_length
    if not longest or longest > _UNBOUNDED:
        return None
    prompt = encoder.routes[route] if route else ""
    return max(int(longest) - len(encoder.model.tokenizer(prompt)["input_ids"]), 2)


def windows(text: str, offsets: Sequence[Span], size: int, overlap: int) -> Iterator[Span]:
    """Yield the start and end of each window of a text, between words unless one is longer than half of it.

    Args:
        text: the text.
        offsets: the start and end of each of its tokens.
        size: maximum number of tokens of a window.
        overlap: minimum number of tokens in common with the next window; at most half of `size`.

    >>> text = "one two three four"
    >>> [text[slice(*span)] for span in windows(text, [(0, 3), (4, 7), (8, 13), (14, 18)], 2, 1)]
    ['one two', 'two three', 'three four']
    """
    first = 0
    while first + size < len(offsets):
        end = _word_start(text, offsets, first + size, first + size // 2)
        yield trimmed(text, offsets[first][0], offsets[end - 1][1])
        first = _word_start(text, offsets, end - overlap, max(first, end - overlap - size // 4))
    yield trimmed(text, offsets[first][0] if offsets else 0, len(text))


def _word_start(text: str, offsets: Sequence[Span], token: int, after: int) -> int:
    """Return the last token up to `token`, and after `after`, that begins a word; else `token` itself."""
    for each in range(token, after, -1):
        start = offsets[each][0]
        if text[start - 1 : start].isspace() or text[start : start + 1].isspace():
            return each
    return token


def trimmed(text: str, start: int, end: int) -> Span:
    """Return the start and end of a part of a text without the white space around it."""
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), start + len(part.rstrip())
