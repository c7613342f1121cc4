"""Europe PMC: search with a cursor, and the references and citations of a paper.

Source: "Europe PMC RESTful Web Service" (its articles API).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sentence_experts.corpus.formats.europepmc import to_paper
from sentence_experts.corpus.identifiers import normalise_doi, normalise_pmcid, normalise_pmid
from sentence_experts.corpus.paper import Paper
from sentence_experts.corpus.sources.answers import (
    EuropePmcRecord,
    LinkedWork,
    LinkPage,
    SearchPage,
    fits,
    name_in,
    shaped,
)
from sentence_experts.corpus.sources.paging import FoundPage, search
from sentence_experts.corpus.sources.requests import Requests
from sentence_experts.errors import UsageError

_PAGE = 1_000


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
        `europepmc/SOURCE/ID`, so an interrupted search continues at its last page."""

        def ask(mark: str) -> FoundPage:
            page = self._page(query, mark, _PAGE)
            records = {
                f"{record['source']}/{record['id']}": json.dumps(record, ensure_ascii=False).encode()
                for record in self._records(page)
            }
            # A page whose records are all of a wrong shape is not the last.
            more = page.next_cursor_mark if page.result_list.result else None
            return FoundPage(records, more, page.hit_count)

        yield from search(self._requests, "europepmc", "epmc-search", query, ask)

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


def _key(item: LinkedWork) -> str | None:
    """The canonical name of a linked work; None if it has no identifier."""
    if item.source == "MED" and (pmid := normalise_pmid(item.id)):
        return f"pmid:{pmid}"
    if item.source == "PMC" and (pmcid := normalise_pmcid(item.id)):
        return f"pmc:{pmcid}"
    doi = normalise_doi(item.doi)
    return f"doi:{doi}" if doi else None
