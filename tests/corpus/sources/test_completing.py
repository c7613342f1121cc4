"""Papers without an abstract are completed from OpenAlex, by their identifiers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.bibliographic import unpack_samples
from helpers.openalex_works import write_records
from helpers.replay_server import Replay, serving
from helpers.small_articles import papers, rejected
from sentence_experts.corpus import building
from sentence_experts.corpus.formats.openalex import parse_record, read_works
from sentence_experts.corpus.importing import add_to_corpus, import_corpus
from sentence_experts.errors import UsageError
from sentence_experts.storage import sha256_file

HEADER = (
    "PMID,Title,Authors,Citation,First Author,Journal/Book,Publication Year,Create Date,PMCID,NIHMS ID,DOI"
)
CSV = f"""{HEADER}
11,Roots in drought,A,,A,Rice,2019,2019/01/01,,,
12,Sleep and memory,A,,A,Sleep,2019,2019/01/01,PMC12,,10.1000/twelve
13,Nobody knows it,A,,A,Rice,2019,2019/01/01,,,
"""
BIB = """@article{one, title = {Wheat in drought}, doi = {10.1000/wheat}}
@article{two, title = {With its abstract}, doi = {10.1000/own}, abstract = {It is here.}}
@misc{three, title = {Nothing but a title}}
"""
OF_PMIDS, OF_DOIS = "pmid:11|13", "doi:10.1000/twelve|10.1000/wheat"


def record(number: int, abstract: str | None, **ids: str) -> dict[str, Any]:
    words = {word: [place] for place, word in enumerate((abstract or "").split())}
    return {
        "id": f"https://openalex.org/W{number}", "ids": ids, "title": f"Title {number}",
        "publication_year": 1999, "updated_date": "2030-01-01",
        "abstract_inverted_index": words or None, "mesh": [{"descriptor_name": "Droughts"}],
    }  # fmt: skip


@pytest.fixture
def library(tmp_path: Path) -> list[Path]:
    (tmp_path / "pubmed.csv").write_text(CSV)
    (tmp_path / "library.bib").write_text(BIB)
    return [tmp_path / "pubmed.csv", tmp_path / "library.bib"]


@pytest.fixture
def settings(world: Replay) -> Iterator[dict[str, Any]]:
    world.openalex[OF_PMIDS] = [record(11, "Roots grow.", pmid="11", doi="10.1000/eleven")]
    world.openalex[OF_DOIS] = [
        record(12, None, doi="10.1000/twelve"), record(99, "Ears grow.", doi="10.1000/WHEAT"),
    ]  # fmt: skip
    with serving(world) as base:
        services = world.services(base)
        yield {"complete": "openalex", "services": services, "workers": 1, "api_key": "secret"}


def by_title(corpus: Any) -> dict[str, str | None]:
    return {paper["paper_id"]: paper["abstract"] for paper in papers(corpus)}


def test_what_lacks_an_abstract_is_completed_by_identifier(
    world: Replay, library: list[Path], settings: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    corpus = import_corpus(library, out, **settings)
    abstracts = by_title(corpus)
    assert {name: abstract for name, abstract in abstracts.items() if abstract} == {
        "doi:10.1000/eleven": "Roots grow.",
        "doi:10.1000/wheat": "Ears grow.",
        "doi:10.1000/own": "It is here.",
    }
    assert len(abstracts) == 6, "no paper is new"
    counts = corpus.manifest["counts"]
    assert (counts["articles"], counts["duplicates"]) == (6, 0)
    [twelve] = [paper for paper in papers(corpus) if paper["pmid"] == "12"]
    assert (twelve["title"], twelve["mesh"]) == ("Sleep and memory", ["Droughts"])
    [eleven] = [paper for paper in papers(corpus) if paper["pmid"] == "11"]
    assert (eleven["title"], eleven["year"], eleven["journal"]) == ("Roots in drought", 2019, "Rice")
    assert corpus.manifest["completed"] == {
        "from": "OpenAlex", "lacking": 5, "asked": 4, "found": 3, "completed": 2,
    }  # fmt: skip
    asked = len(world.asked)
    assert asked == 4, "two queries, of a page and the last page each"
    assert import_corpus(library, out, **settings).fingerprint() == corpus.fingerprint()
    assert len(world.asked) == asked
    with pytest.raises(UsageError, match="complete"):
        import_corpus(library, out, workers=1)


@pytest.mark.slow
def test_what_failed_is_requested_again_and_the_bytes_are_the_same(
    world: Replay, library: list[Path], settings: dict[str, Any], tmp_path: Path
) -> None:
    whole = import_corpus(library, tmp_path / "whole", **settings)
    before = len(world.asked)
    world.fault = lambda number, path: "503" if number >= before + 2 else None
    broken = import_corpus(library, tmp_path / "out", **settings)
    assert broken.manifest["completed"]["completed"] == 1
    assert [one["reason"] for one in rejected(broken)] == ["not-fetched"]
    world.fault = lambda number, path: None
    before = len(world.asked)
    again = import_corpus(library, tmp_path / "out", **settings)
    assert len(world.asked) == before + 2, "only the query that failed"
    for name in ("papers.parquet", "citations.parquet", "manifest.json", "rejected.jsonl"):
        assert sha256_file(again.path / name) == sha256_file(whole.path / name), name


@pytest.mark.slow
def test_a_finished_corpus_is_completed_by_adding(
    world: Replay,
    library: list[Path],
    settings: dict[str, Any],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    corpus = import_corpus(library, tmp_path / "out", workers=1)
    assert by_title(corpus)["doi:10.1000/wheat"] is None
    added = add_to_corpus(corpus, **settings)
    assert by_title(added)["doi:10.1000/wheat"] == "Ears grow."
    assert added.manifest["counts"]["with_abstract"] == 3
    asked = len(world.asked)
    assert by_title(add_to_corpus(added, **settings)) == by_title(added)
    assert len(world.asked) == asked + 2, "what still lacks one"
    assert by_title(add_to_corpus(added, **settings)) == by_title(added)
    assert len(world.asked) == asked + 2, "the answers are kept with the corpus"
    assert "were looked up earlier, and not again: to ask anew, delete journal.sqlite" in caplog.text


def test_a_record_of_openalex_that_is_completed_keeps_its_references(
    world: Replay, settings: dict[str, Any], tmp_path: Path
) -> None:
    stated = record(99, None, doi="10.1000/wheat") | {
        "title": "Wheat", "updated_date": "2020-01-01", "referenced_works": ["https://openalex.org/W98"],
    }  # fmt: skip
    works = write_records(tmp_path / "x.jsonl", [stated, record(98, "Old.", doi="10.1000/old")])
    world.openalex["openalex:W99"] = [record(99, "Ears grow.", doi="10.1000/wheat")]
    corpus = import_corpus([works], tmp_path / "out", **settings)
    [wheat] = [paper for paper in papers(corpus) if paper["doi"] == "10.1000/wheat"]
    assert (wheat["title"], wheat["abstract"]) == ("Wheat", "Ears grow.")
    assert corpus.manifest["counts"]["citations"] == 1


@pytest.mark.realdata
def test_recorded_works_of_openalex_complete_papers_without_their_references(
    real_data: Path, world: Replay, settings: dict[str, Any], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    samples = unpack_samples(real_data, "openalex", tmp_path / "samples")
    recorded = [parse_record(raw) for raw in read_works(samples.folder / "works_list_page_1.json")]
    dois = sorted(work["doi"].removeprefix("https://doi.org/") for work in recorded)
    world.openalex[f"doi:{'|'.join(dois)}"] = recorded
    table = [{"id": doi, "doi": doi, "title": "A title", "abstract": ""} for doi in dois]
    monkeypatch.setenv("OPENALEX_API_KEY", "secret")
    corpus = import_corpus(papers=table, **settings | {"api_key": None})
    assert corpus.manifest["completed"]["completed"] == 1
    assert (len(papers(corpus)), corpus.manifest["counts"]["with_topic"]) == (2, 2)
    assert corpus.manifest["counts"]["references"] == 0
    monkeypatch.delenv("OPENALEX_API_KEY")
    with pytest.raises(UsageError, match="OPENALEX_API_KEY"):
        import_corpus([write_records(tmp_path / "x.jsonl", recorded)], complete="openalex")


def stop(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_abstracts_that_came_in_a_later_run_are_kept(
    world: Replay, library: list[Path], settings: dict[str, Any], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """After one in which a request failed, and which ended before the tables were written."""
    whole = import_corpus(library, tmp_path / "whole", **settings)
    before = len(world.asked)
    world.fault = lambda number, path: "503" if number >= before + 2 else None
    with monkeypatch.context() as context:
        context.setattr(building, "_write_corpus", stop)
        with pytest.raises(KeyboardInterrupt):
            import_corpus(library, tmp_path / "out", **settings)
    world.fault = lambda number, path: None
    again = import_corpus(library, tmp_path / "out", **settings)
    assert by_title(again) == by_title(whole)
