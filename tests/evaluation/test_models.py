from __future__ import annotations

from pathlib import Path

import pytest

from sentence_experts.errors import UsageError
from sentence_experts.evaluation.config import EncodingOptions
from sentence_experts.evaluation.models import (
    ModelRun,
    RouteMap,
    check_names,
    identity_of,
    model_runs,
    named_models,
    setting_of,
)
from sentence_experts.models.loading import load

DOMAINS = ["copd", "skin: cancer"]


def test_labels_sources_runs_and_baselines():
    models, baseline = named_models(
        ["org/llama", "runs/dense"],
        ["tfidf", "minilm"],
        {"mean": "org/llama", "last": "org/llama"},
        {"MoE": ["runs/1", "runs/2"]},
    )
    entries = model_runs(models, baseline)
    assert [(entry.label, entry.model, entry.source) for entry in entries] == [
        ("mean", "mean", "org/llama"),
        ("last", "last", "org/llama"),
        ("runs/dense", "runs/dense", "runs/dense"),
        ("MoE #1", "MoE", "runs/1"),
        ("MoE #2", "MoE", "runs/2"),
        ("TF-IDF", "TF-IDF", "tfidf"),
        ("minilm", "minilm", "minilm"),
    ]
    assert [entry.is_baseline for entry in entries] == [False] * 5 + [True] * 2
    assert [entry.is_tfidf for entry in entries] == [False] * 5 + [True, False]
    with pytest.raises(UsageError, match="`name` x=elsewhere: no such model or baseline"):
        named_models(["org/llama"], name={"x": "elsewhere"})
    with pytest.raises(UsageError, match="two models are called 'MoE'"):
        named_models(["org/llama"], name={"MoE": "org/llama"}, seeds={"MoE": ["runs/1"]})


def test_models_of_training_runs_are_called_by_their_run(tmp_path: Path):
    for run in ("dense", "experts"):
        (tmp_path / run / "model").mkdir(parents=True)
        (tmp_path / run / "run.json").touch()
    (tmp_path / "untrained" / "model").mkdir(parents=True)
    models = [str(tmp_path / name / "model") for name in ("dense", "experts", "untrained")]
    assert list(named_models(models)[0]) == ["dense", "experts", "model"]


def test_settings_name_a_model_by_run_label_or_source():
    run = ModelRun("MoE #2", "MoE", "runs/2")
    for name in ("MoE #2", "MoE", "runs/2"):
        assert setting_of(run, {name: "last"}) == "last"
    assert setting_of(run, {"MoE #1": "last"}) is None
    check_names([run], {"MoE": "last"}, "pooling")
    tfidf = ModelRun("TF-IDF", "TF-IDF", "tfidf", is_baseline=True)
    with pytest.raises(UsageError, match="`pooling` TF-IDF=last: no such model; models: MoE"):
        check_names([run, tfidf], {"TF-IDF": "last"}, "pooling")


def test_routes_of_all_models_that_one_of_several_routes_lacks_are_told(caplog):
    routes = RouteMap.read({"copd": "lungs", "*": "all"}, DOMAINS, "")
    for known in ((), ("only",), ("lungs", "all", "skin")):
        routes.of(ModelRun("A", "A", "a"), known)
    assert not caplog.text
    for _ in range(2):
        routes.of(ModelRun("A", "A", "a"), ("lungs", "skin"))
    assert caplog.text.count("A: `route_map` names routes that it does not have: *=all") == 1


def test_route_map_of_all_models_and_of_one():
    routes = RouteMap.read({"copd": "lungs", "SE:*": "only", "MoE:skin: cancer": "skin"}, DOMAINS, "")
    assert routes.of(ModelRun("SE", "SE", "a"), ["only"]) == {"*": "only"}
    assert routes.of(ModelRun("MoE #1", "MoE", "b"), ["lungs", "skin"]) == {
        "copd": "lungs",
        "skin: cancer": "skin",
    }
    assert routes.of(ModelRun("plain", "plain", "c"), []) == {}
    assert RouteMap.read({"skin: cancer": "x", "*": "y"}, DOMAINS, "").for_all_models == {
        "skin: cancer": "x",
        "*": "y",
    }
    for wrong in ("sky", "MoE:sky"):
        with pytest.raises(UsageError, match=f"`route_map` {wrong}=x: unknown"):
            RouteMap.read({wrong: "x"}, DOMAINS, "unknown")


class Loaded:
    """A model in memory without a name."""

    config = None


def test_models_of_every_form():
    loaded = Loaded()
    for models, labels in (
        ("runs/dense", ["runs/dense"]),
        (["runs/dense", "tfidf"], ["runs/dense", "TF-IDF"]),
        (loaded, ["Loaded"]),
        ({"a": loaded, "b": ["x", loaded]}, ["a", "b #1", "b #2"]),
    ):
        assert [run.label for run in model_runs(models)] == labels
    assert [run.is_baseline for run in model_runs(["x", "tfidf"], "y")] == [False, True, True]


def test_models_with_equal_labels_and_no_models_are_refused():
    for models, label in ((["a", "a"], "a"), ({"a": ["x", "y"], "a #1": "z"}, "a #1")):
        with pytest.raises(UsageError, match=f"two models are called '{label}'"):
            model_runs(models)
    with pytest.raises(UsageError, match="nothing to evaluate"):
        model_runs([])


def test_the_order_of_models_and_which_are_baselines_decide_the_results():
    def identity(models: list[str], baseline: list[str] = []):  # noqa: B006
        return identity_of(model_runs(models, baseline), EncodingOptions())

    kinds = [identity(["a", "b"]), identity(["b", "a"]), identity(["a"], ["b"]), identity(["b"], ["a"])]
    assert all(kinds.count(each) == 1 for each in kinds)
    assert identity([], ["a"]) != identity(["a"])


def test_a_model_in_memory_is_the_one_of_its_path_unless_its_settings_differ(plain_model: Path):
    def identity(source):
        return identity_of(model_runs({"m": source}), EncodingOptions())

    assert identity(load(plain_model, device="cpu")) == identity(plain_model)
    assert identity(load(plain_model, device="cpu", max_length=8)) != identity(plain_model)
