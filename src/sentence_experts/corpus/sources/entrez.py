"""NCBI's E-utilities: esearch, esummary, efetch and elink.

Source: "Entrez Programming Utilities Help" (NCBI Bookshelf, NBK25499). PubMed's esearch gives only the first
9,999 records of a query, so larger ones are split by publication date.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import chain

from lxml import etree

from sentence_experts.corpus.formats.markup import Element
from sentence_experts.corpus.paper import Rejection
from sentence_experts.corpus.sources.answers import count_of, has_root, is_search_result, json_value, xml_root
from sentence_experts.corpus.sources.http import TOOL, FailedError, RefusedError
from sentence_experts.corpus.sources.requests import IMPLAUSIBLE, Requests, batches_of
from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage import sha256_text

MAX_RESULTS = 9_999
_PAGE = 5_000
_RECORDS_PER_FETCH = 200
_LINKS_PER_REQUEST = 100
_EXAMPLES = 3
_MAX_ADDRESS = 2_000
"""Characters of a query beyond which NCBI wants a form (POST)."""
ID = re.compile(r"[1-9][0-9]{0,14}")
_FIRST_DAY = date(1600, 1, 1)
_LAST_DAY = date(2100, 12, 31)


@dataclass(frozen=True)
class Search:
    """The result of a query, stored on NCBI's history server under an environment (WebEnv) and a number."""

    count: int
    environment: str
    query_key: str


class Entrez:
    """The E-utilities, answered from the journal where possible."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._base = requests.services.entrez.url

    def count(self, database: str, query: str) -> int:
        """The number of records that a query finds now; nothing is stored. Raises as `search` does."""
        return self._search(database, query, None).count

    def search(self, database: str, query: str) -> list[str]:
        """Every id that a query finds, in the order of the ids' numbers.

        Raises:
            UsageError: Entrez does not know a phrase of the query, or finds nothing.
            InputError: one day alone has more records than a query may give.
        """
        key = f"esearch/{database}/{sha256_text(query)[:16]}"
        answer = self._requests.once(
            key, lambda: json.dumps(self._all_ids(database, query)).encode(), are_ids
        )
        ids: list[str] = json.loads(answer.body or b"[]")
        return ids

    def _all_ids(self, database: str, query: str) -> list[str]:
        whole = self._search(database, query, None)
        if whole.count <= MAX_RESULTS:
            ids = self._ids(database, query, whole)
        else:
            days = self._by_date(database, query, _FIRST_DAY, _LAST_DAY, whole.count)
            ids = list(chain.from_iterable(days))
        return sorted(set(ids), key=int)

    def _by_date(
        self, database: str, query: str, first: date, last: date, count: int | None = None
    ) -> Iterator[list[str]]:
        """The ids of a period, halved until no part has more than a query may give."""
        key = f"esearch/{database}/{sha256_text(query)[:16]}/{first}..{last}"
        before = self._requests.stored(key, are_ids_or_count)
        known = None if before is None else json.loads(before.body or b"[]")
        if isinstance(known, list):
            yield known
            return
        # A period that was split before is stored as its count.
        count = known if count is None else count
        if count is None:
            period = self._search(database, query, (first, last))
            if period.count <= MAX_RESULTS:
                ids = self._ids(database, query, period) if period.count else []
                self._requests.journal.put(key, json.dumps(ids).encode())
                yield ids
                return
            count = period.count
        if first == last:
            raise InputError(
                f"{database}: {count:,} records of {first} alone match the query, more than the "
                f"{MAX_RESULTS:,} that one query may give, and a day cannot be split: narrow the query"
            )
        if before is None:
            self._requests.journal.put(key, json.dumps(count).encode())
        middle = first + (last - first) // 2
        yield from self._by_date(database, query, first, middle)
        yield from self._by_date(database, query, middle + timedelta(days=1), last)

    def _search(self, database: str, query: str, period: tuple[date, date] | None) -> Search:
        dates = {}
        if period is not None:
            first, last = (day.strftime("%Y/%m/%d") for day in period)
            dates = {"datetype": "pdat", "mindate": first, "maxdate": last}
        root = self._ask("esearch", db=database, term=query, usehistory="y", retmax=0, **dates)
        count = count_of(root)
        if period is None:
            _refuse_misunderstood(root, database, query, count)
        return Search(count, root.findtext("WebEnv") or "", root.findtext("QueryKey") or "")

    def _ids(self, database: str, query: str, search: Search) -> list[str]:
        """The ids of a search, page by page from the history server, so that all belong to one answer."""
        ids: list[str] = []
        while len(ids) < search.count:
            where = {"term": f"#{search.query_key}", "WebEnv": search.environment, "usehistory": "y"}
            wanted = min(_PAGE, search.count - len(ids))
            root = self._ask("esearch", db=database, retstart=len(ids), retmax=wanted, **where)
            page = [node.text or "" for node in root.iterfind("IdList/Id")]
            if not page:
                raise FailedError(
                    f"{database}: esearch says {search.count:,} records and gives {len(ids):,}: {query!r}"
                )
            ids += page
        odd = {one for one in ids if not ID.fullmatch(one)}
        for one in sorted(odd):
            self._requests.set_odd_aside(
                database, one[:100], ValueError("esearch gave an id that is not a number")
            )
        return [one for one in ids if one not in odd]

    def records(self, pmids: list[str]) -> Iterator[None]:
        """Fetch PubMed records into the journal under `pubmed/PMID`; yields after each batch.

        A PMID that the answer leaves out is stored as absent.
        """
        journal = self._requests.journal
        missing = [pmid for pmid in pmids if journal.get(f"pubmed/{pmid}") is None]

        def fetch(batch: list[str]) -> None:
            root = self._ask("efetch", db="pubmed", id=",".join(batch), retmode="xml")
            wanted = set(batch)
            if len(batch) >= IMPLAUSIBLE and not len(root):
                raise FailedError(f"efetch gave none of {len(batch)} records")
            for record in root:
                pmid = record.findtext("MedlineCitation/PMID") or record.findtext("BookDocument/PMID")
                if pmid in wanted:
                    wanted.discard(pmid)
                    record.tail = None
                    body = b"<PubmedArticleSet>" + etree.tostring(record) + b"</PubmedArticleSet>"
                    journal.put(f"pubmed/{pmid}", body)
            for pmid in wanted:
                journal.put(f"pubmed/{pmid}", None, "PubMed has no such record any more")

        yield from self._requests.in_turn("pubmed", batches_of(missing, _RECORDS_PER_FETCH), fetch)

    def absent_records(self, pmids: list[str]) -> Iterator[Rejection]:
        """The records that PubMed did not have."""
        return self._requests.absent("pubmed", pmids, "pubmed")

    def examples(self, database: str, query: str) -> list[str]:
        """The titles of the first few records that a query finds; nothing is stored."""
        root = self._ask("esearch", db=database, term=query, retmax=_EXAMPLES)
        ids = [str(node.text) for node in root.iterfind("IdList/Id")]
        return list(self.titles(database, ids).values()) if ids else []

    def titles(self, database: str, ids: list[str]) -> dict[str, str]:
        """The titles of a few records, by esummary; ids that it does not know are left out."""
        root = self._ask("esummary", db=database, id=",".join(ids))
        titled = (
            (node.findtext("Id"), node.findtext("Item[@Name='Title']")) for node in root.iterfind("DocSum")
        )
        return {one or "": title for one, title in titled if title}

    def links(self, name: str, ids: list[str]) -> dict[str, list[str]]:
        """The records that each record is linked to, such as those that cite it (`pubmed_pubmed_citedin`)."""
        origin, target, _ = name.split("_", 2)
        links: dict[str, list[str]] = {}

        def ask(batch: list[str]) -> dict[str, list[str]]:
            key = f"elink/{name}/{sha256_text(*batch)[:24]}"

            def request() -> bytes:
                # One `id` parameter per record keeps their links apart.
                root = self._ask("elink", dbfrom=origin, db=target, linkname=name, id=batch)
                return json.dumps(linked(root, name)).encode()

            body = self._requests.once(key, request, are_links).body
            answered: dict[str, list[str]] = json.loads(body or b"{}")
            return answered

        for answered in self._requests.in_turn("elink", batches_of(ids, _LINKS_PER_REQUEST), ask):
            links.update(answered)
        return links

    def _ask(self, utility: str, **params: str | int | list[str]) -> Element:
        """The root of the answer; one that names an error raises RefusedError."""
        who: dict[str, str] = {"tool": TOOL, "email": self._requests.email}
        if self._requests.api_key:
            who["api_key"] = self._requests.api_key
        long = sum(len(str(value)) for value in params.values()) > _MAX_ADDRESS
        address = f"{self._base}/{utility}.fcgi"
        root = xml_root(self._requests.client.get(address, {**params, **who}, _CHECKS[utility], form=long))
        errors = [" ".join(str(node.text).split()) for node in root.iter("ERROR") if node.text]
        if errors:
            raise RefusedError(f"{utility}: {'; '.join(errors)}")
        return root


def linked(root: Element, name: str) -> dict[str, list[str]]:
    """Id -> the ids that it is linked to under a name, from an elink answer with one LinkSet per record."""
    linked_ids: dict[str, list[str]] = {}
    for links in root.iterfind("LinkSet"):
        origins = _numbers(links.iterfind("IdList/Id"))
        targets = _numbers(links.iterfind(f"LinkSetDb[LinkName='{name}']/Link/Id"))
        if len(origins) == 1:
            linked_ids.setdefault(origins[0], []).extend(targets)
        elif targets:
            raise FailedError(f"elink gave the links of {len(origins)} records in one set")
    return linked_ids


def _numbers(nodes: Iterable[Element]) -> list[str]:
    """The ids in some elements.

    Raises:
        FailedError: one is not a number.
    """
    ids = [node.text or "" for node in nodes]
    if odd := [one for one in ids if not ID.fullmatch(one)]:
        raise FailedError(f"elink gave the id {odd[0][:100]!r}, which is not a number")
    return ids


_CHECKS = {
    "esearch": is_search_result,
    "efetch": has_root("PubmedArticleSet", "PubmedBookArticleSet"),
    "esummary": has_root("eSummaryResult"),
    "elink": has_root("eLinkResult"),
}


def are_ids(body: bytes) -> None:
    """Raise ValueError unless a stored answer is a list of ids."""
    value = json_value(body)
    if not (isinstance(value, list) and all(isinstance(one, str) and ID.fullmatch(one) for one in value)):
        raise ValueError("no list of ids")


def are_ids_or_count(body: bytes) -> None:
    """Raise ValueError unless a stored answer is a list of ids, or the count of a period that was split."""
    if not (type(count := json_value(body)) is int and count > 0):
        are_ids(body)


def are_links(body: bytes) -> None:
    """Raise ValueError unless a stored answer has a list of ids per id."""
    value = json_value(body)
    if not isinstance(value, dict):
        raise ValueError("no lists of ids")
    for one, linked_ids in value.items():
        are_ids(json.dumps([one, *(linked_ids if isinstance(linked_ids, list) else [None])]).encode())


def _refuse_misunderstood(root: Element, database: str, query: str, count: int) -> None:
    """Refuse a query with a phrase that Entrez does not know and would silently leave out."""
    tags = ("PhraseNotFound", "FieldNotFound", "QuotedPhraseNotFound")
    unknown = [str(node.text) for tag in tags for node in root.iter(tag) if node.text]
    if unknown:
        named = ", ".join(repr(phrase) for phrase in unknown)
        raise UsageError(
            f"{database} does not know {named} in the query {query!r}; look the MeSH heading up at "
            "https://meshb.nlm.nih.gov and put phrases in quotes"
        )
    if count == 0:
        raise UsageError(f"{database}: no record matches {query!r}")
