"""MoTE's transcribed tables: complete, and consistent with each other where the paper is."""

from __future__ import annotations

import pytest

from helpers.shipped_recipes import RECIPES
from sentence_experts.reproduce.published import Published, PublishedTable

PAPER = Published.read(RECIPES / "mote" / "published.yaml")
PRINTED = [table for table in PAPER.tables if table.rows]
TABLES = {table.table: table for table in PRINTED}
DATASETS = {name: task.datasets for name, task in PAPER.tasks.items()}
AVERAGE = "average"
ROUNDING = 0.0101  # of the rows and of the average: 0.005 each
# Averages that do not follow from the rows above them (notes of published.yaml).
SLIPS = {("Table 2", "IC"): 2.3955, ("Table 7", "EA"): 58.725}


def column(table: str, name: str) -> dict[str, float]:
    """Row -> figure as printed."""
    place = TABLES[table].columns.index(name)
    return {row: values[place] for row, values in TABLES[table].rows.items()}


def average(figures: dict[str, float]) -> float:
    """Over the datasets of the rows."""
    rows = [row for row in figures if row != AVERAGE]
    return sum(figures[row] * DATASETS[row] for row in rows) / sum(DATASETS[row] for row in rows)


def test_drawings_have_no_numbers_and_one_highest_column_per_row() -> None:
    drawn = [figure for figure in PAPER.figures() if figure.printed is None]
    assert {figure.table for figure in drawn} == {f"Figure {number}" for number in range(4, 8)}
    rows = {(figure.table, figure.row) for figure in drawn}
    for table, row in rows:
        own = [figure for figure in drawn if (figure.table, figure.row) == (table, row)]
        assert [figure.value for figure in own] == [None, None]
        assert [figure.highest for figure in own].count(True) == 1
    assert len(rows) == 6


@pytest.mark.parametrize("table", PRINTED, ids=lambda table: table.table)
def test_averages_follow_from_their_rows_except_for_noted_slips(table: PublishedTable) -> None:
    for name in table.columns:
        figures = column(table.table, name)
        gap = abs(figures[AVERAGE] - average(figures))
        if (table.table, name) in SLIPS:
            assert gap > ROUNDING
            assert average(figures) == pytest.approx(SLIPS[table.table, name], abs=0.001)
        else:
            assert gap < ROUNDING, name


def test_figures_know_what_they_are_gains_over() -> None:
    found = {(one.table, one.column, one.row): one for one in PAPER.figures()}
    gain = found["Table 2", "MoTE", "retrieval"]
    assert (gain.gain, gain.printed) == (True, 5.21)
    assert gain.value == pytest.approx(47.52)
    assert not found["Table 2", "EM", "retrieval"].gain
    assert found["Table 6", "EOB", "sts"].value == found["Table 6", "EOB", "sts"].printed == 79.96
