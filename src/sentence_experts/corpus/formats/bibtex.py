"""Read entries of BibTeX and BibLaTeX.

As in BibTeX, braces count even if escaped, `#` joins, macros of `@string` hold for what follows. An entry
that is not closed is set aside, and reading continues with the next line that begins one.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping

from sentence_experts.corpus.formats.authors import invert_name, join_name
from sentence_experts.corpus.formats.latex import GROUP, latex_to_text, read_grouped, tex_symbol
from sentence_experts.corpus.paper import RecordError

Fields = dict[str, list[str]]

_ENTRY = re.compile(r"@[ \t]*([A-Za-z]+)\s*([{(])")
_NEXT = re.compile(r"^[ \t]*@[ \t]*[A-Za-z]+\s*[{(]", re.MULTILINE)
_WITHOUT_SIGN = re.compile(r"^[ \t]*[A-Za-z]+\s*\{\s*[^\s,={}]+,\s*[\w-]+\s*=", re.MULTILINE)
_CUT = re.compile(r"^[ \t]*@[ \t]*[A-Za-z]*\s*\Z", re.MULTILINE)
_KEY = re.compile(r"\s*([^\s,={}]*)\s*(?:,|(?=[})]))")
_BETWEEN = re.compile(r"(?:[\s,]|%[^\n]*\n)*")  # Biber takes comments inside entries
_FIELD = re.compile(r"([^\s,={}\"#()]+)\s*=\s*")
_BARE = re.compile(r"[^\s,{}\"#()=]+")
BIBTEX_BEGINS = re.compile(
    r"^[ \t]*@[ \t]*[A-Za-z]+\s*\{\s*[^\s,={}]*\s*(?:,|$|[A-Za-z+-]+\s*=)", re.MULTILINE
)
_JOIN = re.compile(r"\s*#\s*")
_BRACES = re.compile(r'[{}()"]')
_CLOSE = {"{": "}", "(": ")"}
_MAX_DEPTH = 200
_MAX_UNCLOSED = 50  # each is looked for to the end of the file
# In identifiers and addresses, where other backslashes are of paths.
_ESCAPED = re.compile(r"\$\\?([<>_])\$|\\([&%$#_{}~])|\$?\\(backslash|text[a-z]+)(?:\{\}|\$|[ \t]+)?|[{}]")
# Mendeley writes accents in the paths of files so: "N{\'{u}}{\~{n}}ez".
_ACCENT = re.compile(r"\{\\[^\w\s{}\\]\{\\?\w\}\}")
_ENTITY = re.compile(r"&(?!#123;|#125;)(?:#\d+|#x[\da-f]+|[a-z]+\d*);", re.IGNORECASE)
_HOMONYM = re.compile(r"0\d{3}")  # DBLP's number of one of several people with a name
_PART_OF_NAME = re.compile(r"(?:family|given|prefix|suffix|useprefix)(?:-i)?\s*=")
KIND = "entrytype"
_TEXTS = frozenset({
    "title", "subtitle", "abstract", "keywords", "keyword", "author_keywords", "volume", "number", "issue",
    "pages", "eid", "articleno", "article-number", "type", "journal", "journaltitle", "booktitle",
    "year", "date",
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
_MONTHS = frozenset(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"])
UNDEFINED = "undefined-names"
"""The reason of errors that tell of names without a meaning; their entries are read all the same."""
# Fields taken from the entry that `crossref` names.
_INHERITED = ("year", "date", "journal", "booktitle", "volume", "number")


class _BrokenError(Exception):
    """An error in an entry, and its place."""


class _UnclosedError(_BrokenError):
    """The text ends inside the entry."""


def read_bibtex(text: str) -> Iterator[Fields | RecordError]:
    """Read entries as mappings from field (in lower case) to plain texts, with the type as `entrytype`."""
    undefined: list[str] = []
    entries = list(_read_entries(text, undefined))
    known = {entry["key"].lower(): entry for entry in entries if isinstance(entry, dict) and "key" in entry}
    for entry in entries:
        if isinstance(entry, RecordError):
            yield entry
            continue
        if entry[KIND] == "xdata":
            continue
        if (macro := _JOURNAL.fullmatch(entry.get("journal", ""))) and macro[1] in _JOURNALS:
            entry["journal"] = _JOURNALS[macro[1]]
        for name in ("xdata", "crossref"):
            for word in filter(None, map(str.strip, entry.get(name, "").split(","))):
                if parent := known.get(word.lower()):
                    parent = {"booktitle": parent.get("title", "")} | parent if name == "crossref" else parent
                    taken = _INHERITED if name == "crossref" else parent.keys() - {KIND, "key"}
                    entry = {each: parent[each] for each in taken if each in parent} | entry
                else:
                    undefined.append(f"{word} ({name} of {entry.get('key', '')})")
        plain = {
            name: [latex_to_text(value) if name in _TEXTS else without_braces(value)]
            for name, value in entry.items()
        }
        yield plain | {"author": _split_names(entry.get("author", ""))}
    if undefined:
        more = f" and {len(undefined) - 5:,} more" * (len(undefined) > 5)
        detail = f"neither macros nor entries of the file: {', '.join(undefined[:5])}{more}"
        yield RecordError(UNDEFINED, detail)


def _read_entries(text: str, undefined: list[str]) -> Iterator[dict[str, str] | RecordError]:
    macros: dict[str, str] = {}
    place = unclosed = 0
    while match := _ENTRY.search(text, place):
        yield from _find_without_sign(text, place, match.start())
        before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        if before.lstrip().startswith("%"):
            place = match.end()
            continue
        kind, close = match[1].lower(), _CLOSE[match[2]]
        try:
            if kind in ("comment", "preamble"):
                place = _find_closing(text, match.end(), close) + 1
                continue
            fields, place = _read_entry(text, match.end(), close, kind, macros, undefined)
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
    yield from _find_without_sign(text, place, len(text))
    if cut := _CUT.search(text, place):
        line = text.count("\n", 0, cut.start()) + 1
        yield RecordError("broken-entry", f"line {line}: the file ends where an entry begins")


def _find_without_sign(text: str, place: int, end: int) -> Iterator[RecordError]:
    """Yield an error for the entries without an @ in a part of a text."""
    if matches := list(_WITHOUT_SIGN.finditer(text, place, end)):
        line = text.count("\n", 0, matches[0].start()) + 1
        yield RecordError("broken-entry", f"line {line}: entries without an @ before them: {len(matches):,}")


def _read_entry(
    text: str, place: int, close: str, kind: str, macros: Mapping[str, str], undefined: list[str]
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
        value, place, bare = _read_value(text, match.end(), macros)
        if match[1].lower() in ("title", "abstract", "journal", "booktitle", "author"):
            undefined += (f"{word} ({match[1]} of {fields.get('key', '')})" for word in bare)
        fields.setdefault(match[1].lower(), value)


def _read_value(text: str, place: int, macros: Mapping[str, str]) -> tuple[str, int, list[str]]:
    """Return a value, the place behind it, and its words that are neither numbers nor macros."""
    parts, undefined = list[str](), list[str]()
    while True:
        sign = text[place : place + 1]
        if sign in ("{", '"'):
            end = _find_closing(text, place + 1, "}" if sign == "{" else sign)
            parts.append(text[place + 1 : end])
            place = end + 1
        elif match := _BARE.match(text, place):
            word, place = match.group(), match.end()
            parts.append(macros.get(word.lower(), word))
            if not (word.lower() in macros or word.lower() in _MONTHS or word[0].isdigit()):
                undefined.append(word)
        else:
            raise _BrokenError(f"a field has no value: {' '.join(text[place : place + 40].split())!r}")
        joined = _JOIN.match(text, place)
        if joined is None:
            return "".join(parts), place, undefined
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
    for word in _split_words(read_grouped(_ENTITY.sub(lambda match: html.unescape(match[0]), value))):
        if word.lower() == "and":
            names.append([])
        else:
            names[-1].append(word)
    return [_name(words) for words in names if words]


def _split_words(value: str) -> list[str]:
    """Return the words of a field of names; a group is one, a comma outside of groups too."""
    words, depth, brackets = [""], 0, 0
    are_closed = value.count("(") == value.count(")")
    for sign in value:
        depth += (sign == GROUP[0]) - (sign == GROUP[1])
        brackets += are_closed * ((sign == "(") - (sign == ")"))
        if depth == 0 and (sign == "," or sign.isspace() or (sign == ";" and brackets < 1)):
            # Some write ";" for "and".
            words += {",": [",", ""], ";": ["and", ""]}.get(sign, [""])
        else:
            words[-1] += sign
    return [word for word in words if word]


def _name(words: list[str]) -> str:
    stated = " ".join(words).split(" , ")
    if all(map(_PART_OF_NAME.match, stated)):
        return _join_stated(dict(_ungroup(part).split("=", 1) for part in stated))
    parts = [part.split(" ") for part in stated] if "," in words else [words]
    if len(parts) == 1:
        if len(words) > 2 and _HOMONYM.fullmatch(words[-1]):
            words = words[:-1]
        is_group = len(words) == 1 and words[0].startswith(GROUP[0])
        return _ungroup(words[0]) if is_group else invert_name(list(map(_ungroup, words)))
    family, *middle, given = (_ungroup(" ".join(part)) for part in parts)
    return ", ".join([family, given, *middle])


def _ungroup(text: str) -> str:
    return text.replace(GROUP[0], "").replace(GROUP[1], "")


def _join_stated(parts: Mapping[str, str]) -> str:
    """Join the parts of a name that BibLaTeX names: family=Berg, given=Jan, prefix=van den."""
    known = {name.strip(): value.strip() for name, value in parts.items()}
    family = " ".join(filter(None, (known.get("prefix"), known.get("family"))))
    return join_name(family, known.get("given"), known.get("suffix")) or ""


def without_braces(text: str) -> str:
    r"""Return an identifier or address without braces and escapes.

    >>> without_braces(r"10.1002/(SICI)1097\_0290{\textless}1::AID$>$3")
    '10.1002/(SICI)1097_0290<1::AID>3'
    >>> without_braces(r"10.1000/{P}\{q\}")
    '10.1000/P{q}'
    """

    def spelled(match: re.Match[str]) -> str:
        sign, escaped, name = match.groups()
        known = sign or escaped or (name and tex_symbol(name))
        return known or ("" if match.group() in "{}" else match.group())

    return _ESCAPED.sub(spelled, _ACCENT.sub(lambda match: latex_to_text(match[0]), text)).strip()
