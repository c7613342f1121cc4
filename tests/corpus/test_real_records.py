"""Real records of services: each file gives what a separate parser counted in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.bibliographic import Samples, unpack_samples
from sentence_experts.corpus.formats import crossref, europepmc, openalex, semantic_scholar
from sentence_experts.corpus.formats.json_records import parsed, read_raw
from sentence_experts.corpus.formats.record_filter import RecordError
from sentence_experts.corpus.importing import import_corpus
from sentence_experts.corpus.paper import Paper

pytestmark = pytest.mark.realdata


def records(path: Path) -> list[dict]:
    return [parsed(raw) for raw in read_raw(path) if not isinstance(raw, RecordError)]


def counts(papers: list[Paper], names: dict[str, str]) -> dict[str, int]:
    return {
        "records": len(papers),
        "references": sum(len(paper.citations) + len(paper.cites_openalex) for paper in papers),
        **{key: sum(getattr(paper, name) is not None for paper in papers) for key, name in names.items()},
    }


TEXTS = {"with_title": "title", "with_abstract": "abstract", "with_doi": "doi", "with_pmid": "pmid"}


@pytest.fixture(scope="module")
def works(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Samples:
    return unpack_samples(real_data, "openalex", tmp_path_factory.mktemp("openalex"))


def test_openalex_works_have_the_independent_counts(works: Samples) -> None:
    names = TEXTS | {"with_pmcid": "pmcid", "with_primary_topic": "topic"}
    for name, expected in works.expected.items():
        if expected["kind"] == "manifest":
            continue
        papers = [openalex.to_paper(record) for record in records(works.folder / name)]
        assert all(isinstance(paper, Paper) for paper in papers)
        found = counts(papers, names)  # type: ignore[arg-type]
        assert found == {key: expected[key] for key in found}, name


def test_an_abstract_with_gaps_is_the_words_in_their_order(works: Samples) -> None:
    [record] = records(works.folder / "zotero_input_W2257674859.json")
    index = record["abstract_inverted_index"]
    places = {place: word for word, positions in index.items() for place in positions}
    expected = " ".join(places[place] for place in sorted(places))
    assert max(places) >= len(places)  # there are gaps
    assert openalex.abstract_of(index) == expected
    assert openalex.abstract_of(json.dumps({"IndexLength": 9, "InvertedIndex": index})) == expected


def test_a_folder_of_openalex_files_is_a_corpus(works: Samples) -> None:
    corpus = import_corpus([works.folder], workers=1)
    found = corpus.manifest["counts"]
    # One work stands in three files; its latest record counts, with 45 references.
    assert (found["papers"], found["rejected"]) == (41, {"replaced": 2})
    assert found["references"] == found["references_by_unknown_number"] == 374 - 35 - 45
    papers = corpus.to_pandas().set_index("openalex")
    assert papers.loc["W2741809807", ["doi", "pmid", "pmcid", "licence", "field"]].tolist() == [
        "10.7717/peerj.4375", "29456894", "PMC5815332", "CC-BY", "Decision Sciences",
    ]  # fmt: skip


def test_crossref_works_have_the_independent_counts(
    real_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    samples = unpack_samples(real_data, "crossref", tmp_path_factory.mktemp("crossref"))
    (samples.folder / "error_not_found.txt").unlink()
    for name, expected in samples.expected.items():
        if name.endswith(".json"):
            papers = [crossref.to_paper(record) for record in records(samples.folder / name)]
            found = counts(papers, TEXTS)
            assert found == {key: expected[key] for key in found}, name
            assert not any("<jats" in (paper.abstract or "") for paper in papers), name
    found = import_corpus([samples.folder], workers=1).manifest["counts"]
    assert (found["papers"], found["references"], found["with_abstract"]) == (73, 3271, 43)


def test_europe_pmc_records_have_the_independent_counts(
    real_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    samples = unpack_samples(real_data, "europepmc_json", tmp_path_factory.mktemp("europepmc"))
    total = sum(expected["records"] for expected in samples.expected.values())
    for name, expected in samples.expected.items():
        papers = [europepmc.to_paper(record) for record in records(samples.folder / name)]
        of_file = counts(papers, TEXTS)
        assert of_file == {key: expected[key] for key in of_file}, name
    found = import_corpus([samples.folder], format="europepmc", workers=1).manifest["counts"]
    assert found["articles"] == total == found["papers"] + found["duplicates"]


def test_semantic_scholar_edges_and_contexts(
    real_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    samples = unpack_samples(real_data, "semanticscholar", tmp_path_factory.mktemp("s2"))
    names = [name for name, expected in samples.expected.items() if expected["kind"] == "dataset citations"]
    edges = [edge for name in names for edge in records(samples.folder / name)]
    for name in ("dataset_abstracts-sample.jsonl.gz", "graph_paper_full.json.gz", *names):
        expected = samples.expected[name]
        if expected["kind"] == "dataset citations":
            known = [edge for edge in records(samples.folder / name) if edge["citedcorpusid"] is not None]
            assert len(known) == expected["records"] - expected["null_end"]
            contexts = sum(len(semantic_scholar.edge(edge)[2]) for edge in known)
            assert contexts <= expected["contexts"]
        else:
            papers = [semantic_scholar.to_paper(record)[0] for record in records(samples.folder / name)]
            found = counts(papers, TEXTS | {"with_doi": "s2"} if "abstracts" in name else TEXTS)
            found.pop("with_doi")
            assert found == {key: expected[key] for key in found}, name
    for name, expected in samples.expected.items():
        if expected["kind"].startswith("Graph"):
            papers = [semantic_scholar.to_paper(record)[0] for record in records(samples.folder / name)]
            found = counts(papers, TEXTS)
            if expected["kind"].endswith("page"):  # of one paper's edges, whose name it does not tell
                found.pop("references")
            assert found == {key: expected[key] for key in found}, name
    corpus = import_corpus([samples.folder], format="s2", workers=1)
    mentions = corpus.to_pandas("mentions")
    stated = {
        (f"s2:{edge['citingcorpusid']}", f"s2:{edge['citedcorpusid']}", " ".join(context.split()))
        for edge in edges
        if edge["citedcorpusid"] is not None and edge["citingcorpusid"] is not None
        for context in edge["contexts"] or []
    }
    assert len(mentions) == len(stated) > 50
    assert set(zip(mentions["citing"], mentions["cited"], strict=True)) == {edge[:2] for edge in stated}
    assert corpus.manifest["counts"]["rejected"]["no-cited-work"] == 23 + 5
