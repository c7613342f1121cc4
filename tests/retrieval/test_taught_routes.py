"""Marks follow the papers of a corpus that is made again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sentence_experts.corpus.importing import import_corpus
from sentence_experts.retrieval.papers import Papers
from sentence_experts.retrieval.taught import Mark
from sentence_experts.retrieval.taught_routes import current_rows, described_marks, latest_marks

BIB = """@article{smith,
 title = {Rice in drought}, author = {Smith, A}, year = {2012}, abstract = {Rice was measured.}%s
}
@article{other, title = {Zebra}, year = {2013}, abstract = {Zebras.}}
"""
CHANGES = {
    "a DOI": BIB % ",\n doi = {10.1234/rice}",
    "a PMID": BIB % ",\n pmid = {12345678}",
    "another title": (BIB % "").replace("drought", "droughts"),
    "another abstract": (BIB % "").replace("measured", "measured twice"),
    "another key": (BIB % ",\n doi = {10.1234/rice}").replace("smith", "smith2012"),
}


def papers_of(text: str, folder: Path) -> Papers:
    (folder / "papers.bib").write_text(text)
    return Papers(import_corpus([folder / "papers.bib"], folder / "corpus", overwrite=True))


@pytest.mark.parametrize(
    "change", [pytest.param(each, marks=pytest.mark.slow if n % 2 else ()) for n, each in enumerate(CHANGES)]
)
def test_marks_stay_with_a_paper_whose_record_is_corrected(tmp_path: Path, change: str) -> None:
    before = papers_of(BIB % "", tmp_path)
    (paper,) = (each["paper_id"] for each in before.facts(range(2)) if each["entry"] == "@smith")
    marks = described_marks(before, [Mark(paper=paper, similar=True), Mark(paper="gone", similar=True)])
    after = papers_of(CHANGES[change], tmp_path)
    (row,) = (row for row in range(2) if after.facts([row])[0]["title"].startswith("Rice"))
    assert current_rows(after, marks) == {paper: row, "gone": None}
    first, second = latest_marks(after, marks)
    assert first.paper == after.facts([row])[0]["paper_id"] != paper
    assert second.paper == "gone"
    (again,) = described_marks(after, [first])
    assert (again.title, again.entry) == tuple(after.facts([row])[0][name] for name in ("title", "entry"))


def test_marks_are_not_moved_to_papers_that_could_be_others(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"id": f"10.1/{each}", "title": "Introduction"} for each in "ab"]
    papers = Papers(import_corpus(papers=rows, out=tmp_path / "corpus"))
    titles = ("Introduction", "", "Another")
    lost = [Mark(paper=f"text:{title}", similar=True, title=title) for title in titles]
    assert set(current_rows(papers, lost).values()) == {None}


def test_a_mark_of_a_paper_that_is_gone_waits_for_it(tmp_path: Path) -> None:
    long = "Rats that sleep for many hours"
    rows = [
        {"id": "10.1234/a", "title": "In winter"}, {"id": "10.1234/b", "title": long},
        {"id": "10.1234/c", "title": "Steel bridges in winter", "entry": "@smith2020a"},
    ]  # fmt: skip
    papers = Papers(import_corpus(papers=rows, out=tmp_path / "corpus"))
    lost = [
        Mark(paper="text:1", similar=True, title="In winter"),
        Mark(paper="doi:10.1234/z", similar=True, title=long),
        Mark(paper="text:2", similar=True, title="Sleep of rats", entry="@smith2020a"),
    ]
    assert set(current_rows(papers, lost).values()) == {None}
    assert latest_marks(papers, lost) == lost
    changed = Mark(paper="text:3", similar=True, title=long)
    assert current_rows(papers, [changed]) == {"text:3": 1}
    own = Mark(paper="doi:10.1234/b", similar=False)
    assert latest_marks(papers, [changed, own]) == [changed, own], "its own mark counts"


def test_of_two_marks_on_one_paper_by_several_ids_the_last_one_counts(tmp_path: Path) -> None:
    rows = [{"pmid": "11", "doi": "10.1/a", "title": "A"}, {"id": "b", "title": "B"}]
    papers = Papers(import_corpus(papers=rows))
    names = ("10.1/a", "pmid:11", "10.1/A")
    marks = [Mark(paper=name, similar=number == 1, like=("b",)) for number, name in enumerate(names)]
    (last,) = latest_marks(papers, [*marks])
    assert (last.similar, last.paper) == (False, "doi:10.1/a")
