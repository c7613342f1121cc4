"""OpenAlex: works by filter, with a key and a cursor.

Source: "API reference" of OpenAlex (filters, paging, authentication).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Annotated, Any

from pydantic import BaseModel, Field
from typing_extensions import override

from sentence_experts.corpus.formats.openalex import FIELDS, to_paper
from sentence_experts.corpus.identifiers import normalise_openalex
from sentence_experts.corpus.paper import Paper
from sentence_experts.corpus.sources.client import SHOWN, Client, shaped
from sentence_experts.corpus.sources.services import SECONDS_PER_REQUEST, Record, RecordSource
from sentence_experts.errors import UsageError
from sentence_experts.storage import sha256_text

_PAGE_SIZE = 100  # works per request, the most that the service gives


class _Meta(BaseModel):
    count: Annotated[int, Field(ge=0, lt=10**15)]
    next_cursor: str | None = None


class _Page(BaseModel):
    """A page of works."""

    meta: _Meta
    results: list[Any]


class OpenAlexSource(RecordSource):
    """Titles, abstracts, topics and references of works of any field. Ids are `W123`.

    The journal has `openalex/W123` (the work) and `openalex-search/QUERY/000001` (ids of a page).
    """

    def __init__(self, client: Client, keep_retracted: bool) -> None:
        self._client, self._journal = client, client.journal
        self._also = "" if keep_retracted else ",is_retracted:false"

    @override
    def count(self, query: str) -> int:
        found = self._page(query, "*", 1).meta.count
        if not found:
            raise UsageError(f"OpenAlex: no work matches the filter {query + self._also!r}")
        return found

    @override
    def examples(self, query: str) -> list[str]:
        papers = (to_paper(work) for _, work in self._works(self._page(query, "*", 3)))
        return [paper.title for paper in papers if isinstance(paper, Paper) and paper.title]

    @override
    def find(self, query: str) -> list[str]:
        """Return the ids that a filter finds; an interrupted search continues after its last whole page."""
        name = f"openalex-search/{sha256_text(query + self._also)[:16]}"
        mark, found = "*", set()
        for number in count():
            key = f"{name}/{number:06d}"
            stored = self._journal.body(key)
            if stored is None:
                page = self._page(query, mark, _PAGE_SIZE)
                ids = []
                for one, work in self._works(page):
                    read = {field: work[field] for field in FIELDS if field in work}  # a quarter of it
                    self._journal.put(f"openalex/{one}", json.dumps(read, ensure_ascii=False).encode())
                    ids.append(one)
                stored = json.dumps(
                    {"ids": ids, "next": page.meta.next_cursor if page.results else None}
                ).encode()
                self._journal.put(key, stored)
            answer = json.loads(stored)
            found.update(answer["ids"])
            if not answer["next"] or answer["next"] == mark:
                break
            mark = answer["next"]
        return sorted(found)

    @override
    def cost(self, articles: int) -> tuple[int, float]:
        pages = -(-articles // _PAGE_SIZE)
        return pages, pages * 4 * SECONDS_PER_REQUEST

    def papers(self, ids: list[str]) -> Iterator[tuple[str, Paper]]:
        """Yield the papers in the journal, with their ids."""
        for one in ids:
            body = self._journal.body(f"openalex/{one}")
            paper = to_paper(json.loads(body)) if body else None
            if isinstance(paper, Paper):
                yield one, paper

    @override
    def records(self, ids: list[str]) -> Iterator[Record]:
        address = f"{self._client.services.openalex.url}/works"
        for one, paper in self.papers(ids):
            names = {"pmid": paper.pmid, "pmcid": paper.pmcid, "doi": paper.doi, "openalex": one}
            known = {kind: name for kind, name in names.items() if name}
            body = self._journal.body(f"openalex/{one}")
            yield Record(one, known, f"{address}/{one}", body, licence=paper.licence)

    def _works(self, page: _Page) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the works of a page with their ids; one without an id is set aside."""
        for work in page.results:
            stated = work.get("id") if isinstance(work, dict) else work
            number = normalise_openalex(stated) if isinstance(stated, str) else None
            if isinstance(work, dict) and number:
                yield f"W{number}", work
            else:
                odd = ValueError(f"no work: {str(work)[:SHOWN]!r}")
                self._client.set_record_aside("openalex", None, "odd-record", odd)

    def _page(self, query: str, mark: str, size: int) -> _Page:
        params: dict[str, str | int] = {"filter": query + self._also, "per_page": size, "cursor": mark}
        if self._client.api_key:
            params["api_key"] = self._client.api_key
        return self._client.get(self._client.services.openalex, "/works", params, shaped(_Page))
