"""Papers as RIS, BibTeX or CSV, for reference managers and spreadsheets.

Titles and abstracts are others' text: every value stays on its own line, and means nothing to the program
that reads the file (no RIS tag, no TeX command, no formula of a spreadsheet).
"""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal, get_args
from urllib.parse import quote

from sentence_experts.corpus.formats.authors import ET_AL, invert_initials, is_suffix
from sentence_experts.corpus.formats.markup import without_controls
from sentence_experts.errors import UsageError

Format = Literal["ris", "bibtex", "csv"]

# Columns of a CSV file in their order; those that no paper has are left out.
COLUMNS = (
    "query", "rank", "similar", "sampled", "score", "percentile", "closeness", "route", "paper_id", "title",
    "authors", "year", "journal", "volume", "issue", "pages", "article_type", "kind", "doi", "pmid", "pmcid",
    "link", "sentence", "passage", "abstract", "subjects", "mesh", "keywords", "licence", "retracted",
)  # fmt: skip
# Types of papers that are no articles -> their types in RIS and BibTeX.
_TYPES = {
    "proceedings-article": ("CPAPER", "inproceedings"), "book-chapter": ("CHAP", "incollection"),
    "book": ("BOOK", "book"), "dissertation": ("THES", "phdthesis"), "report": ("RPRT", "techreport"),
    "dataset": ("DATA", "dataset"), "software": ("COMP", "software"), "web-page": ("ELEC", "online"),
    "unpublished": ("UNPB", "unpublished"), "patent": ("PAT", "patent"), "other": ("GEN", "misc"),
}  # fmt: skip
_ARTICLE = ("JOUR", "article")
_FORMULAS = ("=", "+", "-", "@")  # what a spreadsheet takes for the beginning of one
_TEX = {
    "\\": r"\textbackslash{}", "{": r"\textbraceleft{}", "}": r"\textbraceright{}", "$": r"\$",
    "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "\0": "{}",
}  # fmt: skip


def export_papers(papers: Sequence[Mapping[str, Any]], form: Format) -> str:
    """Write papers as the text of a file: one record for each in RIS and BibTeX, one row per mapping in CSV.

    Args:
        papers: mappings with names of `PAPERS_SCHEMA`; `paper_id` is needed, others may be missing or None.
        form: "ris", "bibtex" or "csv".

    Raises:
        UsageError: another form.

    >>> print(export_papers([{"paper_id": "doi:10.1/a", "title": "Rice", "year": 2012}], "bibtex"))
    @article{rice2012,
      title = {{Rice}},
      year = {2012},
      note = {doi:10.1/a}
    }
    <BLANKLINE>
    """
    if form not in get_args(Format):
        raise UsageError(f"papers can be written as {', '.join(get_args(Format))}, not as {form!r}")
    if form != "csv":  # several queries may have found the same paper
        papers = list({each["paper_id"]: each for each in papers}.values())
    return {"ris": _ris, "bibtex": _bibtex, "csv": _csv}[form](papers)


def paper_url(paper: Mapping[str, Any]) -> str | None:
    """Return the address of a paper: DOI, record of PubMed Central or PubMed; None without identifier."""
    for name, address in (
        ("doi", "https://doi.org/{}"),
        ("pmcid", "https://pmc.ncbi.nlm.nih.gov/articles/{}/"),
        ("pmid", "https://pubmed.ncbi.nlm.nih.gov/{}/"),
    ):
        if value := paper.get(name):
            return address.format(quote(str(value), safe="/():;.,-_~"))
    return None


def short_authors(authors: Sequence[str] | None) -> str:
    """Return the authors of a paper, "Family, Given" each, in few words.

    >>> short_authors(["Ito, A", "et al."]), short_authors(["Ito, A", "Wang, B"])
    ('Ito et al.', 'Ito & Wang')
    """
    families = [_line(each).partition(",")[0][:60] for each in authors or ()]
    several = len(families) > 2 or ET_AL in families[1:]
    return f"{families[0]} {ET_AL}" if several else " & ".join(families)


def short_source(paper: Mapping[str, Any]) -> str:
    """Return the journal, volume, issue and pages of a paper, such as "eLife 2(3):12-15"."""
    journal, volume, issue, pages = (
        _line(paper.get(name) or "") for name in ("journal", "volume", "issue", "pages")
    )
    number = f"{volume}{f'({issue})' if issue else ''}{f':{pages}' if pages else ''}"
    return f"{journal} {number}".strip()


def _line(value: Any) -> str:
    """Return a value on one line."""
    return " ".join(without_controls(str(value)).split())


def _present(paper: Mapping[str, Any], name: str) -> list[str]:
    """Return the values of a column, none if the paper has none."""
    value = paper.get(name)
    values = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    return [line for each in values if each is not None and (line := _line(each))]


def _ris(papers: Sequence[Mapping[str, Any]]) -> str:
    lines: list[str] = []
    for paper in papers:
        kind = _TYPES.get(str(paper.get("article_type")), _ARTICLE)[0]
        tags = {"TI": "title", "PY": "year", "JO" if kind == "JOUR" else "T2": "journal", "VL": "volume",
                "IS": "issue", "AB": "abstract", "DO": "doi", "AN": "pmid", "C2": "pmcid",
                "KW": "keywords"}  # fmt: skip
        # A name that looks like one with initials, but is none, has a comma behind it.
        names = [name if invert_initials(name) == name else f"{name}," for name in _present(paper, "authors")]
        fields = [("TY", kind), *(("AU", name) for name in names)]
        fields += [(tag, value) for tag, name in tags.items() for value in _present(paper, name)]
        for pages in _present(paper, "pages"):
            ends = re.fullmatch(r"([^-]+)-([^-]+)", pages)
            fields += [("SP", ends[1]), ("EP", ends[2])] if ends else [("SP", pages)]
        # Where PubMed's numbers come from tells what AN is.
        fields += [("DB", "PubMed")] * bool(paper.get("pmid"))
        fields += [("UR", paper_url(paper) or "")] * bool(paper_url(paper))
        fields += [("N1", "Retracted")] * bool(paper.get("retracted"))
        fields += [("ID", _line(paper["paper_id"])), ("ER", "")]
        lines += [*(f"{tag}  - {value}" for tag, value in fields), ""]
    return "\r\n".join(lines) + "\r\n" if lines else ""


def _bibtex(papers: Sequence[Mapping[str, Any]]) -> str:
    entries = []
    for key, paper in zip(_keys(papers), papers, strict=True):
        kind = _TYPES.get(str(paper.get("article_type")), _ARTICLE)[1]
        source = "booktitle" if kind in ("inproceedings", "incollection") else "journal"
        words, names = _present(paper, "keywords"), map(_bibtex_name, _present(paper, "authors"))
        with_comma = any("," in word for word in words)
        notes = ["Retracted"] if paper.get("retracted") else []
        notes += [] if paper.get("doi") or paper.get("pmid") else [_line(paper["paper_id"])]
        fields = {"author": " and ".join(names)}
        for field, name in (("title", "title"), (source, "journal"), ("year", "year"),
                            ("volume", "volume"), ("number", "issue"), ("pages", "pages"), ("doi", "doi"),
                            ("pmid", "pmid"), ("pmcid", "pmcid"), ("abstract", "abstract")):  # fmt: skip
            fields[field] = next(iter(_present(paper, name)), "")
        fields["url"] = paper_url(paper) or ""
        # A single keyword with a comma in it would be read as two.
        fields["keywords"] = ("; " if with_comma else ", ").join(words) + ";" * (
            with_comma and len(words) == 1
        )
        fields["note"] = "; ".join(notes)
        written = [f"  {name} = {{{_field(name, value)}}}" for name, value in fields.items() if value]
        entries.append(f"@{kind}{{{key},\n" + ",\n".join(written) + "\n}\n")
    return "\n".join(entries)


def _field(name: str, value: str) -> str:
    """Return the value of a field of BibTeX."""
    if name == "author":
        return value
    if name in ("doi", "url"):  # as they are, but for what would end the field or begin a command
        depths = list(accumulate((sign == "{") - (sign == "}") for sign in value))
        is_balanced = not depths or (min(depths) >= 0 and depths[-1] == 0)
        value = value.replace("\\", "")
        if is_balanced:
            return re.sub(r"([{}])", r"\\\1", value)
        return value.replace("{", "%7B").replace("}", "%7D")
    if name == "pages":
        return re.sub(r"(?<=\w)-(?=\w)", "--", _tex(value))
    return f"{{{_tex(value)}}}" if name == "title" else _tex(value)  # else names in a title become small


def _bibtex_name(name: str) -> str:
    """Return a name as "Family, Suffix, Given"; in braces if it has other parts, or an "and" in it."""
    if name == ET_AL:
        return "others"
    parts = name.split(", ")
    has_and = any(word.lower() in ("and", "others") for word in re.split(r"[\s,]+", name))
    if not has_and and (len(parts) == 2 or (len(parts) == 3 and is_suffix(parts[2]))):
        return ", ".join(map(_tex, (parts[0], *parts[2:], parts[1])))
    return f"{{{_tex(name)}}}"


def _tex(text: str) -> str:
    """Return text that means nothing to TeX; two hyphens or quotes stay two."""
    apart = re.sub(r"(?<=([-`']))(?=\1)|(?<=[?!])(?=`)", "\0", text)
    return "".join(_TEX.get(character, character) for character in apart)


def _keys(papers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a distinct key for each paper: its own, else the first long word of the title, and the year."""
    found = [re.fullmatch(r"@([\w.:/+-]+)", str(each.get("entry")), re.ASCII) for each in papers]
    keys = [each[1] if each else "" for each in found]
    owners = {key.lower(): place for place, key in reversed([*enumerate(keys)]) if key}  # BibTeX folds case
    taken, numbers = {*owners}, Counter[str]()
    for place, (key, paper) in enumerate(zip(keys, papers, strict=True)):
        if owners.get(key.lower()) == place:
            continue
        start = key = _key(paper)
        while key in taken:
            numbers[start] += 1
            key = f"{start}-{numbers[start] + 1}"
        taken.add(key)
        keys[place] = key
    return keys


def _key(paper: Mapping[str, Any]) -> str:
    """Return the first long word of the title of a paper, and the year."""
    plain = unicodedata.normalize("NFKD", str(paper.get("title") or "")).encode("ascii", "ignore").decode()
    words = [word for word in re.findall(r"[a-z]+", plain.lower()) if len(word) > 3]
    start = f"{words[0][:24] if words else 'paper'}{_line(paper.get('year') or '')}"
    return re.sub(r"[^a-z0-9]", "", start)


def _csv(papers: Sequence[Mapping[str, Any]]) -> str:
    columns = [name for name in COLUMNS if name == "paper_id" or any(_present(each, name) for each in papers)]
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(columns)
    writer.writerows([_cell(paper, name) for name in columns] for paper in papers)
    return out.getvalue()


def _cell(paper: Mapping[str, Any], name: str) -> str:
    """Return a cell that no spreadsheet takes for a formula.

    Several values stand as a table of papers may have them: as a JSON array if one holds a separator.
    """
    lines = _present(paper, name)
    text = "; ".join(lines)
    if not isinstance(paper.get(name), str) and any(re.search(r"[;|]|^\[", line) for line in lines):
        text = json.dumps(lines, ensure_ascii=False)
    is_number = re.fullmatch(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?", text)
    is_quoted = text[:1] == "'" and text[1:2] in _FORMULAS  # by the user
    return f"'{text}" if is_quoted or (text[:1] in _FORMULAS and not is_number) else text


def unquoted(cell: str) -> str:
    """Return the text of a cell of such a table, without the sign that keeps it from being a formula."""
    is_quoted = cell[:1] == "'" and (cell[1:2] in _FORMULAS or (cell[1:2] == "'" and cell[2:3] in _FORMULAS))
    return cell[1:] if is_quoted else cell
