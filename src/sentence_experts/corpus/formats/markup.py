"""Convert JATS inline markup and math to readable text."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from sentence_experts.corpus.formats.latex import POWER, is_power, tex_to_text

Element = Any  # lxml-stubs has no useful type for what iteration yields (comments and entities come too)

XLINK = "{http://www.w3.org/1999/xlink}href"
MATHML = "{http://www.w3.org/1998/Math/MathML}"

# Elements inside running text that are not part of it.
_NO_TEXT = frozenset({
    "fn", "fn-group", "label", "object-id", "graphic", "inline-graphic", "media", "fig", "fig-group",
    "table-wrap", "supplementary-material", "inline-supplementary-material", "related-article",
    "related-object", "kwd-group", "alt-text", "long-desc", "index-term", "private-char", "processing-meta",
    f"{MATHML}annotation", f"{MATHML}annotation-xml", "annotation", "annotation-xml",
})  # fmt: skip
_BLOCKS = frozenset({
    "p", "title", "sec", "list", "list-item", "def-list", "def-item", "term", "def", "break",
    "disp-quote", "boxed-text", "verse-line", "statement", "td", "th", "tr", "attrib",
})  # fmt: skip
_NOTE_MARKS = frozenset({"fn", "aff", "corresp", "author-notes", "table-fn", "award", "contrib"})
# Several renderings of one thing, the most readable first.
_RANKS = {f"{MATHML}math": 0, "math": 0, "tex-math": 1, "textual-form": 2}

_EMPTY_BRACKETS = re.compile(r"\s?(?:\(\s*[,;–-]*\s*\)|\[\s*[,;–-]*\s*\])")
_SPACE_BEFORE_POINT = re.compile(r"(?<=\w) (?=[.,;](?:\s|$))")
_DROPPED = dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"))

# Signs that MathML sets over a letter: p̄ is no p.
_OVER = {
    **dict.fromkeys("¯ˉ‾_", "\u0304"), **dict.fromkeys("^ˆ", "\u0302"), **dict.fromkeys("~˜∼", "\u0303"),
    "→": "\u20d7", "˙": "\u0307", "¨": "\u0308", "´": "\u0301", "`": "\u0300", "ˇ": "\u030c", "˘": "\u0306",
}  # fmt: skip
_POWER_TAG = re.compile(rf"(?<=\d)<((?:jats:)?sup)>\s*({POWER})\s*</\1>", re.IGNORECASE)


def clean(text: str) -> str | None:
    """Return `text` in Unicode NFC with single spaces, or None if nothing is left."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text.translate(_DROPPED))
    return " ".join(text.split()) or None


# Control characters, except line breaks and tabs, and those that reverse the order of what follows them.
_CONTROLS = {
    number: " " if chr(number).isspace() else None
    for number in (*range(9), *range(11, 32), *range(127, 160), 0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F),
                   *range(0x2066, 0x206A))
}  # fmt: skip
CONTROLS = "[" + "".join(f"\\x{{{number:x}}}" for number in _CONTROLS) + "]"
"""The same as a regular expression of Arrow."""


def without_controls(text: str) -> str:
    """Remove characters that could change a terminal or the direction of the text around it."""
    return text if text.isprintable() else text.translate(_CONTROLS)


def _read_math(node: Element) -> str:
    """Return MathML tokens in reading order: fractions get a slash, roots a sign."""
    name = local_name(node)
    if not name or name.startswith("annotation"):
        return ""
    text = node.text or ""
    text = text.strip() if name != "mtext" or text.isspace() else text
    parts = [_read_math(child) for child in node]
    if name == "mover" and len(parts) == 2 and len(parts[0]) == 1 and parts[1] in _OVER:
        return unicodedata.normalize("NFC", parts[0] + _OVER[parts[1]])
    if name == "msup" and len(parts) == 2 and is_power(parts[1], parts[0]):
        return "^".join(parts)
    text += ("/" if name == "mfrac" else "").join(parts)
    if name in ("msqrt", "mroot"):
        return f"√{text}"
    if name == "mfenced":
        return f"{node.get('open', '(')}{text}{node.get('close', ')')}"
    return f"{text} " if name in ("mtd", "mspace") else text


def _is_mark(node: Element) -> bool:
    """Return whether a cross reference is only a mark (a star, a superscript number), not a word."""
    kind = node.get("ref-type")
    return kind in _NOTE_MARKS or (kind == "bibr" and not any(map(str.isalpha, "".join(node.itertext()))))


def _text(node: Element, without: Sequence[Element] = ()) -> str:
    parts = [node.text or ""]
    for child in node:
        if child not in without:
            text = _text_of_child(child)
            is_raised = child.tag == "sup" and is_power(text.strip(), parts[-1])
            parts.append(f"^{text.strip()}" if is_raised else text)
        parts.append(child.tail or "")
    return "".join(parts)


def _text_of_child(child: Element) -> str:
    tag = child.tag
    if not isinstance(tag, str) or tag in _NO_TEXT or (tag == "xref" and _is_mark(child)):
        return ""
    if tag in (f"{MATHML}math", "math"):
        return _read_math(child)
    if tag == "tex-math":
        return tex_to_text("".join(child.itertext()))
    if tag in ("alternatives", "inline-formula", "disp-formula"):
        # The most readable of several renderings, and the rest of the element.
        renderings = [each for each in child if each.tag in _RANKS]
        if tag == "alternatives" and not renderings:
            renderings = [each for each in child if isinstance(each.tag, str)]
        best = min(renderings, key=lambda each: _RANKS.get(each.tag, len(_RANKS)), default=None)
        text = _text(child, [each for each in renderings if each is not best])
        return f"{text} " if tag == "disp-formula" else text
    return f" {_text(child)} " if tag in _BLOCKS else _text(child)


def plain_text(node: Element) -> str | None:
    """Return the readable text of an element, without note marks, labels and graphics."""
    if not len(node):
        return clean(node.text) if node.text else None
    text = clean(_text(node))
    if text and node.find(".//xref") is not None:
        text = clean(_SPACE_BEFORE_POINT.sub("", _EMPTY_BRACKETS.sub("", text)))
    return text


def first_text(node: Element, *paths: str) -> str | None:
    """Return the text of the first of some descendants that has any."""
    nodes = (child for child in map(node.find, paths) if child is not None)
    return next(filter(None, map(plain_text, nodes)), None)


def local_name(node: Element) -> str:
    """Return the name of an element without its namespace; empty for comments and None."""
    return node.tag.rpartition("}")[2] if node is not None and isinstance(node.tag, str) else ""


_TAG = re.compile(
    r"</(?P<closes>[a-z][\w:.-]{0,40})\s*>"
    r"|<(?P<opens>[a-z][\w:.-]{0,40})"
    r"""(?P<attributes>(?:\s+[\w:.-]{1,40}\s*=\s*(?:"[^"<>]{0,500}"|'[^'<>]{0,500}'|[^\s"'<>=]{1,100})){0,20})"""
    r"\s*(?P<empty>/?)>",
    re.IGNORECASE,
)
_BLOCK_NAME = re.compile(r"(?:jats:)?(?:h\d|p|br|div|li|ul|ol|sec|title|list|list-item)", re.IGNORECASE)
# Tags that HTML leaves open, and those that broken records do.
_LEFT_OPEN = frozenset({"p", "br", "hr", "li", "img", "sub", "sup", "inf"})


def without_tags(text: str | None) -> str | None:
    """Remove HTML or JATS tags and entities from a text; block elements become spaces.

    What only looks like a tag stays: one without attributes whose element is never closed.

    >>> without_tags("<jats:p>Rice in <i>drought</i> &amp; flood; Ca<Mg and K>Na</jats:p>")
    'Rice in drought & flood; Ca<Mg and K>Na'
    """
    if not text:
        return None
    text = _drop_tags(text)
    if "&" in text:
        text = _drop_tags(unescape(text))  # some services escape the tags themselves
    return clean(without_controls(text))


def unescape(text: str) -> str:
    """Replace the entities of a text that end in a semicolon: others are words behind a "&", as "B&reg".

    >>> unescape("R&amp;D of cell&reg types")
    'R&D of cell&reg types'
    """
    return _ENTITY.sub(lambda match: html.unescape(match[0]), text)


_ENTITY = re.compile(r"&(?:#\d+|#x[\da-f]+|[a-z]+\d*);", re.IGNORECASE)


def _drop_tags(text: str) -> str:
    if "<" not in text:
        return text
    text = _POWER_TAG.sub(r"^\2", text)
    closed = {match["closes"].lower() for match in _TAG.finditer(text) if match["closes"]}

    def dropped(match: re.Match[str]) -> str:
        name = match["closes"] or match["opens"]
        known = name.lower() in closed or name.lower() in _LEFT_OPEN
        if not (known or match["attributes"] or match["empty"]):
            return match.group()
        return " " if _BLOCK_NAME.fullmatch(name) else ""

    return _TAG.sub(dropped, text)


def unique(texts: Iterable[str | None]) -> tuple[str, ...]:
    """Return the distinct texts in their order, without empty ones."""
    return tuple(dict.fromkeys(text for text in texts if text))
