from __future__ import annotations

import pytest

from sentence_experts.errors import UsageError
from sentence_experts.evaluation.lineup import Entry, RouteMap, check_names, line_up, option_of, runs_by_model

DOMAINS = ["copd", "skin: cancer"]


def test_labels_sources_runs_and_baselines():
    entries = line_up(
        ["org/llama", "runs/dense"],
        ["tfidf", "minilm"],
        {"mean": "org/llama", "last": "org/llama"},
        [("MoE", "runs/1"), ("MoE", "runs/2")],
    )
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
    assert runs_by_model(entries) == {"MoE": ["MoE #1", "MoE #2"]}
    with pytest.raises(UsageError, match="--name x=elsewhere: no such model or baseline"):
        line_up(["org/llama"], names={"x": "elsewhere"})


def test_options_find_their_model_by_run_label_or_source():
    run = Entry("MoE #2", "MoE", "runs/2")
    for name in ("MoE #2", "MoE", "runs/2"):
        assert option_of(run, {name: "last"}) == "last"
    assert option_of(run, {"MoE #1": "last"}) is None
    check_names([run], {"MoE": "last"}, "--pooling")
    tfidf = Entry("TF-IDF", "TF-IDF", "tfidf", is_baseline=True)
    with pytest.raises(UsageError, match="--pooling TF-IDF=last: no such model; models: MoE"):
        check_names([run, tfidf], {"TF-IDF": "last"}, "--pooling")


def test_routes_of_all_models_and_of_one():
    routes = RouteMap.read({"copd": "lungs", "SE:*": "only", "MoE:skin: cancer": "skin"}, DOMAINS)
    assert routes.of(Entry("SE", "SE", "a"), ["only"]) == {"*": "only"}
    assert routes.of(Entry("MoE #1", "MoE", "b"), ["lungs", "skin"]) == {
        "copd": "lungs",
        "skin: cancer": "skin",
    }
    assert routes.of(Entry("plain", "plain", "c"), []) == {}
    assert RouteMap.read({"skin: cancer": "x", "*": "y"}, DOMAINS).of_all == {"skin: cancer": "x", "*": "y"}
    for wrong in ("sky", "MoE:sky"):
        with pytest.raises(UsageError, match=f"--route-map {wrong}=x: the domains are copd, skin: cancer"):
            RouteMap.read({wrong: "x"}, DOMAINS)


def test_tfidf_is_a_baseline_and_no_run():
    for models, seeds in ((["tfidf"], []), ([], [("A", "tfidf")])):
        with pytest.raises(UsageError, match="--baseline tfidf"):
            line_up(models, seeds=seeds)
