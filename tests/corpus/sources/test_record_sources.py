"""Articles from PubMed and from Europe PMC instead of PMC's bucket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from helpers.replay_server import Article, Replay, serving
from helpers.small_pubmed import headings, record
from sentence_experts.corpus.config import FetchConfig
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.corpus.fetching import fetch_corpus
from sentence_experts.errors import UsageError

PATIENCE = {"email": "a@b.org", "first_wait": 0.01}
QUERY = '"Asthma"[MeSH]'


@pytest.fixture
def served() -> Iterator[tuple[Replay, str]]:
    world = Replay()
    ids = [str(n) for n in range(11, 18)]
    world.queries[f'({QUERY}) NOT "retracted publication"[pt]'] = [(one, "2015/01/01") for one in ids]
    for one in ids[:-1]:  # the last has vanished between the search and the fetch
        world.records[one] = record(one, title=f"Asthma {one}.", citation=headings("*Asthma")).encode()
        world.links[one] = {"cited_by": [900, 901], "references": [int(one) + 1]}
    for number, code in (("11", "CC BY"), ("12", "CC BY-NC"), ("13", "TDM")):
        world.articles[f"PMC{number}"] = Article(
            f"PMC{number}", number, [b"<article/>"], metadata={"license_code": code}
        )
    with serving(world) as base:
        yield world, base


def fetched(served: tuple[Replay, str], out: Path, **more: object) -> CorpusFolder:
    plan = FetchConfig(domains={"asthma": QUERY}, services=served[0].services(served[1]), **more)
    return fetch_corpus(plan, out, **PATIENCE, workers=1)


def test_pubmed_records(served: tuple[Replay, str], tmp_path: Path) -> None:
    corpus = fetched(served, tmp_path / "c", source="pubmed")
    papers = pq.read_table(corpus.papers).to_pylist()
    assert [paper["pmid"] for paper in papers] == ["11", "12", "13", "14", "15", "16"]
    assert all(paper["mesh"] == ["*Asthma"] for paper in papers)
    (lost,) = (json.loads(line) for line in corpus.rejected.read_text().splitlines())
    assert (lost["record"], lost["reason"]) == ("17", "absent")
    assert pq.read_table(corpus.domains).num_rows == 6
    # Two citing papers for each of six, and one reference that is not of the six.
    assert pq.read_table(corpus.citations).num_rows == 6 * 2 + 1
    assert not any(path.startswith(("/idconv", "/bucket")) for path, _ in served[0].asked)


def test_pubmed_records_by_the_licence_of_their_article(served: tuple[Replay, str], tmp_path: Path) -> None:
    for licences, kept in (("commercial", ["11"]), ("noncommercial", ["11", "12"])):
        corpus = fetched(served, tmp_path / licences, source="pubmed", licences=licences)
        assert pq.read_table(corpus.papers)["pmid"].to_pylist() == kept
        reasons = [json.loads(line)["reason"] for line in corpus.rejected.read_text().splitlines()]
        assert reasons == ["licence"] * (7 - len(kept))
    codes = pq.read_table(corpus.path / "provenance.parquet")["licence_code"].to_pylist()
    assert codes == ["CC BY", "CC BY-NC"]
    assert not any(path.endswith(".xml") for path, _ in served[0].asked), "metadata is enough"


def test_europe_pmc_records(served: tuple[Replay, str], tmp_path: Path) -> None:
    world = served[0]
    common = {"source": "MED", "abstractText": "Text."}
    world.epmc[f'({QUERY}) NOT PUB_TYPE:"Retracted Publication"'] = [
        {"id": str(n), "pmid": str(n), "title": f"Asthma {n}", **common} for n in range(11, 19)
    ] + [{"id": "PPR1", "source": "PPR", "title": "Preprint", "doi": "10.1000/ppr1"}]
    for n in range(11, 19):
        world.epmc_links[f"MED/{n}/citations"] = [{"id": "900", "source": "MED"}]
        world.epmc_links[f"MED/{n}/references"] = [{"id": str(n + 1), "source": "MED"}, {"doi": "10.1000/X"}]
    corpus = fetched(served, tmp_path / "c", source="europepmc", citations="europepmc")
    papers = pq.read_table(corpus.papers).to_pylist()
    assert len(papers) == 9
    assert {row["paper_id"] for row in pq.read_table(corpus.domains).to_pylist()} == {
        paper["paper_id"] for paper in papers
    }
    cited = pq.read_table(corpus.citations)["cited"].to_pylist()
    assert cited.count("doi:10.1000/x") == 8
    assert sum(one in {f"pmid:{n}" for n in range(11, 19)} for one in cited) == 8
    asked = len(world.asked)
    fetched(served, tmp_path / "c", source="europepmc", citations="europepmc")
    assert len(world.asked) == asked


def test_unsupported_filter_is_refused() -> None:
    with pytest.raises(UsageError, match="`licences` are those of PMC"):
        FetchConfig.of(domains={"a": "b"}, source="europepmc", licences="commercial")
