"""Long texts as passages: overlapping windows of a model's tokens, cut between words.

A window that turns out some tokens longer than the model reads, because words were cut apart differently
alone, loses nothing: its end is the beginning of the next one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import UsageError

_UNBOUNDED = 1_000_000  # tokens: what a tokenizer states that has no limit
_OVERLAP = 5  # by default a fifth of a window
_TEXTS_AT_ONCE = 64

Span = tuple[int, int]


@dataclass(frozen=True)
class Windows:
    """How texts are cut.

    Attributes:
        size: tokens of a passage; None where the model takes texts of any length, which stay whole.
        overlap: tokens that a passage has in common with the next one.
    """

    size: int | None
    overlap: int

    @classmethod
    def of(
        cls, encoder: BatchEncoder, route: str | None, size: int | None = None, overlap: int | None = None
    ) -> Windows:
        """Return windows, by default of as many tokens as the model reads, a fifth of them shared."""
        most = _room(encoder, route)
        if size is not None and most is not None and size > most:
            raise UsageError(
                f"`window` must be at most {most}: {encoder.name} reads no more tokens of a text"
            )
        size = most if size is None else size
        if overlap is None:
            overlap = (size or 0) // _OVERLAP
        if size is not None and overlap > size // 2:
            raise UsageError(f"`overlap` must be at most half of a window of {size} tokens, got {overlap}")
        return cls(size, overlap)

    def cut(self, texts: Iterable[tuple[int, str]], encoder: BatchEncoder) -> Iterator[tuple[int, str, Span]]:
        """Yield (row, passage, its start and end in the text) of (row, text)."""
        texts = iter(texts)
        while self.size and (group := list(itertools.islice(texts, _TEXTS_AT_ONCE))):
            offsets = _offsets(encoder.model.tokenizer, [text for _, text in group])
            for (row, text), of_text in zip(group, offsets, strict=True):
                for start, end in spans(text, of_text, self.size, self.overlap):
                    yield row, text[start:end], (start, end)
        yield from ((row, text, (0, len(text))) for row, text in texts)


def _room(encoder: BatchEncoder, route: str | None) -> int | None:
    """Return how many tokens a model reads of a text, besides its prompt and special tokens."""
    most = encoder.model.max_seq_length
    if not most or most > _UNBOUNDED:
        return None
    prompt = encoder.routes[route] if route else ""
    return max(int(most) - len(encoder.model.tokenizer(prompt)["input_ids"]), 2)


def _offsets(tokenizer: Any, texts: Sequence[str]) -> list[list[Span]]:
    """Return the start and end of each token in its text."""
    if not getattr(tokenizer, "is_fast", False):
        raise UsageError(f"`passages` needs a fast tokenizer, not {type(tokenizer).__name__}")
    options = {"add_special_tokens": False, "truncation": False, "padding": False, "verbose": False}
    offsets: list[list[Span]] = tokenizer(list(texts), return_offsets_mapping=True, **options)[
        "offset_mapping"
    ]
    return offsets


def spans(text: str, offsets: Sequence[Span], size: int, overlap: int) -> Iterator[Span]:
    """Yield the start and end of each window of a text.

    Windows end between words, unless a word is longer than half of one.

    Args:
        text: the text.
        offsets: the start and end of each of its tokens.
        size: maximum number of tokens of a window.
        overlap: minimum number of tokens in common with the next window; at most half of `size`.

    >>> text = "one two three four"
    >>> [text[slice(*span)] for span in spans(text, [(0, 3), (4, 7), (8, 13), (14, 18)], 2, 1)]
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
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
