"""Europe PMC: search with a cursor, and the references and citations of a paper.

Source: "Europe PMC RESTful Web Service" (its articles API).
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any

from sentence_experts.corpus.formats.licences import licence_from_text
from sentence_experts.corpus.formats.markup import clean, unique
from sentence_experts.corpus.identifiers import normalise_doi, normalise_pmcid, normalise_pmid
from sentence_experts.corpus.paper import Paper
from sentence_experts.corpus.sources.http import FailedError, is_json
from sentence_experts.corpus.sources.requests import Requests
from sentence_experts.errors import UsageError
from sentence_experts.storage import sha256_text

_PAGE = 1_000
_BLOCK = re.compile(r"</?(?:h\d|p|br|div|li|ul|ol)\b[^<>]{0,200}>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-z][^<>]{0,200}>", re.IGNORECASE)
_RESEARCH = {"journal article": "research-article", "review": "review-article", "preprint": "preprint"}


class EuropePmc:
    """The articles API, answered from the journal where possible."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._base = requests.services.europe_pmc.url

    def count(self, query: str) -> int:
        """The number of papers that a query finds now; none is a UsageError."""
        found = int(self._page(query, "*", 1).get("hitCount") or 0)
        if not found:
            raise UsageError(f"Europe PMC: no record matches {query!r}")
        return found

    def examples(self, query: str) -> list[str]:
        """The titles of the first few records that a query finds; nothing is stored."""
        records = self._page(query, "*", 3).get("resultList", {}).get("result", [])
        return [title for record in records if (title := to_paper(record).title)]

    def search(self, query: str) -> Iterator[list[str]]:
        """The ids (`SOURCE/ID`) that a query finds, page by page; the records go into the journal under
        `europepmc/SOURCE/ID`, so an interrupted search goes on at its last page."""
        journal, name = self._requests.journal, f"epmc-search/{sha256_text(query)[:16]}"
        mark: str | None = "*"
        for number in range(1_000_000):
            kept = journal.get(f"{name}/{number:06d}")
            if kept is None:
                page = self._page(query, str(mark), _PAGE)
                records = page.get("resultList", {}).get("result", [])
                ids = [f"{record['source']}/{record['id']}" for record in records]
                for one, record in zip(ids, records, strict=True):
                    journal.put(f"europepmc/{one}", json.dumps(record, ensure_ascii=False).encode())
                body = {"ids": ids, "next": page.get("nextCursorMark"), "count": page.get("hitCount")}
                kept = journal.put(f"{name}/{number:06d}", json.dumps(body).encode())
            stored = json.loads(kept.body or b"{}")
            if stored["ids"]:
                yield stored["ids"]
            # The last page repeats the mark of its request, or has none.
            if not stored["ids"] or not stored["next"] or stored["next"] == mark:
                return
            mark = stored["next"]

    def _page(self, query: str, mark: str, size: int) -> dict[str, Any]:
        params: dict[str, str | int | list[str]] = {
            "query": query, "format": "json", "resultType": "core", "pageSize": size, "cursorMark": mark,
        }  # fmt: skip
        page: dict[str, Any] = json.loads(self._requests.client.get(f"{self._base}/search", params, is_json))
        if "hitCount" not in page:
            raise FailedError(f"Europe PMC gave no hit count: {str(page)[:200]}")
        return page

    def linked(self, relation: str, paper: str) -> list[str]:
        """The works that a paper (`SOURCE/ID`) cites (`references`), or that cite it (`citations`):
        `pmid:...`, `pmc:PMC...` or `doi:...`."""
        one = relation.removesuffix("s")
        found: list[str] = []
        for number in range(1, 1_000):
            page = self._links(paper, relation, number)
            items = (page.get(f"{one}List") or {}).get(one) or []
            found += [key for item in items if (key := _key(item))]
            if not items or number * _PAGE >= int(page.get("hitCount") or 0):
                break
        return found

    def _links(self, paper: str, relation: str, number: int) -> dict[str, Any]:
        params: dict[str, str | int | list[str]] = {"page": number, "pageSize": _PAGE, "format": "json"}
        address = f"{self._base}/{paper}/{relation}"
        answer = self._requests.once(
            f"epmc-{relation}/{paper}/{number:03d}",
            lambda: self._requests.client.get(address, params, is_json),
        )
        page: dict[str, Any] = json.loads(answer.body or b"{}")
        return page

    def paper(self, one: str) -> Paper | None:
        """A record in the journal as a paper; None if no search has found it."""
        answer = self._requests.journal.get(f"europepmc/{one}")
        return None if answer is None or answer.body is None else to_paper(json.loads(answer.body))


def to_paper(record: dict[str, Any]) -> Paper:
    """A search result with `resultType=core` as a paper, without citations."""
    headings = (record.get("meshHeadingList") or {}).get("meshHeading") or []
    kinds = [str(kind).lower() for kind in (record.get("pubTypeList") or {}).get("pubType") or []]
    year = str(record.get("pubYear") or "")
    return Paper(
        doi=normalise_doi(record.get("doi")),
        pmid=normalise_pmid(str(record.get("pmid") or "")),
        pmcid=normalise_pmcid(str(record.get("pmcid") or "")),
        other=f"europepmc:{record.get('source')}/{record.get('id')}",
        title=_plain(record.get("title")),
        abstract=_plain(record.get("abstractText")),
        year=int(year) if year.isdigit() else None,
        article_type=next(
            (_RESEARCH[kind] for kind in kinds if kind in _RESEARCH), kinds[0] if kinds else None
        ),
        mesh=unique(_heading(heading) for heading in headings),
        keywords=unique(_plain(word) for word in (record.get("keywordList") or {}).get("keyword") or []),
        journal=_plain(((record.get("journalInfo") or {}).get("journal") or {}).get("title")),
        licence=licence_from_text(str(record.get("license") or "")),
        retracted=any("retracted publication" in kind for kind in kinds),
    )


def _heading(heading: dict[str, Any]) -> str | None:
    name = _plain(heading.get("descriptorName"))
    return f"*{name}" if name and heading.get("majorTopic_YN") == "Y" else name


def _key(item: dict[str, Any]) -> str | None:
    """The canonical name of a linked work; None if it has no identifier."""
    source, own = str(item.get("source") or ""), str(item.get("id") or "")
    if source == "MED" and (pmid := normalise_pmid(own)):
        return f"pmid:{pmid}"
    if source == "PMC" and (pmcid := normalise_pmcid(own)):
        return f"pmc:{pmcid}"
    doi = normalise_doi(item.get("doi"))
    return f"doi:{doi}" if doi else None


def _plain(text: Any) -> str | None:
    """Text without markup; block elements become spaces."""
    return clean(html.unescape(_TAG.sub("", _BLOCK.sub(" ", str(text))))) if text else None
