"""Answers that are none stay out of the journal; one bad record is set aside and the others are kept."""

from __future__ import annotations

import gzip
import json
import socket
import sqlite3
import tarfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from helpers.replay_server import Article, Replay
from sentence_experts.corpus.sources import http
from sentence_experts.corpus.sources.answers import EuropePmcRecord, SearchPage, json_value, shaped
from sentence_experts.corpus.sources.citations import ELink
from sentence_experts.corpus.sources.entrez import Entrez
from sentence_experts.corpus.sources.europepmc import EuropePmc, to_paper
from sentence_experts.corpus.sources.http import Client, FailedError, RefusedError
from sentence_experts.corpus.sources.icite import fetch_links, fetched_links
from sentence_experts.corpus.sources.journal import open_journal
from sentence_experts.corpus.sources.pmc import Bucket, Version, converted
from sentence_experts.corpus.sources.requests import ODD, Requests

NO_ANSWERS = [
    b"[]", b"null", b"1", b'""', b"{}", b'{"error": "internal"}', b"[" * 100_000, b"", b"<html/>",
    b'{"data": {}, "records": 1, "hitCount": -1}', b'{"hitCount": null, "data": null, "records": null}',
    b'{"hitCount": "many"}', b'{"a": "\\ud800"}', b'{"hitCount": ' + b"9" * 5000 + b"}",
]  # fmt: skip


def ask_icite(requests: Requests) -> None:
    list(fetch_links(requests, ["7"]))


def ask_converter(requests: Requests) -> None:
    converted(requests, ["7"], "pmcid")


def ask_bucket(requests: Requests) -> None:
    Bucket(requests).fetch(["PMC7"], lambda version: True, lambda steps=1: None)


def ask_europe_pmc(requests: Requests) -> None:
    with pytest.raises(FailedError):
        list(EuropePmc(requests).search("q"))


def ask_europe_pmc_links(requests: Requests) -> None:
    with pytest.raises(FailedError):
        EuropePmc(requests).linked("references", "MED/7")


def ask_entrez(requests: Requests) -> None:
    with pytest.raises(FailedError):
        Entrez(requests).search("pubmed", "q")


def ask_records(requests: Requests) -> None:
    list(Entrez(requests).records(["7"]))


def ask_links(requests: Requests) -> None:
    ELink(requests).fetch(["7"], lambda steps=1: None)


ASKED = {
    ask_icite: "_icite", ask_converter: "_idconv", ask_europe_pmc: "_epmc", ask_europe_pmc_links: "_epmc",
    ask_entrez: "_entrez", ask_records: "_entrez", ask_links: "_entrez", ask_bucket: "_bucket",
}  # fmt: skip


@pytest.mark.parametrize("ask", ASKED)
def test_answers_of_another_shape_stay_out_of_the_journal(world: Replay, connect, ask) -> None:
    searches = [f"<eSearchResult><Count>{count}</Count><IdList/></eSearchResult>".encode()
                for count in ("-5", "x", "", "9" * 5000)]  # fmt: skip
    others = [b"<Error><Code>SlowDown</Code></Error>", b"<eSearchResult/>", *searches]
    requests = connect(attempts=1)
    for body in [*NO_ANSWERS, *others]:
        setattr(world, ASKED[ask], lambda rest, params, body=body: body)
        ask(requests)
        assert not list(requests.journal.answers("")), body[:80]


def test_one_bad_record_of_icite_is_set_aside(world: Replay, connect) -> None:
    good = {"pmid": 1, "cited_by": [5], "references": "6 7"}
    bad: list[Any] = [
        {"pmid": 2, "cited_by": ["x"], "references": []}, {"pmid": 3}, [], None,
        {"pmid": -1, "cited_by": [], "references": []}, {"pmid": "²", "cited_by": [], "references": []},
    ]  # fmt: skip
    body = json.dumps({"data": [*bad, good]}).encode()
    world._icite = lambda rest, params: body  # type: ignore[method-assign]
    requests = connect()
    list(fetch_links(requests, ["1", "2", "3", "4"]))
    assert list(fetched_links(requests, ["1", "2", "3", "4"])) == [("5", "1"), ("1", "6"), ("1", "7")]
    assert {one.reason for one in requests.set_aside} == {ODD}
    assert [one.record for one in requests.set_aside] == ["2", "3", None, None, "-1", "²"]
    assert {answer.key for answer in requests.journal.answers("")} == {"icite/1"}, "4 may be a nameless one"


def test_a_service_that_knows_none_of_many_has_failed(world: Replay, connect) -> None:
    requests = connect(attempts=1)
    pmids = [str(n) for n in range(1, 41)]
    list(fetch_links(requests, pmids))
    list(Entrez(requests).records(pmids))
    assert not list(requests.journal.answers(""))
    assert [one.source for one in requests.set_aside] == ["icite", "pubmed"]


def test_odd_ids_of_a_search_are_set_aside(world: Replay, connect) -> None:
    world.queries["q"] = [(one, "2015/01/01") for one in ("3", "x", "-1", "²", "2")]
    requests = connect()
    assert Entrez(requests).search("pubmed", "q") == ["2", "3"]
    assert sorted(str(one.record) for one in requests.set_aside) == ["-1", "x", "²"]


def test_odd_records_of_europe_pmc_are_set_aside(world: Replay, connect) -> None:
    good = {"source": "MED", "id": "1", "title": "Good", "pubYear": "2019"}
    odd = [{"meshHeadingList": []}, {"keywordList": {"keyword": "x"}}, {"pubYear": [1]}, {"id": "../x"}]
    world.epmc["q"] = [good, None, {"id": "2"}, *({**good, "id": "9", **one} for one in odd)]  # type: ignore
    requests = connect()
    assert list(EuropePmc(requests).search("q")) == [["MED/1"]]
    assert {answer.key for answer in requests.journal.answers("europepmc/")} == {"europepmc/MED/1"}
    assert len(requests.set_aside) == 6
    world.epmc_links["MED/1/references"] = [{"source": "MED", "id": "5"}, [], {"source": {}, "id": "6"}]  # type: ignore
    assert EuropePmc(requests).linked("references", "MED/1") == ["pmid:5"]
    assert len(requests.set_aside) == 8
    assert to_paper({**good, "pubYear": "9" * 5000}).year is None


@pytest.mark.parametrize("address", ["http://[::1", "?md5=zz", "s3://x?md5=" + "0" * 31, "\ud800", " ", "%"])
def test_odd_metadata_of_an_article_is_survived(world: Replay, connect, address: str) -> None:
    world.articles["PMC1"] = Article("PMC1", None, [b"<article/>"], metadata={"xml_url": address})
    requests = connect(attempts=1)
    Bucket(requests).fetch(["PMC1"], lambda version: True, lambda steps=1: None)
    assert len(requests.set_aside) == (address == "\ud800")
    assert not Version("PMC1.1", {"license_code": None, "pmid": None}).retracted


def test_versions_of_5000_digits_are_no_versions(world: Replay, connect) -> None:
    real = world._listing

    def listing(prefix: str) -> bytes:
        odd = "".join(
            f"<CommonPrefixes><Prefix>{prefix}{v}/</Prefix></CommonPrefixes>" for v in ("9" * 5000, "²")
        )
        return real(prefix).replace(b"<CommonPrefixes>", odd.encode() + b"<CommonPrefixes>", 1)

    world._listing = listing  # type: ignore[method-assign]
    world.articles["PMC1"] = Article("PMC1", None, [b"<article/>"])
    requests = connect(attempts=1)
    Bucket(requests).fetch(["PMC1"], lambda version: True, lambda steps=1: None)
    assert Bucket(requests).version("PMC1").name == "PMC1.1"  # type: ignore[union-attr]


def test_doubtful_answers_of_an_older_version_are_requested_again(
    world: Replay, connect, tmp_path: Path
) -> None:
    path = tmp_path / "journal.sqlite"
    with open_journal(path) as journal:
        journal.put("icite/1", None, "not in iCite")
        journal.put("icite/2", json.dumps({"cited_by": ["9"], "references": []}).encode())
        journal.put("icite/3", json.dumps({"cited_by": ["x"], "references": None}).encode())
        journal.put(f"esearch/pubmed/{http.__name__}", b"[]")
        journal.put("pmc/PMC1", b"[]")
        journal.put("epmc-references/MED/1/001", b'{"errCode": 1}')
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 1")
    database.close()
    world.links = {str(n): {"cited_by": [n + 10], "references": []} for n in (1, 2, 3)}
    world.articles["PMC1"] = Article("PMC1", None, [b"<article/>"])
    world.epmc_links["MED/1/references"] = [{"source": "MED", "id": "5"}]
    requests = connect(path)
    assert not list(requests.journal.answers("esearch/"))
    list(fetch_links(requests, ["1", "2", "3"]))
    assert list(fetched_links(requests, ["1", "2", "3"])) == [("11", "1"), ("9", "2"), ("13", "3")]
    Bucket(requests).fetch(["PMC1"], lambda version: True, lambda steps=1: None)
    assert Bucket(requests).version("PMC1") is not None
    assert EuropePmc(requests).linked("references", "MED/1") == ["pmid:5"]


@pytest.mark.realdata
def test_real_answers_of_europe_pmc_have_the_shape(real_data: Path) -> None:
    records = 0
    with tarfile.open(real_data / "formats" / "bibliographic.tar.xz") as files:
        for member in files:
            if member.name.startswith("europepmc_json/search"):
                page = shaped(SearchPage, files.extractfile(member).read())  # type: ignore[union-attr]
                for record in page.result_list.result:
                    shaped(EuropePmcRecord, record)
                    assert to_paper(record).other
                    records += 1
    assert records > 20


# ---- bodies --------------------------------------------------------------------------------------


@contextmanager
def raw_server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Serve connections by hand: `serve` gets each after its request was read."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                try:
                    connection.recv(65536)
                    serve(connection)
                except OSError:
                    pass

    threading.Thread(target=run, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


def answer(body: bytes, *headers: str) -> bytes:
    head = "\r\n".join(["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", "Connection: close", *headers])
    return head.encode("latin-1") + b"\r\n\r\n" + body


@pytest.mark.parametrize("packing", ["gzip", "deflate", "identity"])
def test_bodies_have_a_limit(monkeypatch: pytest.MonkeyPatch, packing: str) -> None:
    monkeypatch.setattr(http, "MAX_BODY", 100_000)
    packed = {"gzip": gzip.compress, "deflate": zlib.compress, "identity": bytes}[packing](bytes(30_000_000))
    with (
        raw_server(lambda to: to.sendall(answer(packed, f"Content-Encoding: {packing}"))) as base,
        Client("a@b.org", attempts=1) as client,
        pytest.raises(RefusedError, match="sent more than 100,000 bytes for /x"),
    ):
        client.get(f"{base}/x")


@pytest.mark.parametrize("packing", ["gzip", "deflate"])
def test_packed_bodies_are_unpacked_and_cut_ones_noticed(packing: str) -> None:
    packed = {"gzip": gzip.compress, "deflate": zlib.compress}[packing](b"x" * 5000)
    for body, error in ((packed, None), (packed[:-6], "truncated"), (b"junk", "cannot be decompressed")):
        with (
            raw_server(
                lambda to, body=body: to.sendall(answer(body, f"Content-Encoding: {packing}"))
            ) as base,
            Client("a@b.org", attempts=1) as client,
        ):
            if error is None:
                assert client.get(base) == b"x" * 5000
            else:
                with pytest.raises(FailedError, match=error):
                    client.get(base)


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"])
def test_a_trickling_server_is_given_up(head: bytes) -> None:
    def trickle(to: socket.socket) -> None:
        to.sendall(head)
        for letter in b"HTTP/1.1 200 OK\r\nX: " + b"x" * 600:
            to.sendall(bytes([letter]))
            time.sleep(0.02)

    with (
        raw_server(trickle) as base,
        Client("a@b.org", attempts=1, timeout=0.2) as client,
        pytest.raises(FailedError, match="too slow"),
    ):
        client.get(base)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("²", None), ("9" * 5000, None), ("-1", None), ("", None), ("soon", None), ("7", 7.0),
     ("Mon, 99 Jan 2024 99:99:99 GMT", None), ("Mon, 01 Jan 2001 00:00:00 GMT", 0.0)],
)  # fmt: skip
def test_odd_requests_to_wait_are_ignored(value: str, seconds: float | None) -> None:
    headers = [(b"Retry-After", value.encode())]
    assert http._retry_after(httpx.Response(429, headers=headers)) == seconds


def test_deep_json_and_halves_of_pairs_are_no_json() -> None:
    for body in (b"[" * 100_000, b'"\\ud800"', b"\xff", b"9" * 5000):
        with pytest.raises(ValueError, match="JSON"):
            json_value(body)
