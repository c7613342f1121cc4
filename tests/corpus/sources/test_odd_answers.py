"""Answers that are none stay out of the journal; one bad record is set aside and the others are kept."""

from __future__ import annotations

import gzip
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest

from helpers.replay_server import Article, Replay, stored
from sentence_experts.corpus.sources import http
from sentence_experts.corpus.sources.answers import json_value
from sentence_experts.corpus.sources.entrez import Entrez
from sentence_experts.corpus.sources.http import Client, FailedError, RefusedError
from sentence_experts.corpus.sources.openalex import OpenAlexSource
from sentence_experts.corpus.sources.pmc import PmcSource, Version
from sentence_experts.corpus.sources.requests import Requests

NO_ANSWERS = [
    b"[]", b"null", b"1", b'""', b"{}", b'{"error": "internal"}', b"[" * 100_000, b"", b"<html/>",
    b'{"data": {}, "records": 1, "hitCount": -1}', b'{"hitCount": null, "data": null, "records": null}',
    b'{"hitCount": "many"}', b'{"a": "\\ud800"}', b'{"hitCount": ' + b"9" * 5000 + b"}",
]  # fmt: skip


def ask_bucket(requests: Requests) -> None:
    PmcSource(requests).fetch(["PMC7"], lambda steps=1: None)


def ask_openalex(requests: Requests) -> None:
    with pytest.raises(FailedError):
        OpenAlexSource(requests, True).find("q")


def ask_entrez(requests: Requests) -> None:
    with pytest.raises(FailedError):
        Entrez(requests).search("q")


ASKED = {ask_openalex: "_openalex", ask_entrez: "_entrez", ask_bucket: "_bucket"}


@pytest.mark.parametrize("ask", ASKED)
def test_answers_of_another_shape_stay_out_of_the_journal(world: Replay, connect, ask) -> None:
    searches = [f"<eSearchResult><Count>{count}</Count><IdList/></eSearchResult>".encode()
                for count in ("-5", "x", "", "9" * 5000)]  # fmt: skip
    others = [b"<Error><Code>SlowDown</Code></Error>", b"<eSearchResult/>", *searches]
    requests = connect(attempts=1)
    for body in [*NO_ANSWERS, *others]:
        setattr(world, ASKED[ask], lambda rest, params, body=body: body)
        ask(requests)
        assert not stored(requests.journal), body[:80]


def test_odd_ids_of_a_search_are_set_aside(world: Replay, connect) -> None:
    world.queries["q"] = [(one, "2015/01/01") for one in ("3", "x", "-1", "²", "2")]
    requests = connect()
    assert Entrez(requests).search("q") == ["2", "3"]
    assert sorted(str(one.record) for one in requests.set_aside) == ["-1", "x", "²"]


@pytest.mark.parametrize("address", ["http://[::1", "?md5=zz", "s3://x?md5=" + "0" * 31, "\ud800", " ", "%"])
def test_odd_metadata_of_an_article_is_survived(world: Replay, connect, address: str) -> None:
    world.articles["PMC1"] = Article("PMC1", None, [b"<article/>"], metadata={"xml_url": address})
    requests = connect(attempts=1)
    PmcSource(requests).fetch(["PMC1"], lambda steps=1: None)
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
    PmcSource(requests).fetch(["PMC1"], lambda steps=1: None)
    assert PmcSource(requests).version("PMC1").name == "PMC1.1"  # type: ignore[union-attr]


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


def test_packed_bodies_are_unpacked() -> None:
    gzipped = "Content-Encoding: gzip"
    with raw_server(lambda to: to.sendall(answer(gzip.compress(b"x" * 5000), gzipped))) as base:
        assert Client("a@b.org").get(base) == b"x" * 5000
    with (
        raw_server(lambda to: to.sendall(answer(b"junk", gzipped))) as base,
        Client("a@b.org", attempts=1) as client,
        pytest.raises(FailedError, match="decompress"),
    ):
        client.get(base)


def test_a_trickling_body_is_given_up() -> None:
    def trickle(to: socket.socket) -> None:
        to.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n")
        for letter in b"x" * 600:
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
