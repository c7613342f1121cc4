"""PMC's bucket: the newest version, the licence gate, whole files."""

from __future__ import annotations

import pytest

from helpers.replay_server import Article, Replay, stored
from sentence_experts.corpus.sources.pmc import LICENCES, PmcSource, Version


def count(steps: int = 1) -> None:
    pass


def test_newest_version_is_taken(world: Replay, connect) -> None:
    world.articles["PMC1"] = Article("PMC1", "11", [b"<article>1</article>"])
    # Ten versions: by number, not by name; and PMC12 begins with PMC1.
    world.articles["PMC12"] = Article("PMC12", "12", [b"<article>%d</article>" % n for n in range(1, 11)])
    client = connect()
    bucket = PmcSource(client)
    bucket.fetch(["PMC1", "PMC12"], count)
    assert bucket.version("PMC1").name == "PMC1.1"
    assert bucket.version("PMC12").name == "PMC12.10"
    assert client.journal.get("jats/PMC12") == b"<article>10</article>"
    asked = len(world.asked)
    bucket.fetch(["PMC1", "PMC12"], count)
    assert len(world.asked) == asked, "nothing is fetched twice"


def test_what_the_gate_keeps_out_is_not_downloaded(world: Replay, connect) -> None:
    for number, code in enumerate(("CC BY", "CC BY-NC-ND", "CC0", "TDM")):
        world.articles[f"PMC{number}1"] = Article(
            f"PMC{number}1", None, [b"<article/>"], metadata={"license_code": code}
        )
    client = connect()
    PmcSource(client, "commercial").fetch(list(world.articles), count)
    fetched = stored(client.journal, "jats/").keys()
    assert fetched == {"jats/PMC01", "jats/PMC21"}
    assert not any(path.endswith(("PMC11.1.xml", "PMC31.1.xml")) for path, _ in world.asked)
    # A wider gate later asks only for what is new.
    before = len(world.asked)
    PmcSource(client, "noncommercial").fetch(list(world.articles), count)
    assert stored(client.journal, "jats/").keys() == fetched | {"jats/PMC11"}
    assert len(world.asked) - before == 3


@pytest.mark.parametrize(
    ("code", "commercial", "noncommercial"),
    [("CC BY-ND", True, True), ("CC0", True, True), ("CC-BY-NC-ND", False, True), ("", False, False)],
)
def test_licences(code: str, commercial: bool, noncommercial: bool) -> None:
    licence = Version(license_code=code).licence
    assert [LICENCES[name](licence) for name in ("any", "commercial", "noncommercial")] == [
        True, commercial, noncommercial,
    ]  # fmt: skip


def test_articles_that_are_not_there_are_named(world: Replay, connect) -> None:
    world.articles["PMC1"] = Article("PMC1", None, [b"<article/>"])
    bucket = PmcSource(connect())
    bucket.fetch(["PMC1", "PMC2"], count)
    _, absent = bucket.records(["PMC1", "PMC2"])
    assert (absent.id, absent.reason[0]) == ("PMC2", "absent")


def test_one_failing_article_does_not_stop_the_others(world: Replay, connect) -> None:
    for number in range(1, 31):
        world.articles[f"PMC{number}"] = Article(f"PMC{number}", None, [b"<article/>"])
    world.fault = lambda number, path: "503" if "PMC7.1" in path else None
    client = connect(tries=2)
    PmcSource(client).fetch(list(world.articles), count)
    assert [rejection.record for rejection in client.set_aside] == ["PMC7"]
    assert len(stored(client.journal, "jats/")) == 29


def test_server_error_is_not_recorded_as_absence(world: Replay, connect) -> None:
    world.articles["PMC1"] = Article("PMC1", None, [b"<article/>"])
    world.fault = lambda number, path: "page" if "metadata" in path else None
    client = connect(tries=2)
    bucket = PmcSource(client)
    bucket.fetch(["PMC1"], count)
    assert bucket.version("PMC1") is None
    assert not list(bucket.records(["PMC1"]))
    assert "Invalid JSON" in client.set_aside[0].detail


CUT = [b"<a><b", b"<!-- <b> --><a><b>1</b>", b"<a><b/>", b'<?xml version="1.0"?><!DOCTYPE a><a><b></b> \n']


@pytest.mark.parametrize("body", [b"<!DOCTYPE html><a/>", b"\xef\xbb\xbf <html/>", b'{"a": 1}', *CUT])
def test_texts_that_are_no_whole_xml_are_requested_again(world: Replay, connect, body: bytes) -> None:
    world.articles["PMC1"] = Article("PMC1", None, [body])
    client = connect(tries=2)
    PmcSource(client).fetch(["PMC1"], count)
    assert not stored(client.journal)
    assert "XML" in client.set_aside[0].detail


@pytest.mark.parametrize("stated", ["PMC2", "2", "PMC1", "1", ""])
def test_the_text_of_another_article_is_requested_again(world: Replay, connect, stated: str) -> None:
    own = f'<article-id pub-id-type="pmcid">{stated}</article-id>' if stated else ""
    meta = f"<article-meta><article-id pub-id-type='pmcaid'>7</article-id>{own}</article-meta>"
    other = '<ref><article-id pub-id-type="pmc">5</article-id></ref>'
    world.articles["PMC1"] = Article("PMC1", None, [f"<article>{meta}{other}</article>".encode()])
    client = connect(tries=2)
    PmcSource(client).fetch(["PMC1"], count)
    assert len(stored(client.journal, "jats/")) == (stated[-1:] != "2")
    assert ["the XML of PMC2" in each.detail for each in client.set_aside] == [True] * (stated[-1:] == "2")


@pytest.mark.parametrize("end", [b"", b" \n", b"\0", b"<!-- made by PMC -->\n", b"<a/></a>"])
def test_whole_texts_are_stored(world: Replay, connect, end: bytes) -> None:
    world.articles["PMC1"] = Article("PMC1", None, [b"<!-- <b> --><a><b>1</b></a>" + end])
    client = connect(tries=2)
    PmcSource(client).fetch(["PMC1"], count)
    assert (len(stored(client.journal, "jats/")), client.set_aside) == (1, [])
