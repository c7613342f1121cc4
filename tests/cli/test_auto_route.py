"""`sentence-experts auto-route`, and `--route auto` of the other verbs."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import sentence_experts
from helpers.command_line import run
from helpers.samples import TOPICS, write_corpus


@pytest.fixture
def model(experts_model: Path, tmp_path: Path) -> Path:
    sentence_experts.load(experts_model, device="cpu").save(str(tmp_path / "model"), create_model_card=False)
    return tmp_path / "model"


def test_auto_route_then_encode(
    model: Path, pairs_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, error = run(capsys, "auto-route", model, "--pairs", pairs_folder, "--confidence", "0.6")
    assert status == 0, error
    for part in ("learned from", "right", "below 0.6", "Cost of wrong routes", "true routes", "crops"):
        assert part in out
    settings = json.loads((model / "auto_route" / "auto_route.json").read_text())
    assert (settings["routes"], settings["confidence"]) == (["crops", "neuro"], 0.6)

    (tmp_path / "texts.txt").write_text("rice yield drought\nneuron spike cortex\n")
    vectors = tmp_path / "v.npy"
    options = ["--input", tmp_path / "texts.txt", "--route", "auto", "--out", vectors]
    status, _, error = run(capsys, "encode", model, *options)
    assert status == 0, error
    encoder = sentence_experts.load(model, device="cpu")
    expected = encoder.encode(["rice yield drought", "neuron spike cortex"], prompt_name="auto")
    assert np.abs(np.load(vectors) - expected).max() <= 1e-6

    corpus = write_corpus(tmp_path / "corpus").path
    status, out, error = run(capsys, "search", model, "rice", "--corpus", corpus, "--route", "auto", "--json")
    assert status == 0, error
    assert len(json.loads(out)[0]["papers"]) == 4

    options = ["--route-map", "*=auto", "--bootstrap", "0", "--out", tmp_path / "evaluation"]
    status, out, error = run(capsys, "evaluate", model, "--pairs", pairs_folder, *options)
    assert status == 0, error
    written = json.loads((tmp_path / "evaluation" / "evaluation.json").read_text())
    assert written["models"][0]["settings"]["route_of_domain"] == {"crops": "auto", "neuro": "auto"}


def test_auto_route_from_texts(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open(tmp_path / "texts.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "domain"])
        for domain, topics in TOPICS.items():
            writer.writerows([f"{topic} {word}", domain] for topic in topics for word in topic.split())
    status, out, error = run(capsys, "auto-route", model, "--texts", tmp_path / "texts.csv")
    assert status == 0, error
    assert "not learned from" in out
    assert "Cost of wrong routes" not in out
    (tmp_path / "bad.csv").write_text("text,domain\nrice,\n")
    status, _, error = run(capsys, "auto-route", model, "--texts", tmp_path / "bad.csv", "--overwrite")
    assert (status, "row 1 has no domain" in error) == (1, True), error
    texts = ["--texts", tmp_path / "texts.csv"]
    status, _, error = run(capsys, "auto-route", model, *texts, "--confidence", "0.9")
    assert (status, "--out" in error, "give --overwrite to start over" in error) == (2, False, True), error
    status, _, error = run(capsys, "auto-route", model, *texts, "--confidence", "0.9", "--overwrite")
    assert status == 0, error
