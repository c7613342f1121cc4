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
from sentence_experts.corpus.formats.references import year_in
from sentence_experts.corpus.identifiers import normalise_doi, normalise_pmcid, normalise_pmid
from sentence_experts.corpus.paper import Paper
from sentence_experts.corpus.sources.answers import (
    EuropePmcRecord,
    LinkedWork,
    LinkPage,
    SearchPage,
    StoredPage,
    fits,
    name_in,
    shaped,
)
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
        hits = self._page(query, "*", 1).hit_count
        if not hits:
            raise UsageError(f"Europe PMC: no record matches {query!r}")
        return hits

    def examples(self, query: str) -> list[str]:
        """The titles of the first few records that a query finds; nothing is stored."""
        records = self._records(self._page(query, "*", 3))
        return [title for record in records if (title := to_paper(record).title)]

    def search(self, query: str) -> Iterator[list[str]]:
        """The ids (`SOURCE/ID`) that a query finds, page by page; the records go into the journal under
        `europepmc/SOURCE/ID`, so an interrupted search goes on at its last page."""
        journal, name = self._requests.journal, f"epmc-search/{sha256_text(query)[:16]}"
        mark: str | None = "*"
        for number in range(1_000_000):
            stored_page = self._requests.stored(f"{name}/{number:06d}", fits(StoredPage))
            if stored_page is None:
                page = self._page(query, str(mark), _PAGE)
                ids = []
                for record in self._records(page):
                    ids.append(f"{record['source']}/{record['id']}")
                    body = json.dumps(record, ensure_ascii=False).encode()
                    journal.put(f"europepmc/{ids[-1]}", body)
                # A page whose records are all of a wrong shape is not the last.
                more = bool(page.result_list.result)
                stored = {
                    "ids": ids,
                    "next": page.next_cursor_mark if more else None,
                    "count": page.hit_count,
                }
                stored_page = journal.put(f"{name}/{number:06d}", json.dumps(stored).encode())
            parsed = shaped(StoredPage, stored_page.body)
            if parsed.ids:
                yield parsed.ids
            # The last page repeats the mark of its request, or has none.
            if not parsed.next or parsed.next == mark:
                return
            mark = parsed.next

    def _records(self, page: SearchPage) -> Iterator[dict[str, Any]]:
        """The records of a page; one of another shape is set aside."""
        for item in page.result_list.result:
            try:
                shaped(EuropePmcRecord, item)
            except ValueError as error:
                self._requests.set_odd_aside("europe pmc", name_in(item, "source", "id"), error)
            else:
                yield item

    def _page(self, query: str, mark: str, size: int) -> SearchPage:
        params: dict[str, str | int | list[str]] = {
            "query": query, "format": "json", "resultType": "core", "pageSize": size, "cursorMark": mark,
        }  # fmt: skip
        return shaped(SearchPage, self._requests.client.get(f"{self._base}/search", params, fits(SearchPage)))

    def linked(self, relation: str, paper: str) -> list[str]:
        """The works that a paper (`SOURCE/ID`) cites (`references`), or that cite it (`citations`):
        `pmid:...`, `pmc:PMC...` or `doi:...`."""
        keys: list[str] = []
        for number in range(1, 1_000):
            page = self._links(paper, relation, number)
            items = page.items(relation)
            for item in items:
                try:
                    key = _key(shaped(LinkedWork, item))
                except ValueError as error:
                    self._requests.set_odd_aside("europe pmc", f"{paper} {relation}", error)
                    continue
                keys += [key] if key else []
            if not items or number * _PAGE >= page.hit_count:
                break
        return keys

    def _links(self, paper: str, relation: str, number: int) -> LinkPage:
        params: dict[str, str | int | list[str]] = {"page": number, "pageSize": _PAGE, "format": "json"}
        address = f"{self._base}/{paper}/{relation}"
        answer = self._requests.once(
            f"epmc-{relation}/{paper}/{number:03d}",
            lambda: self._requests.client.get(address, params, fits(LinkPage)),
            fits(LinkPage),
        )
        return shaped(LinkPage, answer.body or b'{"hitCount": 0}')

    def paper(self, one: str) -> Paper | None:
        """A record in the journal as a paper; None if no search has found it."""
        answer = self._requests.stored(f"europepmc/{one}", fits(EuropePmcRecord))
        return None if answer is None or answer.body is None else to_paper(json.loads(answer.body))


def to_paper(record: dict[str, Any]) -> Paper:
    """A search result with `resultType=core` as a paper, without citations."""
    headings = (record.get("meshHeadingList") or {}).get("meshHeading") or []
    kinds = [str(kind).lower() for kind in (record.get("pubTypeList") or {}).get("pubType") or []]
    return Paper(
        doi=normalise_doi(str(record.get("doi") or "")),
        pmid=normalise_pmid(str(record.get("pmid") or "")),
        pmcid=normalise_pmcid(str(record.get("pmcid") or "")),
        other=f"europepmc:{record.get('source')}/{record.get('id')}",
        title=_plain(record.get("title")),
        abstract=_plain(record.get("abstractText")),
        year=year_in(str(record.get("pubYear") or "")),
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


def _key(item: LinkedWork) -> str | None:
    """The canonical name of a linked work; None if it has no identifier."""
    if item.source == "MED" and (pmid := normalise_pmid(item.id)):
        return f"pmid:{pmid}"
    if item.source == "PMC" and (pmcid := normalise_pmcid(item.id)):
        return f"pmc:{pmcid}"
    doi = normalise_doi(item.doi)
    return f"doi:{doi}" if doi else None


def _plain(text: Any) -> str | None:
    """Text without markup; block elements become spaces."""
    return clean(html.unescape(_TAG.sub("", _BLOCK.sub(" ", str(text))))) if text else None
