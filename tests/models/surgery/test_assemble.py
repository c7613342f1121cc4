"""`out` of `extend`, `add_route` and `drop_route`: the same record as the command line's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sentence_experts
from sentence_experts.cli.main import main
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.sources import notes_of, set_notes
from sentence_experts.storage import read_json

Make = Callable[..., ExpertEncoder]
TASKS = "tasks: {same: {kind: pairs, instructions: {same: 'heart: '}, datasets: {b: {file: b.jsonl}}}}"


@pytest.fixture(scope="module")
def experts(base_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("stored") / "experts"
    sentence_experts.extend(base_folders["bert"], ["copd", "cvd"], out=out)
    return out


def record(folder: Path) -> dict[str, Any]:
    return {name: read_json(folder / "made_from.json")[name] for name in ("what", "settings")}


@pytest.mark.parametrize(
    ("verb", "make", "given", "flags", "other"),
    [
        ("extend", sentence_experts.extend, {"experts": ["a", "b"]}, ["--experts", "a,b"], {"layers": "1"}),
        pytest.param(
            "extend",
            sentence_experts.extend,
            {"tasks": "TASKS"},
            ["--tasks", "TASKS"],
            {"experts": ["a"]},
            marks=pytest.mark.slow,
        ),
        ("add-route", sentence_experts.add_route, {"name": "skin"}, ["skin"], {"seed_from": "cvd"}),
        pytest.param(
            "add-route",
            sentence_experts.add_route,
            {"name": "same", "tasks": "TASKS", "seed_from": "base", "base": "BASE"},
            ["same", "--tasks", "TASKS", "--seed-from", "base", "--base", "BASE"],
            {"base": None, "seed_from": "average"},
            marks=pytest.mark.slow,
        ),
        ("drop-route", sentence_experts.drop_route, {"name": "copd"}, ["copd"], {"name": "cvd"}),
    ],
    ids=["extend", "extend-tasks", "add", "add-from-base", "drop"],
)
def test_the_same_call_is_finished_and_another_refused(
    base_folders: dict[str, Path],
    experts: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    verb: str,
    make: Make,
    given: dict[str, Any],
    flags: list[str],
    other: dict[str, Any],
) -> None:
    (tmp_path / "tasks.yaml").write_text(TASKS)
    places = {"TASKS": str(tmp_path / "tasks.yaml"), "BASE": str(base_folders["bert"])}
    given = {
        name: places.get(value, value) if isinstance(value, str) else value for name, value in given.items()
    }
    model, out = base_folders["bert"] if verb == "extend" else experts, tmp_path / "python"
    made = make(model, **given, out=out)
    route = next(iter(made.routes)).name
    with caplog.at_level(logging.INFO):
        again = make(model, **given, out=out)
    assert "finished already" in caplog.text
    vectors = [each.encode(["heart"], prompt_name=route) for each in (made, again, make(model, **given))]
    assert np.array_equal(vectors[0], vectors[1])
    assert np.array_equal(vectors[0], vectors[2])
    before = record(out)
    with pytest.raises(UsageError, match="`overwrite`"):
        make(model, **{**given, **other}, out=out)
    assert record(out) == before
    with pytest.raises(SystemExit) as stop:
        main([verb, str(model), *(places.get(flag, flag) for flag in flags), "--out", str(tmp_path / "cli")])
    assert not stop.value.code
    assert record(tmp_path / "cli") == before
    make(model, **{**given, **other}, out=out, overwrite=True)
    assert record(out) != before


def test_what_is_in_memory_is_recorded_by_what_it_decides(
    base_folders: dict[str, Path], experts: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base = sentence_experts.load(base_folders["bert"], device="cpu")
    for _ in range(2):
        sentence_experts.extend(base, domains=("a", "b"), out=tmp_path / "a")
        sentence_experts.add_route(experts, "c", seed_from="base", base=base, out=tmp_path / "c")
    with pytest.raises(UsageError, match="domains"):
        sentence_experts.extend(base, domains=("b", "a"), out=tmp_path / "a")
    with pytest.raises(UsageError, match="base"):
        sentence_experts.add_route(experts, "c", out=tmp_path / "c")


def test_a_wrong_call_leaves_nothing_behind(
    base_folders: dict[str, Path], experts: Path, tmp_path: Path
) -> None:
    base = base_folders["bert"]
    for name in ("domains", "tasks"):
        with pytest.raises(InputError, match="none: "):
            sentence_experts.extend(base, **{name: tmp_path / "none"}, out=tmp_path / "out")
    with pytest.raises(UsageError, match="at least one route"):
        sentence_experts.extend(base, out=tmp_path / "out")
    with pytest.raises(UsageError, match="no route or expert 'x'"):
        sentence_experts.drop_route(experts, "x", out=tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_another_similarity_is_another_model(base_folders: dict[str, Path], tmp_path: Path) -> None:
    base = sentence_experts.load(base_folders["bert"])
    sentence_experts.extend(base, ["a", "b"], out=tmp_path / "made")
    base.similarity_fn_name = "dot"
    with pytest.raises(UsageError, match="similarity"):
        sentence_experts.extend(base, ["a", "b"], out=tmp_path / "made")
    made = sentence_experts.extend(base, ["a", "b"], out=tmp_path / "made", overwrite=True)
    assert made.similarity_fn_name == sentence_experts.load(tmp_path / "made").similarity_fn_name == "dot"


def test_notes_of_training_stay_with_a_model(base_folders: dict[str, Path]) -> None:
    made = sentence_experts.extend(base_folders["bert"], ["a", "b"])
    set_notes(made, {"unit": "title", "untrained": True})
    grown, less = sentence_experts.add_route(made, "c"), sentence_experts.drop_route(made, "b")
    for other in (grown, less, sentence_experts.export(made, route="a")):
        model = getattr(other, "model", other)
        assert notes_of(model) == {"unit": "title", "untrained": True}
