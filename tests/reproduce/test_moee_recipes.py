"""MoEE's recipes: read, planned, and run at small scale on a tiny model."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
import yaml

from helpers.small_language_models import WORDS, make_language_model
from sentence_experts.cli.main import main
from sentence_experts.errors import InputError, UsageError
from sentence_experts.recipes import RECIPES
from sentence_experts.reproduce.experiment import LOCAL
from sentence_experts.reproduce.material import draw_language_model
from sentence_experts.reproduce.published import Published
from sentence_experts.reproduce.recipe import read_recipe
from sentence_experts.reproduce.run import plan_recipe, run_experiment

SHIPPED = RECIPES / "moee"
NAMES = ("olmoe", "qwen1.5-moe", "deepseek-moe")
FAITHFUL = tuple(f"{name}-faithful" for name in NAMES)


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shipped recipes, with a tiny model and made-up scored pairs at small scale."""
    folder = tmp_path / "recipes"
    shutil.copytree(SHIPPED, folder)
    protocol = yaml.safe_load((folder / "protocol.yaml").read_text())
    protocol["small"]["base"] = str(make_language_model(tmp_path / "tiny", "olmoe"))
    (folder / "protocol.yaml").write_text(yaml.safe_dump(protocol, sort_keys=False))
    words = [word for word in WORDS if word.isalpha()]
    rows = [
        {"sentence1": f"{words[n]} {words[-n]}", "sentence2": f"{words[2 * n % 30]} red", "score": n % 6}
        for n in range(1, 25)
    ]
    (tmp_path / "eval").mkdir()
    with gzip.open(tmp_path / "eval" / "sts12.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(row)}\n" for row in rows)
    source = {
        "file": "${SENTENCE_EXPERTS_DATA}/eval/sts12.jsonl.gz",
        "anchor": "sentence1",
        "positive": "sentence2",
    }
    tasks = {"tasks": {"sts": {"kind": "sts", "datasets": {"STS12": source}}}}
    (folder / "small_tasks.yaml").write_text(yaml.safe_dump(tasks))
    monkeypatch.setattr("sentence_experts.reproduce.kinds.data_folder", lambda: tmp_path)
    return folder


@pytest.mark.parametrize("name", [*NAMES, *FAITHFUL])
def test_shipped_recipes_are_planned(name: str, tmp_path: Path) -> None:
    recipe = read_recipe(SHIPPED / f"{name}.yaml")
    needs_code = name.startswith("deepseek-moe")
    if needs_code:
        with pytest.raises(UsageError, match=r"its own code.*`trust_remote_code=True`"):
            plan_recipe(f"moee/{name}", out=tmp_path, scale="full")
    experiment = plan_recipe(f"moee/{name}", out=tmp_path, scale="full", trust_remote_code=needs_code)
    hub = Published.read(SHIPPED / "published.yaml").models[recipe.model]["hub"]
    given = [step.given for step in experiment.steps]
    assert [(one["model"], one["prompt"], one["data"]) for one in given] == [
        (hub, prompt, "moee") for prompt in ("none", "prompteol")
    ]
    assert all(("trust_remote_code" in one["read"]) == needs_code for one in given)
    assert len({one["states"] for one in given}) == 1
    standard = "faithful" if name in FAITHFUL else None
    assert {one["read"].get("standard") for one in given} == {standard}


@pytest.mark.parametrize("recipe", [True, False], ids=["recipe", "protocol"])
def test_a_recipe_cannot_allow_code_to_run(recipes: Path, recipe: bool) -> None:
    file = recipes / ("olmoe.yaml" if recipe else "protocol.yaml")
    content = yaml.safe_load(file.read_text())
    content["read"] = {**content.get("read", {}), "trust_remote_code": True}
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(InputError, match=r"read.trust_remote_code: only the user"):
        plan_recipe(recipes / "olmoe.yaml", out=recipes)


def test_recipe_on_a_language_model_runs_and_resumes(recipes, tmp_path, capsys):
    arguments = ["reproduce", str(recipes / "olmoe.yaml"), "--out", str(tmp_path / "out")]
    for _ in range(2):  # the second time nothing is left to do
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert not stop.value.code, capsys.readouterr().err
    message = " ".join(capsys.readouterr().err.split())
    assert message.count("is finished already") >= 3
    report = json.loads((tmp_path / "out" / "small" / "moee" / "olmoe" / "report.json").read_text())
    figures = {
        (one["published"]["prompt"], one["published"]["row"], one["published"]["column"]): one
        for one in report["figures"]
    }
    assert len(figures) == 2 * 4 * 7
    sts = figures["prompteol", "sum", "sts"]
    assert sts["published"]["value"] == 74.63
    assert -100 <= sts["value"] <= 100
    assert figures["prompteol", "sum", "mean"]["value"] == sts["value"]
    assert figures["none", "hs", "clustering"]["value"] is None
    assert "scale" in sts["differs"]
    page = (tmp_path / "out" / "small" / "moee" / "olmoe" / "report.md").read_text()
    for part in (
        "Table 4, prompt prompteol",
        "published",
        "base: tiny for allenai/OLMoE-1B-7B-0924",
        "38.26",
    ):
        assert part in page


def test_every_trained_model_of_table_4_is_measured(recipes, plain_model, tmp_path, monkeypatch):
    full = plan_recipe("moee/baselines", out=tmp_path, scale="full")
    published = Published.read(SHIPPED / "baselines" / "published.yaml")
    assert {model.name for model in full.models} - {"all-MiniLM-L6-v2"} == set(published.tables[0].rows)
    monkeypatch.setitem(LOCAL, "sentence-transformers/all-MiniLM-L6-v2", str(plain_model))
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", str(recipes / "baselines.yaml"), "--out", str(tmp_path / "out")])
    assert not stop.value.code
    folder = tmp_path / "out" / "small" / "moee-baselines" / "baselines"
    (measured,) = json.loads((folder / "evaluation" / "tasks.json").read_text())["models"]
    assert measured["label"] == "all-MiniLM-L6-v2"
    assert set(measured["types"]) == {"STS"}
    report = json.loads((folder / "report.json").read_text())
    assert len(report["figures"]) == 7 * 7
    assert {tuple(one["differs"]) for one in report["figures"]} == {("not run",)}, "the hub has them"
    experiment = plan_recipe(recipes / "baselines.yaml", out=tmp_path / "out")
    experiment.models = [experiment.models[0]._replace(name="BERT", label="BERT")]
    found = experiment.compare({"evaluation": {"models": [{**measured, "label": "BERT"}]}}).figures
    figures = {(one.published.row, one.published.column): one.value for one in found}
    assert figures["BERT", "sts"] == pytest.approx(100 * measured["types"]["STS"]["value"])
    assert figures["BERT", "mean"] == figures["BERT", "sts"]
    assert figures["Glove", "sts"] is None


@pytest.mark.slow
def test_the_published_instructions_stand_before_the_texts(recipes, tmp_path):
    given = read_recipe(SHIPPED / "olmoe-instructions.yaml").instructions
    tasks = Published.read(SHIPPED / "published.yaml").tasks.values()
    assert {key for key in given if "." not in key} == {name for task in tasks for name in task.datasets}
    assert all(text.startswith("<|user|>\n") and text.endswith("\n<|embed|>\n") for text in given.values())
    assert not any("  " in text for text in given.values())
    recipe = recipes / "olmoe-instructions.yaml"
    content = yaml.safe_load(recipe.read_text())
    content["instructions"] = {"sts.STS12": "red red red green "}
    recipe.write_text(yaml.safe_dump(content, sort_keys=False))
    scores = {}
    for name in ("olmoe-instructions", "olmoe-faithful"):
        experiment = plan_recipe(recipes / f"{name}.yaml", out=tmp_path / "out")
        run_experiment(experiment)
        results = json.loads((experiment.report / "none" / "tasks.json").read_text())
        scores[name] = {one["label"]: one["types"]["STS"]["value"] for one in results["models"]}
    assert scores["olmoe-instructions"].keys() == scores["olmoe-faithful"].keys()
    assert scores["olmoe-instructions"] != scores["olmoe-faithful"]


@pytest.mark.slow
def test_the_analysis_stands_beside_the_papers(recipes, tmp_path, capsys):
    recipe = recipes / "analysis.yaml"
    content = yaml.safe_load(recipe.read_text())
    content["protocol"]["analyse"] = {"clusters": 2, "bootstrap": 0, "cases": 2, "prompts": ["none", "tone"]}
    recipe.write_text(yaml.safe_dump(content, sort_keys=False))
    out = tmp_path / "out"
    for _ in range(2):
        with pytest.raises(SystemExit) as stop:
            main(["reproduce", str(recipe), "--out", str(out)])
        assert not stop.value.code, capsys.readouterr().err
    folder = out / "small" / "moee-analysis" / "analysis"
    found = json.loads((folder / "analysis.json").read_text())
    figures = {
        one["published"]["column"]: one for one in json.loads((folder / "report.json").read_text())["figures"]
    }
    assert figures["ami"]["value"] == found["clusters"]["agreement"]["ami"]
    assert figures["hs_rw"]["value"] == found["between_prompts"]["means"]["hs_rw"]
    assert figures["exact_match"]["published"]["printed"] == 0.4554
    assert "0.4554" in (folder / "report.md").read_text()


def test_the_analysis_needs_its_pairs(tmp_path, monkeypatch):
    monkeypatch.setattr("sentence_experts.reproduce.kinds.data_folder", lambda: tmp_path)
    with pytest.raises(InputError, match="set SENTENCE_EXPERTS_DATA to a folder with eval/sts12"):
        plan_recipe("moee/analysis", out=tmp_path)


def test_settings_that_language_models_do_not_take(recipes, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="`corpus` is for recipes on pairs"):
        plan_recipe(recipes / "olmoe.yaml", out=tmp_path, scale="full", corpus=tmp_path)
    with pytest.raises(UsageError, match="`seeds`: this recipe trains no model"):
        plan_recipe(recipes / "olmoe.yaml", out=tmp_path, seeds=3)
    monkeypatch.setattr("sentence_experts.reproduce.kinds.data_folder", lambda: None)
    with pytest.raises(InputError, match="set SENTENCE_EXPERTS_DATA"):
        plan_recipe(recipes / "olmoe.yaml", out=tmp_path)


def test_a_language_model_is_not_kept_where_its_texts_have_changed(tmp_path: Path) -> None:
    rows = [{"sentence1": f"red {n}", "sentence2": f"blue {n}", "score": n % 6} for n in range(12)]
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text("\n".join(map(json.dumps, rows)))
    draw_language_model(pairs, tmp_path / "model")
    draw_language_model(pairs, tmp_path / "model")
    pairs.write_text("\n".join(map(json.dumps, rows[1:])))
    with pytest.raises(UsageError, match="made with other rated pairs"):
        draw_language_model(pairs, tmp_path / "model")
