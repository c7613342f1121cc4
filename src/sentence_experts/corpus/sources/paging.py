"""Searches that are read page by page with a cursor, and kept in the journal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sentence_experts.corpus.sources.answers import StoredPage, fits, shaped
from sentence_experts.corpus.sources.requests import Requests
from sentence_experts.storage import sha256_text

_MAX_PAGES = 1_000_000


@dataclass(frozen=True)
class FoundPage:
    """One page of a search.

    Attributes:
        records: id -> record, as JSON.
        next: the mark of the next page; None after the last.
        count: number of records that the search finds.
    """

    records: Mapping[str, bytes]
    next: str | None
    count: int


def search(
    requests: Requests, service: str, prefix: str, query: str, ask: Callable[[str], FoundPage]
) -> Iterator[list[str]]:
    """The ids that a query finds, page by page; the records go into the journal under `SERVICE/ID`.

    An interrupted search continues at its last page. The first mark is `*`; the last page has none, or
    repeats that of its request. `prefix` begins the journal's keys of pages.
    """
    journal, name = requests.journal, f"{prefix}/{sha256_text(query)[:16]}"
    mark = "*"
    for number in range(_MAX_PAGES):
        answer = requests.stored(f"{name}/{number:06d}", fits(StoredPage))
        if answer is None:
            page = ask(mark)
            for one, body in page.records.items():
                journal.put(f"{service}/{one}", body)
            stored = {"ids": list(page.records), "next": page.next, "count": page.count}
            answer = journal.put(f"{name}/{number:06d}", json.dumps(stored).encode())
        parsed = shaped(StoredPage, answer.body)
        if parsed.ids:
            yield parsed.ids
        if not parsed.next or parsed.next == mark:
            return
        mark = parsed.next
