"""Queries to a corpus: what is kept, what is left out and named, and that nothing is fetched twice."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from helpers.replay_server import FAULTS, Replay, serving
from helpers.simulated_world import DOMAINS, fill
from sentence_experts.corpus.config import FetchConfig
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.corpus.fetching import estimate_fetch, fetch_corpus, sample
from sentence_experts.errors import InputError, UsageError
from sentence_experts.pairs.domains import DomainRules
from sentence_experts.recipes import RECIPES

Served = tuple[Replay, str]
EMAIL = {"email": "a@b.org"}
TABLES = ("papers.parquet", "citations.parquet", "domains.parquet", "provenance.parquet")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder, world = tmp_path_factory.mktemp("simulated"), Replay()
    fill(world, folder / "articles")
    with serving(world) as base:
        yield world, base


@pytest.fixture
def world(served: Served) -> Iterator[Replay]:
    served[0].asked.clear()
    yield served[0]
    served[0].fault = lambda number, path: None


def plan_of(served: Served, *names: str, **more: object) -> FetchConfig:
    queries = {name: f"{DOMAINS[name]}[MeSH]" for name in names or DOMAINS}
    services = served[0].services(served[1])
    return FetchConfig(domains=queries, services=services, **more)


@pytest.fixture(scope="module")
def both(served: Served, tmp_path_factory: pytest.TempPathFactory) -> CorpusFolder:
    return fetch_corpus(plan_of(served), tmp_path_factory.mktemp("both") / "corpus", **EMAIL, workers=1)


def rejected(corpus: CorpusFolder) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in corpus.rejected.read_text().splitlines():
        one = json.loads(line)
        found.setdefault(one["reason"], []).append(one["record"] or one["member"])
    return found


def test_articles_citations_and_domains_are_there(both: CorpusFolder) -> None:
    assert both.manifest["fetch"]["domains"]["cells"] == {
        "query": "Cell biology[MeSH]", "found": 17, "kept": 17, "with_abstract": 17, "published": None,
    }  # fmt: skip
    papers = pq.read_table(both.papers).to_pylist()
    domains = pq.read_table(both.domains).to_pylist()
    of_paper: dict[str, set[str]] = {}
    for row in domains:
        of_paper.setdefault(row["paper_id"], set()).add(row["domain"])
    assert set(of_paper) == {paper["paper_id"] for paper in papers}
    assert sum(len(names) == 2 for names in of_paper.values()) == 2
    for paper in papers:
        subject = next(name for name, title in DOMAINS.items() if title in paper["subjects"])
        assert subject in of_paper[paper["paper_id"]]


def test_every_record_has_its_provenance(both: CorpusFolder) -> None:
    rows = pq.read_table(both.path / "provenance.parquet").to_pylist()
    # The broken article was fetched and kept, then set aside by the reader.
    assert len(rows) == both.manifest["counts"]["papers"] + 1
    assert all(row["address"].endswith(f"/{row['record']}.{row['version']}.xml") for row in rows)
    assert {row["licence_code"] for row in rows} == {"CC BY", "CC BY-NC"}
    assert [row["version"] for row in rows].count("2") == 1


def test_what_is_left_out_is_named_with_the_reason(both: CorpusFolder) -> None:
    found = rejected(both)
    assert set(found) == {"absent", "retracted", "malformed-xml"}
    assert all(len(records) == 1 for records in found.values())
    titles = pq.read_table(both.papers)["title"].to_pylist()
    assert sum("(second version)" in title for title in titles) == 1


def test_licence_filter_leaves_out_and_names(served, world: Replay, tmp_path: Path) -> None:
    corpus = fetch_corpus(
        plan_of(served, "neuro", licences="commercial", keep_retracted=True),
        tmp_path / "c",
        **EMAIL,
        workers=1,
    )
    found = rejected(corpus)
    assert set(found) == {"absent", "licence", "malformed-xml"}
    assert len(found["licence"]) == 1
    assert not any(path.endswith(f"{found['licence'][0]}.1.xml") for path, _ in world.asked)


def test_second_fetch_requests_nothing(both: CorpusFolder, served, world: Replay) -> None:
    before = [(both.path / name).stat().st_mtime_ns for name in TABLES]
    fetch_corpus(plan_of(served), both.path, **EMAIL, workers=1)
    assert world.asked == []
    assert [(both.path / name).stat().st_mtime_ns for name in TABLES] == before


def test_transient_faults_do_not_change_result(
    both: CorpusFolder, served, world: Replay, tmp_path: Path, attempts: Callable[[int], None]
) -> None:
    dice = random.Random(0)
    # Not silence: it costs its timeout each time.
    some = [fault for fault in FAULTS if fault != "silence"]
    world.fault = lambda number, path: dice.choice(some) if dice.random() < 0.15 else None
    attempts(15)
    corpus = fetch_corpus(plan_of(served), tmp_path / "c", **EMAIL, workers=1)
    for name in (*TABLES, "rejected.jsonl", "manifest.json"):
        assert (corpus.path / name).read_bytes() == (both.path / name).read_bytes(), name


def test_what_fails_is_set_aside_and_fetched_by_the_next_run(
    both: CorpusFolder, served, world: Replay, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    attempts: Callable[[int], None],
) -> None:  # fmt: skip
    lost = pq.read_table(both.papers)["pmcid"].to_pylist()[3]
    world.fault = lambda number, path: "503" if f"{lost}.1" in path else None
    attempts(2)
    corpus = fetch_corpus(plan_of(served), tmp_path / "c", **EMAIL, workers=1)
    assert rejected(corpus)["not-fetched"] == [lost]
    assert "warning: 1 answers or records were missing or unusable" in capsys.readouterr().err
    world.fault = lambda number, path: None
    world.asked.clear()
    again = fetch_corpus(plan_of(served), tmp_path / "c", **EMAIL, workers=1)
    # Its listing, its metadata, its text.
    assert len(world.asked) == 3
    assert "not-fetched" not in rejected(again)
    for name in TABLES:
        assert (again.path / name).read_bytes() == (both.path / name).read_bytes(), name


def test_another_domain_costs_only_what_is_new(served, world: Replay, tmp_path: Path) -> None:
    out = tmp_path / "c"
    fetch_corpus(plan_of(served, "neuro"), out, **EMAIL, workers=1)
    with pytest.raises(UsageError, match=r"other domains\.cells"):
        fetch_corpus(plan_of(served), out, **EMAIL, workers=1)
    world.asked.clear()
    corpus = fetch_corpus(plan_of(served), out, **EMAIL, workers=1, overwrite=True)
    texts = [path for path, _ in world.asked if path.endswith(".xml")]
    assert len(texts) == 15, "two of the seventeen were there"
    assert set(corpus.manifest["fetch"]["domains"]) == set(DOMAINS)


def test_full_texts_are_kept_on_request_and_cost_no_request(served, world: Replay, tmp_path: Path) -> None:
    out = tmp_path / "c"
    assert fetch_corpus(plan_of(served, "neuro"), out, **EMAIL, workers=1).bodies is None
    world.asked.clear()
    corpus = fetch_corpus(plan_of(served, "neuro", full_text=True), out, **EMAIL, workers=1, overwrite=True)
    assert not world.asked
    papers = set(pq.read_table(corpus.papers)["paper_id"].to_pylist())
    texts = pq.read_table(corpus.bodies)
    assert papers == set(texts["paper_id"].to_pylist())
    assert all(texts["text"].to_pylist())
    tables = ["bodies", "citations", "domains", "mentions", "papers", "provenance"]
    assert sorted(corpus.manifest["tables"]) == [f"{name}.parquet" for name in tables]
    for name in corpus.manifest["tables"]:  # none is optional once it was written
        (out / name).rename(tmp_path / name)
        with pytest.raises(InputError, match=f"lacks {name}"):
            CorpusFolder.open(out)
        (tmp_path / name).rename(out / name)
    with pytest.raises(UsageError, match="full_text"):
        plan_of(served, source="openalex", full_text=True)


def test_estimate_counts_and_stores_nothing(served, world: Replay) -> None:
    found = estimate_fetch(plan_of(served, max_articles=16), **EMAIL)
    assert found.articles == {"neuro": 15, "cells": 17}
    assert found.to_fetch == {"neuro": 15, "cells": 16}
    assert len(world.asked) == 2, "a count for each domain"


def test_sample_of_articles_is_reproducible(served, tmp_path: Path) -> None:
    ids = [f"PMC{n}" for n in range(1000)]
    few, more = sample(ids, 50), sample(ids, 400)
    assert set(few) < set(more)
    assert few != sorted(ids)[:50]
    corpus = fetch_corpus(plan_of(served, "cells", max_articles=5), tmp_path / "c", **EMAIL, workers=1)
    assert corpus.manifest["fetch"]["domains"]["cells"] | {"published": None} == {
        "query": "Cell biology[MeSH]", "found": 17, "kept": 5, "with_abstract": 5, "published": None,
    }  # fmt: skip


@pytest.mark.parametrize("paper", ["hallee2024", "hallee2025"])
def test_shipped_plans_have_the_queries_of_the_papers(paper: str) -> None:
    plan = FetchConfig.read(RECIPES / "corpus" / f"{paper}_domains.yaml")
    rules = DomainRules.of(RECIPES / paper / "domains.yaml").domains
    wanted = {}
    for name, rule in rules.items():
        first, last = rule.years
        wanted[name] = f'"{rule.mesh[0]}"[MeSH] AND {first}:{last}[PDAT]'
    assert plan.domains == wanted
    assert plan.published.keys() <= plan.domains.keys()
