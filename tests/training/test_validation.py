"""The validation figure is nDCG@10 as scikit-learn has it, over what an anchor has to find."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import ndcg_score

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.models.loading import load
from sentence_experts.pairs.importing import import_pairs
from sentence_experts.training.run import train
from sentence_experts.training.validation import PairValidation, SearchSet

GENERATOR = np.random.default_rng(0)


def table(rows: list[tuple[str, str, str]]) -> pa.Table:
    return pa.table(
        {name: [row[place] for row in rows] for place, name in enumerate(("anchor", "positive", "group"))}
    )


def unit(rows: int) -> np.ndarray:
    vectors = GENERATOR.normal(size=(rows, 6)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_ndcg_is_that_of_scikit_learn() -> None:
    relevant = GENERATOR.random((40, 30)) < 0.3
    relevant[:, 0] |= ~relevant.any(axis=1)
    pairs = [(f"anchor {one}", f"text {other}", "") for one, other in np.argwhere(relevant)]
    search = SearchSet(table(pairs).drop_columns(["group"]), ("", ""))
    anchors, candidates = unit(40), unit(30)
    order = [int(text.split()[1]) for text in search.candidates]
    theirs = [
        ndcg_score([row], [score], k=10)
        for row, score in zip(relevant[:, order], anchors @ candidates.T, strict=True)
    ]
    assert search.ndcg(anchors, candidates) == pytest.approx(np.mean(theirs))


@pytest.mark.parametrize("metric", ["roc_auc", "f1_max"])
def test_a_domain_of_linked_pairs_alone_is_not_in_the_mean(metric: str, minilm: str) -> None:
    rows = [
        {"anchor": f"rice {n}", "positive": f"sleep {n}", "label": label, "domain": domain, "count": label}
        | {"anchor_id": f"{domain} a{n}", "positive_id": f"{domain} b{n}"}
        for domain, labels in (("mixed", (0, 1)), ("linked", (1, 1)), ("unlinked", (0, 0)))
        for n, label in enumerate(labels * 4)
    ]
    part = PairValidation(pa.Table.from_pylist(rows), metric)
    assert part.without_figure == ["linked", "unlinked"]
    _, counted = part.measure(BatchEncoder(load(minilm)))
    assert counted == [f"mixed/{metric}"]


def test_pooled_figures_are_of_all_sets_of_pairs(plain_model: Path) -> None:
    rows = [
        {"anchor": f"{domain} {n}", "positive": f"{domain} {n + gap}", "label": label, "domain": domain}
        | {"split": split}
        for domain, gap in (("rice", 0), ("sleep", 30))
        for split, start in (("train", 0), ("validation", 10), ("test", 20))
        for n in range(start, start + 8)
        for label, gap in ((1, gap), (0, gap + 1))
    ]
    sets = [import_pairs([row for row in rows if row["domain"] == domain]) for domain in ("rice", "sleep")]
    history = []
    for data in (sets, sets[::-1], import_pairs(rows)):
        done = train(str(plain_model), data, pair_metric="pooled_f1_max", max_steps=1, batch_size=4, seed=0)
        history.append({name: value for name, value in done.history[0].items() if "f1_max" in name})
    assert history[0] == history[1] == pytest.approx(history[2])


def test_an_anchor_looks_for_its_group_and_not_for_itself() -> None:
    rows = [("a", "b", "x"), ("b", "c", "x"), ("a", "d", "x"), ("e", "f", "y"), ("f", "f", "z")]
    search = SearchSet(table(rows), ("q: ", "d: "))
    assert search.has_findable
    assert SearchSet(table(rows[:1]), ("", "")).has_findable
    assert not SearchSet(table(rows[4:]), ("", "")).has_findable
    assert search.anchors == ["q: a", "q: b", "q: e", "q: f"]
    assert search.candidates == ["d: b", "d: c", "d: d", "d: f"]
    found = (search.relevant.toarray() > 0) & (search.same[:, None] != np.arange(4))
    assert found.tolist() == [
        [True, True, True, False],
        [False, True, True, False],
        [False, False, False, True],
        [False, False, False, False],
    ]


@pytest.mark.parametrize("symmetric", [False, True])
def test_an_anchor_without_a_label_looks_for_what_it_is_paired_with(symmetric: bool) -> None:
    rows = [("a", "b", ""), ("b", "c", ""), ("c", "d", ""), ("d", "a", "")]
    search = SearchSet(table(rows).drop_columns(["group"]), ("", ""), symmetric)
    assert (search.anchors, search.candidates) == (["a", "b", "c", "d"], ["b", "c", "d", "a"])
    pairs = {(one, other) for one, other, _ in rows}
    pairs |= {(other, one) for one, other in pairs} if symmetric else set()
    expected = [[(one, other) in pairs for other in search.candidates] for one in search.anchors]
    assert (search.relevant.toarray() > 0).tolist() == expected


def test_the_figure_is_the_mean_over_anchors_with_something_to_find() -> None:
    rows = [("a", "b", "x"), ("c", "d", "y"), ("e", "e", "z")]
    search = SearchSet(table(rows), ("", ""))
    anchors, candidates = unit(3), unit(3)
    order = np.argsort(-(anchors @ candidates.T), axis=1)
    gains = [1 / np.log2(2 + list(order[row]).index(row)) for row in (0, 1)]
    assert search.ndcg(anchors, candidates) == pytest.approx(np.mean(gains))
    alone = SearchSet(table(rows[2:]), ("", ""))
    assert alone.ndcg(anchors[:1], candidates[:1]) is None


def test_a_domain_without_validation_pairs_is_named(
    experts_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [
        {"anchor": f"{domain} {n}", "positive": f"{domain} {n} too", "domain": domain, "split": split}
        | {"label": int(split == "train" or n % 2 == 0)}
        for domain, splits in (("crops", ("train", "validation")), ("neuro", ("train",)))
        for split in splits
        for n in range(12)
    ]
    settings = {"max_steps": 2, "eval_steps": 1, "batch_size": 4, "seed": 0}
    for given in (rows, [row for row in rows if row["label"]]):
        caplog.clear()
        done = train(str(experts_model), given, **settings)
        assert "there are no validation pairs of neuro: nothing measures it" in caplog.text
        assert not any("neuro" in name for name in done.history[0])
