"""OpenAlex: works by filter, with a key and a cursor.

Source: "API reference" of OpenAlex (filters, paging, authentication).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from itertools import chain, count
from typing import Annotated, Any

from pydantic import BaseModel, Field, StringConstraints
from typing_extensions import override

from sentence_experts.corpus.formats.openalex import FIELDS, to_paper
from sentence_experts.corpus.paper import Paper
from sentence_experts.corpus.sources.answers import fits, name_in, shaped
from sentence_experts.corpus.sources.record_source import (
    SECONDS_PER_REQUEST,
    Names,
    Provenance,
    RecordSource,
)
from sentence_experts.corpus.sources.requests import Requests
from sentence_experts.errors import UsageError
from sentence_experts.storage import sha256_text

_PAGE = 100  # works per request, the most that the service gives


class _Meta(BaseModel):
    count: Annotated[int, Field(ge=0, lt=10**15)]
    next_cursor: str | None = None


class _Page(BaseModel):
    """A page of works."""

    meta: _Meta
    results: list[Any]


class _Work(BaseModel):
    """A work; its other fields may be of any type."""

    id: Annotated[str, StringConstraints(pattern=r"^https://openalex\.org/W[1-9][0-9]{0,14}$")]


class OpenAlexSource(RecordSource):
    """Titles, abstracts, topics and references of works of any field. Ids are `W123`.

    The journal has `openalex/W123` (the work) and `openalex-search/QUERY/000001` (ids of a page).
    """

    def __init__(self, requests: Requests, keep_retracted: bool) -> None:
        self._requests = requests
        self._address = f"{requests.services.openalex.url}/works"
        self._also = "" if keep_retracted else ",is_retracted:false"

    @override
    def count(self, query: str) -> int:
        found = self._page(query, "*", 1).meta.count
        if not found:
            raise UsageError(f"OpenAlex: no work matches the filter {query + self._also!r}")
        return found

    @override
    def examples(self, query: str) -> list[str]:
        papers = (to_paper(record) for record in self._works(self._page(query, "*", 3)))
        return [paper.title for paper in papers if isinstance(paper, Paper) and paper.title]

    @override
    def find(self, query: str) -> list[str]:
        return sorted(set(chain.from_iterable(self.search(query))))

    def search(self, query: str) -> Iterator[list[str]]:
        """Yield the ids that a filter finds, page by page; an interrupted search continues."""
        journal, name = self._requests.journal, f"openalex-search/{sha256_text(query + self._also)[:16]}"
        mark: str | None = "*"
        for number in count():
            key = f"{name}/{number:06d}"
            stored = journal.body(key)
            if stored is None:
                assert mark is not None
                page = self._page(query, mark, _PAGE)
                ids = []
                for work in self._works(page):
                    ids.append(str(work["id"]).rpartition("/")[2])
                    read = {field: work[field] for field in FIELDS if field in work}  # a quarter of it
                    journal.put(f"openalex/{ids[-1]}", json.dumps(read, ensure_ascii=False).encode())
                following = page.meta.next_cursor if page.results else None
                stored = json.dumps({"ids": ids, "next": following}).encode()
                journal.put(key, stored)
            found = json.loads(stored)
            yield found["ids"]
            if not found["next"] or found["next"] == mark:
                return
            mark = found["next"]

    @override
    def cost(self, articles: int) -> tuple[int, float]:
        pages = -(-articles // _PAGE)
        return pages, pages * 4 * SECONDS_PER_REQUEST

    @override
    def papers(self, ids: list[str]) -> Iterator[tuple[str, Paper]]:
        for one in ids:
            body = self._requests.journal.body(f"openalex/{one}")
            paper = to_paper(json.loads(body)) if body else None
            if isinstance(paper, Paper):
                yield one, paper

    @override
    def names(self, ids: list[str]) -> Iterator[tuple[str, Names]]:
        for one, paper in self.papers(ids):
            names = {"pmid": paper.pmid, "pmcid": paper.pmcid, "doi": paper.doi, "openalex": one}
            yield one, {kind: name for kind, name in names.items() if name}

    @override
    def provenance(self, ids: list[str]) -> Iterator[Provenance]:
        for one, paper in self.papers(ids):
            body = self._requests.journal.body(f"openalex/{one}") or b""
            yield one, f"{self._address}/{one}", None, paper.licence, hashlib.sha256(body).hexdigest()

    def _works(self, page: _Page) -> Iterator[dict[str, Any]]:
        """Yield the works of a page; one of another shape is set aside."""
        for item in page.results:
            try:
                shaped(_Work, item)
            except ValueError as error:
                self._requests.set_odd_aside("openalex", name_in(item, "id"), error)
            else:
                yield item

    def _page(self, query: str, mark: str, size: int) -> _Page:
        params: dict[str, str | int] = {"filter": query + self._also, "per_page": size, "cursor": mark}
        if self._requests.api_key:
            params["api_key"] = self._requests.api_key
        return shaped(_Page, self._requests.client.get(self._address, params, fits(_Page)))
