"""Every shipped recipe on pairs is made of settings that this package has, and a faulty one is named."""

from __future__ import annotations

import re
from collections.abc import Iterable
from inspect import signature
from pathlib import Path

import pyarrow as pa
import pytest

import sentence_experts
from helpers.samples import write_corpus
from helpers.shipped_recipes import SHIPPED, copy_recipe, recipe_id
from sentence_experts.cli import main as command_line
from sentence_experts.corpus.config import FetchConfig
from sentence_experts.corpus.corpus_folder import DOMAINS, DOMAINS_SCHEMA
from sentence_experts.errors import InputError, UsageError
from sentence_experts.evaluation.config import EvaluateConfig
from sentence_experts.models.surgery.extend_config import ExtendConfig
from sentence_experts.pairs.config import PairsConfig
from sentence_experts.pairs.domains import DomainRules
from sentence_experts.recipes import RECIPES, find_plan, find_recipe, plan_names, recipe_names
from sentence_experts.reproduce.experiment import Experiment
from sentence_experts.reproduce.material import Material
from sentence_experts.reproduce.published import Published
from sentence_experts.reproduce.recipe_files import read_recipe
from sentence_experts.reproduce.run import plan_recipe, run_experiment
from sentence_experts.reproduce.steps import CALLS
from sentence_experts.reproduce.trained import how_to_get_the_corpus
from sentence_experts.storage import write_json, write_parquet
from sentence_experts.training.config import TrainConfig, TuneConfig

MOE_ALL = RECIPES / "hallee2025" / "moe_all.yaml"
CONFIGS = {
    "compile_pairs": PairsConfig,
    "extend": ExtendConfig,
    "train": TrainConfig,
    "tune": TuneConfig,
    "evaluate": EvaluateConfig,
}


@pytest.fixture(autouse=True)
def _simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are made where there are no real articles."""
    monkeypatch.delenv("SENTENCE_EXPERTS_DATA", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


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
    for step in plan(file, tmp_path, scale).steps:
        function = CALLS.get(step.call) or getattr(sentence_experts, step.call)
        assert set(step.arguments) <= {*signature(function).parameters, "domains", "baseline"}
        if step.settings:
            CONFIGS[step.call].of(**step.settings)


@pytest.mark.parametrize("file", SHIPPED, ids=recipe_id)
def test_only_a_learned_router_has_settings_for_its_losses(file: Path) -> None:
    recipe = read_recipe(file)
    of_routers = {"router_loss", "router_learning_rate", "balance_loss", "route_by"}
    for run in recipe.runs:
        given = of_routers & recipe.train_settings(run, False).keys()
        assert bool(given) == ((run.extend or {}).get("router") == "learned"), run.row
    assert not of_routers & recipe.train_settings(None, False).keys()


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


def test_hub_ids_are_those_of_table_2() -> None:
    models = Published.read(RECIPES / "hallee2025" / "published.yaml").models
    by_row = {each.name: each.model for each in read_recipe(MOE_ALL.with_name("baselines.yaml")).baselines}
    by_row["Llama-3.2"] = by_row.pop("Llama-3.2-1B")
    assert by_row == {row: model.hub for row, model in models.items() if row != "MoE_all"}
    assert read_recipe(MOE_ALL).runs[0].base == models["ModernBERT_base"].hub


def test_faithful_protocols_name_their_leaks() -> None:
    for file in SHIPPED:
        protocol = read_recipe(file).protocol
        reported = next(iter(protocol.evaluate.values()))["split"]
        assert (reported == "validation") == protocol.faithful
        assert protocol.train["mask_known"] == (not protocol.faithful)
        assert any(choice.kind == "leaks" for choice in protocol.choices) == protocol.faithful


@pytest.mark.parametrize("file", SHIPPED, ids=recipe_id)
def test_small_scale_makes_and_splits_pairs_as_the_protocol_does(file: Path, tmp_path: Path) -> None:
    settings = next(step.settings for step in plan(file, tmp_path).steps if step.call == "compile_pairs")
    published, small = PairsConfig.of(**read_recipe(file).protocol.pairs), PairsConfig.of(**settings)
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
    with pytest.raises(InputError, match=r"protocol\.yaml: pairs with small\.pairs: `split=article` needs"):
        plan(recipe, tmp_path)


def test_full_scale_asks_for_the_corpus_then_the_descriptors_then_the_models(tmp_path: Path) -> None:
    recipe = copy_recipe(MOE_ALL, tmp_path, **{"answerdotai/ModernBERT-base": "no-one/no-model"})
    experiment = plan(recipe, tmp_path, "full")

    def missing() -> str:
        with pytest.raises(InputError) as caught:
            run_experiment(experiment)
        return str(caught.value)

    assert "corpus holds no corpus" in missing()
    write_corpus(tmp_path / "corpus")
    assert re.search(r"domains\.yaml: mesh_descriptors: .*desc2026\.xml is not there", missing())
    (tmp_path / "desc2026.xml").touch()
    assert missing().startswith("no-one/no-model: no such folder")


def test_a_fetched_corpus_brings_all_domains_of_the_paper(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    write_json(corpus.path / "manifest.json", {**corpus.manifest, "tables": {DOMAINS: {}}})
    paper_of = dict.fromkeys(read_recipe(MOE_ALL).protocol.queries, "doi:10.1/a")

    def planned(domains: Iterable[str]) -> Experiment:
        rows = [{"paper_id": paper_of[domain], "domain": domain} for domain in domains]
        write_parquet(corpus.path / DOMAINS, pa.Table.from_pylist(rows, DOMAINS_SCHEMA))
        return plan(MOE_ALL, tmp_path, "full")

    with pytest.raises(InputError, match="corpus: was fetched without the paper's domain autoimmune"):
        planned(sorted(paper_of)[1:])
    assert "domains" not in planned(paper_of).steps[0].arguments


@pytest.mark.parametrize("file", SHIPPED, ids=recipe_id)
def test_queries_and_domain_rules_are_of_the_same_years(file: Path) -> None:
    protocol = read_recipe(file).protocol
    rules = DomainRules.read(protocol.domains).domains
    assert {key: query.years for key, query in protocol.queries.items()} == {
        key: rule.years for key, rule in rules.items()
    }
    for key, query in protocol.queries.items():
        assert query.mesh == f'"{rules[key].mesh[0]}"[MeSH Terms]'


def test_missing_corpus_is_explained_by_the_papers_queries() -> None:
    recipe = read_recipe(RECIPES / "hallee2024" / "scibert_moe.yaml")
    assert recipe.protocol.plan is not None
    assert FetchConfig.read(recipe.protocol.plan).domains.keys() == recipe.protocol.queries.keys()
    text = "\n".join(how_to_get_the_corpus(recipe.protocol))
    assert f"`fetch_corpus` with the settings of {RECIPES / 'corpus' / 'hallee2024_domains.yaml'}" in text
    assert '"Cardiovascular Diseases"[MeSH Terms] AND open access[filter]' in text
    assert "2017:2022[pdat]" in text
    assert "2010:2022[pdat]" in text
    with pytest.raises(UsageError, match="needs `corpus`"):
        plan_recipe(MOE_ALL, scale="full")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("runs:", "rums:", r"moe_all\.yaml: rums: no such setting; did you mean runs"),
        ("base:", "bass:", r"moe_all\.yaml: runs\.0\.bass: "),
        (
            "pooling: mean",
            "pooling: max",
            r"moe_all\.yaml: runs\.MoE_all\.extend\.pooling: .*'mean', 'cls' or",
        ),
        ("batch_size:", "batchsize:", r"protocol\.yaml: train\.batchsize: no such setting"),
        ("loss: argmax_target", "loss: argmax", r"protocol\.yaml: train\.loss: .*got 'argmax'"),
        ("split: random", "split: randomly", r"protocol\.yaml: pairs\.split: .*got 'randomly'"),
        (
            "relation: co-citation\n  unit: abstract\n  train_within: article\n  split: random",
            "relation: coupling\n  split: article",
            r"protocol\.yaml: pairs: `split=article` needs",
        ),
        ("cvd: neuroscience", "cvs: neuroscience", r"protocol\.yaml: small\.domains: .*cvs"),
        ("protocol: protocol.yaml", "protocol: protocols.yaml", r"protocols\.yaml: .*no such file"),
        ("kind: pairs", "kind: pears", r"protocol\.yaml: kind: 'pears' is none of pairs, tasks, "),
        ("published: published.yaml", "published: numbers.yaml", r"numbers\.yaml: .*no such file"),
    ],
)
def test_faulty_recipe_is_named_by_file_and_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    read_recipe(copy_recipe(MOE_ALL, tmp_path))
    recipe = copy_recipe(MOE_ALL, tmp_path, **{old: new})
    with pytest.raises(InputError) as caught:
        read_recipe(recipe)
    assert re.search(message, str(caught.value))
    assert "\n" not in str(caught.value)


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
