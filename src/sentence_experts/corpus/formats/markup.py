"""Convert JATS inline markup and math to readable text."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

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

_TEX_BODY = re.compile(r"\\begin\{document\}(.*?)\\end\{document\}", re.DOTALL)
# Commands that pylatexenc does not know, or writes with a sign that texts rarely have.
_TEX_NAMES = {
    "epsilon": "ε", "phi": "φ", "textmu": "μ", "upmu": "μ", "ne": "≠", "sim": "~", "circ": "°", "prime": "′",
    "degree": "°", "sqrt": "√", "leqslant": "≤", "geqslant": "≥", "less": "<", "lt": "<", "textless": "<",
    "greater": ">", "gt": ">", "textgreater": ">", "ast": "*", "bullet": "•", "mathplus": "+", "left": "",
    "right": "", "quad": " ", "qquad": " ", "hbox": "", "mbox": "", "limits": "", "displaystyle": "",
    "S": "§", "P": "¶", "copyright": "©", "pounds": "£", "euro": "€", "ddag": "‡",
    "slash": "/", "textbar": "|", "textbardbl": "‖", "textminus": "−", "textquotedbl": '"',
    "textunderscore": "_", "textperiodcentered": "·", "textasciicircum": "^", "par": " ",
    "newline": " ", "linebreak": " ", "lbrace": "{", "rbrace": "}",
    "textbraceleft": "{", "textbraceright": "}", "backslash": "\\", "enskip": " ",
    "hyphen": "-", "textcompwordmark": "", "nolinebreak": "", "operatorname": "", "ensuremath": "", "bm": "",
    "pmb": "", "stackrel": "", "binom": "", "cal": "", "Bbb": "", "frak": "", "scr": "", "cprime": "'",
    "cdprime": '"', "Dbar": "Đ", "dbar": "đ", "nobreakdash": "", "nobreakspace": " ", "protect": "",
    "relax": "", "bot": "⊥", "lll": "⋘", "textequals": "=",
    "big": "", "Big": "", "bigl": "", "bigr": "", "Bigl": "", "Bigr": "", "bigg": "", "Bigg": "", "Re": "Re",
    "Im": "Im", "neg": "¬", "iff": "⇔", "implies": "⇒", "arcsec": "″", "arcmin": "′", "farcs": "″.",
    "farcm": "′.", "fdg": "°.", "degr": "°", "celsius": "°C", "micro": "μ", "ohm": "Ω", "angstrom": "Å",
    "permil": "‰", "hyp": "-", "dj": "đ", "DJ": "Đ", "enspace": " ", "thinspace": " ", "nolimits": "",
    "lvert": "|", "rvert": "|", "lVert": "‖", "rVert": "‖",
}  # fmt: skip
# Accents of formulas, and the signs that MathML sets over a letter: p̄ is no p.
_MATH_ACCENTS = {
    "bar": "\u0304", "overline": "\u0304", "hat": "\u0302", "widehat": "\u0302", "tilde": "\u0303",
    "widetilde": "\u0303", "vec": "\u20d7", "overrightarrow": "\u20d7", "dot": "\u0307", "ddot": "\u0308",
    "acute": "\u0301", "grave": "\u0300", "check": "\u030c", "breve": "\u0306", "mathring": "\u030a",
}  # fmt: skip
_OVER = {
    **dict.fromkeys("¯ˉ‾_", "\u0304"), **dict.fromkeys("^ˆ", "\u0302"), **dict.fromkeys("~˜∼", "\u0303"),
    "→": "\u20d7", "˙": "\u0307", "¨": "\u0308", "´": "\u0301", "`": "\u0300", "ˇ": "\u030c", "˘": "\u0306",
}  # fmt: skip
_UNDER_ACCENT = r"(?:\\[A-Za-z]+\s*|[^\\{}\s])"
_MATH_ACCENT = re.compile(
    rf"\\({'|'.join(_MATH_ACCENTS)})(?:\s*\{{\s*\{{?\s*({_UNDER_ACCENT}{{1,4}})\s*\}}?\s*\}}"
    rf"|(?![A-Za-z])\s*({_UNDER_ACCENT}))"
)
_MATH_STYLE = re.compile(
    r"\\(?:math(?:rm|bf|it|sf|tt|cal|bb|frak|scr)|text(?:rm|bf|it|sf)?|bm|boldsymbol|pmb)\s*(?=\{)"
)
TEX_FRACTION = re.compile(r"\\(?:[tds]|nice)?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
TEX_SPACE = re.compile(r"\\[hv]space\*?\s*\{[^{}]*\}")
# "10<sup>6</sup>" is no 106. Other superscripts follow their word: Ca2+, CD4+, m2.
_POWER = r"[-\u2212\u2013+]?\d[\d.,]*"
IS_POWER = re.compile(_POWER)
_POWER_TAG = re.compile(rf"(?<=\d)<((?:jats:)?sup)>\s*({_POWER})\s*</\1>", re.IGNORECASE)
_TEX_POWER = re.compile(rf"(?<=\d)\s*\^\s*(?:\{{\s*({_POWER})\s*\}}|(\d))")
# Stand for signs that are meant, while those of TeX go.
_SIGNS = str.maketrans("\\{}^_~", "\ue010\ue011\ue012\ue013\ue014\ue015")
_MEANT = str.maketrans("\ue010\ue011\ue012\ue013\ue014\ue015", "\\{}^_~")
_TEX_COMMAND = re.compile(r"\\([A-Za-z]+)\s*")
_TEX_STYLES = (
    "text", "math", "up", "bold", "rm", "it", "bf", "over", "under",
    "hat", "bar", "tilde", "vec", "style", "dot", "ddot", "acute", "grave", "check", "breve",
)  # fmt: skip


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


@cache
def tex_symbol(name: str) -> str | None:
    r"""Return the text of a TeX command without an argument, such as "alpha"; None if there is none.

    >>> tex_symbol("alpha"), tex_symbol("textschwa"), tex_symbol("emph")
    ('α', 'ə', None)
    """
    if name in _TEX_NAMES:
        return _TEX_NAMES[name]
    found = getattr(_tex_commands().get_macro_spec(name), "simplify_repl", None)
    # Other replacements have places for arguments, or are lines of a document.
    return found if isinstance(found, str) and len(found) == 1 else None


@cache
def _tex_commands() -> Any:
    from pylatexenc.latex2text import get_default_latex_context_db

    return get_default_latex_context_db()


def spell_math_accents(tex: str) -> str:
    r"""Set the accents of formulas on their letters.

    >>> spell_math_accents(r"p\bar{p}, \bar\nu")
    'pp̄, ν̄'
    """

    def spelled(match: re.Match[str]) -> str:
        signs = re.findall(_UNDER_ACCENT, match[2] or match[3])
        letters = [tex_symbol(sign[1:].strip()) if sign[0] == "\\" else sign for sign in signs]
        accent = _MATH_ACCENTS[match[1]]
        return match[0] if None in letters else "".join(f"{each}{accent}" for each in letters)

    if "\\" not in tex:
        return tex
    return unicodedata.normalize("NFC", _MATH_ACCENT.sub(spelled, _MATH_STYLE.sub("", tex)))


def tex_to_text(tex: str) -> str:
    """Make a TeX formula readable by a few replacements, without its preamble."""
    body = _TEX_BODY.search(tex)
    text = (body.group(1) if body else tex).replace("$", "")
    text = TEX_FRACTION.sub(r"\1/\2", text)

    def spelled(match: re.Match[str]) -> str:
        name = match.group(1)
        for known in (name, name.removeprefix("up")):  # \\upbeta, as of Crossref
            if (symbol := tex_symbol(known)) is not None:
                return symbol.translate(_SIGNS)
        return "" if name in _MATH_ACCENTS or name.startswith(_TEX_STYLES) else name + " "

    text = spell_math_accents(text)
    text = _TEX_POWER.sub(lambda match: "^".translate(_SIGNS) + (match[1] or match[2]), text)
    text = _TEX_COMMAND.sub(spelled, TEX_SPACE.sub(" ", text))
    text = re.sub(r"\\([,;:! %&_#{}])", lambda m: m[1].translate(_SIGNS) if m[1] in "%&_#{}" else " ", text)
    return re.sub(r"[\\{}^_~]", "", text).translate(_MEANT) if text else ""


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
    if name == "msup" and len(parts) == 2 and parts[0][-1:].isdigit() and IS_POWER.fullmatch(parts[1]):
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
            is_power = child.tag == "sup" and IS_POWER.fullmatch(text.strip()) and parts[-1][-1:].isdigit()
            parts.append(f"^{text.strip()}" if is_power else text)
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
        text = _drop_tags(html.unescape(text))  # some services escape the tags themselves
    return clean(without_controls(text))


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
