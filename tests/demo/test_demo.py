"""The demo's steps run from articles to search, and its choice of material is the one it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.samples import make_tiny_encoder
from sentence_experts.cli.demo import program
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.corpus.simulate import TOPICS, simulate_corpus
from sentence_experts.demo import main_job, route_job
from sentence_experts.demo.main_job import DemoConfig, run_main_job, searches
from sentence_experts.demo.route_job import (
    FIRST,
    QUERY,
    TEXTS,
    describe_change,
    nearest_texts,
    run_route_job,
)
from sentence_experts.demo.simulated_texts import SIDES
from sentence_experts.errors import InputError, UsageError
from sentence_experts.pairs.domain_papers import unmatched_rules
from sentence_experts.pairs.domains import DomainRules
from sentence_experts.report.write import report_of
from sentence_experts.reproduce.material import Material, data_folder

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(autouse=True)
def _few_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (main_job, route_job):
        monkeypatch.setattr(module, "BOOTSTRAP", 20)


def test_main_job_runs_on_the_simulated_corpus_and_only_once(tmp_path: Path, minilm: str) -> None:
    # The tiny random base in place of MiniLM: the same steps, in seconds.
    base = make_tiny_encoder(tmp_path / "tiny", minilm)
    material = Material.find(simulate_corpus(tmp_path / "articles", seed=0, articles=480), None)
    out, config = tmp_path / "demo", DemoConfig(steps=2)
    evaluation = run_main_job(material, out, config, str(base))
    assert [model.label for model in evaluation.models] == ["experts", "dense", "TF-IDF", "base"]
    assert report_of(evaluation).verdict.compared.startswith("SIMULATED TEXTS")
    assert (out / "evaluation" / "report.html").stat().st_size > 10_000
    found = list(searches(material, out))
    assert [(route, result.queries[0]) for route, result in found] == list(material.queries.items())
    assert all(len(result.papers[0]) == 3 for _, result in found)
    records = {file: file.stat().st_mtime_ns for file in out.rglob("made_from.json")}
    assert len(records) >= 5
    run_main_job(material, out, config, str(base))
    assert records == {file: file.stat().st_mtime_ns for file in out.rglob("made_from.json")}


@pytest.mark.parametrize("material", [Material.find(Path(), Path()), Material.find(Path(), None)])
def test_each_query_has_a_domain_of_the_rules(material: Material) -> None:
    assert set(material.queries) <= set(material.domains)
    DomainRules.read(material.rules).classifier()


def test_named_folder_without_articles_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTENCE_EXPERTS_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"elife_jats\.tar\.xz"):
        data_folder()


def test_no_folder_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SENTENCE_EXPERTS_DATA", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert data_folder() is None


def test_every_rule_of_the_simulated_material_matches_what_is_simulated() -> None:
    rules = DomainRules.read(Material.find(Path(), None).rules)
    assert not unmatched_rules(rules, {"subjects": dict.fromkeys(TOPICS, 1)})


def test_simulated_material_is_named_so() -> None:
    assert "SIMULATED" in Material.find(Path(), None).name


def test_added_route_leaves_the_others_and_everything_says_simulated(tmp_path: Path, minilm: str) -> None:
    base, out = make_tiny_encoder(tmp_path / "tiny", minilm), tmp_path / "routes"
    config = DemoConfig(steps=4)
    evaluation = run_route_job(out, config, str(base))
    simulated, experts, dense = describe_change(out, evaluation)
    assert simulated.startswith("SIMULATED TEXTS")
    assert "subject and method are the same to the bit" in experts
    assert "subject and method changed" in dense
    assert report_of(evaluation).verdict.compared.startswith("SIMULATED TEXTS")
    assert CorpusFolder.open(out / "corpus").manifest["counts"]["simulated"] > 100
    assert [each.route for each in nearest_texts(out, FIRST)] == ["subject", "subject", "method", "method"]
    with pytest.raises(UsageError, match="overwrite"):  # texts of two seeds never mix
        run_route_job(out, config.model_copy(update={"seed": 1}), str(base))


def test_page_texts_share_one_side_each_with_the_query() -> None:
    for route, text in TEXTS.items():
        shared = [side for side, values in SIDES.items() if any(v in QUERY and v in text for v in values)]
        assert shared == [route]


def test_program_is_named_as_it_can_be_called_from_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.argv", [".venv/bin/sentence-experts", "demo"])
    assert program() == ".venv/bin/sentence-experts"
    monkeypatch.setattr("sys.argv", ["-c"])
    assert program() == "sentence-experts"
