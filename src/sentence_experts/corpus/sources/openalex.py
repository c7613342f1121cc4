"""OpenAlex: works by filter, with a key and a cursor.

Source: "API reference" of OpenAlex (filters, paging, authentication).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from itertools import count
from typing import Annotated, Any

from pydantic import BaseModel, Field

from sentence_experts.corpus.formats.openalex import drop_unread, to_paper
from sentence_experts.corpus.identifiers import normalise_openalex
from sentence_experts.corpus.paper import NOT_FETCHED, Paper, Rejection
from sentence_experts.corpus.sources.client import SHOWN, Client, FailedError, Record, make_parser
from sentence_experts.errors import UsageError
from sentence_experts.storage import sha256_text

logger = logging.getLogger(__name__)

_WORK, _SEARCH = "openalex-work", "openalex-search"  # beginnings of the keys of stored answers
_PAGE_SIZE = 100  # works per request, the most that the service gives
_ENOUGH = 0.99  # share of the works of a search that is taken for all of them


class _Meta(BaseModel):
    count: Annotated[int, Field(ge=0, lt=10**15)]
    next_cursor: str | None = None


class _Page(BaseModel):
    """A page of works."""

    meta: _Meta
    results: list[Any]


class OpenAlexSource:
    """Titles, abstracts, topics and references of works of any field. Ids are `W123`.

    The stored answers are `openalex-work/W123` and `openalex-search/QUERY/000001` (ids of a page).
    """

    def __init__(self, client: Client, keep_retracted: bool) -> None:
        self._client, self._answers = client, client.journal
        self._also = "" if keep_retracted else ",is_retracted:false"

    def count(self, query: str) -> int:
        """Return the number of works that a filter finds.

        Raises:
            UsageError: it finds nothing.
        """
        found = self._page(query, "*", 1).meta.count
        if not found:
            raise UsageError(f"OpenAlex: no work matches the filter {query + self._also!r}")
        return found

    def find(self, query: str) -> list[str]:
        """Return the ids that a filter finds; an interrupted search continues after its last whole page.

        Raises:
            FailedError: the pages hold fewer works than OpenAlex counts. They are forgotten, to be asked for
                again. A gap below 1% is logged: works may come and go meanwhile.
        """
        name = self._search_key(query)
        mark = "*"
        found: set[str] = set()
        odd = 0
        for number in count():
            key = f"{name}/{number:06d}"
            answer = self._stored_page(key) or self._request_page(key, query, mark)
            found.update(filter(None, answer["ids"]))
            odd += answer["ids"].count(None)
            if not answer["next"] or answer["next"] == mark:
                break
            mark = answer["next"]
        given, stated = len(found) + odd, answer.get("count", 0)
        if given < stated:
            message = f"OpenAlex counts {stated:,} works and gives {given:,}: {query!r}"
            if given < _ENOUGH * stated:
                self.forget(query)
                raise FailedError(f"{message}; give the same command again")
            logger.info(message)
        return sorted(found)

    def knows(self, query: str) -> bool:
        """Return whether the journal has what a filter found, at least the first page."""
        return self._stored_page(f"{self._search_key(query)}/{0:06d}") is not None

    def forget(self, query: str) -> None:
        """Forget what a filter found, to ask again."""
        self._answers.forget(f"{self._search_key(query)}/")

    def _search_key(self, query: str) -> str:
        return f"{_SEARCH}/{sha256_text(query + self._also)[:16]}"

    def _stored_page(self, key: str) -> dict[str, Any] | None:
        """Return a page that the journal holds with all its works, each with an id."""
        stored = self._answers.get(key)
        page: dict[str, Any] | None = json.loads(stored) if stored else None
        if page and all(one is not None and self._answers.get(f"{_WORK}/{one}") for one in page["ids"]):
            return page
        return None

    def _request_page(self, key: str, query: str, mark: str) -> dict[str, Any]:
        """Put a page and its works into the journal, and return it."""
        page = self._page(query, mark, _PAGE_SIZE)
        ids = [self._keep(work, f"{key}, record {n}") for n, work in enumerate(page.results, start=1)]
        next_mark = page.meta.next_cursor if page.results else None
        answer = {"ids": ids, "next": next_mark, "count": page.meta.count}
        self._answers.put(key, json.dumps(answer).encode())
        return answer

    def _page(self, query: str, mark: str, size: int) -> _Page:
        params: dict[str, str | int] = {"filter": query + self._also, "per_page": size, "cursor": mark}
        if self._client.api_key:
            params["api_key"] = self._client.api_key
        return self._client.get(self._client.services.openalex, "/works", params, make_parser(_Page))

    def _keep(self, work: Any, place: str) -> str | None:
        """Put a work into the journal and return its id; one without an id is set aside."""
        stated = work.get("id") if isinstance(work, dict) else None
        number = normalise_openalex(stated) if isinstance(stated, str) else None
        if number is None:
            odd = f"{place}: no work: {str(work)[:SHOWN]!r}"
            self._client.set_aside.append(Rejection("openalex", None, None, NOT_FETCHED, odd))
            return None
        self._answers.put(f"{_WORK}/W{number}", json.dumps(drop_unread(work), ensure_ascii=False).encode())
        return f"W{number}"

    def papers(self, ids: list[str]) -> Iterator[tuple[str, Paper]]:
        """Yield the papers in the journal, with their ids."""
        for one, _, paper in self._works(ids):
            if isinstance(paper, Paper):
                yield one, paper

    def _works(self, ids: list[str]) -> Iterator[tuple[str, bytes, Paper | str]]:
        """Yield the id and answer of each work in the journal, and its paper or why it is left out."""
        for one in ids:
            if body := self._answers.get(f"{_WORK}/{one}"):
                yield one, body, to_paper(json.loads(body))

    def records(self, ids: list[str]) -> Iterator[Record]:
        """Yield the records of the works in the journal."""
        address = f"{self._client.services.openalex.url}/works"
        for one, body, paper in self._works(ids):
            if isinstance(paper, str):
                yield Record(one, reason=(paper, "left out"))
                continue
            names = {"pmid": paper.pmid, "pmcid": paper.pmcid, "doi": paper.doi, "openalex": one}
            known = {kind: name for kind, name in names.items() if name}
            yield Record(one, known, f"{address}/{one}", body, licence=paper.licence)
