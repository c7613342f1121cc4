"""Fails if datasets no longer does what `compat.datasets` relies on."""

from __future__ import annotations

from datasets import Dataset

from sentence_experts.compat.datasets import fingerprint_of


def test_fingerprint_changes_with_the_content() -> None:
    dataset = Dataset.from_dict({"text": ["a", "b"]})
    assert fingerprint_of(dataset) == fingerprint_of(Dataset.from_dict({"text": ["a", "b"]}))
    assert fingerprint_of(dataset) != fingerprint_of(dataset.select([0]))
