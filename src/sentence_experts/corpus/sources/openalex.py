"""OpenAlex: works by filter, with a key and a cursor.

Source: "API reference" of OpenAlex (filters, paging, authentication).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sentence_experts.corpus.formats.openalex import FIELDS, to_paper
from sentence_experts.corpus.paper import Paper
from sentence_experts.corpus.sources.answers import OpenAlexPage, OpenAlexRecord, fits, name_in, shaped
from sentence_experts.corpus.sources.paging import FoundPage, search
from sentence_experts.corpus.sources.requests import Requests
from sentence_experts.errors import UsageError

PAGE = 100
"""Works per request, the most that the service gives."""


class OpenAlex:
    """The works of the API, answered from the journal where possible."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._address = f"{requests.services.openalex.url}/works"

    def count(self, query: str) -> int:
        """The number of works that a filter finds now; none is a UsageError."""
        count = self._page(query, "*", 1).meta.count
        if not count:
            raise UsageError(f"OpenAlex: no work matches the filter {query!r}")
        return count

    def examples(self, query: str) -> list[str]:
        """The titles of the first few works that a filter finds; nothing is stored."""
        papers = (to_paper(record) for record in self._records(self._page(query, "*", 3)))
        return [paper.title for paper in papers if isinstance(paper, Paper) and paper.title]

    def search(self, query: str) -> Iterator[list[str]]:
        """The ids (`W123`) that a filter finds, page by page; the works go into the journal under
        `openalex/W123`, so an interrupted search continues at its last page."""

        def ask(mark: str) -> FoundPage:
            page = self._page(query, mark, PAGE)
            records = {
                str(record["id"]).rpartition("/")[2]: json.dumps(_read(record), ensure_ascii=False).encode()
                for record in self._records(page)
            }
            return FoundPage(records, page.meta.next_cursor if page.results else None, page.meta.count)

        yield from search(self._requests, "openalex", "openalex-search", query, ask)

    def paper(self, one: str) -> Paper | None:
        """A work in the journal as a paper; None if no search has found it."""
        answer = self._requests.stored(f"openalex/{one}", fits(OpenAlexRecord))
        paper = None if answer is None or answer.body is None else to_paper(json.loads(answer.body))
        return paper if isinstance(paper, Paper) else None

    def _records(self, page: OpenAlexPage) -> Iterator[dict[str, Any]]:
        """The works of a page; one of another shape is set aside."""
        for item in page.results:
            try:
                shaped(OpenAlexRecord, item)
            except ValueError as error:
                self._requests.set_odd_aside("openalex", name_in(item, "id"), error)
            else:
                yield item

    def _page(self, query: str, mark: str, size: int) -> OpenAlexPage:
        params: dict[str, str | int | list[str]] = {"filter": query, "per_page": size, "cursor": mark}
        if self._requests.api_key:
            params["api_key"] = self._requests.api_key
        body = self._requests.client.get(self._address, params, fits(OpenAlexPage))
        return shaped(OpenAlexPage, body)


def _read(record: dict[str, Any]) -> dict[str, Any]:
    """What is read of a work, a quarter of it."""
    return {name: record[name] for name in FIELDS if name in record}
