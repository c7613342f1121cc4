"""Training data of any form: domains and tasks together, tables in memory, models in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer

import sentence_experts
from helpers.samples import TOPICS
from helpers.saved_weights import weights_of
from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.models.loading import load
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.tasks.dataset import Tasks
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.data import COLUMNS, NONE, LinkedPairs, find_distinct, find_places, open_data
from sentence_experts.training.run import train
from sentence_experts.training.trainable import find_routes
from sentence_experts.training.training_set import TrainingSet

SHORT = {"batch_size": 6, "max_steps": 8, "eval_steps": 8, "learning_rate": 1e-3, "warmup": 0.0}


@pytest.fixture
def plain(experts_model: Path) -> SentenceTransformer:
    return SentenceTransformer(str(experts_model.with_name(f"{experts_model.name}-plain")), device="cpu")


def frame(count: int = 40) -> pd.DataFrame:
    rows = []
    for number in range(count):
        route = list(TOPICS)[number % 2]
        words = TOPICS[route][number // 2 % 4]
        rows.append((f"{words} {number}", f"{number} {words}", route))
    return pd.DataFrame(rows, columns=["anchor", "positive", "route"])


def test_domains_and_tasks_train_one_model(plain: SentenceTransformer, pairs: Pairs, tasks: Tasks) -> None:
    model = sentence_experts.extend(plain, domains=pairs.domains, tasks=tasks.path)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = train(model, [pairs, tasks], **{**SHORT, "max_steps": 16, "eval_steps": 16})
    figures = result.history[-1]
    own = [figures[f"eval_validation_{domain}/roc_auc"] for domain in pairs.domains]
    own += [
        figures[f"eval_validation_{task}/ndcg_at_10"]
        for task in ("retrieval", "classification", "clustering")
    ]
    assert figures["eval_validation_mean"] == pytest.approx(sum(own) / 5)
    # The model is trained in place, and every expert of both kinds of data moved.
    assert result.model is model
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    experts = {name.split(".experts.")[1].split(".")[0] for name in moved if ".experts." in name}
    assert len(experts) == len(model.experts) == 6
    assert model.encode(["rice"], prompt_name="crops").shape == (1, 32)


def test_trained_model_in_memory_is_the_one_in_the_folder(
    experts_model: Path, pairs: Pairs, tmp_path: Path
) -> None:
    model = sentence_experts.load(experts_model, device="cpu")
    result = train(model, pairs, out=tmp_path / "run", **SHORT)
    saved = weights_of(tmp_path / "run" / "model")
    inside = model[0].auto_model.state_dict()
    assert all(torch.equal(inside[name], value) for name, value in saved.items())
    assert "TrainResult(validation " in repr(result)
    assert list(result.to_pandas()["step"]) == [0, 8]
    shown = set(result.to_pandas().columns)
    assert {"step", "training_loss", "mean"} < shown
    assert {name.rpartition("/f1_max")[0] for name in shown if name.endswith("f1_max")} == set(TOPICS)
    assert not any(name.endswith("threshold") for name in shown)  # those are in the history
    # A finished run gives its model again, in place.
    other = sentence_experts.load(experts_model, device="cpu")
    again = train(other, pairs, out=tmp_path / "run", **SHORT)
    assert again.model is other
    assert all(torch.equal(other.state_dict()[name], value) for name, value in model.state_dict().items())


@pytest.mark.slow
def test_model_in_memory_can_be_trained_again_in_another_way(experts_model: Path, pairs: Pairs) -> None:
    model = sentence_experts.load(experts_model, device="cpu")
    train(model, pairs, only_expert="neuro", max_length=16, **SHORT)
    assert all(weight.requires_grad for weight in model.parameters())
    assert model.max_seq_length != 16
    before = {name: value.clone() for name, value in model.state_dict().items()}
    train(model, pairs, **SHORT)
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert any(".experts.0." in name for name in moved)
    assert any("attention" in name for name in moved)


@pytest.mark.parametrize("form", ["pandas", "arrow", "dataset", "dataset dict"])
def test_tables_in_memory_train_a_model(experts_model: Path, form: str) -> None:
    table = frame()
    data = {
        "pandas": lambda: table,
        "arrow": lambda: pa.Table.from_pandas(table),
        "dataset": lambda: Dataset.from_pandas(table),
        "dataset dict": lambda: DatasetDict(
            train=Dataset.from_pandas(table[:32]), validation=Dataset.from_pandas(table[32:])
        ),
    }[form]()
    result = train(experts_model, data, **{**SHORT, "max_steps": 2, "eval_steps": 2})
    assert set(result.history[0]) == {"step", "eval_validation_mean"} | {
        f"eval_validation_{route}/ndcg_at_10" for route in TOPICS
    }


def test_validation_groups_are_held_out_whole() -> None:
    table = frame()
    table["positive"] = [f"shared {number // 4}" for number in range(len(table))]
    (objective,) = open_data(table)
    assert isinstance(objective, LinkedPairs)
    texts = {
        split: set(objective.pairs.split(split)["positive"].to_pylist()) for split in ("train", "validation")
    }
    assert texts["validation"]
    assert not texts["train"] & texts["validation"]


def test_training_pairs_of_label_0_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    (part,) = open_data(frame().assign(label=[0, 1, 1, 1] * (len(frame()) // 4)))
    assert isinstance(part, LinkedPairs)
    labels = part.pairs.split("train")["label"].to_pylist()
    assert f"{labels.count(0)} training pairs of label 0 are not read" in caplog.text
    assert part.training_pairs(part.routes).num_rows == labels.count(1)
    caplog.clear()
    open_data(part.pairs)
    assert "of label 0 are not read" in caplog.text


@pytest.mark.parametrize("seed", range(3))
def test_no_text_of_held_out_pairs_is_trained_on(seed: int) -> None:
    draw = np.random.default_rng(seed)
    rows = [
        {"anchor": f"Question {n}{mark}", "positive": f"Answer {n}", "negative": f"ANSWER {other}."}
        for n in range(100)
        for mark, other in zip("?!", draw.integers(0, 100, 2), strict=True)
        if other != n
    ]
    (part,) = open_data(rows)
    assert isinstance(part, LinkedPairs)
    train, held_out = (part.pairs.split(name).to_pandas() for name in ("train", "validation"))
    assert len(held_out) > 5
    assert train["negative"].notna().mean() > 0.8
    seen = {text.strip("?!.").lower() for name in COLUMNS for text in train[name].dropna()}
    assert not seen & {text.strip("?!").lower() for name in COLUMNS[:2] for text in held_out[name]}
    assert not train.duplicated(["anchor", "positive", "negative"]).any()
    rows = [{"anchor": f"a {n}", "positive": f"b {n}", "negative": " "} for n in range(40)]
    (part,) = open_data(rows)
    assert isinstance(part, LinkedPairs)
    assert part.pairs.split("train")["negative"].null_count == part.pairs.split("train").num_rows


def test_a_large_group_of_pairs_is_for_training() -> None:
    chain = [{"anchor": f"text {n}", "positive": f"text {n + 1}"} for n in range(60)]
    alone = [{"anchor": f"rice {n}", "positive": f"wheat {n}"} for n in range(60)]
    (part,) = open_data(chain + alone)
    assert isinstance(part, LinkedPairs)
    held_out = part.pairs.split("validation")["anchor"].to_pylist()
    assert len(held_out) == 12
    assert all(text.startswith("rice") for text in held_out)
    (part,) = open_data(chain)
    assert isinstance(part, LinkedPairs)
    assert part.pairs.split("train").num_rows == 60
    queries = [{"anchor": f"query {n}", "positive": f"answer {n} {m}"} for n in range(5) for m in range(n, 6)]
    (part,) = open_data(queries)
    assert isinstance(part, LinkedPairs)
    assert {*part.pairs.split("validation")["anchor"].to_pylist()} == {"query 4"}, "the smallest group"
    two = [{"anchor": f"query {n // 30}", "positive": f"answer {n}"} for n in range(50)]
    (part,) = open_data(two)
    assert isinstance(part, LinkedPairs)
    assert part.pairs.split("train").num_rows == 50, "two fifths would be too many"


def test_data_that_cannot_be_used_is_named(pairs: Pairs, experts_model: Path) -> None:
    with pytest.raises(InputError, match="lacks the column positive"):
        open_data(frame().drop(columns="positive"))
    with pytest.raises(InputError, match="cannot read a table from"):
        open_data(7)
    with pytest.raises(UsageError, match="crops, neuro: a route of two parts"):
        open_data([pairs, frame()])
    with pytest.raises(UsageError, match="no training data"):
        open_data([])
    with pytest.raises(RouteError, match=r"domain .all., that of pairs without a column"):
        train(experts_model, frame().drop(columns="route"), **SHORT)


def test_table_files_and_lists_of_dicts_are_pairs(plain: SentenceTransformer, tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "pairs.csv", index=False)
    (first,) = open_data(tmp_path / "pairs.csv")
    (second,) = open_data(frame().to_dict("records"))
    assert first.fingerprint() == second.fingerprint() == open_data(frame())[0].fingerprint()
    assert sentence_experts.extend(plain, domains=tmp_path / "pairs.csv").experts == tuple(TOPICS)


@pytest.mark.parametrize("write", [str, lambda text: f"{text.upper()} !"])
def test_negatives_of_a_table_are_trained_on(experts_model: Path, write: Callable[[str], str]) -> None:
    """A negative that is the text of another row, but for case and punctuation, has its number."""
    table = frame()
    table["negative"] = [write(table["anchor"][1]), *(f"unlike {row}" for row in range(1, len(table)))]
    table["split"] = ["train"] * (len(table) - 8) + ["validation"] * 8
    objectives = open_data(table)
    config = TrainConfig()
    training = TrainingSet.of(objectives, find_routes(objectives, config, load(experts_model)), config)
    negatives = training.columns[2]
    row = next(row for row, text in enumerate(negatives.to_pylist()) if not str(text).count("unlike"))
    other = next(
        row for row, text in enumerate(training.columns[0].to_pylist()) if text.endswith(table["anchor"][1])
    )
    assert training.numbers[row, 2] == training.numbers[other, 0]
    assert len(np.unique(training.numbers[:, 2])) == len(training)


def test_a_loss_that_takes_no_negatives_says_so(
    experts_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = frame()
    table["split"] = ["train"] * (len(table) - 8) + ["validation"] * 8
    without = open_data(table)
    table["negative"] = [f"unlike {row}" for row in range(len(table))]
    objectives, config = open_data(table), TrainConfig(loss="argmax_target", temperature=None)
    routes = find_routes(objectives, config, load(experts_model))
    assert len(TrainingSet.of(objectives, routes, config).columns) == 2
    assert "`loss=argmax_target` takes no negatives of the pairs" in caplog.text
    caplog.clear()
    TrainingSet.of(without, find_routes(without, config, load(experts_model)), config)
    assert "negatives" not in caplog.text


def test_a_negative_that_is_the_text_of_several_ids_is_none_of_their_positives() -> None:
    rows = [
        {"anchor": "q1", "positive": "T.", "anchor_id": "1", "positive_id": "X"},
        {"anchor": "q2", "positive": "t", "anchor_id": "2", "positive_id": "Y"},
        {"anchor": "q3", "positive": "U", "negative": "T", "anchor_id": "3", "positive_id": "Z"},
    ]
    part = LinkedPairs(Pairs.of(rows))
    pairs = part.training_pairs(part.routes)
    of_negative = pairs["negative_key"].to_pylist()[2]
    links = part.links(pairs).to_pylist()
    linked = {frozenset(row.values()) for row in links}
    assert {frozenset({"1", of_negative}), frozenset({"2", of_negative})} <= linked
    keys = zip(*(pairs[f"{end}_key"].to_pylist() for end in COLUMNS[:2]), strict=True)
    assert {frozenset(ends) for ends in keys} == linked


@pytest.mark.slow
def test_more_than_2_gib_of_texts_are_numbered() -> None:
    long = pa.array(["x" * (1_200 << 20), "short"])
    column = pa.chunked_array([long, long])  # one buffer, twice
    values, numbers = find_distinct(column)
    assert (len(values), numbers.tolist()) == (2, [0, 1, 0, 1])
    del values
    assert find_places(pa.chunked_array([["short", None, "other"]]), column).tolist() == [1, NONE, NONE]
