"""Map licence statements to short names."""

from __future__ import annotations

import re

from sentence_experts.corpus.formats.markup import XLINK, Element, plain_text

_CC_URL = re.compile(
    r"creativecommons\.org/licen[sc]es/(?P<kind>[a-z][a-z-]*)(?:/(?P<version>\d\.\d))?(?:/(?P<place>[a-z]{2,3})\b)?",
    re.I,
)
_PUBLIC_URL = re.compile(
    r"creativecommons\.org/publicdomain/(?P<kind>zero|mark)(?:/(?P<version>\d\.\d))?", re.I
)
_CC_NAME = re.compile(
    r"(?:creative\s+commons|\bcc)[\s-]*(?P<kind>(?:attribution|by)(?:[\s–-]*(?:non[\s-]?commercial|no[\s-]?deriv\w*"
    r"|share[\s-]?alike|nc|nd|sa)\b)*)(?:[^.]{0,40}?(?P<version>\d\.\d))?",
    re.I,
)
_MAX_LENGTH = 200


def _short_name(kind: str, version: str | None, place: str | None = None) -> str:
    place = None if place in ("legalcode", "deed", "leg", "dee") else place
    return "-".join(part.upper() for part in ("CC", kind, version, place) if part)


def licence_from_text(text: str) -> str | None:
    """Return `CC-BY-4.0` or similar for an address or sentence; None if it names no such licence."""
    if match := _CC_URL.search(text):
        return _short_name(match["kind"], match["version"], match["place"])
    if match := _PUBLIC_URL.search(text):
        name = "CC0" if match["kind"].lower() == "zero" else "PDM"
        return f"{name}-{match['version'] or '1.0'}"
    if re.search(r"\bCC0\b|CC Zero", text, re.I):
        return "CC0-1.0"
    if match := _CC_NAME.search(text):
        kind = match["kind"].lower()
        parts = ["BY"] + [
            short
            for short, pattern in (("NC", r"non|\bnc"), ("ND", r"deriv|\bnd"), ("SA", r"share|\bsa"))
            if re.search(pattern, kind)
        ]
        return _short_name("-".join(parts), match["version"])
    return None


def licence_of(permissions: list[Element]) -> str | None:
    """Return the licence of an article, from its `permissions` elements.

    An address in the licence's own attributes comes first, then the addresses in its text. A public-domain
    dedication in the text counts only without any other: publishers use it for the *data*.
    """
    licences = [licence for node in permissions for licence in node.iter("license")]
    own: list[str | None] = []
    linked: list[str] = []
    for licence in licences:
        own.append(licence.get(XLINK))
        own += [(node.text or "").strip() for node in licence.iter("{*}license_ref")]
        linked += [node.get(XLINK) or "" for node in licence.iter("ext-link", "uri")]
    texts = list(map(plain_text, licences))
    named = list(map(licence_from_text, filter(None, own)))
    links = [name for text in linked if (name := licence_from_text(text))]
    links.sort(key=lambda name: name.startswith("CC0"))
    named += links
    named += map(licence_from_text, filter(None, texts))
    stated = [*named, *own, *texts, *(licence.get("license-type") for licence in licences)]
    return next((text[:_MAX_LENGTH] for text in stated if text), None)
