"""The demo's commands run from articles to search, and its choice of material is the one it names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.samples import make_tiny_encoder
from sentence_experts.cli.main import main
from sentence_experts.corpus.simulate import simulate_corpus
from sentence_experts.demo import plan
from sentence_experts.errors import InputError
from sentence_experts.pairs.domains import DomainRules


def test_every_command_runs_on_the_simulated_corpus(
    tmp_path: Path, minilm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # The tiny random base in MiniLM's place: the same commands, in seconds.
    base = make_tiny_encoder(tmp_path / "tiny", minilm)
    material = plan.simulated_articles(simulate_corpus(tmp_path / "articles", seed=0))
    out = tmp_path / "demo"
    for command in plan.commands(material, out, steps=2, seed=0, base=str(base)):
        with pytest.raises(SystemExit) as stop:
            main(command)
        assert stop.value.code == 0, (command, capsys.readouterr().err)
    evaluation = json.loads((out / "evaluation" / "evaluation.json").read_text())
    text = json.dumps(evaluation)
    for label in ("TF-IDF", "base", "dense, tokens", "experts"):
        assert label in text
    assert (out / "evaluation" / "report.html").stat().st_size > 10_000
    printed = capsys.readouterr().out
    for _, query in material.queries:
        assert query in printed


@pytest.mark.parametrize("material", [plan.real_articles(Path()), plan.simulated_articles(Path())])
def test_each_query_goes_to_a_domain_of_the_rules(material: plan.Material) -> None:
    assert {route for route, _ in material.queries} <= set(material.domains)
    DomainRules.read(material.rules).classifier()


def test_a_named_folder_without_articles_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTENCE_EXPERTS_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"elife_jats\.tar\.xz"):
        plan.data_folder()


def test_without_a_named_folder_the_demo_may_go_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SENTENCE_EXPERTS_DATA", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert plan.data_folder() is None


def test_simulated_material_says_so() -> None:
    assert "SIMULATED" in plan.simulated_articles(Path()).name
