"""The studies of pairs: related pairs, finished runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

import fair_domains
from sentence_experts.pairs.dataset import PAIR_COLUMNS
from study import RunFile, Test, by_route, differences, mean_auc
from study_models import UNTRAINED


def pairs(rows: list[tuple[str, str, int]]) -> pa.Table:
    full = [(f"text {one}", f"text {other}", label, "all", label, one, other) for one, other, label in rows]
    columns = map(list, zip(*full, strict=True))
    return pa.table(dict(zip(PAIR_COLUMNS, columns, strict=True)))


def test_intervals_allow_for_the_articles_that_link_the_pairs() -> None:
    random = np.random.default_rng(0)
    test = pairs([(f"a{n}", f"b{n}", n % 2) for n in range(80)])
    labels = np.array(test["label"].to_pylist())
    articles = np.arange(80) // 20
    shift = np.array([-1, 1, -0.5, 1.5])[articles] * labels  # what an article does to its pairs
    one = 0.5 * labels + shift + 0.3 * random.normal(size=80)
    scores = {"one": one, "other": labels}
    linked_by = [[f"article {n}"] * label for n, label in zip(articles, labels, strict=True)]
    widths = []
    for table in (test, test.append_column("linked_by", pa.array(linked_by, pa.list_(pa.string())))):
        tests = {"all": Test.of(table).pairs}
        arms = {arm: mean_auc(tests, [{"scores": {"all": own}}]) for arm, own in scores.items()}
        (found,) = differences(arms, [("one", "other")], margin=0.01)
        interval = found.estimate.interval()
        widths.append(interval.high - interval.low)
    assert widths[1] > 1.2 * widths[0]


def test_runs_of_few_pairs_are_compared_on_the_small_domain_alone(tmp_path: Path) -> None:
    half = pairs([(f"a{n}", f"b{n}", n % 2) for n in range(40)])
    test = pa.concat_tables(
        [
            half.set_column(half.column_names.index("domain"), "domain", pa.array([name] * len(half)))
            for name in ("neuroscience", "crops")
        ]
    )
    rows = fair_domains.small_rows(test)
    labels = np.array(test["label"].to_pylist())
    right, wrong = labels, 1 - labels
    # The large domain is always ranked the wrong way round.
    main = np.where(np.isin(np.arange(len(test)), rows), right, wrong)
    runs = RunFile(tmp_path, "few", {})
    runs.append({"arm": UNTRAINED, "seed": 0, "cosines": wrong.tolist()})
    for seed in range(2):
        runs.append({"arm": fair_domains.DENSE, "seed": seed, "small": None, "cosines": main.tolist()})
        few = {"arm": fair_domains.DENSE, "seed": seed, "small": 50, "cosines": right[rows].tolist()}
        runs.append(few)
    tests = {name: Test.of(own).pairs for name, own in fair_domains.by_domain(test).items()}
    crops = {"crops": tests["crops"]}
    for small in (50, None):
        found = fair_domains.finished(runs, test, 2, small, alone=True)
        areas = {arm: by_route(crops, own) for arm, own in found.items()}
        assert areas == {UNTRAINED: ["0.000"], fair_domains.DENSE: ["1.000"]}
    assert by_route(tests, fair_domains.finished(runs, test, 2)[fair_domains.DENSE]) == ["1.000", "0.000"]
    assert len(fair_domains.finished(runs, test, 3)) == 1, "arms without all seeds are left out"
