"""Searches of PubMed Central with NCBI's E-utilities: esearch and esummary.

Source: "Entrez Programming Utilities Help" (NCBI Bookshelf, NBK25499).
"""

from __future__ import annotations

import json
import re

from sentence_experts.corpus.formats.markup import Element
from sentence_experts.corpus.sources.answers import SHOWN, has_root, xml_root
from sentence_experts.corpus.sources.http import TOOL, FailedError, RefusedError
from sentence_experts.corpus.sources.requests import Requests
from sentence_experts.errors import UsageError
from sentence_experts.storage import sha256_text

_PAGE = 5_000
_EXAMPLES = 3
_MAX_ADDRESS = 2_000  # characters of a query beyond which NCBI wants a form (POST)
_ID = re.compile(r"[1-9][0-9]{0,14}")
_COUNT = re.compile(r"[0-9]{1,15}")


class Entrez:
    """The E-utilities for the database of PubMed Central, answered from the journal where possible."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def count(self, query: str) -> int:
        """Return the number of records that a query finds now; nothing is stored. Raises as `search` does."""
        return _count_of(self._search(query))

    def search(self, query: str) -> list[str]:
        """Return every id that a query finds, in the order of the ids' numbers.

        Raises:
            UsageError: Entrez does not know a phrase of the query, or finds nothing.
        """
        key = f"esearch/pmc/{sha256_text(query)[:16]}"
        body = self._requests.journal.body(key)
        if body is None:
            body = json.dumps(sorted(set(self._all_ids(query)), key=int)).encode()
            self._requests.journal.put(key, body)
        ids: list[str] = json.loads(body)
        return ids

    def examples(self, query: str) -> list[str]:
        """Return the titles of the first few records that a query finds; nothing is stored."""
        root = self._ask("esearch", term=query, retmax=_EXAMPLES)
        ids = [str(node.text) for node in root.iterfind("IdList/Id")]
        return self.titles(ids) if ids else []

    def titles(self, ids: list[str]) -> list[str]:
        """Return the titles of a few records; ids that Entrez does not know are left out."""
        root = self._ask("esummary", id=",".join(ids))
        titles = (node.findtext("Item[@Name='Title']") for node in root.iterfind("DocSum"))
        return [title for title in titles if title]

    def _all_ids(self, query: str) -> list[str]:
        """Return the ids page by page from the history server, so that all belong to one answer."""
        search = self._search(query)
        count = _count_of(search)
        where = {"term": f"#{search.findtext('QueryKey')}", "WebEnv": search.findtext("WebEnv") or ""}
        ids: list[str] = []
        while len(ids) < count:
            wanted = min(_PAGE, count - len(ids))
            root = self._ask("esearch", retstart=len(ids), retmax=wanted, usehistory="y", **where)
            page = [node.text or "" for node in root.iterfind("IdList/Id")]
            if not page:
                raise FailedError(f"esearch says {count:,} records and gives {len(ids):,}: {query!r}")
            ids += page
        odd = {one for one in ids if not _ID.fullmatch(one)}
        for one in sorted(odd):
            self._requests.set_odd_aside(
                "pmc", one[:SHOWN], ValueError("esearch gave an id that is no number")
            )
        return [one for one in ids if one not in odd]

    def _search(self, query: str) -> Element:
        """The answer of esearch; phrases that Entrez does not know, and would leave out, are refused."""
        root = self._ask("esearch", term=query, usehistory="y", retmax=0)
        tags = ("PhraseNotFound", "FieldNotFound", "QuotedPhraseNotFound")
        unknown = [str(node.text) for tag in tags for node in root.iter(tag) if node.text]
        if unknown:
            raise UsageError(
                f"pmc does not know {', '.join(map(repr, unknown))} in the query {query!r}; look the MeSH "
                "heading up at https://meshb.nlm.nih.gov and put phrases in quotes"
            )
        if not _count_of(root):
            raise UsageError(f"pmc: no record matches {query!r}")
        return root

    def _ask(self, utility: str, **params: str | int) -> Element:
        """Return the root of the answer; one that names an error raises RefusedError."""
        who = {"tool": TOOL, "email": self._requests.email}
        if self._requests.api_key:
            who["api_key"] = self._requests.api_key
        long = sum(len(str(value)) for value in params.values()) > _MAX_ADDRESS
        address = f"{self._requests.services.entrez.url}/{utility}.fcgi"
        check = _is_search_result if utility == "esearch" else has_root("eSummaryResult")
        root = xml_root(self._requests.client.get(address, {"db": "pmc", **params, **who}, check, form=long))
        errors = [" ".join(str(node.text).split()) for node in root.iter("ERROR") if node.text]
        if errors:
            raise RefusedError(f"{utility}: {'; '.join(errors)}")
        return root


def _is_search_result(body: bytes) -> None:
    has_root("eSearchResult")(body)
    root = xml_root(body)
    if root.find(".//ERROR") is None:
        _count_of(root)


def _count_of(search: Element) -> int:
    stated = search.findtext("Count") or ""
    if not _COUNT.fullmatch(stated):
        raise ValueError(f"a search with the count {stated[:SHOWN]!r}")
    return int(stated)
