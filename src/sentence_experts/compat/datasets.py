"""Uses of datasets that its documentation does not cover."""

from __future__ import annotations

from datasets import Dataset


def fingerprint_of(dataset: Dataset) -> str:
    """The hash of a dataset's content and history, under which the library caches what is made from it."""
    return str(dataset._fingerprint)
