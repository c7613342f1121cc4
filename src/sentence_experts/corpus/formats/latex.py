"""Convert LaTeX in bibliographies to plain text."""

from __future__ import annotations

import re
import unicodedata

from sentence_experts.corpus.formats.markup import tex_to_text

_ACCENTS = {
    "'": "\u0301", "`": "\u0300", "^": "\u0302", '"': "\u0308", "~": "\u0303", "=": "\u0304", ".": "\u0307",
    "c": "\u0327", "v": "\u030c", "u": "\u0306", "H": "\u030b", "k": "\u0328", "r": "\u030a", "d": "\u0323",
    "b": "\u0331",
}  # fmt: skip
_LETTERS = {
    "ss": "ß", "o": "ø", "O": "Ø", "l": "ł", "L": "Ł", "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ", "aa": "å",
    "AA": "Å", "i": "i", "j": "j", "th": "þ", "TH": "Þ", "dh": "ð", "DH": "Ð", "dj": "đ", "DJ": "Đ",
    "ng": "ŋ", "textless": "<", "textgreater": ">", "textasciitilde": "\ue002", "textendash": "–",
    "textemdash": "—", "textquoteright": "’", "textquoteleft": "‘", "textbackslash": "\\", "textbar": "|",
    "textregistered": "®", "texttrademark": "™", "textdegree": "°", "textmu": "μ", "dots": "…", "ldots": "…",
    "textquotedblleft": "“", "textquotedblright": "”", "S": "§", "P": "¶", "copyright": "©",
    "textbraceleft": "\ue000", "textbraceright": "\ue001",
}  # fmt: skip
_MATH = re.compile(r"(?<!\\)\$([^$]{1,500})(?<!\\)\$")
_SIGN_ACCENT = re.compile(
    r"\\(['`^\"~=.])\s*(?:\{\s*(\\[ij](?![A-Za-z])|[^\W\d_]?)\s*\}|(\\[ij](?![A-Za-z])|[^\W\d_]))"
)
_LETTER_ACCENT = re.compile(
    r"\\([cvuHkrdb])(?:\s*\{\s*(\\[ij]|[^\W\d_])\s*\}|\s+(\\[ij]|[^\W\d_]))(?![A-Za-z])"
)
_COMMAND = re.compile(r"\\([A-Za-z]+)\*?[ \t]*(?:\{\})?")
_ESCAPED = re.compile(r"\\([&%$#_{} -])")
_QUOTES = (("---", "—"), ("--", "–"), ("``", "“"), ("''", "”"))
_PLACES = {"{": "\ue000", "}": "\ue001", "~": "\ue002"}


def latex_to_text(text: str) -> str:
    r"""Accents, letters, quotes and dashes as Unicode, formulas made readable; other commands leave their
    arguments.

    >>> latex_to_text(r"{\"O}zge's {{DNA}} --- \emph{f{\"u}r} 5\,\% of $\alpha$")
    "Özge's DNA — für 5 % of α"
    """
    if "\\" in text or "$" in text:
        text = _MATH.sub(lambda match: tex_to_text(match[1]), text)
        text = text.replace("\\,", " ").replace("\\/", "")
        for pattern in (_SIGN_ACCENT, _LETTER_ACCENT):
            text = pattern.sub(_accented, text)
        # Escaped braces stay, those of groups go.
        text = _ESCAPED.sub(lambda match: _PLACES.get(match[1], match[1]), text)
        text = _COMMAND.sub(lambda match: _LETTERS.get(match[1], ""), text)
        text = text.replace("\\\\", " ")
    for sign, letter in _QUOTES:  # braces may keep signs apart
        text = text.replace(sign, letter)
    text = text.replace("{", "").replace("}", "").replace("~", " ")
    for brace, place in _PLACES.items():
        text = text.replace(place, brace)
    return unicodedata.normalize("NFC", text)


def _accented(match: re.Match[str]) -> str:
    letter = (match[2] or match[3] or "").lstrip("\\")
    return letter + _ACCENTS[match[1]] if letter else ""


def without_braces(text: str) -> str:
    """An identifier or address without braces and escapes."""
    return re.sub(r"\\([&%$#_{}~])", r"\1", text).replace("{", "").replace("}", "").strip()
