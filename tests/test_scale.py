"""The arithmetic of `benchmarks/scale.py`, and that the page of scale shows its result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import scale

ROOT = Path(__file__).resolve().parents[1]
SIZES = (1e4, 1e5, 1e6)


def slope(power: float, limits: tuple[float, float] = (1.0, 2.0)) -> scale.Slope:
    return scale.Slope("some", "texts", [(size, 3e-5 * size**power) for size in SIZES], limits)


@pytest.mark.parametrize("power", [1.0, 1.2, 1.5])
def test_a_power_law_is_recovered_and_extended(power: float) -> None:
    assert slope(power).power == pytest.approx(power)
    assert slope(power).at(2e8) == pytest.approx(3e-5 * 2e8**power)


def test_the_power_stays_within_its_limits() -> None:
    flat = slope(0.5)
    assert flat.power == pytest.approx(0.5)
    assert flat.at(4e6) == pytest.approx(4 * flat.points[-1][1])
    assert replace(flat, limits=scale.PARTITIONS).at(4e6) == pytest.approx(8 * flat.points[-1][1])
    assert slope(1.3, scale.PIECES).at(4e6) == pytest.approx(4 * slope(1.3).points[-1][1])


def test_steps_follow_from_the_assumptions_and_count_nothing_twice() -> None:
    given = scale.Assumptions()
    steps = scale.steps(given)
    # A pair has two texts, and a step of training is worth three forward passes, backward included.
    encoded = steps["encode"].hours * given.pairs / given.abstracts
    assert steps["train"].hours == pytest.approx(2 * 3 * encoded)
    assert scale.steps(replace(given, pairs=2 * given.pairs))["train"].hours == pytest.approx(12 * encoded)
    routes = scale.steps(replace(given, routes=3))
    for name in ("encode", "index"):
        assert routes[name].hours == pytest.approx(3 * steps[name].hours)
        assert routes[name].kept == pytest.approx(3 * steps[name].kept)


def test_a_query_reads_a_share_of_the_partitions() -> None:
    assert scale.rows_read(1_000_000) == pytest.approx(30_000)
    assert scale.rows_read(10_000) == pytest.approx(2_000)  # at least 20 of 100 partitions


def test_figures_have_two_digits() -> None:
    assert [scale.number(value) for value in (0, 0.0132, 2.04, 9.97, 99.6, 1049, 3_333_333)] == [
        *("0", "0.013", "2", "10", "100", "1,000", "3,300,000"),
    ]


def rows(text: str) -> list[str]:
    lines = [" ".join(line.split()) for line in text.splitlines() if line.startswith("|")]
    return [line for line in lines if set(line) - set("|-: ")]


def test_the_page_shows_the_published_tables() -> None:
    published = (ROOT / "benchmarks" / "results" / "scale.md").read_text(encoding="utf-8")
    page = scale.PAGE.read_text(encoding="utf-8")
    assert rows(published)
    assert rows(page) == rows(published), "run `python benchmarks/scale.py`"
    computed = rows(scale.report(scale.Assumptions()))
    assert [row.split("|")[1] for row in computed] == [row.split("|")[1] for row in rows(published)]
    assert rows(scale.refreshed(page, scale.report(scale.Assumptions()))) == computed
