"""An audit finds planted leaks in any kind of dataset, and shows what they are worth."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_experts.errors import InputError, UsageError
from sentence_experts.evaluation.audit import WITHOUT, Audit, audit, balance, find_leaks
from sentence_experts.evaluation.scorers import memory_score
from sentence_experts.pairs.config import SPLITS
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.pairs.pair_tables import LINKS_SCHEMA, pair_table
from sentence_experts.report.write import report_of


def title(paper: int) -> str:
    words = np.random.default_rng(paper).integers(0, 10**6, size=8)
    return " ".join(f"w{word}" for word in words)


def leaky(pairs: int = 60) -> pa.Table:
    """Circles of four papers: their sides are trained on and their diagonals tested, the texts say nothing.

    As many test pairs again are of papers that training never had.
    """
    rows = []
    for circle in range(0, 4 * pairs, 4):
        sides = [(circle + place, circle + (place + 1) % 4) for place in range(4)]
        rows += [(one, other, 1, "train") for one, other in sides]
        rows += [(circle, circle + 2, 1, "test"), (circle, (circle + 6) % (4 * pairs), 0, "test")]
        fresh = 10_000 + circle
        rows += [(fresh, fresh + 1, 1, "test"), (fresh + 2, fresh + 3, 0, "test")]
    one, other, label, split = zip(*rows, strict=True)
    return pa.table(
        {
            "anchor": [title(paper) for paper in one],
            "positive": [title(paper) for paper in other],
            "label": label,
            "split": split,
            "anchor_id": [f"p{paper}" for paper in one],
            "positive_id": [f"p{paper}" for paper in other],
        }
    )


@pytest.fixture(scope="module")
def table_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("audit") / "pairs.parquet"
    pq.write_table(leaky(), file)
    return file


@pytest.fixture(scope="module")
def audited(table_file: Path) -> Audit:
    return audit((), table_file, bootstrap=50)


def test_memory_baseline_falls_without_leaked_pairs(audited: Audit) -> None:
    memory = {each.test_set: each for each in audited.figures if each.model == "memory of training"}
    assert list(memory) == list(WITHOUT)
    auc = [memory[name].figures.metrics["roc_auc"] for name in WITHOUT]
    # The diagonals of a circle are above all pairs of two circles; all fresh pairs are tied.
    assert auc[0] == pytest.approx(0.75)
    assert auc[1:] == [0.5, 0.5, 0.5]
    assert [memory[name].left for name in WITHOUT] == [240, 120, 120, 120]
    assert memory["all pairs"].figures.intervals["roc_auc"].low > 0.6


def test_shared_texts_without_words_are_no_near_duplicates() -> None:
    """A text of signs has no pieces by which it could be near another."""
    tables = {
        split: pair_table(pa.table({"anchor": ["?", f"the {split} plant"], "positive": sides}), split)
        for split, sides in (("train", ["wheat grows", "maize"]), ("test", ["oats", "barley"]))
    }
    (overlap,), *_ = find_leaks(tables)
    assert (overlap.texts, overlap.near_duplicates) == (1, 0)


def test_links_of_training_that_are_no_pairs_count_in_memory_too(tmp_path: Path) -> None:
    """Compiled pairs have more known links than training pairs."""
    table = leaky(10)
    ends = zip(table["anchor_id"].to_pylist(), table["positive_id"].to_pylist(), strict=True)
    links = [dict(zip(LINKS_SCHEMA.names, sorted(pair), strict=True)) for pair in ends]
    splits = {name: Pairs.of(table).split(name) for name in SPLITS}
    pairs = Pairs.in_memory(splits, pa.Table.from_pylist(links, LINKS_SCHEMA), {})
    found = audit((), pairs, bootstrap=0)
    assert found.leaked_test_pairs["linked_in_training"] == 20  # every unlinked test pair
    saved = audit((), pairs.save(tmp_path / "pairs"), bootstrap=0)
    assert saved.leaked_test_pairs == found.leaked_test_pairs


def test_the_verdict_names_the_leaks_and_what_is_memory(audited: Audit) -> None:
    verdict = report_of(audited).verdict
    leaked = audited.leaked_pairs.num_rows / audited.pairs["test"]
    assert f"{audited.pairs['test']:,} test pairs" in verdict.compared
    assert "(pairs.parquet)" in verdict.compared
    assert verdict.findings[0].startswith(f"{leaked:.1%} of the test pairs leak")
    assert any("without any text, reach ROC-AUC" in each for each in verdict.findings)
    assert any("`split=paper`" in each for each in verdict.advice)
    assert report_of(replace(audited, simulated=True)).verdict.compared.startswith("SIMULATED")


def test_the_leaked_pairs_are_written_with_their_leaks(audited: Audit, tmp_path: Path) -> None:
    audited.save(tmp_path)
    leaked = pq.read_table(tmp_path / "leaked_pairs.parquet")
    assert leaked.num_rows == 120
    assert all(leaked["both_papers"].to_pylist())
    found = json.loads((tmp_path / "audit.json").read_text())
    assert found["leaked_test_pairs"]["shared_paper"] == 120
    assert found["between_splits"] == [
        {"first": "train", "second": "test", "papers": 120, "texts": 120, "near_duplicates": 0}
    ]


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from("ab")), max_size=60), st.integers(0, 99)
)
@settings(max_examples=100, deadline=None)
def test_balancing_keeps_the_share_of_links_of_each_domain(rows: list[tuple], seed: int) -> None:
    left = np.array([row[0] for row in rows], dtype=bool)
    labels = np.array([row[1] for row in rows], dtype=np.int64)
    domains = np.array([row[2] for row in rows], dtype=object)
    kept = balance(left, labels, domains, seed)
    assert not (kept & ~left).any()
    for domain in np.unique(domains):
        counts = [
            [(mask & (domains == domain) & (labels == label)).sum() for label in (0, 1)]
            for mask in (np.ones_like(left), left, kept)
        ]
        (negatives, positives), remaining, (some_negatives, some_positives) = counts
        assert abs(some_positives * negatives - some_negatives * positives) <= max(negatives, positives) / 2
        if negatives and positives:
            # Nothing more is left out than the balance asks for: one class is whole.
            assert some_negatives == remaining[0] or some_positives == remaining[1]


def test_memory_baseline_scores_links_and_shared_neighbours() -> None:
    train = pa.table({"anchor": ["a", "b"], "positive": ["B ", "c"], "label": [1, 1]})
    scores = memory_score(train)(["a", "A", "a", "x"], ["b", "c", "x", "x"], "all")
    # Neighbourhoods with oneself: a {a, b}, b {a, b, c}, c {b, c}.
    np.testing.assert_allclose(scores, [2 / 6**0.5, 1 / 2, 0, 0])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"split": ["train", "test"]}, "lacks the column label"),
        ({"label": [1, 1], "split": ["train", "held-out"]}, "'held-out' is none of"),
        ({"label": [1, 2], "split": ["train", "test"]}, "test: a label is 1"),
        ({"label": [1, 1], "split": ["train", "train"]}, "there are no test pairs"),
        ({"label": [1, None], "split": ["train", "test"]}, "test: column 'label' has rows without a value"),
        ({"label": [1, 1]}, "lacks the column split"),
    ],
)
def test_faulty_table_errors(columns: dict, message: str, tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"anchor": ["a", "b"], "positive": ["c", "d"], **columns}), tmp_path / "pairs.parquet"
    )
    with pytest.raises(InputError, match=message):
        audit((), tmp_path / "pairs.parquet")


def test_wrong_usage_errors(table_file: Path, plain_model: Path) -> None:
    with pytest.raises(UsageError, match="'TF-IDF' is a baseline of the audit"):
        audit({"TF-IDF": plain_model}, table_file)
    assert {each.model for each in audit("tfidf", table_file, bootstrap=0).figures} == {
        each.model for each in audit((), table_file, bootstrap=0).figures
    }
    with pytest.raises(UsageError, match=r"`threshold`: .* greater than 0"):
        audit((), table_file, threshold=0)


def test_what_evaluate_warns_of_is_told_of_models(
    plain_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = shutil.copytree(plain_model, tmp_path / "copy")
    (copy / "README.md").write_text("---\nsentence_experts:\n  untrained: true\n---\n# A model\n")
    settings = json.loads((copy / "config_sentence_transformers.json").read_text())
    prompts = {"prompts": {"query": "query: ", "document": "passage: "}}
    (copy / "config_sentence_transformers.json").write_text(json.dumps(settings | prompts))
    audit({"copy": copy}, leaky(3), bootstrap=0)
    assert "copy is UNTRAINED: identical to the base" in caplog.text
    assert "copy: texts are encoded without a prompt; the model has query, document" in caplog.text


def test_stated_negatives_of_training_leak_and_contradict() -> None:
    test = [{"anchor": title(n), "positive": title(100 + n), "label": n % 2} for n in range(40)]
    train = [
        {"anchor": row["anchor"], "positive": title(200 + n), "negative": row["positive"]}
        for n, row in enumerate(test)
    ]
    found = audit((), {"train": train, "test": test}, bootstrap=0)
    assert found.leaked_test_pairs["same_pair"] == found.leaked_test_pairs["shared_text"] == 40
    assert found.contradicted_pairs == 20


def test_pairs_that_are_linked_in_one_domain_alone_contradict_nothing() -> None:
    train, test = (
        [
            {"anchor": title(first + n), "positive": title(first + 100 + n), "label": n % 2, "domain": "a"}
            for n in range(20)
        ]
        for first in (0, 300)
    )
    train += [row | {"label": 1 - row["label"], "domain": "b"} for row in train]
    assert audit((), {"train": train, "test": test}, bootstrap=0).contradicted_pairs == 0
