"""Real exports: each file gives what a separate parser counted in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.bibliographic import unpack_samples
from sentence_experts.corpus.formats.exports import EXPORTS
from sentence_experts.corpus.importing import import_corpus
from sentence_experts.corpus.paper import Paper, RecordError
from sentence_experts.corpus.record_files import format_of

pytestmark = pytest.mark.realdata

# The separate parser looked at fewer fields, and took whatever stands in `doi` for a DOI.
OTHERWISE = {
    "asreview_pubmed_endnote.txt": {"with_pmid": 6},  # its numbers of NLM
    "rispy_example_utf_chars.ris": {"with_title": 1},  # as short title
    "eric_stub.nbib": {"with_doi": 1},  # as an address
    "mambo_my_library.ris": {"with_doi": 5},  # two in addresses of Frontiers
    "mambo_my_library.csv": {"with_doi": 5},
    "bbt_unabbreviate_1436-1.bib": {"with_doi": 410},  # one begins with 0.1088
    "bbt_plus_in_field_2660.bib": {"with_doi": 36},  # three are short
}

OF_WEB_OF_SCIENCE = "rispy_example_wos.ris"  # in another format than its name says


def _papers(path: Path) -> tuple[int, list[Paper]]:
    format = format_of(path)
    records = list(EXPORTS[format].records(path))
    assert not any(isinstance(record, RecordError) for record in records), path.name
    papers = []
    for record in records:
        try:
            paper = EXPORTS[format].to_paper(record)  # type: ignore[arg-type]
        except RecordError:  # neither title nor abstract
            continue
        papers += [paper] if isinstance(paper, Paper) else []
    return len(records), papers


@pytest.mark.parametrize("name", ["ris", "nbib", "pubmed_csv", "zotero_csv", "bibtex"])
def test_exports_have_the_independent_counts(real_data: Path, tmp_path: Path, name: str) -> None:
    samples = unpack_samples(real_data, name, tmp_path)
    (samples.folder / OF_WEB_OF_SCIENCE).unlink(missing_ok=True)
    samples.expected.pop(OF_WEB_OF_SCIENCE, None)
    articles = 0
    for file, expected in samples.expected.items():
        records, papers = _papers(samples.folder / file)
        articles += len(papers)
        found = {
            "records": records,
            "with_title": sum(paper.title is not None for paper in papers),
            "with_abstract": sum(paper.abstract is not None for paper in papers),
            "with_doi": sum(paper.doi is not None for paper in papers),
            "with_pmid": sum(paper.pmid is not None for paper in papers),
            "with_mesh": sum(bool(paper.mesh) for paper in papers),
            "mesh_headings": sum(len(paper.mesh) for paper in papers),
            "references": sum(len(paper.citations) for paper in papers),
        }
        wanted = {key: expected.get(key, 0) for key in found} | OTHERWISE.get(file, {})
        assert found == wanted, file
    corpus = import_corpus([samples.folder], workers=1)
    counts = corpus.manifest["counts"]
    assert counts["articles"] == articles
    assert counts["papers"] == counts["articles"] - counts["duplicates"]


def test_one_library_exported_twice_is_one(real_data: Path, tmp_path: Path) -> None:
    ris, table = (unpack_samples(real_data, name, tmp_path / name).folder for name in ("ris", "zotero_csv"))
    corpus = import_corpus([ris / "mambo_my_library.ris", table / "mambo_my_library.csv"], workers=1)
    assert corpus.manifest["counts"]["papers"] == 5
