"""The transcribed tables: complete, and consistent with each other where the paper is."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from helpers.shipped_recipes import RECIPES
from sentence_experts.errors import InputError
from sentence_experts.evaluation.metrics import pair_weighted_mean
from sentence_experts.evaluation.results import PAIR_WEIGHTED_MEAN, POOLED
from sentence_experts.reproduce.kinds import view_of
from sentence_experts.reproduce.published import Published, PublishedTable

PAPER = Published.read(RECIPES / "hallee2025" / "published.yaml")
PREPRINT = Published.read(RECIPES / "hallee2024" / "published.yaml")
TABLES = {table.table: table for table in PAPER.tables}
OF_DOMAINS = {table.domain: table for table in PAPER.tables if table.domain != "all"}
PAIRS = {domain: sizes["evaluation_pairs"] for domain, sizes in PAPER.sizes.items()}
METRICS = [metric for _, metric in TABLES["Table 3"].order()]
TRAINED = ["MoE_all", "SE_all", *(f"SE_{domain}" for domain in PAPER.sizes)]
ROUNDING = 1e-4


def row(table: PublishedTable, name: str) -> dict[str, float]:
    return dict(zip(METRICS, table.rows[name], strict=True))


def mean_of_domains(rows: dict[str, str]) -> dict[str, float | None]:
    """The pair-weighted mean of one row of each domain's table."""
    return pair_weighted_mean({domain: row(OF_DOMAINS[domain], name) for domain, name in rows.items()}, PAIRS)


def test_the_tables_are_whole() -> None:
    assert set(TABLES) == {f"Table {number}" for number in range(3, 9)}
    assert set(OF_DOMAINS) == set(PAPER.sizes)
    rows = set(TABLES["Table 3"].rows)
    assert len(rows) == 22
    assert all(set(table.rows) == rows for table in PAPER.tables)
    assert set(TRAINED) < rows
    assert len(PAPER.models) == 15
    assert [len(table.rows) for table in PREPRINT.tables] == [11, 11, 1, 1]


@pytest.mark.parametrize("table", PAPER.tables, ids=lambda table: table.table)
def test_f1_follows_from_precision_and_recall(table: PublishedTable) -> None:
    # The harmonic mean within rounding, for the domains; a mean of domains only comes near.
    slack = 2e-4 if table.domain != "all" else 0.012
    for name in table.rows:
        printed = row(table, name)
        precision, recall = printed["precision"], printed["recall"]
        assert printed["f1_max"] == pytest.approx(2 * precision * recall / (precision + recall), abs=slack), (
            name
        )


@pytest.mark.parametrize("model", TRAINED)
def test_table_3_has_means_of_domains_for_trained_models_except_roc_auc(model: str) -> None:
    mean = mean_of_domains(dict.fromkeys(OF_DOMAINS, model))
    printed = row(TABLES["Table 3"], model)
    for metric in PAPER.means_of_domains["metrics"]:
        assert mean[metric] == pytest.approx(printed[metric], abs=ROUNDING)
    assert abs(mean["roc_auc"] - printed["roc_auc"]) > 0.002  # pooled: no mean of the domains


def test_the_unnamed_rows_can_be_named_in_one_way_only() -> None:
    unnamed = ("SE_cancer", "SE_parasitic")
    printed = row(TABLES["Table 3"], "SE_parasitic")
    fitting = []
    for names in itertools.product(unnamed, repeat=len(OF_DOMAINS)):
        choice = dict(zip(OF_DOMAINS, names, strict=True))
        mean = mean_of_domains(choice)
        if all(
            abs(mean[metric] - printed[metric]) < ROUNDING for metric in PAPER.means_of_domains["metrics"]
        ):
            fitting.append(choice)
    assert fitting == [dict.fromkeys(OF_DOMAINS, "SE_parasitic")]
    for domain in ("cancer", "parasitic"):
        assert next(iter(OF_DOMAINS[domain].rows)) == f"SE_{domain}"  # best in its own domain


def test_every_figure_knows_its_place() -> None:
    figures = list(PAPER.figures())
    assert len(figures) == 6 * 22 * 6
    found = {(one.table, one.row, one.metric): one for one in figures}
    assert found["Table 3", "MoE_all", "f1_max"].domain == "all"
    assert view_of(found["Table 3", "MoE_all", "f1_max"], PAPER) == PAIR_WEIGHTED_MEAN.kind
    assert view_of(found["Table 3", "MoE_all", "roc_auc"], PAPER) == POOLED.kind
    assert view_of(found["Table 3", "Mini", "f1_max"], PAPER) == POOLED.kind
    assert found["Table 7", "SE_cvd", "f1_max"].domain == "cvd"
    test = [
        one for one in PREPRINT.figures() if (one.table, one.row, one.group) == ("Table 2", "Mini-SE", "test")
    ]
    assert [(one.metric, one.value) for one in test] == [("mean_distance", 0.47), ("accuracy", 0.56)]


def test_a_row_of_the_wrong_width_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "published.yaml"
    file.write_text(
        "paper: x\ntables: [{table: T, domain: all, columns: {test: [f1_max]}, rows: {A: [1, 2]}}]"
    )
    with pytest.raises(InputError, match="row A has 2 figures for 1 columns"):
        Published.read(file)
