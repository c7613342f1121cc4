"""A local server that answers as the services do.

Recorded answers are served as they are (`Replay.recorded`). All others are of our own making, in the shape of
the recorded or documented ones: esearch after the recorded answers, the bucket's listing after S3's
documentation, its metadata after PMC's.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

from sentence_experts.corpus.sources.journal import Journal

Params = dict[str, list[str]]
FAULTS = ("429", "503", "truncated", "page", "silence", "reset")


@dataclass
class Article:
    """An article of the bucket: its versions' XML, and what the metadata says."""

    pmcid: str
    pmid: str | None
    xml: list[bytes]
    date: str = "2015/06/01"
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class Replay:
    """The world behind the server.

    Attributes:
        queries: a query as it is sent -> the ids that it finds, with their dates (YYYY/MM/DD).
        articles: PMCID -> article.
        openalex: a filter -> OpenAlex works.
        recorded: (utility, a parameter's value) -> a recorded answer.
        fault: number of the request, path -> one of FAULTS, or None.
        asked: every request, as its path and parameters.
    """

    queries: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    articles: dict[str, Article] = field(default_factory=dict)
    openalex: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    recorded: dict[tuple[str, str], Path] = field(default_factory=dict)
    fault: Callable[[int, str], str | None] = lambda number, path: None
    asked: list[tuple[str, Params]] = field(default_factory=list)
    history: dict[str, list[str]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, path: str, params: Params) -> bytes | None:
        """The body for a request; None for 404."""
        room, _, rest = path.lstrip("/").partition("/")
        return getattr(self, f"_{room}")(rest, params)  # type: ignore[no-any-return]

    # ---- E-utilities -----------------------------------------------------------------------------

    def _entrez(self, utility: str, params: Params) -> bytes:
        assert params["tool"] == ["sentence-experts"]
        assert "@" in params["email"][0]
        utility = utility.removesuffix(".fcgi")
        for value in (one for values in params.values() for one in values):
            if (utility, value) in self.recorded:
                return self.recorded[utility, value].read_bytes()
        return getattr(self, f"_{utility}")(params)  # type: ignore[no-any-return]

    def _esearch(self, params: Params) -> bytes:
        term, start, most = params["term"][0], int(params.get("retstart", ["0"])[0]), int(params["retmax"][0])
        if term.startswith("#"):
            ids = self.history[params["WebEnv"][0] + term[1:]]
        elif term not in self.queries:
            return (
                "<eSearchResult><Count>0</Count><RetMax>0</RetMax><RetStart>0</RetStart><IdList/>"
                f"<ErrorList><PhraseNotFound>{escape(term)}</PhraseNotFound></ErrorList></eSearchResult>"
            ).encode()
        else:
            ids = [one for one, _ in self.queries[term]]
        with self.lock:
            key = str(len(self.history) + 1)
            self.history["MCID_" + key] = ids
        page = "".join(f"<Id>{one}</Id>" for one in ids[start : start + most])
        return (
            '<?xml version="1.0" encoding="UTF-8" ?>\n'
            '<!DOCTYPE eSearchResult PUBLIC "-//NLM//DTD esearch 20060628//EN"'
            ' "https://eutils.ncbi.nlm.nih.gov/eutils/dtd/20060628/esearch.dtd">\n'
            f"<eSearchResult><Count>{len(ids)}</Count><RetMax>{most}</RetMax><RetStart>{start}</RetStart>"
            f"<QueryKey>{key}</QueryKey><WebEnv>MCID_</WebEnv><IdList>{page}</IdList>"
            f"<TranslationSet/><QueryTranslation>{escape(term)}</QueryTranslation></eSearchResult>"
        ).encode()

    # ---- PMC -------------------------------------------------------------------------------------

    def _bucket(self, key: str, params: Params) -> bytes | None:
        if not key:
            return self._listing(params["prefix"][0])
        if key.startswith("metadata/"):
            name = key.removeprefix("metadata/").removesuffix(".json")
            article = self.articles.get(name.split(".")[0])
            if article is None:
                return None
            digest = hashlib.md5(self._text(name), usedforsecurity=False).hexdigest()
            told = {
                "pmcid": article.pmcid, "version": int(name.split(".")[1]), "pmid": article.pmid,
                "license_code": "CC BY", "is_pmc_openaccess": True, "is_retracted": False,
                "xml_url": f"s3://pmc-oa-opendata/{name}/{name}.xml?md5={digest}",
            } | article.metadata  # fmt: skip
            return json.dumps(told).encode()
        return self._text(key.split("/")[0])

    def _text(self, name: str) -> bytes:
        pmcid, number = name.split(".")
        return self.articles[pmcid].xml[int(number) - 1]

    def _listing(self, prefix: str) -> bytes:
        # As S3 does: everything that begins with the prefix, so PMC1 without a dot gives PMC12 too.
        names = [f"{one.pmcid}.{n + 1}/" for one in self.articles.values() for n in range(len(one.xml))]
        found = sorted(name for name in names if name.startswith(prefix))
        inside = "".join(f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>" for name in found)
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>pmc-oa-opendata</Name><Prefix>{prefix}</Prefix><KeyCount>{len(found)}</KeyCount>"
            f"<IsTruncated>false</IsTruncated>{inside}</ListBucketResult>"
        ).encode()

    # ---- OpenAlex --------------------------------------------------------------------------------

    def _openalex(self, rest: str, params: Params) -> bytes:
        """Pages of at most three works, after the recorded answers: the last page is empty."""
        assert rest == "works"
        assert params["api_key"] == ["secret"]
        found = self.openalex.get(params["filter"][0], [])
        mark, size = params["cursor"][0], min(int(params["per_page"][0]), 3)
        start = 0 if mark == "*" else int(mark)
        page = found[start : start + size]
        following = str(start + len(page)) if page else None
        meta = {"count": len(found), "page": None, "per_page": size, "next_cursor": following}
        return json.dumps({"meta": meta, "results": page, "group_by": []}).encode()

    # ---- files -----------------------------------------------------------------------------------

    def services(self, base: str) -> dict[str, dict[str, Any]]:
        """The `services` of a plan that asks this server, without waiting."""
        rooms = {"entrez": "entrez", "pmc_bucket": "bucket", "openalex": "openalex"}
        return {
            name: {"url": f"{base}/{room}", "per_second": 10_000, "at_once": 4}
            for name, room in rooms.items()
        }


def stored(journal: Journal, prefix: str = "") -> dict[str, bytes | None]:
    """The answers in a journal whose keys begin with a prefix, by key."""
    keys = [key for (key,) in journal._database.execute("SELECT key FROM answers ORDER BY key")]
    return {key: journal.get(key) for key in keys if key.startswith(prefix)}


@contextmanager
def serving(world: Replay) -> Iterator[str]:
    """Serve a world; gives the base address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._reply(urlsplit(self.path).query)

        def do_POST(self) -> None:
            # Only the E-utilities are documented to take forms.
            if not self.path.startswith("/entrez/"):
                self.send(405, b"method not allowed")
                return
            self._reply(self.rfile.read(int(self.headers["Content-Length"])).decode())

        def _reply(self, query: str) -> None:
            path, params = urlsplit(self.path).path, parse_qs(query)
            with world.lock:
                number = len(world.asked)
                world.asked.append((path, params))
            fault = world.fault(number, path)
            if fault is not None:
                _FAULTS[fault](self)
                return
            body = world.answer(path, params)
            self.send(404 if body is None else 200, body or b"<Error><Code>NoSuchKey</Code></Error>")

        def send(self, status: int, body: bytes, length: int | None = None, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(length or len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _truncated(handler: Any) -> None:
    handler.send(200, b"<eSearchResult><Count>5</Cou", length=4000)
    handler.close_connection = True


def _silence(handler: Any) -> None:
    time.sleep(1.0)
    handler.close_connection = True


def _reset(handler: Any) -> None:
    handler.close_connection = True


_FAULTS: dict[str, Callable[[Any], None]] = {
    "429": lambda handler: handler.send(429, b"slow down", Retry_After="0"),
    "503": lambda handler: handler.send(503, b"<html>busy</html>"),
    "truncated": _truncated,
    "page": lambda handler: handler.send(200, b"<!DOCTYPE html><html><body>Error</body></html>"),
    "silence": _silence,
    "reset": _reset,
}
