"""Read entries of BibTeX and BibLaTeX.

As in BibTeX, braces count even if escaped, `#` joins, macros of `@string` hold for what follows. An entry
that is not closed is set aside, and reading continues with the next line that begins one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping

from sentence_experts.corpus.formats.authors import invert_name, join_name
from sentence_experts.corpus.formats.markup import (
    TEX_FRACTION,
    TEX_SPACE,
    spell_math_accents,
    tex_symbol,
    tex_to_text,
)
from sentence_experts.corpus.paper import RecordError

Fields = dict[str, list[str]]

_ENTRY = re.compile(r"@[ \t]*([A-Za-z]+)\s*([{(])")
_NEXT = re.compile(r"^[ \t]*@[ \t]*[A-Za-z]+\s*[{(]", re.MULTILINE)
_KEY = re.compile(r"\s*([^\s,={}]*)\s*(?:,|(?=[})]))")
_BETWEEN = re.compile(r"(?:[\s,]|%[^\n]*\n)*")  # Biber takes comments inside entries
_FIELD = re.compile(r"([^\s,={}\"#()]+)\s*=\s*")
_BARE = re.compile(r"[^\s,{}\"#()=]+")
_BEGINS = re.compile(r"^[ \t]*@[ \t]*[A-Za-z]+\s*\{\s*[^\s,={}]*\s*(?:,|$|[A-Za-z+-]+\s*=)", re.MULTILINE)
_JOIN = re.compile(r"\s*#\s*")
_BRACES = re.compile(r'[{}()"]')
_CLOSE = {"{": "}", "(": ")"}
_MAX_DEPTH = 200
_MAX_UNCLOSED = 50  # each is looked for to the end of the file
_ACCENTS = {
    "'": "\u0301", "`": "\u0300", "^": "\u0302", '"': "\u0308", "~": "\u0303", "=": "\u0304", ".": "\u0307",
    "c": "\u0327", "v": "\u030c", "u": "\u0306", "H": "\u030b", "k": "\u0328", "r": "\u030a", "d": "\u0323",
    "b": "\u0331", "textcommabelow": "\u0326",
}  # fmt: skip
# Commands without an argument that say how a text looks, not what it is.
_STYLES = frozenset({
    "em", "it", "bf", "rm", "sf", "sl", "sc", "tt", "itshape", "bfseries", "scshape", "upshape", "rmfamily",
    "sffamily", "ttfamily", "normalfont", "tiny", "small", "footnotesize", "normalsize", "large", "Large",
    "protect", "relax", "noindent", "newblock", "xspace", "unskip", "hfill", "break", "null", "item",
    "selectfont", "boldmath", "unboldmath", "displaystyle", "textstyle",
})  # fmt: skip
_TEXT_COMMANDS = ("text", "guil", "quote", "pounds", "euro", "slash", "hyphen", "cprime", "cdprime")
_GREEK = frozenset(map(chr, range(0x370, 0x400)))
_AMOUNT = r"\d[^$\\^{]*(?:\s\$|\$\d)"  # "$5 and $10" is no formula
_TEXT_SYMBOL = re.compile(r"\\(text[a-z]+)(?:\{\}|[ \t]+)?")
_MATH = re.compile(
    rf"(?<!\\)\$(?!{_AMOUNT})([^$]{{1,500}})(?<!\\)\$"
    r"|(?<!\\)\\\((.{1,500}?)(?<!\\)\\\)",
    re.DOTALL,
)
_SUPERSCRIPT = re.compile(r"\\textsuperscript\s*\{([^{}$]*)\}")
_LETTER = r"(?:[^\W_][\u0300-\u036f]*)"  # or a digit, perhaps with accents
_TABBED_ACCENT = re.compile(r"\\a(?=['`=])")
_SIGN_ACCENT = re.compile(rf"\\(['`^\"~=.])\s*(?:\{{\s*({_LETTER}?)\s*\}}|({_LETTER}))")
_LETTER_ACCENT = re.compile(
    rf"\\([cvuHkrdb]|textcommabelow)(?:\s*\{{\s*({_LETTER})\s*\}}|(?<=[a-zA-Z])\s+({_LETTER}))"
)
_MAX_ACCENTS = 3  # on one letter
_COMMAND = re.compile(r"\\([A-Za-z]+)\*?([ \t]*)(?:\{\}|(?=(\{))|)")
_ESCAPED = re.compile(r"\\([&%$#_{} ])")
_ADDRESS = re.compile(r"\\url\s*\{([^{}]*)\}")
_SPACE = re.compile(r"\\\\\*?|\\[,;:]")  # a line break, and spaces of formulas
_UNSEEN = re.compile(
    # The first of two arguments: an address, a colour, a length.
    r"\\(?:href|foreignlanguage|textcolor|colorbox|raisebox|scalebox|parbox)\s*(?:\[[^\]]*\])?\{[^{}]*\}\s*(?=\{)"
    r"|\\(?:[hv]?phantom|color|noopsort|label|begin|end|selectlanguage)\*?\s*\{[^{}]*\}"
    r"|\\fontsize\s*\{[^{}]*\}\s*\{[^{}]*\}",
    re.IGNORECASE,
)
# The American Physical Society writes a formula and a text; the text is taken.
_CHOICE = re.compile(r"\\ifmmode\b.{0,200}?\\else\b\s*(.{0,200}?)\\fi\b[ \t]*", re.DOTALL)
_QUOTES = (("---", "—"), ("--", "–"), ("``", "“"), ("''", "”"))
# Stand for signs that are meant, until those of groups, ties and commands are gone.
_PLACES = {"{": "\ue000", "}": "\ue001", "~": "\ue002", "\\": "\ue004"}
_KEPT = str.maketrans(_PLACES)
_PART_OF_NAME = re.compile(r"(?:family|given|prefix|suffix|useprefix)(?:-i)?\s*=")
KIND = "entrytype"
_TEXTS = frozenset({
    "title", "subtitle", "abstract", "keywords", "keyword", "author_keywords", "volume", "number", "issue",
    "pages", "eid", "articleno", "article-number", "type", "journal", "journaltitle", "booktitle",
})  # fmt: skip
# Macros that NASA ADS writes for journals, which AASTeX defines.
_JOURNALS = {
    "aj": "Astronomical Journal", "actaa": "Acta Astronomica", "apj": "Astrophysical Journal",
    "apjl": "Astrophysical Journal Letters", "apjlett": "Astrophysical Journal Letters",
    "apjs": "Astrophysical Journal Supplement Series", "ao": "Applied Optics",
    "apss": "Astrophysics and Space Science", "aap": "Astronomy and Astrophysics",
    "aapr": "Astronomy and Astrophysics Reviews", "aaps": "Astronomy and Astrophysics Supplement",
    "araa": "Annual Review of Astronomy and Astrophysics", "azh": "Astronomicheskii Zhurnal",
    "baas": "Bulletin of the American Astronomical Society", "gca": "Geochimica et Cosmochimica Acta",
    "grl": "Geophysical Research Letters", "icarus": "Icarus", "jcp": "Journal of Chemical Physics",
    "jcap": "Journal of Cosmology and Astroparticle Physics", "jgr": "Journal of Geophysical Research",
    "jqsrt": "Journal of Quantitative Spectroscopy and Radiative Transfer",
    "memras": "Memoirs of the Royal Astronomical Society",
    "mnras": "Monthly Notices of the Royal Astronomical Society", "na": "New Astronomy",
    "nar": "New Astronomy Reviews", "nat": "Nature", "nphysa": "Nuclear Physics A",
    "pasa": "Publications of the Astronomical Society of Australia",
    "pasj": "Publications of the Astronomical Society of Japan",
    "pasp": "Publications of the Astronomical Society of the Pacific", "physrep": "Physics Reports",
    "planss": "Planetary and Space Science", "pra": "Physical Review A", "prb": "Physical Review B",
    "prc": "Physical Review C", "prd": "Physical Review D", "pre": "Physical Review E",
    "prl": "Physical Review Letters", "procspie": "Proceedings of the SPIE", "solphys": "Solar Physics",
    "qjras": "Quarterly Journal of the Royal Astronomical Society", "ssr": "Space Science Reviews",
}  # fmt: skip
_JOURNAL = re.compile(r"[\s{]*\\([a-z]+)[\s{}]*")
# Fields taken from the entry that `crossref` names.
_INHERITED = ("year", "date", "journal", "booktitle", "volume", "number")


class _BrokenError(Exception):
    """An error in an entry, and its place."""


class _UnclosedError(_BrokenError):
    """The text ends inside the entry."""


def is_bibtex(text: str) -> bool:
    """Return whether a text has an entry of BibTeX at the beginning of a line."""
    return bool(_BEGINS.search(text))


def read_bibtex(text: str) -> Iterator[Fields | RecordError]:
    """Read entries as mappings from field (in lower case) to plain texts, with the type as `entrytype`."""
    entries = list(_read_entries(text))
    known = {entry["key"].lower(): entry for entry in entries if isinstance(entry, dict) and "key" in entry}
    for entry in entries:
        if isinstance(entry, RecordError):
            yield entry
            continue
        entry = {name: _CHOICE.sub(r"\1", value) for name, value in entry.items()}
        if (macro := _JOURNAL.fullmatch(entry.get("journal", ""))) and macro[1] in _JOURNALS:
            entry["journal"] = _JOURNALS[macro[1]]
        name = entry.get("crossref", "").strip().lower()
        if name and (parent := known.get(name)):
            parent = {"booktitle": parent.get("title", "")} | parent
            entry = {name: parent[name] for name in _INHERITED if name in parent} | entry
        plain = {
            name: [latex_to_text(value) if name in _TEXTS else without_braces(_UNSEEN.sub("", value))]
            for name, value in entry.items()
        }
        yield plain | {"author": _split_names(entry.get("author", ""))}


def _read_entries(text: str) -> Iterator[dict[str, str] | RecordError]:
    macros: dict[str, str] = {}
    place = unclosed = 0
    while match := _ENTRY.search(text, place):
        before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        if before.lstrip().startswith("%"):
            place = match.end()
            continue
        kind, close = match[1].lower(), _CLOSE[match[2]]
        try:
            if kind in ("comment", "preamble"):
                place = _find_closing(text, match.end(), close) + 1
                continue
            fields, place = _read_entry(text, match.end(), close, kind, macros)
        except _BrokenError as error:
            line = text.count("\n", 0, match.start()) + 1
            yield RecordError("broken-entry", f"line {line}: {error}")
            unclosed += isinstance(error, _UnclosedError)
            if unclosed > _MAX_UNCLOSED:
                yield RecordError("broken-file", f"line {line}: too many entries are not closed")
                return
            following = _NEXT.search(text, match.end())
            place = following.start() if following else len(text)
            continue
        if kind == "string":
            macros |= fields
        else:
            yield {KIND: kind, **fields}


def _read_entry(
    text: str, place: int, close: str, kind: str, macros: Mapping[str, str]
) -> tuple[dict[str, str], int]:
    fields: dict[str, str] = {}
    if kind != "string" and (match := _KEY.match(text, place)):
        fields["key"], place = match[1], match.end()
    while True:
        if between := _BETWEEN.match(text, place):
            place = between.end()
        match = _FIELD.match(text, place)
        if match is None:
            if text[place : place + 1] == close:
                return fields, place + 1
            shown = " ".join(text[place : place + 40].split())
            raise _BrokenError(f"a field was expected, not {shown!r}")
        value, place = _read_value(text, match.end(), macros)
        fields.setdefault(match[1].lower(), value)


def _read_value(text: str, place: int, macros: Mapping[str, str]) -> tuple[str, int]:
    parts: list[str] = []
    while True:
        sign = text[place : place + 1]
        if sign in ("{", '"'):
            end = _find_closing(text, place + 1, "}" if sign == "{" else sign)
            parts.append(text[place + 1 : end])
            place = end + 1
        elif match := _BARE.match(text, place):
            parts.append(macros.get(match.group().lower(), match.group()))
            place = match.end()
        else:
            raise _BrokenError(f"a field has no value: {' '.join(text[place : place + 40].split())!r}")
        joined = _JOIN.match(text, place)
        if joined is None:
            return "".join(parts), place
        place = joined.end()


def _find_closing(text: str, place: int, sign: str) -> int:
    """Return the place of the sign that closes a value or block; signs inside braces do not."""
    depth = 0
    for match in _BRACES.finditer(text, place):
        symbol = match.group()
        if symbol == sign and depth == 0:
            return match.start()
        depth += (symbol == "{") - (symbol == "}")
        if not 0 <= depth <= _MAX_DEPTH:
            raise _BrokenError("its braces do not match")
    raise _UnclosedError("it is not closed")


def _split_names(value: str) -> list[str]:
    """Return the names of a field: "Knuth, Donald E. and {Made-up Group} and others"."""
    names: list[list[str]] = [[]]
    for word in _split_words(value):
        if word.lower() == "and":
            names.append([])
        else:
            names[-1].append(word)
    return [_name(words) for words in names if words]


def _split_words(value: str) -> list[str]:
    """Return the words of a field of names; a group in braces is one, a comma outside of them too."""
    words, depth, before = [""], 0, ""
    for sign in value:
        depth += (sign == "{") - (sign == "}")
        if depth == 0 and before != "\\" and (sign in "~," or sign.isspace()):
            words += [sign, ""] if sign == "," else [""]
        else:
            words[-1] += sign
        before = sign
    return [word for word in words if word]


def _name(words: list[str]) -> str:
    stated = " ".join(words).split(" , ")
    if all(map(_PART_OF_NAME.match, stated)):
        return _join_stated(dict(part.split("=", 1) for part in stated))
    parts = [part.split(" ") for part in stated] if "," in words else [words]
    if len(parts) == 1:
        is_group = len(words) == 1 and words[0].startswith("{")
        return latex_to_text(words[0]) if is_group else invert_name(list(map(latex_to_text, words)))
    family, *middle, given = (latex_to_text(" ".join(part)) for part in parts)
    return ", ".join([family, given, *middle])


def _join_stated(parts: Mapping[str, str]) -> str:
    """Join the parts of a name that BibLaTeX names: family=Berg, given=Jan, prefix=van den."""
    known = {name.strip(): latex_to_text(value).strip() for name, value in parts.items()}
    family = " ".join(filter(None, (known.get("prefix"), known.get("family"))))
    return join_name(family, known.get("given"), known.get("suffix")) or ""


def latex_to_text(text: str) -> str:
    r"""Convert LaTeX to plain text.

    Accents, letters, quotes and dashes become Unicode, formulas readable; other commands leave
    their arguments.

    >>> latex_to_text(r"{\"O}zge's {{DNA}} --- \emph{f{\"u}r} 5\,\% of $\alpha$")
    "Özge's DNA — für 5 % of α"
    """
    if "\\" in text or "$" in text:
        text = _ADDRESS.sub(lambda match: match[1].replace("~", _PLACES["~"]), text)
        text = _SUPERSCRIPT.sub(r"$^{\1}$", text)
        text = _MATH.sub(_spell_formula, text)
        text = TEX_FRACTION.sub(r"\1/\2", _UNSEEN.sub("", TEX_SPACE.sub(" ", text)))
        text = _SPACE.sub(" ", text).replace("\\/", "").replace("\\!", "").replace("\\-", "")
        text = spell_math_accents(text)
        text = _COMMAND.sub(_spell_letter, _TABBED_ACCENT.sub(r"\\", text))
        for _ in range(_MAX_ACCENTS):  # from the inner to the outer ones
            for pattern in (_SIGN_ACCENT, _LETTER_ACCENT):
                text = pattern.sub(_spell_accent, text)
        # Escaped braces stay, those of groups go.
        text = _ESCAPED.sub(lambda match: _PLACES.get(match[1], match[1]), text)
        text = _COMMAND.sub(_spell_command, text)
    for sign, letter in _QUOTES:  # braces may keep signs apart
        text = text.replace(sign, letter)
    text = _restore(text.replace("{", "").replace("}", "").replace("~", " "))
    return unicodedata.normalize("NFC", text)


def _restore(text: str) -> str:
    """Put signs that are meant back into their places."""
    for sign, place in _PLACES.items():
        text = text.replace(place, sign)
    return text


def _spell_formula(match: re.Match[str]) -> str:
    formula = match[1] or match[2]
    before = match.string[max(match.start() - 1, 0) : match.start()]
    # A power after its number: 10$^6$.
    read = tex_to_text(before + formula)[1:] if before.isdigit() else tex_to_text(formula)
    return read.translate(_KEPT)


def _spell_command(match: re.Match[str]) -> str:
    """Return the letter or symbol of a command; nothing for one of style, or with an argument, which stays.

    Any other one is its name, so that nothing is lost without a word.
    """
    name, space, has_argument = match.groups()
    plain = name.removeprefix("text").removeprefix("up")
    symbol = tex_symbol(name)
    if symbol is None:
        symbol = tex_symbol(plain)
    if symbol is None:
        return "" if has_argument or name in _STYLES else name + space
    # TeX drops the space after a command. It is meant after a symbol outside a formula, which is no TeX.
    is_text = name.startswith(_TEXT_COMMANDS) or (symbol.isalpha() and symbol not in _GREEK)
    return symbol.translate(_KEPT) + ("" if is_text or not symbol.strip() else space)


def _spell_letter(match: re.Match[str]) -> str:
    r"""Return the letter of a command such as \o, with which accents can stand; any other one as it is."""
    symbol = tex_symbol(match[1])
    return symbol if symbol and symbol.isalpha() and symbol not in _GREEK else match.group()


def _spell_accent(match: re.Match[str]) -> str:
    letter = next(filter(None, match.groups()[1:]), "")
    if not letter:  # "\\^{}" is how TeX writes the sign
        return _PLACES.get(match[1], match[1]) if match[1] in "^~" else ""
    return letter.replace("ı", "i").replace("ȷ", "j") + _ACCENTS[match[1]]


def without_braces(text: str) -> str:
    r"""Return an identifier or address without braces and escapes.

    >>> without_braces(r"10.1002/(SICI)1097\_0290{\textless}1::AID$>$3")
    '10.1002/(SICI)1097_0290<1::AID>3'
    >>> without_braces(r"10.1000/{P}\{q\}")
    '10.1000/P{q}'
    """
    text = re.sub(r"\$\\?([<>_])\$", r"\1", text).replace(r"$\backslash$", "\\")
    text = _TEXT_SYMBOL.sub(lambda match: tex_symbol(match[1]) or match.group(), text)
    text = re.sub(r"\\([&%$#_{}~])", lambda match: _PLACES.get(match[1], match[1]), text)
    return _restore(text.replace("{", "").replace("}", "")).strip()
