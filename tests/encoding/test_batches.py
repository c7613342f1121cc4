"""Batches of tokens: every text once, within the budget, the longest of a group together."""

from __future__ import annotations

from sentence_experts.encoding.batches import batches_of_tokens

LENGTHS = [3, 90, 1, 7, 7, 200, 5, 40]


def test_batches_hold_every_text_once_and_keep_to_their_tokens():
    batches = list(batches_of_tokens(LENGTHS, 90))
    assert sorted(place for batch in batches for place in batch) == list(range(len(LENGTHS)))
    assert batches[0] == [5]
    assert all(sum(LENGTHS[place] for place in batch) <= 90 for batch in batches[1:])
    assert len(batches) == 3  # 200; 90; the rest
    longest = [LENGTHS[place] for batch in batches for place in batch]
    assert longest == sorted(LENGTHS, reverse=True)


def test_one_group_comes_after_another():
    groups = [0, 1, 0, 1, 0, 1, 0, 1]
    grouped = [place for batch in batches_of_tokens(LENGTHS, 90, groups) for place in batch]
    assert [groups[place] for place in grouped] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [LENGTHS[place] for place in grouped] == [7, 5, 3, 1, 200, 90, 40, 7]


def test_padding_is_counted_where_it_is_computed():
    for groups in (None, [0, 1, 0, 1, 0, 1, 0, 1]):
        batches = list(batches_of_tokens(LENGTHS, 90, groups, padded=True))
        assert sorted(place for batch in batches for place in batch) == list(range(len(LENGTHS)))
        padded = [len(batch) * max(LENGTHS[place] for place in batch) for batch in batches]
        assert all(tokens <= 90 or len(batch) == 1 for tokens, batch in zip(padded, batches, strict=True)), (
            padded
        )
    lengths = [6, 6, 6, 2, 2, 2]
    assert [len(batch) for batch in batches_of_tokens(lengths, 12, padded=True)] == [2, 2, 2]
    assert [len(batch) for batch in batches_of_tokens(lengths, 12)] == [2, 4]
