"""PubMed Central's open-access articles: found by NCBI's E-utilities, read from the public bucket.

Since 2026 an article is `PMC{id}.{version}/PMC{id}.{version}.xml` in `pmc-oa-opendata`, with its metadata in
`metadata/PMC{id}.{version}.json`. Sources: PMC, "Cloud Service"; "Entrez Programming Utilities Help" (NCBI
Bookshelf, NBK25499).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial

from lxml import etree
from pydantic import BaseModel, ConfigDict

from sentence_experts.corpus.formats.markup import Element
from sentence_experts.corpus.identifiers import normalise_pmid
from sentence_experts.corpus.sources.client import (
    SHOWN,
    TOOL,
    AbsentError,
    Client,
    FailedError,
    Parse,
    Record,
    make_parser,
)
from sentence_experts.errors import UsageError
from sentence_experts.progress import Advance
from sentence_experts.storage import sha256_text

_PAGE = 5_000
_PER_SECOND_WITH_KEY = 10.0  # requests, instead of 3 (E-utilities documentation, "API Keys")
_ID = re.compile(r"[1-9][0-9]{0,14}")
_COUNT = re.compile(r"[0-9]{1,15}")
_VERSION = re.compile(r"\.([0-9]{1,6})/")
# The first element of an XML document, and the end of one that nothing but white space and comments follows.
_FIRST_TAG = re.compile(rb"<!--.*?-->|<([a-z_][^\s/>]*)", re.DOTALL | re.IGNORECASE)
_LAST_TAG = re.compile(rb"<(?:/([^\s<>]+)|([^\s<>/]+)[^<>]*/)\s*>(?:\s|\0|<!--.*?-->)*\Z", re.DOTALL)
_STATED_ID = re.compile(
    rb"""<article-id[^>]*\spub-id-type\s*=\s*["']pmc(?:id)?["'][^>]*>\s*(?:PMC)?(\d{1,15})\s*<""",
    re.IGNORECASE,
)
_S3 = "{http://s3.amazonaws.com/doc/2006-03-01/}"

LICENCES: dict[str, Callable[[str], bool]] = {
    "any": lambda code: True,
    # Every Creative Commons licence and the public domain.
    "noncommercial": lambda code: code.startswith("CC"),
    "commercial": lambda code: code.startswith("CC") and "NC" not in re.split(r"[^A-Z0-9]+", code),
}
"""`licences` -> whether an article version with a licence code (upper case) may be kept."""


class Version(BaseModel):
    """The newest version of an article in the bucket: its name (`PMC{id}.{version}`), and its metadata; no
    name if the bucket does not have the article."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    name: str = ""
    license_code: str | None = None
    is_retracted: bool | None = None
    pmid: str | None = None

    @property
    def licence(self) -> str:
        """Its `license_code`, in upper case; empty if there is none."""
        return (self.license_code or "").upper()

    @property
    def path(self) -> str:
        """The place of its text in the bucket."""
        return f"/{self.name}/{self.name}.xml"


class PmcSource:
    """Whole open-access articles. Ids are PMCIDs.

    The stored answers are `esearch/pmc/QUERY` (ids), `pmc/PMCID` (newest version), and `jats/PMCID` (its XML;
    empty if there is none).
    """

    def __init__(self, client: Client, licences: str = "any", keep_retracted: bool = False) -> None:
        self._client, self._answers = client, client.journal
        self._bucket, entrez = client.services.pmc_bucket, client.services.entrez
        fastest = max(entrez.per_second, _PER_SECOND_WITH_KEY if client.api_key else 0)
        self._entrez = entrez.model_copy(update={"per_second": fastest})
        self._licences, self._keeps_retracted = licences, keep_retracted

    def count(self, query: str) -> int:
        """Return the number of articles that a query finds now; nothing is stored.

        Raises:
            UsageError: Entrez does not know a phrase of the query, or finds nothing.
        """
        return _count_of(self._search(query))

    def find(self, query: str) -> list[str]:
        """Return every id, in the order of the ids' numbers. Raises as `count` does."""
        key = f"esearch/pmc/{sha256_text(_restrict_to_open_access(query))[:16]}"
        body = self._answers.get(key)
        if body is None:
            body = json.dumps(sorted(set(self._all_ids(query)), key=int)).encode()
            self._answers.put(key, body)
        return [f"PMC{digits}" for digits in json.loads(body)]

    def _all_ids(self, query: str) -> list[str]:
        """Return the ids page by page from the history server, so that all belong to one answer."""
        search = self._search(query)
        count = _count_of(search)
        where = {"term": f"#{search.findtext('QueryKey')}", "WebEnv": search.findtext("WebEnv") or ""}
        ids: list[str] = []
        while len(ids) < count:
            root = self._esearch(retstart=len(ids), retmax=min(_PAGE, count - len(ids)), **where)
            page = [node.text or "" for node in root.iterfind("IdList/Id")]
            if not page:
                break
            ids += page
        if (given := len(set(ids))) < count:
            raise FailedError(f"esearch says {count:,} records and gives {given:,}: {query!r}")
        return ids

    def _search(self, query: str) -> Element:
        """Return the answer of esearch; phrases that Entrez does not know, and would leave out, are
        refused."""
        query = _restrict_to_open_access(query)
        root = self._esearch(term=query, retmax=0)
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

    def _esearch(self, **params: str | int) -> Element:
        """Return the root of an answer of esearch.

        Raises:
            FailedError: the answer names an error.
        """
        who = {"db": "pmc", "usehistory": "y", "tool": TOOL, "email": self._client.email}
        if self._client.api_key:
            who["api_key"] = self._client.api_key
        root = self._client.get(self._entrez, "/esearch.fcgi", {**who, **params}, _parse_search, form=True)
        errors = [" ".join(str(node.text).split()) for node in root.iter("ERROR") if node.text]
        if errors:
            raise FailedError(f"esearch: {'; '.join(errors)}")
        return root

    def fetch(self, ids: list[str], advance: Advance) -> None:
        """Fetch the newest version of each article, and its XML if it is to be kept."""
        missing = []
        for pmcid in ids:
            version = self.version(pmcid)
            if version and (self._find_reason(version) or self._answers.get(f"jats/{pmcid}") is not None):
                advance()
            else:
                missing.append(pmcid)
        self._client.fetch("pmc", missing, self._request, self._bucket.at_once, advance)

    def _request(self, pmcid: str) -> dict[str, bytes]:
        """Return the newest version, and its XML if it is to be kept, for the journal; runs in a thread.

        The XML comes first: if the version is in the journal, a text that was wanted is there too.
        """
        get, bucket = self._client.get, self._bucket
        # The dot: without it PMC12 would list PMC123 too.
        params: dict[str, str | int] = {"list-type": 2, "prefix": f"{pmcid}.", "delimiter": "/"}
        root = get(bucket, "/", params, make_root_parser("ListBucketResult"))
        prefixes = [node.text or "" for node in root.iter(f"{_S3}Prefix", "Prefix")]
        matches = (_VERSION.fullmatch(prefix, len(pmcid)) for prefix in prefixes)
        numbers = [int(match[1]) for match in matches if match]
        version, found = Version(), {}
        try:
            if numbers:
                name = f"{pmcid}.{max(numbers)}"
                version = get(bucket, f"/metadata/{name}.json", {}, make_parser(Version))
                version.name = name
                if self._find_reason(version) is None:
                    found[f"jats/{pmcid}"] = b""
                    found[f"jats/{pmcid}"] = get(bucket, version.path, {}, partial(_check_article, pmcid))
        except AbsentError:
            pass
        return {**found, f"pmc/{pmcid}": version.model_dump_json().encode()}

    def records(self, ids: list[str]) -> Iterator[Record]:
        """Yield the records of the articles in the journal."""
        for pmcid in ids:
            if (version := self.version(pmcid)) is None:
                continue
            if reason := self._find_reason(version):
                yield Record(pmcid, reason=reason)
            elif body := self._answers.get(f"jats/{pmcid}"):
                pmid = normalise_pmid(version.pmid)
                names = {"pmcid": pmcid, **({"pmid": pmid} if pmid else {})}
                number, licence = version.name.rpartition(".")[2], version.licence or None
                yield Record(pmcid, names, self._bucket.url + version.path, body, number, licence)
            elif body is not None:
                yield Record(pmcid, reason=("absent", f"{version.name} has no XML in the bucket"))

    def version(self, pmcid: str) -> Version | None:
        """Return the version in the journal; None if it was not requested."""
        body = self._answers.get(f"pmc/{pmcid}")
        return None if body is None else Version.model_validate_json(body)

    def _find_reason(self, version: Version) -> tuple[str, str] | None:
        """Return the reason and detail of leaving a version out; None if it is kept."""
        if not version.name:
            return "absent", "not in the open-access bucket"
        if not LICENCES[self._licences](version.licence):
            return "licence", f"{version.licence or 'no licence'} does not allow {self._licences} use"
        if version.is_retracted and not self._keeps_retracted:
            return "retracted", "the bucket marks it as retracted"
        return None


def _restrict_to_open_access(query: str) -> str:
    return f"({query}) AND open access[filter]"


def _count_of(search: Element) -> int:
    return int(search.findtext("Count") or "")


def make_root_parser(tag: str) -> Parse[Element]:
    """Return a parser of XML bodies whose root element is `tag`, or that name an error.

    Nothing outside a body is read.
    """

    def parse(body: bytes) -> Element:
        parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True)
        try:
            root: Element = etree.fromstring(body, parser)
        except etree.XMLSyntaxError as error:
            raise ValueError(f"broken XML ({' '.join(str(error.msg).split())})") from error
        if etree.QName(root).localname != tag and root.find(".//ERROR") is None:
            raise ValueError(f"<{root.tag}> instead of <{tag}>: {' '.join(root.itertext())[:SHOWN]}")
        return root

    return parse


def _parse_search(body: bytes) -> Element:
    """Parse an answer of esearch: its count and ids are numbers, unless it names an error."""
    root = make_root_parser("eSearchResult")(body)
    if root.find(".//ERROR") is None:
        count = root.findtext("Count") or ""
        odd = [node.text for node in root.iterfind("IdList/Id") if not _ID.fullmatch(node.text or "")]
        if odd or not _COUNT.fullmatch(count):
            raise ValueError(f"a search with the count {count[:SHOWN]!r} and the ids {odd[:3]}")
    return root


def _check_article(pmcid: str, body: bytes) -> bytes:
    """Return an article's body, which must look like whole XML of that article; it is not parsed yet."""
    start = body[:1000].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not start.startswith(b"<") or start.startswith(b"<!doctype html") or b"<html" in start:
        raise ValueError("not XML")
    first = next((match[1] for match in _FIRST_TAG.finditer(body) if match[1]), None)
    last = _LAST_TAG.search(body, max(0, len(body) - 1000))
    if first is None or last is None or first not in last.groups():
        raise ValueError("truncated XML")
    stated = _STATED_ID.search(body, 0, max(0, body.find(b"</article-meta>")))
    if stated and int(stated[1]) != int(pmcid.removeprefix("PMC")):
        raise ValueError(f"the XML of PMC{stated[1].decode()}")
    return body
