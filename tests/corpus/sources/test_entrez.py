"""E-utilities: recorded answers are understood, large results are cut by date, what is wrong is said."""

from __future__ import annotations

import json
import random
from datetime import date, timedelta
from pathlib import Path

import pytest
from lxml import etree

from helpers.replay_server import Replay
from sentence_experts.corpus.sources import entrez as entrez_module
from sentence_experts.corpus.sources.entrez import Entrez, linked
from sentence_experts.corpus.sources.http import FailedError, RefusedError
from sentence_experts.errors import InputError, SentenceExpertsError, UsageError


def dated(count: int, days: int, seed: int = 0) -> list[tuple[str, str]]:
    rng, first = random.Random(seed), date(2010, 1, 1)
    return [
        (str(n + 1), (first + timedelta(days=rng.randrange(days))).strftime("%Y/%m/%d")) for n in range(count)
    ]


def test_a_small_result_takes_one_search_and_its_pages(
    world: Replay, connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entrez_module, "_PAGE", 40)
    world.queries["asthma[MeSH]"] = dated(100, 1000)
    requests = connect()
    assert Entrez(requests).search("pubmed", "asthma[MeSH]") == [str(n + 1) for n in range(100)]
    assert len(world.asked) == 1 + 3
    # The pages come out of the history server, so all are of one answer.
    assert all(params["term"] == ["#1"] and params["WebEnv"] == ["MCID_"] for _, params in world.asked[1:])


def test_large_result_is_split_by_date(world: Replay, connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrez_module, "MAX_RESULTS", 90)
    world.cap = 90
    world.queries["cancer[MeSH]"] = dated(1000, 60)
    assert Entrez(connect()).search("pubmed", "cancer[MeSH]") == [str(n + 1) for n in range(1000)]


def test_interrupted_split_search_resumes(world: Replay, connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrez_module, "MAX_RESULTS", 90)
    world.cap = 90
    world.queries["cancer[MeSH]"] = dated(1000, 60)
    # The server is lost in the middle.
    world.fault = lambda number, path: "503" if number >= 30 else None
    requests = connect(attempts=1)
    with pytest.raises(FailedError):
        Entrez(requests).search("pubmed", "cancer[MeSH]")
    world.fault = lambda number, path: None
    world.asked.clear()
    whole = [str(n + 1) for n in range(1000)]
    assert Entrez(requests).search("pubmed", "cancer[MeSH]") == whole
    went_on = len(world.asked)
    world.asked.clear()
    assert Entrez(connect()).search("pubmed", "cancer[MeSH]") == whole
    assert went_on <= len(world.asked) - 30 + 3


def test_a_day_with_too_many_records_fails_loudly(
    world: Replay, connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entrez_module, "MAX_RESULTS", 90)
    world.cap = 90
    world.queries["a[MeSH]"] = [(str(n), "2020/01/01") for n in range(91)]
    with pytest.raises(InputError, match="91 records of 2020-01-01 alone"):
        Entrez(connect()).search("pubmed", "a[MeSH]")


def test_an_unknown_heading_is_named(world: Replay, connect) -> None:
    with pytest.raises(UsageError, match=r"does not know 'Astma\[MeSH\]'"):
        Entrez(connect()).count("pubmed", "Astma[MeSH]")


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
    assert entrez.count("pubmed", "biopython") == 63
    found = entrez._search("pubmed", "cancer", None)
    assert (found.count, found.query_key, found.environment) == (42249, "1", "MCID_6927d6e7fee3e90f880ec190")
    with pytest.raises(UsageError, match="abcXYZ"):
        entrez.count("pubmed", "abcXYZ")
    with pytest.raises(RefusedError, match="Invalid db name specified: nothing"):
        entrez.count("nothing", "broken")
    titles = entrez.titles("pubmed", ["1", "2"])
    assert titles["11850928"] == "Zirconium granuloma following treatment of rhus dermatitis."
    with pytest.raises(RefusedError, match="Neither query_key nor id specified"):
        entrez.titles("pubmed", ["3"])


@pytest.mark.realdata
def test_recorded_links_are_understood(real_data: Path) -> None:
    folder = real_data / "formats" / "entrez"
    root = etree.parse(folder / "elink1.xml").getroot()
    found = linked(root, "pubmed_pubmed")
    assert list(found) == ["9298984"]
    assert found["9298984"][:3] == ["9298984", "8794856", "9700164"]
    assert linked(root, "pubmed_pubmed_refs")["9298984"][:2] == ["14732139", "8909532"]
    assert linked(root, "pmc_pmc_cites") == {"9298984": []}
    # Two records in one set: whose links they are cannot be told.
    with pytest.raises(SentenceExpertsError, match="2 records in one set"):
        linked(etree.parse(folder / "elink3.xml").getroot(), "pubmed_pubmed")


@pytest.mark.realdata
def test_real_records_are_kept_one_by_one_and_lost_ones_named(
    world: Replay, connect, real_data: Path
) -> None:
    files = sorted((real_data / "formats" / "pubmed_efetch").glob("*.xml"))[:20]
    for file in files:
        (record,) = etree.parse(file, etree.XMLParser(load_dtd=False, no_network=True)).getroot()
        world.records[file.stem] = etree.tostring(record, with_tail=False)
    wanted = [*world.records, "999999999"]
    requests = connect()
    list(Entrez(requests).records(wanted))
    for pmid in world.records:
        body = requests.journal.get(f"pubmed/{pmid}").body
        assert etree.fromstring(body).findtext(".//MedlineCitation/PMID") == pmid
    (lost,) = Entrez(requests).absent_records(wanted)
    assert (lost.record, lost.reason) == ("999999999", "absent")
    asked = len(world.asked)
    list(Entrez(requests).records(wanted))
    assert len(world.asked) == asked, "nothing is fetched twice"


def test_links_are_requested_one_record_at_a_time(world: Replay, connect) -> None:
    world.links = {str(n): {"cited_by": [n + 1000, n + 2000], "references": [n + 1]} for n in range(1, 251)}
    requests = connect()
    found = Entrez(requests).links("pubmed_pubmed_citedin", [str(n) for n in range(1, 251)])
    assert found == {str(n): [str(n + 1000), str(n + 2000)] for n in range(1, 251)}
    assert [len(params["id"]) for _, params in world.asked] == [100, 100, 50]
    assert json.loads(next(iter(requests.journal.answers("elink/"))).body)


def test_api_key_goes_only_to_its_service(world: Replay, connect) -> None:
    world.queries["q"] = [("1", "2015/01/01")]
    requests = connect()
    requests.api_key = "secret"
    Entrez(requests).search("pubmed", "q")
    assert all(params["api_key"] == ["secret"] for _, params in world.asked)
    assert all(b"secret" not in (answer.body or b"") for answer in requests.journal.answers(""))
