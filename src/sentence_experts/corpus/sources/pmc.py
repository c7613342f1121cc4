"""PubMed Central's open-access articles: found by Entrez, read from the public bucket.

Since 2026 an article is `PMC{id}.{version}/PMC{id}.{version}.xml` in `pmc-oa-opendata`, with its metadata in
`metadata/PMC{id}.{version}.json` (PMC, "Cloud Service").
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict
from typing_extensions import override

from sentence_experts.corpus.formats.archives import Document
from sentence_experts.corpus.identifiers import normalise_pmid
from sentence_experts.corpus.paper import Rejection
from sentence_experts.corpus.sources.answers import fits, has_root, looks_like_xml, xml_root
from sentence_experts.corpus.sources.entrez import Entrez
from sentence_experts.corpus.sources.http import AbsentError
from sentence_experts.corpus.sources.record_source import (
    SECONDS_PER_REQUEST,
    Names,
    Provenance,
    RecordSource,
)
from sentence_experts.corpus.sources.requests import ABSENT, Requests
from sentence_experts.progress import Advance

_VERSION = re.compile(r"\.([0-9]{1,6})/")
_MD5 = re.compile(r"[?&]md5=([0-9a-fA-F]{32})(?:&|$)")
_S3 = "{http://s3.amazonaws.com/doc/2006-03-01/}"

LICENCES: dict[str, Callable[[str], bool]] = {
    "any": lambda code: True,
    # Every Creative Commons licence and the public domain.
    "noncommercial": lambda code: code.startswith("CC"),
    "commercial": lambda code: code.startswith("CC") and "NC" not in re.split(r"[^A-Z0-9]+", code),
}
"""`licences` -> whether an article version with a `license_code` (upper case) may be kept."""


class _Metadata(BaseModel):
    """The metadata of an article; a PMID may be a number."""

    model_config = ConfigDict(extra="allow")

    license_code: str | None = None
    is_retracted: bool | str | int | None = None
    pmid: Annotated[str | None, BeforeValidator(lambda pmid: str(pmid) if type(pmid) is int else pmid)] = None
    xml_url: str | None = None


@dataclass(frozen=True, slots=True)
class Version:
    """The newest version of an article in the bucket: its name (`PMC{id}.{version}`) and metadata."""

    name: str
    metadata: dict[str, Any]

    @property
    def licence(self) -> str:
        """Its `license_code`, in upper case; empty if there is none."""
        return str(self.metadata.get("license_code") or "").upper()

    @property
    def retracted(self) -> bool:
        """Whether the article was withdrawn."""
        return self.metadata.get("is_retracted") in (True, "true", "yes", 1)

    def pmid(self) -> str | None:
        """Return its PubMed id, if it has one."""
        return normalise_pmid(str(self.metadata.get("pmid") or ""))


class PmcSource(RecordSource):
    """Whole open-access articles. Ids are PMCIDs.

    The journal has `pmc/PMCID` (name and metadata of the newest version) and `jats/PMCID` (its XML).
    """

    def __init__(self, requests: Requests, licences: str = "any", keep_retracted: bool = False) -> None:
        self._requests, self._journal = requests, requests.journal
        self._entrez = Entrez(requests)
        self._base = requests.services.pmc_bucket.url
        self._licences, self._keeps_retracted = licences, keep_retracted

    @override
    def count(self, query: str) -> int:
        return self._entrez.count(_open_access(query))

    @override
    def examples(self, query: str) -> list[str]:
        return self._entrez.examples(_open_access(query))

    @override
    def find(self, query: str) -> list[str]:
        return [f"PMC{digits}" for digits in self._entrez.search(_open_access(query))]

    @override
    def cost(self, articles: int) -> tuple[int, float]:
        bucket, requests = self._requests.services.pmc_bucket, 3 * articles  # listing, metadata, text
        return requests, requests / min(bucket.per_second, bucket.at_once / SECONDS_PER_REQUEST)

    @override
    def fetch(self, ids: list[str], advance: Advance) -> None:
        """Fetch the newest version of each article, and its XML if it is to be kept."""
        missing = []
        for pmcid in ids:
            version = self.version(pmcid)
            wanted = version is not None and self._reason(version) is None
            if self._journal.get(f"pmc/{pmcid}") and (not wanted or self._journal.get(f"jats/{pmcid}")):
                advance()
            else:
                missing.append(pmcid)
        at_once = self._requests.services.pmc_bucket.at_once
        self._requests.at_once("pmc", missing, self._ask, self._keep, at_once, advance)

    @override
    def documents(self, ids: list[str]) -> Iterator[Document]:
        for version, body in self._kept(ids):
            yield Document(f"{version.name}.xml", len(body), data=body)

    @override
    def names(self, ids: list[str]) -> Iterator[tuple[str, Names]]:
        for pmcid in ids:
            version = self.version(pmcid)
            if version is not None and self._reason(version) is None:
                pmid = version.pmid()
                yield pmcid, {"pmcid": pmcid, **({"pmid": pmid} if pmid else {})}

    @override
    def provenance(self, ids: list[str]) -> Iterator[Provenance]:
        for version, body in self._kept(ids):
            pmcid, _, number = version.name.rpartition(".")
            digest = hashlib.sha256(body).hexdigest()
            yield pmcid, self._address(version), number, version.licence or None, digest

    @override
    def left_out(self, ids: list[str]) -> Iterator[Rejection]:
        for pmcid in ids:
            answers = (self._journal.get(f"{kind}/{pmcid}") for kind in ("pmc", "jats"))
            absent = next((answer for answer in answers if answer and answer.body is None), None)
            if absent is not None:
                yield Rejection("pmc", None, pmcid, ABSENT, absent.note)
            version = self.version(pmcid)
            if version is not None and (reason := self._reason(version)):
                yield Rejection("pmc", version.name, pmcid, *reason)

    def version(self, pmcid: str) -> Version | None:
        """Return the version in the journal; None if there is none, or it was not requested."""
        body = self._journal.body(f"pmc/{pmcid}")
        return None if body is None else Version(**json.loads(body))

    def _reason(self, version: Version) -> tuple[str, str] | None:
        """Return the reason and detail of leaving a version out; None if it is kept."""
        if not LICENCES[self._licences](version.licence):
            return "licence", f"{version.licence or 'no licence'} does not allow {self._licences} use"
        if version.retracted and not self._keeps_retracted:
            return "retracted", "the bucket marks it as retracted"
        return None

    def _kept(self, ids: list[str]) -> Iterator[tuple[Version, bytes]]:
        for pmcid in ids:
            version, body = self.version(pmcid), self._journal.body(f"jats/{pmcid}")
            if version is not None and body and self._reason(version) is None:
                yield version, body

    def _address(self, version: Version) -> str:
        return f"{self._base}/{version.name}/{version.name}.xml"

    def _keep(self, pmcid: str, got: tuple[Version | None, bytes | None]) -> None:
        version, text = got
        if version is None:
            self._journal.put(f"pmc/{pmcid}", None, "not in the open-access bucket")
            return
        # The text first: if the version is known, the text is there if it was wanted.
        if text is not None:
            self._journal.put(f"jats/{pmcid}", text)
        elif self._reason(version) is None:
            self._journal.put(f"jats/{pmcid}", None, f"{version.name} has no XML in the bucket")
        stored = {"name": version.name, "metadata": version.metadata}
        self._journal.put(f"pmc/{pmcid}", json.dumps(stored, sort_keys=True).encode())

    def _ask(self, pmcid: str) -> tuple[Version | None, bytes | None]:
        """Return the newest version, and its XML if it is to be kept and there; runs in a thread."""
        get = self._requests.client.get
        # The dot: without it PMC12 would list PMC123 too.
        params: dict[str, str | int] = {"list-type": 2, "prefix": f"{pmcid}.", "delimiter": "/"}
        root = xml_root(get(f"{self._base}/", params, has_root("ListBucketResult")))
        prefixes = [node.text or "" for node in root.iter(f"{_S3}Prefix", "Prefix")]
        matches = (_VERSION.fullmatch(prefix, len(pmcid)) for prefix in prefixes)
        numbers = [int(match[1]) for match in matches if match]
        if not numbers:
            return None, None
        name = f"{pmcid}.{max(numbers)}"
        version = None
        try:
            version = Version(
                name, json.loads(get(f"{self._base}/metadata/{name}.json", None, fits(_Metadata)))
            )
            if self._reason(version) is None:
                return version, get(self._address(version), None, _check_text(version))
        except AbsentError:
            pass
        return version, None


def _open_access(query: str) -> str:
    return f"({query}) AND open access[filter]"


def _check_text(version: Version) -> Callable[[bytes], None]:
    """Return a check that an article's XML looks whole and has the MD5 in its metadata, if any."""
    stated = _MD5.search(str(version.metadata.get("xml_url") or ""))
    expected = stated[1].lower() if stated else ""

    def check(body: bytes) -> None:
        looks_like_xml(body)
        if expected and hashlib.md5(body, usedforsecurity=False).hexdigest() != expected:
            raise ValueError("it does not match the MD5 checksum in its metadata")

    return check
