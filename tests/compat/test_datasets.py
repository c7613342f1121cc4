"""Fails if datasets no longer does what `compat.datasets` relies on."""

from __future__ import annotations

from datasets import Dataset

from sentence_experts.compat.datasets import dataset_fingerprint


def test_fingerprint_changes_with_the_content() -> None:
    dataset = Dataset.from_dict({"text": ["a", "b"]})
    assert dataset_fingerprint(dataset) == dataset_fingerprint(Dataset.from_dict({"text": ["a", "b"]}))
    assert dataset_fingerprint(dataset) != dataset_fingerprint(dataset.select([0]))
