"""Every shipped recipe is made of settings that this package has, and a faulty one is named."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer

from helpers.samples import write_corpus
from helpers.shipped_recipes import RECIPES, SHIPPED, copy_recipe
from sentence_experts.cli import main as command_line
from sentence_experts.corpus.config import FetchConfig
from sentence_experts.corpus.tables import DOMAINS, DOMAINS_SCHEMA
from sentence_experts.errors import InputError, UsageError
from sentence_experts.evaluation.config import EvaluateConfig
from sentence_experts.models.surgery.config import ExtendConfig
from sentence_experts.pairs.config import PairsConfig
from sentence_experts.pairs.domains import DomainRules
from sentence_experts.reproduce.experiment import SCALES
from sentence_experts.reproduce.pairs.commands import compile_pairs
from sentence_experts.reproduce.pairs.experiment import experiment_of
from sentence_experts.reproduce.pairs.plan import make_plan
from sentence_experts.reproduce.pairs.published import Published
from sentence_experts.reproduce.pairs.recipe import EvaluateOptions, ExtendOptions, read_recipe
from sentence_experts.reproduce.pairs.setting import how_to_get_the_corpus, setting_for
from sentence_experts.reproduce.run import run_experiment
from sentence_experts.storage import write_json, write_parquet

MOE_ALL = RECIPES / "hallee2025" / "moe_all.yaml"


def name(recipe: Path) -> str:
    return str(recipe.relative_to(RECIPES))


@pytest.fixture(autouse=True)
def _simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are made where no real article is found."""
    monkeypatch.delenv("SENTENCE_EXPERTS_DATA", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def parse(arguments: list[str]) -> None:
    """Let the command line read the arguments, down to the last verb, and run nothing."""
    command_line.app_with_verbs()
    command: Any = typer.main.get_command(command_line.app)
    context = command.make_context("sentence-experts", list(arguments))
    while hasattr(command, "commands"):
        rest = [*context._protected_args, *context.args]
        label, command, rest = command.resolve_command(context, rest)
        context = command.make_context(label, rest, parent=context)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("file", SHIPPED, ids=name)
def test_every_planned_command_is_one_that_can_be_typed(file: Path, scale: str, tmp_path: Path) -> None:
    recipe = read_recipe(file)
    corpus = tmp_path / "corpus" if scale == "full" else None
    plan = make_plan(recipe, file.stem, setting_for(recipe, scale, corpus, tmp_path / "out"))
    for step in plan.steps:
        parse(list(step.command))
    with pytest.raises(Exception, match="no-such-flag"):
        parse([*plan.steps[-1].command, "--no-such-flag"])


@pytest.mark.parametrize("file", SHIPPED, ids=name)
def test_only_a_learned_router_is_told_how_to_learn(file: Path) -> None:
    recipe = read_recipe(file)
    of_routers = {"router_loss", "router_learning_rate", "balance_loss", "route_by"}
    for run in recipe.runs:
        told = of_routers & recipe.train_settings(run, False).keys()
        assert bool(told) == (run.extend.router == "learned"), run.row
    assert not of_routers & recipe.train_settings(None, False).keys()


@pytest.mark.parametrize("file", SHIPPED, ids=name)
def test_every_row_of_a_recipe_is_in_its_published_tables(file: Path, tmp_path: Path) -> None:
    recipe = read_recipe(file)
    tables = [t for t in Published.read(recipe.protocol.published).tables if t.table in recipe.tables]
    plan = make_plan(recipe, file.stem, setting_for(recipe, "small", None, tmp_path))
    assert set(recipe.tables) == {table.table for table in tables}
    for row in {model.row for model in plan.models} | {each.row for each in recipe.baselines}:
        assert all(row in table.rows for table in tables), row
    for table in tables:
        assert set(table.columns) <= set(recipe.protocol.evaluate)


def test_all_rows_of_both_papers_have_a_recipe(tmp_path: Path) -> None:
    for paper in ("hallee2025", "hallee2024"):
        recipes = [read_recipe(file) for file in SHIPPED if file.parent.name == paper]
        planned = [make_plan(one, "x", setting_for(one, "full", tmp_path, tmp_path)) for one in recipes]
        rows = {model.row for plan in planned for model in plan.models}
        assert rows == {row for t in Published.read(recipes[0].protocol.published).tables for row in t.rows}


def test_hub_ids_are_those_of_table_2() -> None:
    models = Published.read(RECIPES / "hallee2025" / "published.yaml").models
    by_row = {each.row: each.model for each in read_recipe(MOE_ALL.with_name("baselines.yaml")).baselines}
    by_row["Llama-3.2"] = by_row.pop("Llama-3.2-1B")
    assert by_row == {row: model.hub for row, model in models.items() if row != "MoE_all"}
    assert read_recipe(MOE_ALL).runs[0].base == models["ModernBERT_base"].hub


def test_faithful_protocols_stop_on_what_they_report_and_name_it_as_a_leak() -> None:
    for file in SHIPPED:
        protocol = read_recipe(file).protocol
        reported = next(iter(protocol.evaluate.values())).split
        assert (reported == "validation") == protocol.faithful
        assert protocol.train["mask_known"] == (not protocol.faithful)
        assert any(choice.kind == "leaks" for choice in protocol.choices) == protocol.faithful


def test_options_are_arguments_of_what_takes_them() -> None:
    assert set(ExtendOptions.model_fields) <= set(ExtendConfig.model_fields)
    assert set(EvaluateOptions.model_fields) <= {*EvaluateConfig.model_fields, "baseline"}


@pytest.mark.parametrize("file", SHIPPED, ids=name)
def test_the_small_scale_makes_and_splits_pairs_as_the_protocol_does(file: Path, tmp_path: Path) -> None:
    recipe = read_recipe(file)
    setting = setting_for(recipe, "small", None, tmp_path)
    published, small = (PairsConfig(**pairs) for pairs in (recipe.protocol.pairs, setting.pairs))
    for key in ("relation", "split", "frequency"):
        assert getattr(small, key) == getattr(published, key)
    assert setting.material is not None
    of_the_material = ",".join(map(str, small.fractions or ()))
    # The demo's shares are for its own split, by article.
    assert (of_the_material in setting.material.pairs) == (small.split == "article")
    assert small.fractions == published.fractions or small.split == "article"
    assert small.unit == "title"
    assert small.max_train_per_domain == 500


def test_pair_settings_that_do_not_go_together_at_small_scale_are_named(tmp_path: Path) -> None:
    changed = {
        "relation: co-citation": "relation: coupling",
        "{max_validation": "{split: article, max_validation",
    }
    recipe = read_recipe(copy_recipe(MOE_ALL, tmp_path, **changed))
    with pytest.raises(InputError, match=r"protocol\.yaml: pairs with small\.pairs: --split article is for"):
        setting_for(recipe, "small", None, tmp_path)


def test_the_full_scale_asks_for_the_corpus_then_the_descriptors_then_the_models(tmp_path: Path) -> None:
    recipe = read_recipe(copy_recipe(MOE_ALL, tmp_path, **{"answerdotai/ModernBERT-base": "no-one/no-model"}))
    setting = setting_for(recipe, "full", tmp_path / "corpus", tmp_path / "out")
    plan = make_plan(recipe, "moe_all", setting)

    def missing() -> str:
        with pytest.raises(InputError) as caught:
            run_experiment(experiment_of(recipe, setting, plan), lambda _: pytest.fail("no step may run"))
        return str(caught.value)

    assert "corpus holds no corpus" in missing()
    write_corpus(tmp_path / "corpus")
    assert re.search(r"domains\.yaml: mesh_descriptors: .*desc2026\.xml is not there", missing())
    (tmp_path / "desc2026.xml").touch()
    assert missing().startswith("no-one/no-model: neither")


def test_a_fetched_corpus_brings_its_domains_all_those_of_the_paper(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    write_json(corpus.path / "manifest.json", {**corpus.manifest, "tables": {DOMAINS: {}}})
    recipe = read_recipe(copy_recipe(MOE_ALL, tmp_path, **{"answerdotai/ModernBERT-base": "no-one/no-model"}))
    paper_of = dict.fromkeys(recipe.protocol.queries, "doi:10.1/a")

    def refused(domains: Iterable[str]) -> str:
        rows = [{"paper_id": paper_of[domain], "domain": domain} for domain in domains]
        write_parquet(corpus.path / DOMAINS, pa.Table.from_pylist(rows, DOMAINS_SCHEMA))
        setting = setting_for(recipe, "full", corpus.path, tmp_path / "out")
        assert "--domains" not in compile_pairs(setting).command
        plan = make_plan(recipe, "moe_all", setting)
        with pytest.raises(InputError) as caught:
            run_experiment(experiment_of(recipe, setting, plan), lambda _: pytest.fail("no step may run"))
        return str(caught.value)

    assert refused(sorted(paper_of)[1:]).endswith("corpus: was fetched without the paper's domain autoimmune")
    assert refused(paper_of).startswith("no-one/no-model: neither")


@pytest.mark.parametrize("file", SHIPPED, ids=name)
def test_queries_and_domain_rules_are_of_the_same_years(file: Path) -> None:
    protocol = read_recipe(file).protocol
    rules = DomainRules.read(protocol.domains).domains
    assert {key: query.years for key, query in protocol.queries.items()} == {
        key: rule.years for key, rule in rules.items()
    }
    for key, query in protocol.queries.items():
        assert query.mesh == f'"{rules[key].mesh[0]}"[MeSH Terms]'


def test_the_missing_corpus_is_explained_by_the_papers_queries() -> None:
    recipe = read_recipe(RECIPES / "hallee2024" / "scibert_moe.yaml")
    assert FetchConfig.read(recipe.protocol.plan).domains.keys() == recipe.protocol.queries.keys()
    text = "\n".join(how_to_get_the_corpus(recipe.protocol))
    assert f"--config {RECIPES / 'corpus' / 'hallee2024_domains.yaml'}" in text
    assert '"Cardiovascular Diseases"[MeSH Terms] AND open access[filter]' in text
    assert "2017:2022[pdat]" in text
    assert "2010:2022[pdat]" in text
    with pytest.raises(UsageError, match="needs --corpus"):
        setting_for(recipe, "full", None, Path("out"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("runs:", "rums:", r"moe_all\.yaml: rums: .*known keys: title"),
        ("base:", "bass:", r"moe_all\.yaml: runs\.0\.base: Field required"),
        ("pooling: mean", "pooling: max", r"moe_all\.yaml: runs\.0\.extend\.pooling: .*'mean', 'cls' or"),
        ("batch_size:", "batchsize:", r"protocol\.yaml: train\.batchsize: .*got 16"),
        ("loss: argmax_target", "loss: argmax", r"protocol\.yaml: train\.loss: .*got 'argmax'"),
        ("split: random", "split: randomly", r"protocol\.yaml: pairs\.split: .*got 'randomly'"),
        (
            "relation: co-citation\n  unit: abstract\n  split: random",
            "relation: coupling\n  split: article",
            r"protocol\.yaml: pairs: --split article is for",
        ),
        ("cvd: neuroscience", "cvs: neuroscience", r"protocol\.yaml: small\.domains: .*cvs"),
        ("protocol: protocol.yaml", "protocol: protocols.yaml", r"protocols\.yaml: no such file"),
        ("published: published.yaml", "published: numbers.yaml", r"numbers\.yaml: no such file"),
        ("decimals", "decimals", None),
    ],
)
def test_a_faulty_recipe_is_named_by_file_and_key(
    tmp_path: Path, old: str, new: str, message: str | None
) -> None:
    recipe = copy_recipe(MOE_ALL, tmp_path, **{old: new})
    if message is None:
        read_recipe(recipe)
        return
    with pytest.raises(InputError) as caught:
        read_recipe(recipe)
    assert re.search(message, str(caught.value))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["no-such.yaml"], 1, "no-such.yaml: no such file"),
        ([str(MOE_ALL), "--scale", "medium"], 2, "choose one of small, full"),
        ([str(MOE_ALL), "--corpus", "c"], 2, "--corpus is for --scale full"),
        ([str(MOE_ALL), "--scale", "full"], 2, "--scale full needs --corpus"),
        ([str(MOE_ALL), "--scale", "full", "--corpus", "c"], 1, "c holds no corpus"),
    ],
)
def test_what_cannot_be_run_is_one_line(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        command_line.main(["reproduce", *arguments])
    assert stop.value.code == code
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert message in last
