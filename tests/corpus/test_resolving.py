"""One work under several ids is one paper, and one wrong reference joins nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.small_articles import jats, links, papers, ref, rejected
from sentence_experts.corpus import resolving
from sentence_experts.corpus.importing import import_corpus

PMID = '<article-id pub-id-type="pmid">{}</article-id>'
PMC = '<article-id pub-id-type="pmc">{}</article-id>'


def test_every_id_of_a_corpus_paper_leads_to_it(folder: Callable[..., Path], tmp_path: Path) -> None:
    one = jats("10.1000/ONE", ids=PMID.format(11) + PMC.format(5))
    citers = {
        f"c{number}": jats(f"10.1000/c{number}", refs=ref(**ids))
        for number, ids in enumerate(
            [{"doi": "https://doi.org/10.1000/One"}, {"pmid": "11"}, {"pmcid": "PMC5"}, {"pmid": "11", "doi": "10.1000/wrong"}]  # noqa: E501
        )
    }  # fmt: skip
    corpus = import_corpus([folder(one=one, **citers)], tmp_path / "out", workers=1)
    assert [cited for _, cited in links(corpus)] == ["doi:10.1000/one"] * 4
    assert corpus.manifest["counts"]["in_corpus_citations"] == 4


def test_outside_works_are_one_under_pmid_and_doi(folder: Callable[..., Path], tmp_path: Path) -> None:
    both = ref(pmid="77", doi="10.1000/out")
    documents = {
        "a": jats("10.1000/a", refs=both),
        "b": jats("10.1000/b", refs=both),
        "c": jats("10.1000/c", refs=ref(pmid="77")),
        "d": jats("10.1000/d", refs=ref(doi="10.1000/OUT")),
        # One wrong reference ties another PMID to the same DOI: that PMID stays a separate work.
        "e": jats("10.1000/e", refs=ref(pmid="88", doi="10.1000/out")),
        "f": jats("10.1000/f", refs=ref(pmid="88")),
    }
    found = dict(links(import_corpus([folder(**documents)], tmp_path / "out", workers=1)))
    assert found.pop("doi:10.1000/f") == "pmid:88"
    assert set(found.values()) == {"doi:10.1000/out"}


def test_ties_are_settled_by_the_smallest(folder: Callable[..., Path], tmp_path: Path) -> None:
    documents = {
        "a": jats("10.1000/a", refs=ref(pmid="7", doi="10.1000/y")),
        "b": jats("10.1000/b", refs=ref(pmid="7", doi="10.1000/x")),
        "c": jats("10.1000/c", refs=ref(pmid="7")),
    }
    found = dict(links(import_corpus([folder(**documents)], tmp_path / "out", workers=1)))
    assert found["doi:10.1000/c"] == "doi:10.1000/x"


def test_paper_with_pmid_gets_its_doi(folder: Callable[..., Path], tmp_path: Path) -> None:
    documents = {
        "a": jats(None, ids=PMID.format(5)),
        "b": jats("10.1000/b", refs=ref(pmid="5", doi="10.1000/five")),
        "c": jats("10.1000/c", refs=ref(doi="10.1000/five")),
    }
    corpus = import_corpus([folder(**documents)], tmp_path / "out", workers=1)
    assert "doi:10.1000/five" in {paper["paper_id"] for paper in papers(corpus)}
    assert {cited for _, cited in links(corpus)} == {"doi:10.1000/five"}


def test_duplicates_keep_the_fullest_record_and_are_named(
    folder: Callable[..., Path], tmp_path: Path
) -> None:
    documents = {
        "bare": jats("10.1000/A", abstract=None, refs=ref(doi="10.1000/x")),
        "full": jats("10.1000/a", refs=ref(doi="10.1000/y")),
        "by_pmid": jats(None, ids=PMID.format(3), abstract=None),
        "both": jats("10.1000/a", ids=PMID.format(3), abstract=None),
    }
    corpus = import_corpus([folder(**documents)], tmp_path / "out", workers=1)
    (paper,) = papers(corpus)
    assert (paper["paper_id"], paper["abstract"], paper["pmid"]) == ("doi:10.1000/a", "An abstract.", "3")
    assert links(corpus) == [("doi:10.1000/a", "doi:10.1000/y")]
    named = {line["member"]: line["reason"] for line in rejected(corpus)}
    assert named == {"bare.xml": "duplicate", "by_pmid.xml": "duplicate", "both.xml": "duplicate"}
    assert corpus.manifest["counts"]["duplicates"] == 3


def test_learned_id_leads_to_its_paper(folder: Callable[..., Path], tmp_path: Path) -> None:
    documents = {
        "a": jats(None, ids=PMID.format(5)),
        "b": jats("10.1000/b", refs=ref(pmid="5", doi="10.1000/five") + ref(pmid="5", pmcid="PMC7")),
        "c": jats("10.1000/c", refs=ref(pmcid="PMC7")),
    }
    corpus = import_corpus([folder(**documents)], tmp_path / "out", workers=1)
    assert dict(links(corpus))["doi:10.1000/c"] == "doi:10.1000/five"


def test_self_and_repeated_citations_are_removed(folder: Callable[..., Path], tmp_path: Path) -> None:
    refs = (
        ref(doi="10.1000/a")
        + ref(doi="10.1000/x")
        + ref(doi="10.1000/X", title="X")
        + ref(title="Book")
        + ref(title="Book")
    )
    corpus = import_corpus([folder(a=jats(refs=refs))], tmp_path / "out", workers=1)
    assert links(corpus) == [
        ("doi:10.1000/a", "doi:10.1000/x"),
        ("doi:10.1000/a", None),
        ("doi:10.1000/a", None),
    ]
    counts = corpus.manifest["counts"]
    assert (counts["references"], counts["self_citations"], counts["duplicate_citations"]) == (5, 1, 1)
    assert counts["unidentified_references"] == 2


def test_retraction_notice_marks_its_paper(folder: Callable[..., Path], tmp_path: Path) -> None:
    link = '<related-article related-article-type="retracted-article" ext-link-type="doi" xlink:href="10.1000/BAD"/>'  # noqa: E501
    documents = {"bad": jats("10.1000/bad"), "notice": jats("10.1000/n", kind="retraction", meta=link)}
    corpus = import_corpus([folder(**documents)], tmp_path / "out", workers=1)
    assert {paper["paper_id"]: paper["retracted"] for paper in papers(corpus)} == {
        "doi:10.1000/bad": True,
        "doi:10.1000/n": False,
    }
    assert links(corpus) == []


def test_links_that_are_sorted_in_ranges_beside_a_notice_with_two_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolving, "_BYTES_PER_LINK", 1 << 40)
    notice = "PMID- 222\nTI  - Notice.\nLID - 10.1000/n [doi]\nPT  - Retraction of Publication\n"
    (tmp_path / "n.nbib").write_text(f"{notice}ROF - J. 2001. doi: 10.1000/bad. PMID: 111\nSO  - J. 2012.\n")
    record = "TY  - JOUR\nTI  - {0}\nDO  - 10.1000/{0}\nAB  - Text.\nPY  - 2012\nER  - \n"
    (tmp_path / "l.ris").write_text(record.format("n") + record.format("bad"))
    cites = [{"citing": "10.1000/bad", "cited": f"10.2000/{n}"} for n in range(9)]
    works = [{"id": "10.1000/bad", "title": "bad"}]
    corpus = import_corpus(
        [tmp_path / "n.nbib", tmp_path / "l.ris"], papers=works, citations=cites, workers=1
    )
    assert len(links(corpus)) == 9
    assert {paper["doi"]: paper["retracted"] for paper in papers(corpus)}["10.1000/bad"]
