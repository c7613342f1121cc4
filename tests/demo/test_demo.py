"""The demo's steps run from articles to search, and its choice of material is the one it names."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.samples import make_tiny_encoder
from sentence_experts.cli.reproduce import program
from sentence_experts.corpus.simulate import TOPICS, simulate_corpus
from sentence_experts.demo import jobs
from sentence_experts.demo.jobs import DemoConfig, find_labelled_rows, run_main_job, run_route_job
from sentence_experts.demo.package_lists import read_labelled_programs, read_packages
from sentence_experts.errors import InputError
from sentence_experts.pairs.domains import DomainRules, describe_unmatched_rules
from sentence_experts.report.write import report_of
from sentence_experts.reproduce.material import Material, data_folder

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(autouse=True)
def _few_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "BOOTSTRAP", 20)


def test_main_job_runs_on_the_simulated_corpus_and_only_once(tmp_path: Path, minilm: str) -> None:
    # The tiny random base in place of MiniLM: the same steps, in seconds.
    base = make_tiny_encoder(tmp_path / "tiny", minilm)
    material = Material.find(simulate_corpus(tmp_path / "articles", seed=0, articles=480), None)
    out, config = tmp_path / "demo", DemoConfig(steps=2)
    evaluation = run_main_job(material, out, config, str(base))
    assert [model.label for model in evaluation.models] == ["experts", "dense", "TF-IDF", "base"]
    assert report_of(evaluation).verdict.compared.startswith("SIMULATED TEXTS")
    assert (out / "evaluation" / "report.html").stat().st_size > 10_000
    records = {file: file.stat().st_mtime_ns for file in out.rglob("made_from.json")}
    assert len(records) >= 5
    run_main_job(material, out, config, str(base))
    assert records == {file: file.stat().st_mtime_ns for file in out.rglob("made_from.json")}


@pytest.mark.parametrize("material", [Material.find(Path(), Path()), Material.find(Path(), None)])
def test_each_query_has_a_domain_of_the_rules(material: Material) -> None:
    assert set(material.queries) <= set(material.domains)
    DomainRules.of(material.rules).classifier()


def test_named_folder_without_articles_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTENCE_EXPERTS_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"elife_jats\.tar\.xz"):
        data_folder()


def test_every_rule_of_the_simulated_material_matches_what_is_simulated() -> None:
    rules = DomainRules.of(Material.find(Path(), None).rules)
    assert not describe_unmatched_rules(rules, {"subjects": dict.fromkeys(TOPICS, 1)})


@pytest.mark.slow
def test_the_third_route_leaves_the_others_and_the_texts_say_simulated(
    tmp_path: Path, minilm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "read_labelled_programs", list)
    texts = find_labelled_rows(0)
    assert "SIMULATED" in texts.name
    texts = texts._replace(rows=texts.rows[:160])
    base = make_tiny_encoder(tmp_path / "tiny", minilm)
    two, three, change = run_route_job(texts, tmp_path / "routes", DemoConfig(steps=4), str(base))
    assert [list(each.model.head_routes) for each in (two, three)] == [
        ["subject", "method"],
        list(texts.routes),
    ]
    assert change == "Adding place left subject and method the same to the bit."


PACKAGES = """Package: viewer
Source: viewer-src (1.2)
Description: Image viewer
 that is fast
Description-md5: d94
Tag: role::program, uitoolkit::gtk, use::viewing,
 works-with::image:raster

Package: libviewer
Description: library
"""


IN_FULL = """Package: viewer
Description-md5: d94
Description-en: Image viewer
 It shows
 .
 images.
"""


def test_packages_are_read_with_their_continued_lines() -> None:
    first, second = read_packages(PACKAGES.splitlines())
    assert first["Tag"].endswith("use::viewing, works-with::image:raster")
    assert first["Description"] == "Image viewer that is fast"
    assert second == {"Package": "libviewer", "Description": "library"}


def test_programs_of_a_list_have_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {
        "dumpavail": "\n".join(PACKAGES.replace("viewer", f"viewer{number}") for number in range(1200)),
        "indextargets": "/lists/i18n_Translation-de.lz4\n/lists/i18n_Translation-en.lz4\n",
        "cat-file": IN_FULL,
    }
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr(
        "subprocess.run", lambda command, **options: SimpleNamespace(stdout=listed[command[1]])
    )
    programs = read_labelled_programs()
    assert len(programs) == 1200
    assert programs[7] == {
        "package": "viewer7",
        "source": "viewer7-src",
        "summary": "Image viewer7 that is fast",
        "description": "Image viewer It shows images.",
        "use": "viewing",
        "works-with": "image",
        "uitoolkit": "gtk",
    }


def test_program_is_named_as_it_can_be_called_from_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.argv", [".venv/bin/sentence-experts", "demo"])
    assert program() == ".venv/bin/sentence-experts"
    monkeypatch.setattr("sys.argv", ["-c"])
    assert program() == "sentence-experts"
