"""PubMed Central's open-access articles, from its public bucket, and its ID converter.

Since 2026 an article is `PMC{id}.{version}/PMC{id}.{version}.xml` in `pmc-oa-opendata`, with its metadata in
`metadata/PMC{id}.{version}.json` (PMC, "Cloud Service").
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sentence_experts.corpus.identifiers import normalise_pmcid, normalise_pmid
from sentence_experts.corpus.paper import Rejection
from sentence_experts.corpus.sources.answers import (
    ArticleMetadata,
    ConvertedAnswer,
    ConvertedRecord,
    StoredVersion,
    fits,
    has_root,
    name_in,
    shaped,
    xml_root,
)
from sentence_experts.corpus.sources.http import TOOL, AbsentError, looks_like_xml
from sentence_experts.corpus.sources.requests import Requests, batches_of
from sentence_experts.progress import Advance
from sentence_experts.storage import sha256_text

_IDS_PER_REQUEST = 200
_VERSION = re.compile(r"\.([0-9]{1,6})/")
_MD5 = re.compile(r"[?&]md5=([0-9a-fA-F]{32})(?:&|$)")
_S3 = "{http://s3.amazonaws.com/doc/2006-03-01/}"

_IS_LISTING = has_root("ListBucketResult")
_IS_VERSION = fits(StoredVersion)

LICENCES: dict[str, Callable[[str], bool]] = {
    "any": lambda code: True,
    # Every Creative Commons licence and the public domain.
    "noncommercial": lambda code: code.startswith("CC"),
    "commercial": lambda code: code.startswith("CC") and "NC" not in re.split(r"[^A-Z0-9]+", code),
}
"""`licences` -> whether an article version with a `license_code` (upper case) may be kept."""


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
        """Its PubMed id, if it has one."""
        return normalise_pmid(str(self.metadata.get("pmid") or ""))


class Bucket:
    """The articles of the open-access bucket, answered from the journal where possible.

    The journal has `pmc/PMCID` (name and metadata of the newest version) and `jats/PMCID` (its XML).
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._base = requests.services.pmc_bucket.url

    def fetch(self, pmcids: Iterable[str], wanted: Callable[[Version], bool], advance: Advance) -> None:
        """Fetch into the journal the newest version of each article, and its XML if it is wanted."""
        journal = self._requests.journal
        missing = []
        for pmcid in pmcids:
            version = self.version(pmcid)
            if self._requests.has(f"pmc/{pmcid}", _IS_VERSION) and (
                version is None or not wanted(version) or journal.get(f"jats/{pmcid}") is not None
            ):
                advance()
            else:
                missing.append(pmcid)

        def keep(pmcid: str, got: tuple[Version | None, bytes | None]) -> None:
            version, text = got
            # The text first: if the version is known, the text is there if it was wanted.
            if text is not None:
                journal.put(f"jats/{pmcid}", text)
            elif version is not None and wanted(version):
                journal.put(f"jats/{pmcid}", None, f"{version.name} has no XML in the bucket")
            if version is None:
                journal.put(f"pmc/{pmcid}", None, "not in the open-access bucket")
            else:
                stored = {"name": version.name, "metadata": version.metadata}
                journal.put(f"pmc/{pmcid}", json.dumps(stored, sort_keys=True).encode())

        self._requests.at_once(
            "pmc", missing, lambda pmcid: self._ask(pmcid, wanted), keep,
            self._requests.services.pmc_bucket.at_once, advance,
        )  # fmt: skip

    def version(self, pmcid: str) -> Version | None:
        """The version in the journal; None if the article is not in the bucket, or was not requested."""
        answer = self._requests.stored(f"pmc/{pmcid}", _IS_VERSION)
        return None if answer is None or answer.body is None else Version(**json.loads(answer.body))

    def absent(self, pmcids: Iterable[str]) -> Iterator[Rejection]:
        """The articles that the bucket did not have, or not as XML."""
        return self._requests.absent("pmc", pmcids, "pmc", "jats")

    def address(self, version: Version) -> str:
        """The address of the XML of a version."""
        return f"{self._base}/{version.name}/{version.name}.xml"

    def _ask(self, pmcid: str, wanted: Callable[[Version], bool]) -> tuple[Version | None, bytes | None]:
        """The newest version, and its XML if it is wanted and there; runs in a thread."""
        get = self._requests.client.get
        # The dot: without it PMC12 would list PMC123 too.
        listing = get(
            f"{self._base}/", {"list-type": 2, "prefix": f"{pmcid}.", "delimiter": "/"}, _IS_LISTING
        )
        root = xml_root(listing)
        prefixes = [node.text or "" for node in root.iter(f"{_S3}Prefix", "Prefix")]
        numbers = [
            int(match[1]) for match in (_VERSION.fullmatch(one, len(pmcid)) for one in prefixes) if match
        ]
        if not numbers:
            return None, None
        name = f"{pmcid}.{max(numbers)}"
        try:
            version = Version(
                name, json.loads(get(f"{self._base}/metadata/{name}.json", None, fits(ArticleMetadata)))
            )
        except AbsentError:
            return None, None
        if not wanted(version):
            return version, None
        try:
            return version, get(self.address(version), None, _checked(version))
        except AbsentError:
            return version, None


def _checked(version: Version) -> Callable[[bytes], None]:
    """A check that an article's XML looks whole and has the MD5 in its metadata, if any."""
    stated = _MD5.search(str(version.metadata.get("xml_url") or ""))
    expected = stated[1].lower() if stated else ""

    def check(body: bytes) -> None:
        looks_like_xml(body)
        if expected and hashlib.md5(body, usedforsecurity=False).hexdigest() != expected:
            raise ValueError("it does not match the MD5 checksum in its metadata")

    return check


def converted(requests: Requests, ids: list[str], to: str) -> dict[str, str]:
    """PMIDs -> PMCIDs (`to="pmcid"`), or PMCIDs -> PMIDs (`to="pmid"`), by PMC's ID converter; an id without
    the other is left out."""
    given = "pmcid" if to == "pmid" else "pmid"
    normalise = {"pmid": normalise_pmid, "pmcid": normalise_pmcid}
    pmcids: dict[str, str] = {}

    def ask(batch: list[str]) -> dict[str, str]:
        params = {"ids": ",".join(batch), "idtype": given, "format": "json", "versions": "no"}
        who = {"tool": TOOL, "email": requests.email}
        address = f"{requests.services.id_converter.url}/articles/"
        key = f"idconv/{to}/{sha256_text(*batch)[:24]}"
        usable = fits(ConvertedAnswer)
        body = requests.once(
            key, lambda: requests.client.get(address, {**params, **who}, usable), usable
        ).body
        pairs = {}
        for item in shaped(ConvertedAnswer, body).records if body else []:
            try:
                record = shaped(ConvertedRecord, item)
            except ValueError as error:
                requests.set_odd_aside("id converter", name_in(item, given, to), error)
                continue
            # A record of an id that PMC does not know says so ("status": "error") and has no other id.
            own, other = (normalise[kind](getattr(record, kind)) for kind in (given, to))
            if own and other:
                pairs[own] = other
        return pairs

    for pairs in requests.in_turn("id converter", batches_of(ids, _IDS_PER_REQUEST), ask):
        pmcids.update(pairs)
    return pmcids
