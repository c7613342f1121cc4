"""OpenAlex's API: a key, pages by cursor, works to papers with references.

Works are of our own making, after the recorded answers that the last test reads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from helpers.bibliographic import unpack_samples
from helpers.replay_server import Replay, serving
from helpers.small_articles import links, papers, rejected
from sentence_experts.corpus.fetching import estimate_fetch, fetch_corpus
from sentence_experts.corpus.formats.openalex import drop_unread, parse_record, read_works, to_paper
from sentence_experts.corpus.importing import import_corpus
from sentence_experts.corpus.sources.client import FailedError
from sentence_experts.errors import UsageError
from sentence_experts.storage import sha256_file

KEY: dict[str, Any] = {"workers": 1, "api_key": "secret"}
FILES = ("papers.parquet", "citations.parquet", "domains.parquet", "provenance.parquet", "manifest.json")


def work(number: int, *cites: int) -> dict[str, Any]:
    return {
        "id": f"https://openalex.org/W{number}",
        "ids": {},
        "title": f"Work {number}",
        "publication_year": 2020,
        "referenced_works": [f"https://openalex.org/W{one}" for one in cites],
    }


@pytest.fixture
def settings(world: Replay) -> Iterator[dict[str, Any]]:
    with serving(world) as base:
        yield {"source": "openalex", "services": world.services(base), **KEY}


def test_every_page_is_read_and_a_broken_fetch_continues(
    world: Replay, settings: dict[str, Any], tmp_path: Path, attempts: Callable[[int], None]
) -> None:
    world.openalex["type:article,is_retracted:false"] = [work(n, n + 1) for n in range(1, 8)]
    world.openalex["type:book,is_retracted:false"] = [work(7), work(8, 1), {"id": "W", "title": "odd"}]
    domains = {"articles": "type:article", "books": "type:book"}
    whole = fetch_corpus(out=tmp_path / "whole", domains=domains, **settings)
    world.asked.clear()
    world.fault = lambda number, path: "503" if number >= 2 else None
    attempts(1)
    with pytest.raises(FailedError):
        fetch_corpus(out=tmp_path / "out", domains=domains, **settings)
    world.fault = lambda number, path: None
    fetched = fetch_corpus(out=tmp_path / "out", domains=domains, **settings)
    marks = [params["cursor"][0] for _, params in world.asked if "article" in params["filter"][0]]
    assert marks == ["*", "3", "6", "6", "7"], "only the page that failed is asked for again"
    for name in FILES:
        assert sha256_file(fetched.path / name) == sha256_file(whole.path / name), name
    assert {paper["openalex"] for paper in papers(fetched)} == {f"W{n}" for n in range(1, 9)}
    assert ("openalex:W8", "openalex:W1") in links(fetched)
    of_domain = fetched.to_pandas("domains").groupby("domain").paper_id.agg(set)
    assert of_domain["books"] == {"openalex:W7", "openalex:W8"}
    assert [one["reason"] for one in rejected(fetched)] == ["not-fetched"]


def test_works_that_are_missing_from_the_pages_are_asked_for_again(
    world: Replay, settings: dict[str, Any], tmp_path: Path
) -> None:
    world.openalex["type:article,is_retracted:false"] = works = [work(n) for n in range(1, 8)]
    asked = {"domains": {"a": "type:article"}, "out": tmp_path / "out", **settings}
    works[5:] = works[:2]  # a page again
    with pytest.raises(
        FailedError, match="OpenAlex counts 7 works and gives 5: 'type:article'; give the same"
    ):
        fetch_corpus(**asked)
    works[5:] = [work(6), work(7)]
    assert len(papers(fetch_corpus(**asked))) == 7


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_record_that_is_no_work_is_asked_for_again(
    overwrite: bool, world: Replay, settings: dict[str, Any], tmp_path: Path
) -> None:
    world.openalex["type:article,is_retracted:false"] = works = [work(1), None, work(3)]
    asked = {"domains": {"a": "type:article"}, "out": tmp_path / "out", **settings}
    for _ in range(2):  # named each time
        fetched = fetch_corpus(**asked, overwrite=overwrite)
        assert [one["reason"] for one in rejected(fetched)] == ["not-fetched"]
    works[1] = work(2)
    again = fetch_corpus(**asked, overwrite=overwrite)
    assert (len(papers(again)), rejected(again)) == (3, [])


def test_what_a_query_finds_is_kept_or_named(world: Replay, settings: dict[str, Any], tmp_path: Path) -> None:
    world.openalex["type:article,is_retracted:false"] = [work(1), work(2) | {"is_xpac": True}]
    fetched = fetch_corpus(domains={"a": "type:article"}, **settings)
    assert [(one["reason"], one["record"]) for one in rejected(fetched)] == [("xpac", "W2")]
    with pytest.raises(UsageError, match="b: no record matches 'type:nothing'"):
        fetch_corpus(domains={"a": "type:article", "b": "type:nothing"}, **settings)


def test_works_that_are_damaged_in_the_journal_are_asked_for_again(
    world: Replay, settings: dict[str, Any], tmp_path: Path
) -> None:
    world.openalex["type:article,is_retracted:false"] = [work(n, n + 1) for n in range(1, 8)]
    asked = {"domains": {"a": "type:article"}, "out": tmp_path / "out", **settings}
    fetched = fetch_corpus(**asked)
    before = [sha256_file(fetched.path / name) for name in FILES]
    with closing(sqlite3.connect(tmp_path / "out" / "journal.sqlite")) as database, database:
        database.execute("UPDATE answers SET body = substr(body, 1, 9) WHERE key = 'openalex-work/W5'")
    world.asked.clear()
    again = fetch_corpus(**asked, overwrite=True)
    assert len(world.asked) == 1, "its page"
    assert [sha256_file(again.path / name) for name in FILES] == before


class NotingReads(dict[str, Any]):
    """A record that notes which of its fields are read."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)


def test_all_that_is_read_of_a_work_is_kept() -> None:
    noting = NotingReads(work(1, 2))
    to_paper(noting)
    assert "authorships" in noting.read
    assert set(drop_unread(dict.fromkeys(noting.read, ""))) == noting.read


def test_a_fetch_is_estimated(world: Replay, settings: dict[str, Any]) -> None:
    world.openalex["type:article,is_retracted:false"] = [work(n) for n in range(1, 8)]
    estimate = estimate_fetch(domains={"a": "type:article"}, **settings)
    assert estimate.articles == {"a": 7}
    with pytest.raises(UsageError, match="no work matches"):
        estimate_fetch(domains={"a": "type:nothing"}, **settings)


def test_a_key_is_needed(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENALEX_API_KEY", raising=False)
    with pytest.raises(UsageError, match="OPENALEX_API_KEY"):
        fetch_corpus(domains={"a": "type:article"}, **settings | {"api_key": None})
    with pytest.raises(UsageError, match=r"licences.*needs `source=pmc`"):
        fetch_corpus(domains={"a": "type:article"}, licences="commercial", **settings)


@pytest.mark.realdata
def test_recorded_works_become_the_papers_that_an_import_makes_of_them(
    real_data: Path, world: Replay, settings: dict[str, Any], tmp_path: Path
) -> None:
    samples = unpack_samples(real_data, "openalex", tmp_path / "samples")
    names = ["works_list_page_1.json", "zotero_input_list_5.json"]
    files = [samples.folder / name for name in names]
    world.openalex["doi:x,is_retracted:false"] = [
        parse_record(raw) for file in files for raw in read_works(file)
    ]
    fetched = fetch_corpus(domains={"a": "doi:x"}, **settings)
    imported = import_corpus(files, workers=1)
    assert papers(fetched) == papers(imported)
    assert links(fetched) == links(imported)
    assert all(paper["authors"] for paper in papers(fetched) if paper["abstract"])
