"""Every shipped recipe on pairs is made of settings that this package has, and a faulty one is named."""

from __future__ import annotations

from inspect import signature
from pathlib import Path

import pytest

import sentence_experts
from helpers.shipped_recipes import SHIPPED, recipe_id
from sentence_experts.cli import main as command_line
from sentence_experts.config import Config
from sentence_experts.corpus.config import FetchConfig
from sentence_experts.errors import InputError, UsageError
from sentence_experts.evaluation.config import AnalyseConfig, EvaluateConfig
from sentence_experts.models.surgery.extend_config import ExtendConfig
from sentence_experts.pairs.config import PairsConfig
from sentence_experts.pairs.domains import DomainRules
from sentence_experts.recipes import RECIPES, find_plan, find_recipe, plan_names, recipe_names
from sentence_experts.reproduce.experiment import CALLS, Experiment, Step
from sentence_experts.reproduce.published import Published
from sentence_experts.reproduce.recipe import read_recipe
from sentence_experts.reproduce.run import plan_recipe, run_experiment
from sentence_experts.tasks.config import TasksConfig
from sentence_experts.training.config import TrainConfig, TuneConfig

CONFIGS: dict[str, type[Config]] = {
    "compile_pairs": PairsConfig,
    "compile_tasks": TasksConfig,
    "extend": ExtendConfig,
    "train": TrainConfig,
    "tune": TuneConfig,
    "evaluate": EvaluateConfig,
    "analyse_language_model": AnalyseConfig,
}
MOE_ALL = RECIPES / "hallee2025" / "moe_all.yaml"


def plan(file: Path, out: Path, scale: str = "small") -> Experiment:
    return plan_recipe(file, out=out, scale=scale, corpus=out / "corpus" if scale == "full" else None)


def test_recipes_are_found_by_name_and_by_path(tmp_path: Path) -> None:
    assert find_recipe("hallee2025/moe_all") == find_recipe(MOE_ALL) == MOE_ALL
    assert len(recipe_names()) == 32
    assert {find_plan(name).stem for name in plan_names()} == {"hallee2024_domains", "hallee2025_domains"}
    with pytest.raises(InputError, match=r"moe: no such file, and no shipped recipe .*hallee2025/moe_all"):
        find_recipe("moe")


@pytest.mark.parametrize("scale", ["small", "full"])
@pytest.mark.parametrize("name", recipe_names())
def test_every_step_calls_a_function_with_settings_that_it_takes(
    name: str, scale: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "sts12.jsonl.gz").touch()
    monkeypatch.setattr(
        "sentence_experts.reproduce.kinds.find_rated_pairs", lambda _: tmp_path / "eval" / "a"
    )
    on_pairs = find_recipe(name) in SHIPPED
    more = {"corpus": tmp_path} if on_pairs and scale == "full" else {}
    for step in plan_recipe(name, out=tmp_path, scale=scale, trust_remote_code=True, **more).steps:
        function = getattr(sentence_experts, step.call, None) or CALLS[step.call]
        parameters = signature(function).parameters
        config = CONFIGS.get(step.call)
        if config is None:
            assert set(step.given) <= parameters.keys()
        else:
            config.of(**{key: value for key, value in step.given.items() if key in config.model_fields})
            assert set(step.given) <= {*parameters, *config.model_fields}


@pytest.mark.parametrize("name", ["hallee2024/mini_se", "hallee2025/se_domain", "mote/sem"])
def test_each_model_of_one_route_is_trained_on_that_alone(name: str, tmp_path: Path) -> None:
    experiment = plan(find_recipe(name), tmp_path)
    # Beside a recipe of another file, whose model learns all routes.
    trained = [
        step.given["routes"] for step in experiment.steps if step.call == "train" and "routes" in step.given
    ]
    assert trained == [[route] for route in experiment.routes.values() for _ in range(experiment.seeds)]


def test_all_rows_of_both_papers_have_a_recipe(tmp_path: Path) -> None:
    for paper in ("hallee2025", "hallee2024"):
        files = [file for file in SHIPPED if file.parent.name == paper]
        rows = {model.name for file in files for model in plan(file, tmp_path, "full").models}
        published = Published.read(RECIPES / paper / "published.yaml")
        assert rows == {row for table in published.tables for row in table.rows}


@pytest.mark.parametrize("file", SHIPPED, ids=recipe_id)
def test_the_plan_and_the_domain_rules_have_the_same_domains(file: Path) -> None:
    protocol = read_recipe(file).protocol
    assert protocol.plan is not None
    queries, rules = FetchConfig.read(protocol.plan).domains, DomainRules.of(protocol.domains).domains
    assert queries.keys() == rules.keys()
    for name, rule in rules.items():
        first, last = rule.years
        assert queries[name] == f'"{rule.mesh[0]}"[MeSH] AND {first}:{last}[PDAT]'


def test_full_scale_needs_a_corpus(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"needs `corpus`.*hallee2025_domains\.yaml"):
        plan_recipe(MOE_ALL, scale="full")
    steps = plan_recipe(MOE_ALL, scale="full", dry_run=True).steps
    assert str(steps[0]).startswith("compile_pairs(corpus='CORPUS', ")
    with pytest.raises(InputError, match="corpus holds no corpus"):
        run_experiment(plan(MOE_ALL, tmp_path, "full"))


def test_an_evaluation_with_other_settings_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced = []

    def evaluate(models: object, data: object, overwrite: bool = False, **given: object) -> None:
        if not overwrite:
            raise UsageError("made with other settings")
        replaced.append(given)

    monkeypatch.setattr("sentence_experts.evaluate", evaluate)
    monkeypatch.setattr("sentence_experts.write_report", lambda *_, keep: None)
    Step("evaluate", {"models": {}, "data": "d", "out": "o"}).run()
    assert replaced == [{"out": "o"}]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["no-such.yaml"], 1, "no-such.yaml: no such file, and no shipped recipe"),
        ([str(MOE_ALL), "--scale", "medium"], 2, "'small' or 'full'"),
        ([str(MOE_ALL), "--corpus", "c"], 2, "--corpus is for --scale full"),
        ([str(MOE_ALL), "--scale", "full"], 2, "--scale full needs --corpus"),
        ([str(MOE_ALL), "--scale", "full", "--corpus", "c"], 1, "c holds no corpus"),
    ],
)
def test_errors_of_the_verb_are_one_line(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        command_line.main(["reproduce", *arguments])
    assert stop.value.code == code
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert message in last
