"""Europe PMC: pages by cursor, records to papers, links. Its answers are of our own making."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.replay_server import Replay
from sentence_experts.corpus.paper import Paper
from sentence_experts.corpus.sources.europepmc import EuropePmc, to_paper
from sentence_experts.corpus.sources.http import FailedError
from sentence_experts.errors import UsageError


def record(number: int, **more: Any) -> dict[str, Any]:
    return {"id": str(number), "source": "MED", "pmid": str(number), "title": f"Paper {number}"} | more


def test_every_page_is_read_and_a_broken_search_continues(world: Replay, connect) -> None:
    world.epmc["asthma"] = [record(n) for n in range(1, 11)]  # the server gives 3 a page
    world.fault = lambda number, path: "503" if number >= 2 else None
    requests = connect(attempts=1)
    service = EuropePmc(requests)
    with pytest.raises(FailedError):
        list(service.search("asthma"))
    world.fault = lambda number, path: None
    found = [one for ids in service.search("asthma") for one in ids]
    assert found == [f"MED/{n}" for n in range(1, 11)]
    marks = [params["cursorMark"][0] for _, params in world.asked]
    assert marks == ["*", "3", "6", "6", "9", "10"], "only the page that failed is asked for again"
    asked = len(world.asked)
    list(service.search("asthma"))
    assert len(world.asked) == asked


def test_a_record_becomes_a_paper() -> None:
    paper = to_paper(
        record(
            31,
            pmcid="PMC31",
            doi="10.1000/ABC",
            title="Rice in <i>drought</i>.",
            abstractText="<h4>Background</h4>Rice &amp; water.",
            pubYear="2019",
            journalInfo={"journal": {"title": "Rice"}},
            meshHeadingList={
                "meshHeading": [
                    {"majorTopic_YN": "Y", "descriptorName": "Oryza"},
                    {"majorTopic_YN": "N", "descriptorName": "Droughts"},
                ]
            },
            keywordList={"keyword": ["yield", "yield"]},
            pubTypeList={"pubType": ["Journal Article", "Retracted Publication"]},
            license="cc by-nc",
        )
    )
    assert paper == Paper(
        doi="10.1000/abc",
        pmid="31",
        pmcid="PMC31",
        other="europepmc:MED/31",
        title="Rice in drought.",
        abstract="Background Rice & water.",
        year=2019,
        article_type="research-article",
        mesh=("*Oryza", "Droughts"),
        keywords=("yield",),
        journal="Rice",
        licence="CC-BY-NC",
        retracted=True,
    )


def test_an_empty_record_is_a_paper_with_nothing() -> None:
    paper = to_paper({"id": "PPR1", "source": "PPR"})
    assert paper == Paper(other="europepmc:PPR/PPR1")


def test_links_have_the_names_that_works_go_by(world: Replay, connect) -> None:
    world.epmc_links["MED/1/references"] = [
        {"id": "5", "source": "MED"},
        {"id": "PMC6", "source": "PMC"},
        {"title": "no id", "doi": "10.1000/X"},
        {"title": "nothing to go by"},
    ]
    service = EuropePmc(connect())
    assert service.linked("references", "MED/1") == ["pmid:5", "pmc:PMC6", "doi:10.1000/x"]
    assert service.linked("citations", "MED/1") == []


def test_query_without_results_is_a_usage_error(connect) -> None:
    with pytest.raises(UsageError, match="no record matches 'nothing'"):
        EuropePmc(connect()).count("nothing")
