"""PMC's bucket: the newest version, the licence gate, whole files."""

from __future__ import annotations

import json

import pytest

from helpers.replay_server import Article, Replay, stored
from sentence_experts.corpus.sources.http import FailedError
from sentence_experts.corpus.sources.pmc import LICENCES, PmcSource, Version


def count(steps: int = 1) -> None:
    pass


def test_newest_version_is_taken(world: Replay, connect) -> None:
    world.articles["PMC1"] = Article("PMC1", "11", [b"<article>1</article>"])
    # Ten versions: by number, not by name; and PMC12 begins with PMC1.
    world.articles["PMC12"] = Article("PMC12", "12", [b"<article>%d</article>" % n for n in range(1, 11)])
    requests = connect()
    bucket = PmcSource(requests)
    bucket.fetch(["PMC1", "PMC12"], count)
    assert bucket.version("PMC1").name == "PMC1.1"
    assert bucket.version("PMC12").name == "PMC12.10"
    assert requests.journal.get("jats/PMC12").body == b"<article>10</article>"
    asked = len(world.asked)
    bucket.fetch(["PMC1", "PMC12"], count)
    assert len(world.asked) == asked, "nothing is fetched twice"


def test_what_the_gate_keeps_out_is_not_downloaded(world: Replay, connect) -> None:
    for number, code in enumerate(("CC BY", "CC BY-NC-ND", "CC0", "TDM")):
        world.articles[f"PMC{number}1"] = Article(
            f"PMC{number}1", None, [b"<article/>"], metadata={"license_code": code}
        )
    requests = connect()
    PmcSource(requests, "commercial").fetch(list(world.articles), count)
    fetched = stored(requests.journal, "jats/").keys()
    assert fetched == {"jats/PMC01", "jats/PMC21"}
    assert not any(path.endswith(("PMC11.1.xml", "PMC31.1.xml")) for path, _ in world.asked)
    # A wider gate later asks only for what is new.
    before = len(world.asked)
    PmcSource(requests, "noncommercial").fetch(list(world.articles), count)
    assert stored(requests.journal, "jats/").keys() == fetched | {"jats/PMC11"}
    assert len(world.asked) - before == 3


@pytest.mark.parametrize(
    ("code", "commercial", "noncommercial"),
    [
        ("CC BY", True, True),
        ("CC BY-SA", True, True),
        ("CC BY-ND", True, True),
        ("CC0", True, True),
        ("CC BY-NC", False, True),
        ("CC BY-NC-SA", False, True),
        ("CC-BY-NC-ND", False, True),
        ("TDM", False, False),
        ("", False, False),
    ],
)
def test_licences(code: str, commercial: bool, noncommercial: bool) -> None:
    version = Version("PMC1.1", {"license_code": code})
    assert LICENCES["commercial"](version.licence) is commercial
    assert LICENCES["noncommercial"](version.licence) is noncommercial
    assert LICENCES["any"](version.licence)


def test_articles_that_are_not_there_are_named(world: Replay, connect) -> None:
    world.articles["PMC1"] = Article("PMC1", None, [b"<article/>"])
    bucket = PmcSource(connect())
    bucket.fetch(["PMC1", "PMC2"], count)
    (absent,) = bucket.left_out(["PMC1", "PMC2"])
    assert (absent.record, absent.reason) == ("PMC2", "absent")


def test_text_with_wrong_md5_is_requested_again(world: Replay, connect) -> None:
    world.articles["PMC1"] = Article("PMC1", None, [b"<article/>"])
    wrong = {"xml_url": "s3://pmc-oa-opendata/PMC1.1/PMC1.1.xml?md5=" + "0" * 32}
    world.articles["PMC1"].metadata = wrong
    requests = connect(attempts=2)
    PmcSource(requests).fetch(["PMC1"], count)
    assert sum(path.endswith("PMC1.1.xml") for path, _ in world.asked) == 2
    (failed,) = requests.set_aside
    assert failed.record == "PMC1"
    assert "MD5" in failed.detail
    # It was not kept, so the next run asks again, and gets it.
    world.articles["PMC1"].metadata = {}
    PmcSource(requests).fetch(["PMC1"], count)
    assert requests.journal.get("jats/PMC1").body == b"<article/>"


def test_one_failing_article_does_not_stop_the_others(world: Replay, connect) -> None:
    for number in range(1, 31):
        world.articles[f"PMC{number}"] = Article(f"PMC{number}", None, [b"<article/>"])
    world.fault = lambda number, path: "503" if "PMC7.1" in path else None
    requests = connect(attempts=2)
    PmcSource(requests).fetch(list(world.articles), count)
    assert [rejection.record for rejection in requests.set_aside] == ["PMC7"]
    assert len(stored(requests.journal, "jats/")) == 29


def test_metadata_comes_from_the_bucket(world: Replay, connect) -> None:
    world.articles["PMC1"] = Article("PMC1", "77", [b"<article/>"], metadata={"is_retracted": True})
    bucket = PmcSource(connect())
    bucket.fetch(["PMC1"], count)
    version = bucket.version("PMC1")
    assert version.retracted
    assert version.pmid() == "77"
    assert json.dumps(version.metadata)


def test_server_error_is_not_recorded_as_absence(world: Replay, connect) -> None:
    world.articles["PMC1"] = Article("PMC1", None, [b"<article/>"])
    world.fault = lambda number, path: "page" if "metadata" in path else None
    requests = connect(attempts=2)
    bucket = PmcSource(requests)
    bucket.fetch(["PMC1"], count)
    assert bucket.version("PMC1") is None
    assert not list(bucket.left_out(["PMC1"]))
    assert "not JSON" in requests.set_aside[0].detail
    with pytest.raises(FailedError):
        requests.client.get(
            f"{requests.services.pmc_bucket.url}/metadata/PMC1.1.json", None, lambda body: _bad()
        )


def _bad() -> None:
    raise ValueError("bad")
