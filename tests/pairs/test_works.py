"""Which works count as the same text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from helpers.compile_pairs import link_graph
from helpers.samples import write_corpus
from helpers.sql import run_query
from sentence_experts.corpus.corpus_folder import CITATIONS_SCHEMA
from sentence_experts.pairs.config import PairsConfig
from sentence_experts.pairs.links import select_folded_texts, select_numbered_works
from sentence_experts.pairs.splits import fold_texts
from sentence_experts.storage import write_parquet

TITLES = [
    "CD4+ cells: a study",
    "CD4+ cells: a study.",
    "Cd4+  Cells — “A Study”",
    "CD4- cells, a study",
    "CD4+ cells: two studies",
    "Straße, ΟΔΟΣ",
    "STRASSE οδος!",
]
PAPERS = list("abcdefg")


def same_texts() -> dict[str, list[str]]:
    papers = {"paper_id": PAPERS, "title": TITLES, "abstract": TITLES, "year": [2020] * 7}

    def query(papers: str, citations: str) -> str:
        works = select_numbered_works(
            f"({select_folded_texts('abstract', papers, citations)}) AS texts", papers
        )
        return f"SELECT * FROM ({works}) AS works ORDER BY paper_id"

    groups: dict[str, list[str]] = {}
    for row in run_query(query, papers, CITATIONS_SCHEMA.empty_table()):
        groups.setdefault(row["same_text"], []).append(row["paper_id"])
    return groups


def test_case_punctuation_and_white_space_make_no_other_text() -> None:
    assert sorted(same_texts().values()) == [["a", "b", "c"], ["d"], ["e"], ["f", "g"]]


def test_an_audit_folds_texts_as_the_pairs_do() -> None:
    folded = fold_texts(pa.chunked_array([TITLES])).to_pylist()
    groups: dict[str, list[str]] = {}
    for paper, text in zip(PAPERS, folded, strict=True):
        groups.setdefault(text, []).append(paper)
    assert sorted(groups.values()) == sorted(same_texts().values())


def test_links_of_a_text_are_links_of_all_works_with_that_text(tmp_path: Path) -> None:
    titles = {"citing": "Third", "other": "Other", "paper": "Paper", "reprint": "PAPER.", "stranger": "Else"}
    papers = [(name, title, None, 2020, False) for name, title in titles.items()]
    corpus = write_corpus(tmp_path / "corpus", papers)
    rows = [
        {"citing": citing, "cited": cited} for citing, cited in [("citing", "paper"), ("citing", "other")]
    ]
    write_parquet(corpus.citations, pa.Table.from_pylist(rows, CITATIONS_SCHEMA))
    with link_graph(corpus, PairsConfig(unit="title")) as graph:
        node = {name: number for number, name in enumerate(sorted(titles))}

        def known(*names: str) -> list[tuple[str, str]]:
            table = graph.known_links(np.array(sorted(node[name] for name in names)))
            return list(zip(table["left_id"].to_pylist(), table["right_id"].to_pylist(), strict=True))

        linked = [("other", "paper"), ("other", "reprint"), ("paper", "reprint")]
        assert known("other", "paper", "reprint", "stranger") == linked
        # Also where the work that was cited is not among those asked for.
        assert known("other", "reprint") == [("other", "reprint")]
