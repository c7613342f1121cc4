"""The list of papers to read, and the bound of relevant ones among the unread."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import hypergeom
from sklearn.linear_model import LogisticRegression

import sentence_experts
from helpers.command_line import run
from helpers.searched_corpus import NOTICE, searched_papers, write_searched_corpus
from sentence_experts.corpus.importing import import_corpus
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.models.loading import load
from sentence_experts.models.pooling import unit
from sentence_experts.retrieval.screening import (
    ScreenResult,
    bound_relevant,
    fit_regression,
    order_papers,
    screen,
)
from sentence_experts.retrieval.searcher import Searcher
from sentence_experts.retrieval.taught import Mark, ProfileState, _difference


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("screened") / "library"
    write_searched_corpus(folder, hostile=False)
    return folder


CROPS = {f"doi:{each['doi']}" for each in searched_papers() if each["subjects"] == ["crops"]}


def read_papers(count: int = 12) -> list[dict[str, Any]]:
    return [
        {"paper": each["doi"], "similar": f"doi:{each['doi']}" in CROPS} for each in searched_papers()[:count]
    ]


def unread(result: ScreenResult) -> list[dict[str, Any]]:
    return [each for each in result.papers if each["rank"]]


def test_bound_is_the_largest_number_that_is_likely_enough() -> None:
    for papers in (1, 7, 24):
        for sampled in range(papers + 1):
            for found in range(sampled + 1):
                likely = [
                    count
                    for count in range(found, papers - sampled + found + 1)
                    if hypergeom.cdf(found, papers, count, sampled) > 0.05 + 1e-9
                ]
                assert bound_relevant(papers, sampled, found) == max(likely)


@pytest.mark.parametrize(("papers", "relevant", "sampled"), [(800, 8, 100), (800, 60, 100), (90, 30, 60)])
def test_bound_holds_in_95_percent_of_samples(papers: int, relevant: int, sampled: int) -> None:
    found = np.random.default_rng(0).hypergeometric(relevant, papers - relevant, sampled, 4_000)
    bounds = {count: bound_relevant(papers, sampled, count) for count in set(found.tolist())}
    held = np.mean([bounds[count] >= relevant for count in found.tolist()])
    assert 0.94 <= held <= 1
    assert bounds[int(np.median(found))] < papers / 2  # it says something


def test_regression_is_that_of_scikit_learn() -> None:
    dice = np.random.default_rng(0)
    vectors = unit(dice.normal(size=(60, 20)).astype(np.float32))
    similar = vectors[:, 0] > 0.15
    known = LogisticRegression(C=1, class_weight="balanced", tol=1e-8).fit(vectors, similar).coef_[0]
    assert fit_regression(vectors, similar) == pytest.approx(known, abs=2e-3)


@pytest.mark.slow
def test_papers_that_come_do_not_take_the_places_of_those_that_leave(plain_model: Path) -> None:
    encoder = BatchEncoder(load(plain_model, device="cpu"))

    def ordered(names: list[str], marks: dict[str, bool], sample: Any = None, draw: int = 0) -> ScreenResult:
        corpus = import_corpus(papers=[{"id": each, "title": f"Rice {each}"} for each in names])
        given = [Mark(paper=each, similar=similar) for each, similar in marks.items()]
        searcher = Searcher(encoder, corpus, "title")
        return order_papers(searcher, searcher.routes[0], given, sample, draw)

    names = [f"p{number:02}" for number in range(44)]
    marks = {each: number < 2 for number, each in enumerate(names[:4])}
    sample = ordered(names, marks, draw=15).sample
    assert sample is not None
    marks |= dict.fromkeys(sample.papers, False)
    before = ordered(names, marks, sample)
    left = [each for each in names if each not in marks][:5]
    came = [f"q{number}" for number in range(5)]
    names = [*(each for each in names if each not in left), *came]
    grown = ordered(names, marks, sample)
    assert (grown.pool, grown.newer, grown.since) == (before.pool - 5, 5, 0)
    after = ordered(names, marks | dict.fromkeys(came, True), sample)
    assert (after.pool, after.newer, after.since) == (before.pool - 5, 0, 0)
    assert after.at_most == bound_relevant(after.pool, 15, 0) == grown.at_most - 5


def test_unread_papers_are_ordered_by_what_was_taught(corpus: Path, plain_model: Path) -> None:
    result = screen(plain_model, corpus, read_papers())
    ids = [each["paper_id"] for each in unread(result)]
    scores = [each["score"] for each in unread(result)]
    notice = f"doi:{searched_papers()[NOTICE]['doi']}"
    assert scores == sorted(scores, reverse=True)
    assert set(ids) == {f"doi:{each['doi']}" for each in searched_papers()[12:]} - {notice}
    first = sum(each in CROPS for each in ids[: len(ids) // 3])
    assert first > sum(each in CROPS for each in ids) / 3 * 1.2
    assert (result.read, result.relevant, result.sampled) == (12, 8, 0)
    assert result.to_pandas()["paper_id"].tolist() == [each["paper_id"] for each in result.papers]
    assert result.at_most == result.unread  # nothing is known without a sample
    assert "Only a random sample can tell" in repr(result)


def test_no_more_papers_are_likely_than_there_can_be() -> None:
    result = ScreenResult(
        [], read=220, relevant=30, unread=5, missing=0, sampled=30, found=8, pool=225, since=22
    )
    assert result.at_most == 5
    assert "Of these likely 5 are relevant, with 95% confidence at most 5" in result.verdict


def test_papers_without_the_text_are_on_the_list(plain_model: Path) -> None:
    rows = [{"id": str(n), "title": f"Rice {n}", "abstract": "Roots." * (n % 3 > 0)} for n in range(30)]
    marks = [{"paper": str(n), "similar": n < 3} for n in (1, 2, 4, 5)]
    result = screen(plain_model, import_corpus(papers=rows), marks, unit="abstract", sample=26)
    listed = unread(result)
    assert {each["paper_id"] for each in listed} == {str(n) for n in range(30)} - {"1", "2", "4", "5"}
    assert (result.unread, result.pool, result.waiting) == (26, 26, 26)
    assert {each["paper_id"] for each in listed if each["score"] is None} == {str(n) for n in range(0, 30, 3)}
    plain = unread(screen(plain_model, import_corpus(papers=rows), marks, unit="abstract"))
    assert [each["score"] is None for each in plain] == [False] * 16 + [True] * 10


def test_a_sample_that_is_larger_than_what_is_unread_is_told(
    corpus: Path, plain_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unread_papers = screen(plain_model, corpus, read_papers(), sample=3).unread
    assert "are unread" not in caplog.text
    screen(plain_model, corpus, read_papers(), sample=500)
    assert f"`sample`: only {unread_papers} papers are unread" in caplog.text


def test_a_sample_is_random_and_tells_what_is_left(corpus: Path, plain_model: Path) -> None:
    drawn = screen(plain_model, corpus, read_papers(), sample=9)
    sample = [each["paper_id"] for each in drawn.papers if each["sampled"] == "yes"]
    plain = [each["paper_id"] for each in unread(screen(plain_model, corpus, read_papers()))]
    assert [each["paper_id"] for each in unread(drawn)][:9] == sample != plain[:9]
    assert sorted(each["paper_id"] for each in unread(drawn)) == sorted(plain)
    for row in drawn.papers:  # the list with more marks is the next table
        if row["sampled"] == "yes":
            row["similar"] = "yes" if row["paper_id"] in CROPS else "no"
    result = screen(plain_model, corpus, drawn.papers)
    found = len(CROPS & {*sample})
    assert (result.read, result.sampled, result.found) == (21, 9, found)
    assert result.unread == drawn.unread - 9
    assert result.at_most == bound_relevant(drawn.unread, 9, found) - found < result.unread
    assert {each["paper_id"] for each in result.papers if each["sampled"] == "yes"} == {*sample}
    assert f"at most {result.at_most}" in result.verdict


def test_what_is_read_after_a_sample_is_taken_off_its_bound(corpus: Path, plain_model: Path) -> None:
    judge = lambda row: row | {"similar": "yes" if row["paper_id"] in CROPS else "no"}  # noqa: E731
    drawn = screen(plain_model, corpus, read_papers(), sample=9)
    half = screen(plain_model, corpus, [*map(judge, drawn.papers[:4]), *drawn.papers[4:]])
    assert (half.waiting, half.at_most, half.unread) == (5, half.unread, drawn.unread - 4)
    assert "Read the 9 random papers first (4 so far)" in half.verdict
    bounds = []
    for read in (9, 14, drawn.unread):
        result = screen(plain_model, corpus, [*map(judge, drawn.papers[:read]), *drawn.papers[read:]])
        left = sum(each["paper_id"] in CROPS for each in unread(result))
        assert left <= result.at_most
        assert result.pool == drawn.unread
        bounds.append(result.at_most)
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] == 0
    later = [*map(judge, drawn.papers[:12]), *drawn.papers[12:]]
    again = screen(plain_model, corpus, later, sample=5)
    assert (again.sampled, again.waiting, again.pool) == (0, 5, drawn.unread - 12)
    told = [*map(judge, again.papers[:5]), *again.papers[5:]]
    last = screen(plain_model, corpus, told)
    assert (last.sampled, last.waiting) == (5, 0), "a new sample takes the place of the old one"
    fewer = [each for each in told if each["sampled"] != "no"] + [e for e in told if e["sampled"] == "no"][2:]
    grown = screen(plain_model, corpus, fewer)
    assert (grown.newer, grown.at_most) == (2, bound_relevant(last.pool - 2, 5, last.found) - last.since + 2)
    assert "with 2 that the table does not list" in grown.verdict


@pytest.mark.parametrize("size", [9, pytest.param(1_000, marks=pytest.mark.slow)])
def test_papers_that_come_after_a_sample_stay_outside_it(
    plain_model: Path, tmp_path: Path, size: int
) -> None:
    papers = searched_papers()
    smaller = sentence_experts.import_corpus(papers=papers[:30], out=tmp_path / "some")
    whole = sentence_experts.import_corpus(papers=papers, out=tmp_path / "whole")
    rows = screen(plain_model, smaller, read_papers(), sample=size).papers
    for row in rows:
        if row["sampled"] == "yes":
            row["similar"] = "yes" if row["paper_id"] in CROPS else "no"
    grown = screen(plain_model, whole, rows)
    assert grown.newer >= len(papers) - 31
    assert grown.pool == screen(plain_model, smaller, rows).pool
    twice = [
        {"paper_id": row["paper_id"], "similar": row["similar"]} for row in rows if row["sampled"] == "yes"
    ]
    for table in ([*rows, *twice], [*twice, *rows]):
        assert screen(plain_model, whole, table).verdict == grown.verdict, "some papers stand twice"
    again = screen(plain_model, whole, grown.papers)
    assert (again.papers, again.verdict) == (grown.papers, grown.verdict), "the list itself, given back"
    read = [row | {"similar": row["similar"] or "no"} for row in grown.papers[:5]] + grown.papers[5:]
    more = screen(plain_model, whole, read)
    assert (more.pool, more.newer) == (grown.pool, grown.newer - sum(not row["sampled"] for row in read[:5]))


def test_a_sample_tells_of_the_papers_that_are_still_there(
    corpus: Path, plain_model: Path, tmp_path: Path
) -> None:
    drawn = screen(plain_model, corpus, read_papers(), sample=9)
    for row in drawn.papers[:9]:
        row["similar"] = "yes" if row["paper_id"] in CROPS else "no"
    papers = searched_papers()
    kept = papers[:12] + papers[12::2]
    smaller = sentence_experts.import_corpus(papers=kept, out=tmp_path / "fewer")
    result = screen(plain_model, smaller, drawn.papers)
    assert result.newer == 0
    assert result.pool == result.unread + result.sampled < drawn.pool
    assert result.at_most == bound_relevant(result.pool, result.sampled, result.found) - result.since


def test_from_the_command_line(
    corpus: Path,
    plain_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [f"{each['paper']},{'yes' if each['similar'] else 'no'}" for each in read_papers()]
    (tmp_path / "read.csv").write_text("\n".join(["paper,similar", *rows, "10.1/unknown,yes"]))
    command = (
        "screen",
        plain_model,
        tmp_path / "read.csv",
        "--corpus",
        corpus,
        "--out",
        tmp_path / "list.csv",
    )
    status, _, error = run(capsys, *command[:-1], tmp_path / "list.xlsx")
    assert (status, "give a name that ends in .csv, not list.xlsx" in error) == (2, True)
    status, out, error = run(capsys, *command, "--sample", 5)
    assert (status, "12 papers read, 8 of them relevant" in out) == (0, True), error
    assert "1 of the papers are not in the corpus" in error
    assert "marked yes and no" not in error
    listed = list(csv.DictReader((tmp_path / "list.csv").open()))
    assert [row["rank"] for row in listed[:5]] == list("12345")
    assert [row["sampled"] for row in listed].count("yes") == 5
    kept = (tmp_path / "list.csv").read_bytes()
    status, _, error = run(capsys, *command)
    assert (status, "list.csv exists; give another --out" in error) == (1, True)
    assert (tmp_path / "list.csv").read_bytes() == kept

    def work_beside_another(*given: object, **settings: object) -> object:
        (tmp_path / "late.csv").write_text("of somebody else")
        return screen(*given, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr("sentence_experts.cli.search.screen_corpus", work_beside_another)
    status, _, error = run(capsys, *command[:-1], tmp_path / "late.csv")
    assert (status, "late.csv exists; give another --out" in error) == (1, True)
    assert (tmp_path / "late.csv").read_text() == "of somebody else"
    monkeypatch.undo()
    command = (
        "screen",
        plain_model,
        tmp_path / "list.csv",
        "--corpus",
        corpus,
        "--out",
        tmp_path / "next.csv",
    )
    status, out, error = run(capsys, *command)
    assert (status, "12 papers read, 8 of them relevant" in out) == (0, True), error
    assert sentence_experts.screen is screen


def test_a_paper_counts_once_however_it_is_called(corpus: Path, plain_model: Path) -> None:
    read = read_papers()
    forms = ("https://doi.org/{}", "doi:{}")
    again = [
        row | {"paper": form.format(row["paper"].upper()), "query": form} for form in forms for row in read
    ]
    wrong = [row | {"similar": not row["similar"]} for row in read[:3]]
    once, several = (screen(plain_model, corpus, rows) for rows in (read, [*wrong, *read, *again]))
    assert several == once


def test_a_paper_with_both_marks_is_named(
    corpus: Path, plain_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    read = read_papers()
    screen(plain_model, corpus, [*read, read[0] | {"similar": not read[0]["similar"]}])
    assert (
        f"papers are marked yes and no (1, such as {read[0]['paper']}): the last mark counts" in caplog.text
    )


def test_a_sample_that_is_kept_with_each_mark_is_small(corpus: Path, plain_model: Path) -> None:
    sample = screen(plain_model, corpus, read_papers(), sample=9).sample
    assert sample is not None
    assert sample.others is None
    assert len(sample.rest or "") == 8 * ((sample.pool or 0) - 9)
    before, drawn_again = ProfileState(sample=sample), ProfileState(sample=sample.renamed({"a": "b"}))
    assert drawn_again == before
    drawn_again.sample = sample.renamed({sample.papers[0]: "b"})
    kept = _difference(drawn_again, before)["sample"]
    assert kept["rest"] == sample.rest, "an id has changed"
    drawn_again.sample = sample.model_copy(update={"rest": (sample.rest or "")[8:]})
    assert "rest" not in str(_difference(drawn_again, before)), "a list for each draw would be too much"
    assert _difference(ProfileState(), before)["sample"]["rest"] == sample.rest


def test_marks_and_samples_follow_papers_whose_numbers_change(plain_model: Path) -> None:
    """Ids may be numbers of rows, and a paper may come on top of the table."""
    words = ["amber", "basil", "cedar", "delta", "ember", "fjord", "grove", "heron", "ivory", "joker"]
    titles = [f"{'rice field' if n < 5 else 'sleep rats'} of study {word}" for n, word in enumerate(words)]

    def ordered(names: list[str], rows: Any, **settings: Any) -> ScreenResult:
        papers = [{"id": str(number), "title": each} for number, each in enumerate(names, start=1)]
        return screen(plain_model, import_corpus(papers=papers), rows, unit="title", **settings)

    rows = [{"paper": str(n + 1), "similar": n < 5} for n in (0, 1, 2, 7, 8, 9)]
    listed = ordered(titles, rows, sample=2).to_pandas().fillna({"similar": "", "sampled": ""})
    second = ordered(["a new paper about whales", *titles], listed)
    found = second.to_pandas().fillna({"similar": "", "sampled": ""}).set_index("title")
    for title, similar, sampled in listed[["title", "similar", "sampled"]].itertuples(index=False):
        assert (found.loc[title, "similar"], found.loc[title, "sampled"]) == (similar, sampled), title
    assert (second.newer, second.missing) == (1, 0)
    gone = ordered([*(f"whales and ships {word}" for word in words), *titles[:9]], listed)
    assert (gone.missing, gone.relevant, gone.read) == (1, 3, 5)


@pytest.mark.slow
def test_a_sample_whose_numbers_name_other_papers_does_not_count(plain_model: Path) -> None:
    encoder = BatchEncoder(load(plain_model, device="cpu"))
    titles = [f"{'rice field' if n < 10 else 'sleep rats'} number {n}" for n in range(40)]

    def ordered(names: list[str], marks: list[Mark], **more: Any) -> ScreenResult:
        papers = [{"id": str(number), "title": each} for number, each in enumerate(names, start=1)]
        searcher = Searcher(encoder, import_corpus(papers=papers), "title")
        return order_papers(searcher, searcher.routes[0], marks, **more)

    marks = [Mark(paper=str(n + 1), similar=n < 10, title=titles[n]) for n in (0, 1, 38, 39)]
    sample = ordered(titles, marks, draw=8).sample
    assert not ordered(titles, marks, sample=sample).renumbered
    corrected = [titles[0], *(f"{each}, corrected" if n == 5 else each for n, each in enumerate(titles[1:]))]
    assert ordered(corrected, marks, sample=sample).waiting == 8
    found = ordered([*titles[20:], *titles[:20]], marks, sample=sample)
    assert (found.renumbered, found.waiting, found.read) == (True, 0, 4)
    assert "draw a new one" in found.verdict


def test_titles_of_papers_that_are_named_by_a_doi_do_not_count(corpus: Path, plain_model: Path) -> None:
    rows = read_papers()
    result = screen(plain_model, corpus, [row | {"title": "Smith 2001 RCT"} for row in rows], unit="title")
    assert (result.read, result.missing) == (len(rows), 0)


def test_a_paper_that_left_is_not_another_one_of_its_title(plain_model: Path) -> None:
    def ordered(names: dict[str, str], rows: Any) -> ScreenResult:
        papers = [{"id": name, "title": title, "abstract": f"About {name}."} for name, title in names.items()]
        return screen(plain_model, import_corpus(papers=papers), rows, unit="title+abstract")

    names = {f"m{n}": f"{'rice field' if n < 5 else 'sleep rats'} study {n}" for n in range(10)}
    names |= {"m10": "soil and roots in spring", "m11": "soil and roots in spring"}
    rows = [{"paper": f"m{n}", "similar": n < 5} for n in (0, 1, 2, 7, 8, 9)] + [
        {"paper": "m10", "similar": True}
    ]
    listed = ordered(names, rows).to_pandas().fillna({"similar": "", "sampled": ""})
    names.pop("m10")
    second = ordered(names, listed)
    assert (second.missing, second.read) == (1, 6)
    assert "m11" in {each["paper_id"] for each in unread(second)}
