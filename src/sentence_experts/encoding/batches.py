"""Texts in batches with a limited number of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def batches_of_tokens(
    lengths: Sequence[int], budget: int, groups: Sequence[int] | None = None, padded: bool = False
) -> Iterator[list[int]]:
    """Yield the indices of texts in batches of at most `budget` tokens; a longer text gets its own batch.

    Texts are sorted by group (such as their expert), then from long to short, so that a batch calls few
    experts, gives each many tokens, and holds little padding.

    Args:
        lengths: number of tokens per text.
        budget: maximum number of tokens per batch, with padding if `padded`.
        groups: the group of each text.
        padded: count every text as long as the longest of its batch.
    """
    group = groups or [0] * len(lengths)
    batch: list[int] = []
    tokens = longest = 0
    for place in sorted(range(len(lengths)), key=lambda one: (group[one], -lengths[one])):
        length = lengths[place]
        longest = max(longest, length)
        tokens = longest * (len(batch) + 1) if padded else tokens + length
        if batch and tokens > budget:
            yield batch
            batch, tokens, longest = [], length, length
        batch.append(place)
    if batch:
        yield batch
