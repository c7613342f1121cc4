"""DOI, PMID, PMCID and the numbers of OpenAlex in one spelling each."""

from __future__ import annotations

import html
import re
from typing import NamedTuple
from urllib.parse import unquote

SIMULATED_DOI = "10.5555/simulated."  # the beginning of the DOIs of generated articles
_PLAIN_DOI = re.compile(r"10\.\d{4,9}/[a-z0-9./()_-]*[a-z0-9)]")
_DOI = re.compile(r"10\.\d+(?:\.\d+)*/\S+")
_DOI_IN_TEXT = re.compile(
    r"(?P<address>https?://(?:(?!https?://)\S)*?)?(?:\bdoi(?:\.org)?\b[\s:=/]*|doi\.org/)"
    r"(?P<doi>10\.\d{4,9}(?:\.\d+)*(?:/|%2F)\S+)",
    re.IGNORECASE,
)
# A line break inside a DOI that has its own field: "10.1126/science. 1068094"; a year behind it is none.
_BROKEN_DOI = re.compile(r"(?<=[.\-_])\s+(?=\d)(?!(?:19|20)\d\d(?:-\d\d){0,2}(?![\w-])(?![._/]\w))")
# The same around the slash: "10.1021/ bi992105o".
_BROKEN_PREFIX = re.compile(r"10\.\s*(\d{4,9}(?:\.\d+)*)\s*/\s*(?=\S)")
# A point for the slash: "10.1017.s1355838201011074".
_NO_SLASH = re.compile(r"10\.(\d{4,5})\.([a-z][^\s/]*\d[^\s/]*)", re.ASCII)
# Text that may follow a DOI after a space; anything else may be the rest of it ("10.1038/nature 12345").
_AFTER_DOI = re.compile(r"\W*|\s*(?:[\[(<]|(?:pmid|pmcid|pmc|doi|https?)\b).*", re.DOTALL)
_ENDS_DOI = (",", ";", ")", "]", "}", ">")
# Signs that typesetters put for a hyphen and an x; DOIs are ASCII.
_TYPESET = str.maketrans("\u2010\u2011\u2012\u2013\u2212\u00d7", "-----x")
# The DOI of a PLOS article whose end is missing would stand for every article of the journal.
_CUT_SHORT = re.compile(r"10\.1371/journal(\.[a-z]*)?")
_SHOWS_DOI = re.compile(r"(?:(?:dx\.|www\.)?doi(?:\.org/)?[\s:=]*|e\d{1,9})?10\.\s*\d{4}", re.ASCII)
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u2060\ufeff"))
_BRACKETS = {")": "(", "]": "[", "}": "{", ">": "<"}

_PMID = re.compile(r"(?:pmid|pubmed|medline)?[\s:]*0*([1-9]\d{0,8})(?:\.0)?", re.IGNORECASE)
_PMID_URL = re.compile(
    r"(?:ncbi\.nlm\.nih\.gov/(?:m/)?pubmed/|pubmed\.ncbi\.nlm\.nih\.gov/|list_uids="
    r"|europepmc\.org/(?:article|abstract)/MED/)0*([1-9]\d{0,8})",
    re.IGNORECASE,
)
_PMCID = re.compile(r"(?:pmcid|pmc)?[\s:]*(?:pmc)?\s*0*([1-9]\d{0,9})(?:\.\d+)?", re.IGNORECASE)
_PMCID_URL = re.compile(
    r"/(?:pmc/)?(?:articles/(?:PMC/)?(?:PMC)?|article/(?:PMC/)?PMC|article/PMC/)0*([1-9]\d{0,9})\b",
    re.IGNORECASE,
)
_OPENALEX = re.compile(r"(?:https?://(?:api\.)?openalex\.org/(?:works/)?|openalex:)?w0*([1-9]\d{0,14})", re.I)


class Identifiers(NamedTuple):
    """The identifiers of a work; None where one is unknown."""

    doi: str | None = None
    pmid: str | None = None
    pmcid: str | None = None
    openalex: int | None = None
    """The number after `W`."""

    def names(self) -> list[str]:
        """Return the identifiers as papers are named in a corpus, such as `doi:10.1000/abc`; best first."""
        named = zip(("doi:", "pmid:", "pmc:", "openalex:W"), self, strict=True)
        return [f"{prefix}{value}" for prefix, value in named if value]

    def name(self) -> str | None:
        """Return the identifier that a paper is named after; None without."""
        return next(iter(self.names()), None)


def _trim(doi: str) -> str | None:
    """Return `doi` without the punctuation or bracket of the sentence around it."""
    while doi:
        last = doi[-1]
        # Old Wiley and Allen Press DOIs contain brackets: remove one only if nothing opened it.
        if last in ".,;:'\"`\u2019\u201d\u2212" or (
            last in _BRACKETS and doi.count(last) > doi.count(_BRACKETS[last]) and "::" not in doi
        ):
            doi = doi[:-1]
        else:
            break
    return doi if doi and not doi.endswith("/") and not _CUT_SHORT.fullmatch(doi) else None


_PARAMETERS = re.compile(r"[?&][a-z_.]+=\S*", re.IGNORECASE)
# Ends of publishers' addresses behind a DOI; of bioRxiv and medRxiv the version is one too.
_PAGE = re.compile(
    r"(?<=[^/])(?:/(?:full|abstract|fulltext|e?pdf|html?|xml|meta|reader|information|figures|tables|suppl_file|-"
    r"|references|summary|citedby|suppinfo|enhancedabs|otherversions)"
    r"(?:[/.].*)?|\.(?:pdf|aspx|full|short|long)(?:\.pdf)?)\W*$",
    re.IGNORECASE,
)
_PREPRINT = re.compile(r"(10\.1101/(?:\d{4}\.\d\d\.\d\d\.)?\d{6,8})v\d+.*$", re.IGNORECASE)
# The number, and perhaps title, of an article behind its DOI, as Oxford, MIT Press and others have it.
_NUMBERED = re.compile(r"/(?:[\w-]+-)?article(?!-lookup)[\w-]*/doi/$", re.IGNORECASE)
_NUMBER = re.compile(r"(?<=[^/])/\d{4,}(?:/[^/]*|\W*)$")


# Neither in an address such as 192.168.10.12 nor in arXiv's 2010.12345, but behind "%20".
_PREFIX = re.compile(
    r"(?:(?<![\d.])|(?<=%[\da-f]{2})|(?<=doi\.))10\.\d{4}|doi\.org/(?:e\d{1,9})?10\.", re.IGNORECASE
)


def _without_version(doi: str | None) -> str | None:
    return _PREPRINT.sub(r"\1", doi) if doi else None


_FRAGMENT = re.compile(r"#.+$")  # a DOI may end in "#", a check character
_SEVERAL = re.compile(r"[;,|]\s*(?=(?:https?://)?(?:(?:dx\.)?doi\.org/)?10\.\d{4,}/)")


def _cut_page(url: str) -> str:
    """Return an address without what follows the DOI in it.

    >>> _cut_page("https://www.frontiersin.org/articles/10.3389/fnins.2019.00001/full")
    'https://www.frontiersin.org/articles/10.3389/fnins.2019.00001'
    """
    if found := re.search(r"doi\.org/(?=(?:doi:)?10\.)", url, re.I):  # behind the address of a proxy, perhaps
        return url[: found.start()] + _FRAGMENT.sub("", _PARAMETERS.sub("", url[found.start() :]))
    url = re.sub("%2f", "/", url, flags=re.I)
    if (found := re.search(r"10\.\d{4,}/", url)) is None:
        return url
    before, prefix, rest = url[: found.start()], found.group(), url[found.end() :]
    rest = re.split(r"[?#]|&(?=[a-z_.]+=)|;jsessionid=", rest, maxsplit=1, flags=re.I)[0]
    if _NUMBERED.search(before):
        rest = _NUMBER.sub("", rest)
    return before + _PREPRINT.sub(r"\1", prefix + re.sub(r"/+\W*$", "", _PAGE.sub("", rest)))


def normalise_doi(value: str | None) -> str | None:
    """Return a DOI in lower case, without a `doi:` or URL prefix, URL escapes and trailing punctuation.

    Repairs what cannot mean anything else: spaces around the slash or at a line break, typeset dashes, a
    point for the only slash, an article number glued before it ("e14910.1371/...").

    Returns:
        None if there is no DOI, or one that a space cuts elsewhere: its first half may mean another work.

    >>> normalise_doi("https://dx.doi.org/10.1000%2FABC.1.")
    '10.1000/abc.1'
    >>> normalise_doi("https://doi.org/10.1000/abc?utm_source=mail")
    '10.1000/abc'
    """
    if not value:
        return None
    value = value.strip().lower()
    if len(several := [part for part in _SEVERAL.split(value) if _DOI.search(part)]) > 1:
        value = several[0]
    if value.startswith(("http://", "https://")) or "doi.org/" in value:
        value = _cut_page(value)
    if _PLAIN_DOI.fullmatch(value):
        return _without_version(_trim(value))
    if "%" in value:
        value = unquote(value)
    if "&" in value:
        value = html.unescape(value)
    value = value.translate(_INVISIBLE).strip().rstrip("\u2013\u2212").translate(_TYPESET)
    value = _BROKEN_PREFIX.sub(r"10.\1/", _BROKEN_DOI.sub("", value))
    if whole := _NO_SLASH.fullmatch(value):
        value = f"10.{whole[1]}/{whole[2]}"
    match = _DOI.search(value)
    if match is None:
        return None
    doi, rest = _trim(match.group()), value[match.end() :]
    # Punctuation of the text around it shows that a DOI is whole.
    is_whole = _AFTER_DOI.fullmatch(rest) or (doi != match.group() and match.group().endswith(_ENDS_DOI))
    return _without_version(doi) if is_whole else None


def find_doi(text: str) -> str | None:
    """Return the first DOI in running text that is marked as one: `doi: 10.1000/abc` or a doi.org address."""
    match = _DOI_IN_TEXT.search(text)
    if match is None:
        return None
    return normalise_doi(match.group() if match["address"] else _PARAMETERS.sub("", match["doi"]))


def normalise_pmid(value: str | None) -> str | None:
    """Return a PubMed id as its digits without leading zeros, or None."""
    match = _PMID.fullmatch(value.strip()) if value else None
    return match.group(1) if match else None


def normalise_pmcid(value: str | None) -> str | None:
    """Return a PubMed Central id as `PMC` and its digits, or None; a version (`PMC1.2`) is dropped."""
    match = _PMCID.fullmatch(value.strip()) if value else None
    return f"PMC{match.group(1)}" if match else None


def normalise_openalex(value: str | None) -> int | None:
    """Return the number of a work in OpenAlex, from `W123` with or without its address, or None.

    >>> normalise_openalex("https://openalex.org/W2741809807")
    2741809807
    """
    match = _OPENALEX.fullmatch(value.strip()) if value else None
    return int(match.group(1)) if match else None


NORMALISE = {"doi": normalise_doi, "pmid": normalise_pmid, "pmcid": normalise_pmcid}
"""The function for each kind of identifier that is a text."""


def identifiers_in_url(url: str) -> tuple[str | None, str | None, str | None]:
    """Return the (DOI, PMID, PMCID) that a web address names; None if it names none."""
    doi = normalise_doi(_cut_page(url)) if _PREFIX.search(url) else None
    if "ncbi.nlm.nih.gov" not in url and "europepmc" not in url:
        return doi, None, None
    pmid, pmcid = _PMID_URL.search(url), _PMCID_URL.search(url)
    return doi, pmid.group(1) if pmid else None, f"PMC{pmcid.group(1)}" if pmcid else None


def parse_identifier(value: str) -> Identifiers:
    """Return the identifier in a value that shows which kind it is; all None for anything else.

    Bare digits, which may be row numbers, are not read as a PMID, nor a bare `W123` as an OpenAlex id.

    >>> parse_identifier("openalex:W12").name()
    'openalex:W12'
    """
    value = value.strip()
    low = value.lower()
    if _SHOWS_DOI.match(low):
        return Identifiers(doi=normalise_doi(value))
    if low.startswith(("openalex:", "https://openalex.org/", "https://api.openalex.org/")):
        return Identifiers(openalex=normalise_openalex(value))
    if low.startswith(("http://", "https://")):
        return Identifiers(*identifiers_in_url(value))
    if low.startswith(("pmid", "pubmed:")):
        return Identifiers(pmid=normalise_pmid(value))
    return Identifiers(pmcid=normalise_pmcid(value) if low.startswith("pmc") else None)
