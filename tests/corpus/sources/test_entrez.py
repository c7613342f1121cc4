"""E-utilities: recorded answers are understood, and errors are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.replay_server import Replay, stored
from sentence_experts.corpus.sources import pmc
from sentence_experts.corpus.sources.client import FailedError
from sentence_experts.corpus.sources.pmc import PmcSource
from sentence_experts.errors import UsageError


def sent(query: str) -> str:
    return f"({query}) AND open access[filter]"


def test_pages_of_a_result_come_from_the_history_server(
    world: Replay, connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pmc, "_PAGE", 40)
    world.queries[sent("asthma[MeSH]")] = [(str(n + 1), "2015/01/01") for n in range(100)]
    source = PmcSource(connect())
    assert source.find("asthma[MeSH]") == [f"PMC{n + 1}" for n in range(100)]
    assert len(world.asked) == 1 + 3
    # All pages are of one answer.
    assert all(params["term"] == ["#1"] and params["WebEnv"] == ["MCID_"] for _, params in world.asked[1:])
    assert len(source.find("asthma[MeSH]")) == 100
    assert len(world.asked) == 1 + 3


def test_an_unknown_heading_is_named(world: Replay, connect) -> None:
    with pytest.raises(UsageError, match=r"does not know '\(Astma\[MeSH\]\)"):
        PmcSource(connect()).count("Astma[MeSH]")


@pytest.mark.realdata
def test_recorded_searches_are_understood(world: Replay, connect, real_data: Path) -> None:
    folder = real_data / "formats" / "entrez"
    world.recorded = {
        ("esearch", sent("biopython")): folder / "esearch1.xml",
        ("esearch", sent("cancer")): folder / "esearch2.xml",
        ("esearch", sent("abcXYZ")): folder / "esearch8.xml",
        ("esearch", sent("broken")): folder / "epost2.xml",
    }
    source = PmcSource(connect())
    assert (source.count("biopython"), source.count("cancer")) == (63, 42249)
    with pytest.raises(UsageError, match="abcXYZ"):
        source.count("abcXYZ")
    with pytest.raises(FailedError, match="Invalid db name specified: nothing"):
        source.count("broken")


def test_api_key_goes_only_to_its_service(world: Replay, connect) -> None:
    query = " OR ".join(f"heading {number}[MeSH]" for number in range(400))  # too long for an address
    world.queries[sent(query)] = [("1", "2015/01/01")]
    client = connect(api_key="secret")
    assert PmcSource(client).find(query) == ["PMC1"]
    assert all(params["api_key"] == ["secret"] for _, params in world.asked)
    assert all(b"secret" not in (body or b"") for body in stored(client.journal).values())
