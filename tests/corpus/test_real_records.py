"""Real works of OpenAlex: each file gives what a separate parser counted in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.bibliographic import Samples, unpack_samples
from sentence_experts.corpus.formats import openalex
from sentence_experts.corpus.formats.openalex import parse_record, read_works
from sentence_experts.corpus.importing import import_corpus
from sentence_experts.corpus.paper import Paper, RecordError

pytestmark = pytest.mark.realdata


def records(path: Path) -> list[dict]:
    return [parse_record(raw) for raw in read_works(path) if not isinstance(raw, RecordError)]


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
