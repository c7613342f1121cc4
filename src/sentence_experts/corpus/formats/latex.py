r"""Read LaTeX, and formulas of TeX, as plain text.

A text is read token by token, as TeX does it: a command takes the arguments that follow it, the others stay.
Accents, letters, quotes and dashes become Unicode; formulas become readable in one line. What symbol a
command stands for is in the tables of pylatexenc and in those below. The name of an unknown command without
argument stays, so that nothing is lost without a word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Set
from functools import cache
from typing import Any

# Commands that pylatexenc does not know, or writes with a sign that texts rarely have.
_SYMBOLS = {
    "epsilon": "ε", "phi": "φ", "textmu": "μ", "upmu": "μ", "ne": "≠", "sim": "~", "circ": "°", "prime": "′",
    "degree": "°", "sqrt": "√", "leqslant": "≤", "geqslant": "≥", "less": "<", "lt": "<", "textless": "<",
    "greater": ">", "gt": ">", "textgreater": ">", "ast": "*", "bullet": "•", "mathplus": "+", "S": "§",
    "P": "¶", "copyright": "©", "pounds": "£", "euro": "€", "ddag": "‡", "ddagger": "‡", "over": "/",
    "atop": " ", "slash": "/", "textbar": "|", "textbardbl": "‖", "textminus": "−", "textquotedbl": '"',
    "item": " ", "textunderscore": "_", "textperiodcentered": "·", "textasciicircum": "^", "par": " ",
    "newline": " ", "linebreak": " ", "lbrace": "{", "rbrace": "}", "lbrack": "[", "rbrack": "]",
    "textbraceleft": "{", "textbraceright": "}", "backslash": "\\", "hyphen": "-", "cprime": "'",
    "cdprime": '"', "Dbar": "Đ", "dbar": "đ", "dj": "đ", "DJ": "Đ", "bot": "⊥", "lll": "⋘",
    "textequals": "=", "Re": "Re", "Im": "Im", "neg": "¬", "iff": "⇔", "implies": "⇒", "choose": " choose ",
    "arcsec": "″", "arcdeg": "°", "sun": "⊙", "earth": "⊕", "la": "≲", "ga": "≳", "arcmin": "′",
    "farcs": "″.", "farcm": "′.", "fdg": "°.", "degr": "°", "celsius": "°C", "micro": "μ", "ohm": "Ω",
    "angstrom": "Å", "permil": "‰", "hyp": "-", "lvert": "|", "rvert": "|", "lVert": "‖", "rVert": "‖",
    "quad": " ", "qquad": " ", "enskip": " ", "enspace": " ", "thinspace": " ", "nobreakspace": " ",
    "space": " ", "colon": ":", "vert": "|", "Vert": "‖", "mid": "|", "bmod": " mod ", "pmod": " mod ",
    "limsup": "lim sup", "liminf": "lim inf", "SS": "SS", "guillemetleft": "«", "guillemetright": "»",
    "lhd": "◁", "rhd": "▷", "models": "⊨", "gets": "←", "leadsto": "⇝", "impliedby": "⇐", "Box": "□",
    "Diamond": "◇", "triangle": "△", "clubsuit": "♣", "diamondsuit": "♢", "heartsuit": "♡", "spadesuit": "♠",
    "bigstar": "★", "checkmark": "✓", "maltese": "✠", "bigsqcup": "⨆", "bigodot": "⨀", "biguplus": "⨄",
    "ggg": "⋙", "ncong": "≇", "nsim": "≁", "thickapprox": "≈", "thicksim": "~", "varpropto": "∝",
    "vDash": "⊨", "medspace": " ", "thickspace": " ", "og": "« ", "fg": " »", "glqq": "„", "grqq": "“",
    "flqq": "«", "frqq": "»", "glq": "‚", "grq": "‘", "flq": "‹", "frq": "›", "eth": "ð", "micron": "μm",
    "Msun": "M⊙", "msun": "M⊙", "imath": "ı", "jmath": "ȷ", "injlim": "inj lim", "projlim": "proj lim",
    "dq": '"',
}  # fmt: skip
# Commands that say how what follows looks or stands, not what it is.
_STYLES = frozenset({
    "em", "it", "bf", "bold", "rm", "sf", "sl", "sc", "tt", "cal", "mit", "frak", "scr", "Bbb", "cyr", "bm",
    "pmb", "tiny", "scriptsize", "footnotesize", "small", "normalsize", "large", "Large", "LARGE", "huge",
    "Huge", "boldmath", "unboldmath", "boldsymbol", "relax", "protect", "noindent", "newblock", "xspace",
    "unskip", "hfill", "break", "nobreak", "null", "selectfont", "normalfont", "left", "right", "middle",
    "limits", "nolimits", "big", "Big", "bigg", "Bigg", "bigl", "bigr", "bigm", "Bigl", "Bigr", "Bigm",
    "biggl", "biggr", "Biggl", "Biggr", "hbox", "mbox", "stackrel", "operatorname", "ensuremath", "overline",
    "underline", "overset", "underset", "nolinebreak", "nobreakdash", "textcompwordmark", "negthinspace",
    "allowbreak", "leavevmode", "sloppy", "nonumber", "notag", "bgroup", "egroup", "centering", "strut",
    "ignorespaces",
})  # fmt: skip
_STYLE = re.compile(
    r"(?:text|math)(?:[a-z]{2}|cal|scr|frak|normal|op|rel|bin|ord|open|close|punct|inner)"
    r"|\w+(?:style|series|shape|family)"
)
_DELIMITERS = frozenset({"left", "right", "middle"})
_TEXT_ACCENTS = {
    "'": "\u0301", "`": "\u0300", "^": "\u0302", '"': "\u0308", "~": "\u0303", "=": "\u0304", ".": "\u0307",
    "c": "\u0327", "polhk": "\u0328", "soft": "\u030c", "udot": "\u0323", "ocirc": "\u030a",
    "dudot": "\u0324",
    "cfac": "\u0302\u0301", "cfgrv": "\u0302\u0300", "cftil": "\u0302\u0303", "lfhook": "\u0326",
    "v": "\u030c", "u": "\u0306", "H": "\u030b", "k": "\u0328", "r": "\u030a", "d": "\u0323", "b": "\u0331",
    "t": "\u0361", "h": "\u0309", "textcommabelow": "\u0326",
}  # fmt: skip
# p̄ is no p.
_MATH_ACCENTS = {
    "bar": "\u0304", "overline": "\u0304", "hat": "\u0302", "widehat": "\u0302", "tilde": "\u0303",
    "widetilde": "\u0303", "vec": "\u20d7", "overrightarrow": "\u20d7", "dot": "\u0307", "ddot": "\u0308",
    "acute": "\u0301", "grave": "\u0300", "check": "\u030c", "breve": "\u0306", "mathring": "\u030a",
    "dddot": "\u20db", "ddddot": "\u20dc", "underbar": "\u0331", "not": "\u0338",
}  # fmt: skip
# How many arguments, of those that come first, are no text: addresses, colours, lengths, keys, notes.
_UNSEEN = {
    "href": 1, "hyperlink": 1, "hypertarget": 1, "foreignlanguage": 1, "selectlanguage": 1, "textcolor": 1,
    "color": 1, "colorbox": 1, "fcolorbox": 2, "raisebox": 1, "scalebox": 1, "rotatebox": 1, "resizebox": 2,
    "parbox": 1, "makebox": 0, "phantom": 1, "hphantom": 1, "vphantom": 1, "hspace": 1, "vspace": 1,
    "noopsort": 1, "label": 1, "ref": 1, "eqref": 1, "pageref": 1, "cite": 1, "citep": 1, "citet": 1,
    "footnote": 1, "footnotemark": 0, "thanks": 1, "index": 1, "end": 1, "fontsize": 2, "rule": 2,
    "includegraphics": 1, "bibinfo": 1,
}  # fmt: skip
_LENGTHS = frozenset({"kern", "mkern", "hskip", "vskip", "mskip", "raise", "lower", "moveleft", "moveright"})
_LENGTH = re.compile(r"[-+]?[\d.,]+\s*(?:true\s*)?(?:pt|pc|in|bp|cm|mm|dd|cc|sp|e[mx]|mu)\b\s*")
_ARGUMENT = re.compile(r"\{(?!\})")
_AFTER_BREAK = re.compile(r"\*?(?:\[[^][]{0,20}\])?")
_OPTION = re.compile(r"\s*\[[^][{}]{0,200}\](?=\s*[\[{])")
_JOINED = {
    **dict.fromkeys(("frac", "tfrac", "dfrac", "sfrac", "nicefrac", "cfrac", "textfrac"), "/"),
    **dict.fromkeys(("binom", "tbinom", "dbinom"), " choose "), **dict.fromkeys(("SI", "qty", "ion"), " "),
    "numrange": "–",
}  # fmt: skip
_FENCED = {
    "ket": "|⟩", "bra": "⟨|", "braket": "⟨⟩", "abs": "||", "norm": "‖‖", "enquote": "“”", "ang": " °",
    "xrightarrow": "→ ", "xleftarrow": "← ",
}  # fmt: skip
_MATH_ARGUMENT = frozenset({"ensuremath", "ce", "ch"})
_TEXT_ARGUMENT = frozenset({"mbox", "hbox", "text", "textrm", "textit", "textbf", "textsf", "textnormal"})
_WITH_OPTION = {"sqrt": "√", "isotope": "", "nuclide": ""}
_VERBATIM = frozenset({"url", "path", "nolinkurl", "doi"})
_FORMULAS = frozenset({"equation", "align", "eqnarray", "gather", "multline", "displaymath", "math"})
_COLUMNS = frozenset({"array", "tabular", "alignat", "subarray"})  # these name columns in an argument
# TeX drops the space after a command. It is meant after a symbol outside a formula, which is no TeX.
_LETTERS = (
    *("text", "guil", "quote", "pounds", "euro", "slash", "hyphen", "cprime", "cdprime"),
    *("glq", "grq", "flq", "frq", "dq", "og", "fg"),
)
_GREEK = frozenset(map(chr, range(0x370, 0x400)))
_LIGATURES = {
    "---": "—", "--": "–", "``": "“", "''": "”", "?`": "¿", "!`": "¡", "~": " ",
}  # fmt: skip
_ABOUT = re.compile(r"[\s(]~\$?\d")
_SPACES = dict.fromkeys(" ,;:>\\\n\t", " ") | dict.fromkeys("/!-@*+<", "")
_CLOSING = {"$": "$", "$$": "$$", "\\(": "\\)", "\\[": "\\]"}
_MAX_FORMULA = 1_000  # characters
_MAX_UNCLOSED = 100  # formulas; their ends are looked for no more
_MAX_DEPTH = 60  # braces inside deeper ones are left out

_SPECIAL = re.compile(r"[\\{}$~`]|--|''")
_TOKEN = re.compile(
    r"\\(?P<name>[A-Za-z]+)(?P<space>\s*)|\\(?P<sign>.?)|---?|``|''|[?!]`|\$\$?|[{}^_~&]"
    r"|(?P<chars>[^\\{}$^_~&`'?!-]+|.)",
    re.DOTALL,
)
_END_OF_FORMULA = re.compile(r"\\.|[{}$]", re.DOTALL)
_AMOUNT = re.compile(r"\d[^$\\^{]*(?:\s\$|\$\d)|\s\d[^$\\^_{]*\$\s?\d")  # "$5 and $10" is no formula
_MARKS = re.compile("[\u0300-\u036f]*")
_TEX_BODY = re.compile(r"\\begin\{document\}(.*?)\\end\{document\}", re.DOTALL)
POWER = r"[-\u2212\u2013+]?\d[\d.,]*"
"""Superscripts that are powers after a number; others follow their word: Ca2+, CD4+, m2."""
GROUP = ("\ue000", "\ue001")
"""Stand for braces in the result of `read_grouped`: characters that no text has."""


def latex_to_text(text: str) -> str:
    r"""Convert LaTeX to plain text.

    >>> latex_to_text(r"{\"O}zge's {{DNA}} --- \emph{f{\"u}r} 5\,\% of $\alpha$")
    "Özge's DNA — für 5 % of α"
    """
    return _Reader(text).read_all() if _SPECIAL.search(text) else text


def tex_to_text(tex: str) -> str:
    r"""Convert a formula of TeX to plain text, without its preamble.

    >>> tex_to_text(r"p\bar{p} \to \frac{1}{2}\hat{H} \times 10^{-6}")
    'pp̄ →1/2Ĥ ×10^-6'
    """
    body = _TEX_BODY.search(tex)
    return _Reader(body[1] if body else tex).read_all(math=True)


def read_grouped(text: str) -> str:
    r"""Convert LaTeX to plain text in which the characters of `GROUP` stand for the braces of groups."""
    return _Reader(text, GROUP).read_all() if _SPECIAL.search(text) else text


def is_power(superscript: str, before: str) -> bool:
    """Return whether a superscript is a power of the number before it: 10<sup>6</sup> is no 106."""
    return before[-1:].isdigit() and bool(re.fullmatch(POWER, superscript))


@cache
def tex_symbol(name: str) -> str | None:
    r"""Return the text of a TeX command without an argument, such as "alpha"; None if there is none.

    >>> tex_symbol("alpha"), tex_symbol("textschwa"), tex_symbol("upbeta"), tex_symbol("emph")
    ('α', 'ə', 'β', None)
    """
    upright = name[2:].capitalize() if name.startswith("Up") else name.removeprefix("up")
    for known in (name, name.removeprefix("text"), upright):
        if known in _SYMBOLS:
            return _SYMBOLS[known]
        found = getattr(_tex_commands().get_macro_spec(known), "simplify_repl", None)
        # Other replacements have places for arguments, or are lines of a document.
        if isinstance(found, str) and (len(found) == 1 or found == known):
            return found
    return None


@cache
def _tex_commands() -> Any:
    from pylatexenc.latex2text import get_default_latex_context_db

    return get_default_latex_context_db()


class _Reader:
    """Read one text.

    Attributes:
        place: where the next token begins.
        depth: number of arguments and groups around it.
        ended: the token that ended the last part.
        unclosed: number of formulas whose end was looked for in vain.
    """

    def __init__(self, tex: str, braces: tuple[str, str] = ("", "")) -> None:
        self.tex, self.braces = tex, braces
        self.place = self.depth = self.unclosed = 0
        self.ended = ""

    def read_all(self, math: bool = False) -> str:
        return unicodedata.normalize("NFC", self._read(math))

    def _read(self, math: bool, stop: Set[str] = frozenset(), before: str = "") -> str:
        """Read up to one of some tokens, or the end of the group; `before` is the text before that."""
        text = ended = ""
        while match := _TOKEN.match(self.tex, self.place):
            token = f"\\{match['name']}" if match["name"] else match.group()
            if token == "$$" and "$" in stop:
                token, self.place = "$", match.start() + 1
            elif token == "}" and self.depth and token not in stop:
                break
            else:
                self.place = match.end()
            if token in stop:
                ended = token
                break
            text += self._read_token(match, math, text or before)
        self.ended = ended
        return text

    def _read_token(self, match: re.Match[str], math: bool, before: str) -> str:
        token = match.group()
        if name := match["name"]:
            return self._read_command(name, match["space"], math, before)
        if match["chars"] is not None:
            return token
        if token in _CLOSING and not math:
            return self._read_formula(token, before)
        if token[0] == "\\":
            return self._read_escaped(token[1:], math)
        if token == "{":
            text = self._read_group(math, before)
            return text.join(self.braces) if text and not self.depth else text
        if token in "}$$":
            return ""
        if not math:
            # No tie follows a space: "fell by ~50".
            is_about = token == "~" and _ABOUT.match(match.string, match.start() - 1)
            return token if is_about else _LIGATURES.get(token, token)
        if token == "^":
            return self._raise(self._read_argument(math), before)
        return "" if token == "_" else " " if token in "~&" else token

    def _read_group(self, math: bool, before: str = "") -> str:
        """Read the rest of a group."""
        if self.depth >= _MAX_DEPTH:
            return ""
        self.depth += 1
        text = self._read(math, frozenset("}"), before)
        self.depth -= 1
        return text

    def _read_argument(self, math: bool) -> str:
        """Read a group, a command, or one character; nothing at the end of the group around it."""
        match = _TOKEN.match(self.tex, self.place)
        if match and match["chars"] and match["chars"].isspace():
            match = _TOKEN.match(self.tex, match.end())
        if match is None or match.group() in "}$$" or self.depth >= _MAX_DEPTH:
            return ""
        chars = match["chars"]
        if chars:
            start = match.end() - len(chars.lstrip())
            end = _MARKS.match(self.tex, start + 1)
            self.place = end.end() if end else start + 1
            return self.tex[start : self.place]
        self.place = match.end()
        if match.group() == "{":
            return self._read_group(math)
        self.depth += 1
        text = self._read_token(match, math, "")
        self.depth -= 1
        return text

    def _read_formula(self, opening: str, before: str) -> str:
        closing = _CLOSING[opening]
        end = self._find_end(closing) if self.unclosed < _MAX_UNCLOSED else -1
        self.unclosed += end < 0
        if end < 0 or (opening == "$" and _AMOUNT.match(self.tex, self.place, end + 3)):
            return opening.removeprefix("\\")
        return self._read(True, frozenset({closing}), before)

    def _find_end(self, closing: str) -> int:
        """Return the place where a formula ends, in the group in which it begins; -1 if there is none."""
        depth = 0
        for match in _END_OF_FORMULA.finditer(self.tex, self.place, self.place + _MAX_FORMULA):
            if depth == 0 and self.tex.startswith(closing, match.start()):
                return match.start()
            depth += (match.group() == "{") - (match.group() == "}")
            if depth < 0:
                break
        return -1

    def _raise(self, superscript: str, before: str) -> str:
        return f"^{superscript}" if is_power(superscript, before) else superscript

    def _read_escaped(self, sign: str, math: bool) -> str:
        if sign in _TEXT_ACCENTS:
            text = self._read_argument(math)
            # "\\^{}" is how TeX writes the sign.
            return _set_accent(_TEXT_ACCENTS[sign], text) if text else sign if sign in "^~" else ""
        if sign == "\\" and (match := _AFTER_BREAK.match(self.tex, self.place)):
            self.place = match.end()
        return _SPACES.get(sign, "‖" if sign == "|" else sign)

    def _read_command(self, name: str, space: str, math: bool, before: str) -> str:
        if name == "ifmmode":
            return self._read_choice(math)
        if name == "a" and not math and self.tex[self.place : self.place + 1] in tuple("'`="):
            name, self.place = self.tex[self.place], self.place + 1  # an accent in a table
        if name in _TEXT_ACCENTS and not math:
            return _set_accent(_TEXT_ACCENTS[name], self._read_argument(math))
        if name == "begin":
            return self._read_environment(math)
        if name in _LENGTHS and (length := _LENGTH.match(self.tex, self.place)):
            self.place = length.end()
            return ""
        unseen = _UNSEEN.get(name.lower())
        if unseen is not None or name == "operatorname":
            self.place += self.tex.startswith("*", self.place)
        option = _OPTION.match(self.tex, self.place)
        if option:
            self.place = option.end()
        if unseen is not None:
            arguments = [self._read_argument(math) for _ in range(unseen)]
            return " " if name in ("hspace", "vspace") and arguments[0][:1] != "-" else ""
        if option and name in _WITH_OPTION:  # \sqrt[3]{x}, \isotope[13]{C}
            return f"{option.group().strip(' []')}{_WITH_OPTION[name]}{self._read_argument(math)}"
        text = self._read_arguments(name, math, before)
        return self._read_symbol(name, space, math) if text is None else text

    def _read_arguments(self, name: str, math: bool, before: str) -> str | None:
        """Read the arguments of a command that does something to them; None if there are none."""
        if name in _MATH_ACCENTS:
            text = self._read_argument(math=True)
            return _set_accents(_MATH_ACCENTS[name], text)
        if name in _JOINED:
            return f"{self._read_argument(math)}{_JOINED[name]}{self._read_argument(math)}"
        if name in ("textsuperscript", "sp"):
            return self._raise(self._read_argument(math), before)
        if name == "sb":  # with "sp", of old records of MathSciNet
            return self._read_argument(math)
        if not self.tex.startswith("{", self.place):
            return None
        if name in _FENCED:
            return self._read_argument(math).join(_FENCED[name]).strip()
        if name in _VERBATIM:
            start = self.place + 1
            self._read_argument(math)
            return re.sub(r"\\([%#&_~{}])|[{}]", r"\1", self.tex[start : self.place - 1])
        if name in _MATH_ARGUMENT:
            return self._read_argument(math=True)
        return self._read_argument(math=False) if name in _TEXT_ARGUMENT else None

    def _read_symbol(self, name: str, space: str, math: bool) -> str:
        if name in _DELIMITERS:
            self.place += self.tex.startswith(".", self.place)  # stands for none
            return ""
        symbol = tex_symbol(name)
        if symbol is None:
            if _ARGUMENT.match(self.tex, self.place) or name in _STYLES or _STYLE.fullmatch(name):
                return ""
            return name + (" " if math else space)
        if math:
            return f"{symbol} " if symbol.isalpha() and len(symbol) > 1 else symbol
        is_text = name.startswith(_LETTERS) or (symbol.isalpha() and symbol not in _GREEK)
        return symbol + ("" if is_text or not symbol.strip() else space)

    def _read_choice(self, math: bool) -> str:
        r"""Read \ifmmode ... \else ... \fi, in which the American Physical Society gives formula and text."""
        formula, text = "", ""
        if self.depth < _MAX_DEPTH:
            self.depth += 1
            formula = self._read(True, {"\\else", "\\fi"})
            text = self._read(math, {"\\fi"}) if self.ended == "\\else" else ""
            self.depth -= 1
        if self.ended != "\\fi":
            return formula + text
        return formula if math else text

    def _read_environment(self, math: bool) -> str:
        name = self._read_argument(math=False).rstrip("*")
        if name in _COLUMNS:
            self._read_argument(math)
        if self.depth >= _MAX_DEPTH:
            return ""
        self.depth += 1
        text = self._read(math or name in _FORMULAS, {"\\end"})
        self.depth -= 1
        if self.ended:
            self._read_argument(math=False)
        return f" {text} "


def _set_accent(accent: str, text: str) -> str:
    """Set an accent on the first letter, outside of its other accents."""
    if not text[:1].isalnum():
        return text
    marks = _MARKS.match(text, 1)
    end = marks.end() if marks else 1
    return text[:end].replace("ı", "i").replace("ȷ", "j") + accent + text[end:]


def _set_accents(accent: str, text: str) -> str:
    r"""Set an accent of formulas on each letter; one of a single sign on that, as in \bar\partial."""
    if accent == _MATH_ACCENTS["not"] or (len(text) == 1 and not text.isalnum()):
        return text[:1] + accent + text[1:] if text.strip() else text
    return "".join(_set_accent(accent, each) if each.isalnum() else each for each in text)
