"""E-utilities: recorded answers are understood, and errors are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.replay_server import Replay, stored
from sentence_experts.corpus.sources import entrez as entrez_module
from sentence_experts.corpus.sources.entrez import Entrez, _count_of
from sentence_experts.corpus.sources.http import RefusedError
from sentence_experts.errors import UsageError


def test_pages_of_a_result_come_from_the_history_server(
    world: Replay, connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entrez_module, "_PAGE", 40)
    world.queries["asthma[MeSH]"] = [(str(n + 1), "2015/01/01") for n in range(100)]
    requests = connect()
    assert Entrez(requests).search("asthma[MeSH]") == [str(n + 1) for n in range(100)]
    assert len(world.asked) == 1 + 3
    # All pages are of one answer.
    assert all(params["term"] == ["#1"] and params["WebEnv"] == ["MCID_"] for _, params in world.asked[1:])
    assert len(Entrez(requests).search("asthma[MeSH]")) == 100
    assert len(world.asked) == 1 + 3


def test_an_unknown_heading_is_named(world: Replay, connect) -> None:
    with pytest.raises(UsageError, match=r"does not know 'Astma\[MeSH\]'"):
        Entrez(connect()).count("Astma[MeSH]")


@pytest.mark.realdata
def test_recorded_searches_are_understood(world: Replay, connect, real_data: Path) -> None:
    folder = real_data / "formats" / "entrez"
    world.recorded = {
        ("esearch", "biopython"): folder / "esearch1.xml",
        ("esearch", "cancer"): folder / "esearch2.xml",
        ("esearch", "abcXYZ"): folder / "esearch8.xml",
        ("esearch", "broken"): folder / "epost2.xml",
        ("esummary", "1,2"): folder / "esummary1.xml",
        ("esummary", "3"): folder / "esummary8.xml",
    }
    entrez = Entrez(connect())
    assert entrez.count("biopython") == 63
    found = entrez._search("cancer")
    assert (_count_of(found), found.findtext("WebEnv")) == (42249, "MCID_6927d6e7fee3e90f880ec190")
    with pytest.raises(UsageError, match="abcXYZ"):
        entrez.count("abcXYZ")
    with pytest.raises(RefusedError, match="Invalid db name specified: nothing"):
        entrez.count("broken")
    assert entrez.titles(["1", "2"])[0] == "Zirconium granuloma following treatment of rhus dermatitis."
    with pytest.raises(RefusedError, match="Neither query_key nor id specified"):
        entrez.titles(["3"])


def test_api_key_goes_only_to_its_service(world: Replay, connect) -> None:
    world.queries["q"] = [("1", "2015/01/01")]
    requests = connect()
    requests.api_key = "secret"
    Entrez(requests).search("q")
    assert all(params["api_key"] == ["secret"] for _, params in world.asked)
    assert all(b"secret" not in (body or b"") for body in stored(requests.journal).values())


def test_a_long_query_is_sent_as_a_form(world: Replay, connect) -> None:
    query = " OR ".join(f"heading {number}[MeSH]" for number in range(400))
    world.queries[query] = [("1", "2015/01/01")]
    assert Entrez(connect()).search(query) == ["1"]
