"""Map licence statements to short names."""

from __future__ import annotations

import re

from sentence_experts.corpus.formats.markup import XLINK, Element, plain_text

_CC_URL = re.compile(
    r"creativecommons\.org/licen[sc]es/([a-z][a-z-]*)(?:/(\d\.\d))?(?:/([a-z]{2,3})\b)?", re.I
)
_PUBLIC_URL = re.compile(r"creativecommons\.org/publicdomain/(zero|mark)(?:/(\d\.\d))?", re.I)
_CC_NAME = re.compile(
    r"(?:creative\s+commons|\bcc)[\s-]*((?:attribution|by)"
    r"(?:(?:[\s-]*|,\s*(?=non|no-|share))(?:non[\s-]?commercial|no[\s-]?deriv\w*"
    r"|share[\s-]?alike|nc|nd|sa)\b)*)(?=(?:[^.]{0,40}?(\d\.\d))?)",
    re.I,
)
_DASHES = dict.fromkeys(range(0x2010, 0x2016), "-")
_CONDITIONS = {
    "NC": re.compile(r"non|\bnc"),
    "ND": re.compile(r"deriv|\bnd"),
    "SA": re.compile(r"share|\bsa"),
}
_MAX_LENGTH = 200


def licence_from_text(text: str) -> str | None:
    """Return `CC-BY-4.0` or similar for an address or sentence; None if it names no such licence."""
    if match := _CC_URL.search(text):
        return "-".join(part.upper() for part in ("CC", *match.groups()) if part)
    if match := _PUBLIC_URL.search(text):
        return f"{'CC0' if match[1].lower() == 'zero' else 'PDM'}-{match[2] or '1.0'}"
    names = [
        ([short for short, pattern in _CONDITIONS.items() if pattern.search(match[1].lower())], match[2])
        for match in _CC_NAME.finditer(text.translate(_DASHES))
    ]
    if names:  # of "Attribution License (CC BY-NC-ND 4.0)" the latter
        conditions, version = max(names, key=lambda name: len(name[0]))
        return "-".join(filter(None, ("CC", "BY", *conditions, version)))
    return "CC0-1.0" if re.search(r"\bCC0\b|CC Zero", text, re.I) else None


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
