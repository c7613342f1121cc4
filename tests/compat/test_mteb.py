"""Fails if mteb no longer takes the data of searches as `evaluation.mteb.local` gives them."""

from __future__ import annotations

import inspect

import pytest
from mteb.abstasks import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData


@pytest.mark.parametrize("field", ["corpus", "queries", "relevant_docs", "top_ranked"])
def test_a_search_reads_these_fields_of_its_data(field: str) -> None:
    assert RetrievalSplitData.__annotations__.keys() >= {field}
    assert f'data_split["{field}"]' in inspect.getsource(AbsTaskRetrieval._evaluate_subset)


def test_a_search_holds_its_data_by_subset_and_split() -> None:
    assert AbsTaskRetrieval.__annotations__["dataset"] == "dict[str, dict[str, RetrievalSplitData]]"
