"""Every shipped recipe on pairs is made of settings that this package has, and a faulty one is named."""

from __future__ import annotations

from inspect import signature
from pathlib import Path

import pytest

import sentence_experts
from helpers.samples import write_corpus
from helpers.shipped_recipes import SHIPPED, copy_recipe, recipe_id
from sentence_experts.cli import main as command_line
from sentence_experts.corpus.config import FetchConfig
from sentence_experts.corpus.corpus_folder import DOMAINS
from sentence_experts.errors import InputError, UsageError
from sentence_experts.pairs.config import PairsConfig
from sentence_experts.pairs.domains import DomainRules
from sentence_experts.recipes import RECIPES, find_plan, find_recipe, plan_names, recipe_names
from sentence_experts.reproduce.experiment import CALLS, Experiment, Step
from sentence_experts.reproduce.material import Material
from sentence_experts.reproduce.published import Published
from sentence_experts.reproduce.recipe import read_recipe
from sentence_experts.reproduce.run import plan_recipe, run_experiment

MOE_ALL = RECIPES / "hallee2025" / "moe_all.yaml"


def plan(file: Path, out: Path, scale: str = "small") -> Experiment:
    return plan_recipe(file, out=out, scale=scale, corpus=out / "corpus" if scale == "full" else None)


def test_recipes_are_found_by_name_and_by_path(tmp_path: Path) -> None:
    assert find_recipe("hallee2025/moe_all") == find_recipe(MOE_ALL) == MOE_ALL
    assert len(recipe_names()) == 30
    assert {find_plan(name).stem for name in plan_names()} == {"hallee2024_domains", "hallee2025_domains"}
    with pytest.raises(InputError, match=r"moe: no such file, and no shipped recipe .*hallee2025/moe_all"):
        find_recipe("moe")


@pytest.mark.parametrize("scale", ["small", "full"])
@pytest.mark.parametrize("file", SHIPPED, ids=recipe_id)
def test_every_step_calls_a_function_with_its_own_settings(file: Path, scale: str, tmp_path: Path) -> None:
    for step in plan(file, tmp_path, scale).steps:  # which checks the settings
        function = getattr(sentence_experts, step.call, None) or CALLS[step.call]
        assert set(step.given) <= signature(function).parameters.keys()


@pytest.mark.parametrize("file", SHIPPED, ids=recipe_id)
def test_every_row_of_a_recipe_is_in_its_published_tables(file: Path, tmp_path: Path) -> None:
    recipe = read_recipe(file)
    tables = [t for t in Published.read(recipe.protocol.published).tables if t.table in recipe.tables]
    experiment = plan(file, tmp_path)
    assert set(recipe.tables) == {table.table for table in tables}
    for row in {m.name for m in experiment.models} | {each.name for each in recipe.baselines}:
        assert all(row in table.rows for table in tables), row
    for table in tables:
        assert set(table.columns) <= set(recipe.protocol.evaluate)


def test_all_rows_of_both_papers_have_a_recipe(tmp_path: Path) -> None:
    for paper in ("hallee2025", "hallee2024"):
        files = [file for file in SHIPPED if file.parent.name == paper]
        rows = {model.name for file in files for model in plan(file, tmp_path, "full").models}
        published = Published.read(RECIPES / paper / "published.yaml")
        assert rows == {row for table in published.tables for row in table.rows}


def test_faithful_protocols_name_their_leaks() -> None:
    for file in SHIPPED:
        protocol = read_recipe(file).protocol
        reported = next(iter(protocol.evaluate.values()))["split"]
        assert (reported == "validation") == protocol.faithful
        assert protocol.train["mask_known"] == (not protocol.faithful)
        assert any(choice.kind == "leaks" for choice in protocol.choices) == protocol.faithful


@pytest.mark.parametrize("file", SHIPPED, ids=recipe_id)
def test_small_scale_makes_and_splits_pairs_as_the_protocol_does(file: Path, tmp_path: Path) -> None:
    settings = next(step.given for step in plan(file, tmp_path).steps if step.call == "compile_pairs")
    given = {key: value for key, value in settings.items() if key in PairsConfig.model_fields}
    published, small = PairsConfig.of(**read_recipe(file).protocol.pairs), PairsConfig.of(**given)
    for key in ("relation", "split", "frequency"):
        assert getattr(small, key) == getattr(published, key)
    # The shares of the material are for its own split, by article.
    fractions = Material.find(tmp_path, None).pairs["fractions"]
    assert small.fractions == (fractions if small.split == "article" else published.fractions)
    assert small.unit == "title"
    assert small.max_train_per_domain == 500


def test_pair_settings_that_contradict_each_other_at_small_scale_are_named(tmp_path: Path) -> None:
    changed = {
        "relation: co-citation": "relation: coupling",
        "{max_validation": "{split: article, max_validation",
    }
    recipe = copy_recipe(MOE_ALL, tmp_path, **changed)
    with pytest.raises(InputError, match=r"protocol\.yaml: compile_pairs: `split=article` needs"):
        plan(recipe, tmp_path)


def test_a_fetched_corpus_brings_the_domains_of_the_paper(tmp_path: Path) -> None:
    assert "domains" in plan(MOE_ALL, tmp_path, "full").steps[0].given
    corpus = write_corpus(tmp_path / "corpus")
    (corpus.path / DOMAINS).touch()
    assert "domains" not in plan(MOE_ALL, tmp_path, "full").steps[0].given


@pytest.mark.parametrize("file", SHIPPED, ids=recipe_id)
def test_the_plan_and_the_domain_rules_have_the_same_domains(file: Path) -> None:
    protocol = read_recipe(file).protocol
    assert protocol.plan is not None
    queries, rules = FetchConfig.read(protocol.plan).domains, DomainRules.read(protocol.domains).domains
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


def test_steps_call_public_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"sources": [tmp_path], "out": tmp_path / "corpus", "workers": 1}
    seen: list[dict] = []
    monkeypatch.setattr("sentence_experts.import_corpus", lambda **arguments: seen.append(arguments))
    step = Step("import_corpus", given)
    step.run()
    assert seen == [given]
    assert str(step) == f"import_corpus(sources=['{tmp_path}'], out='{tmp_path}/corpus', workers=1)"


def test_an_evaluation_with_other_settings_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced = []

    def evaluate(models: object, data: object, overwrite: bool = False, **given: object) -> None:
        if not overwrite:
            raise UsageError("made with other settings")
        replaced.append(given)

    monkeypatch.setattr("sentence_experts.evaluate", evaluate)
    monkeypatch.setattr("sentence_experts.write_report", lambda *_: None)
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
