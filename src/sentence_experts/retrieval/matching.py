"""Papers of a list, and papers whose ids have changed, as rows of a corpus."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

import pyarrow as pa

from sentence_experts.corpus.paper import Paper

if TYPE_CHECKING:
    from sentence_experts.retrieval.papers import Papers

_YEARS_TO_PRINT = 3  # at most, of a preprint
_WORDS_THAT_TELL, _ALIKE = 3, 0.8  # of a title: "Introduction" has too few; how like two versions of it are
_UNLIKE = 0.6  # titles that are less alike than this are of two papers


def match_papers(papers: Papers, listed: Sequence[Paper]) -> list[int | None]:
    """Return the row of each paper of a list, by an identifier, else by a title that no other has.

    With another DOI it may be the preprint, but must have the same first author, and be near in time.
    """
    names = [each.names() for each in listed]
    ids = list(dict.fromkeys(name for each in names for name in each))
    by_id = dict(zip(ids, papers.rows_of(ids), strict=True))
    found = [next((by_id[name] for name in each if by_id[name] is not None), None) for each in names]
    return [
        _same_work(papers, paper, papers.by_title.get(letters_of(paper.title))) if row is None else row
        for row, paper in zip(found, listed, strict=True)
    ]


def trace_paper(papers: Papers, title: str | None, entry: str | None) -> int | None:
    """Return the row of a paper whose id changed, or None where another paper could be meant.

    It alone has the title, and that has several words; or it has the entry, and nearly the title.
    """
    if not title:
        return None
    row, of_entry = papers.by_title.get(letters_of(title)), papers.by_entry.get(entry) if entry else None
    if row is not None and (row == of_entry or len(title.split()) >= _WORDS_THAT_TELL):
        return row
    if of_entry is None:
        return None
    shown = papers.column("title")[of_entry].as_py() or ""
    return of_entry if _likeness(letters_of(title) or "", letters_of(shown) or "") >= _ALIKE else None


def find_renumbered(papers: Papers, titles: Mapping[int, str]) -> set[int]:
    """Find the rows whose papers are others than those of the titles, as where ids are numbers of rows."""
    rows = [*titles]
    shown = papers.column("title").take(pa.array(rows, pa.int64())).to_pylist()
    found = set()
    for row, title in zip(rows, shown, strict=True):
        one, other = sorted((letters_of(titles[row]) or "", letters_of(title) or ""), key=len)
        if not one or one == other:
            continue
        is_elsewhere = trace_paper(papers, titles[row], None) not in (None, row)
        if is_elsewhere or not (other.startswith(one) or _likeness(one, other) >= _UNLIKE):
            found.add(row)
    return found


def _likeness(one: str, other: str) -> float:
    # "Junk" would be common letters; hostile titles hold megabytes.
    return SequenceMatcher(None, one[:300], other[:300], autojunk=False).ratio()


def _same_work(papers: Papers, paper: Paper, row: int | None) -> int | None:
    """Return the row of a paper of this title if it is the same work, else None."""
    (known,) = ({},) if row is None else papers.facts([row])
    authors, others = paper.authors, known.get("authors")
    years = [each for each in (paper.year, known.get("year")) if each]
    is_near = not years or max(years) - min(years) <= _YEARS_TO_PRINT
    is_alike = not _are_unlike(authors, others)
    if paper.doi and known.get("doi"):
        first, other = _family_name(authors), _family_name(others)
        is_same = bool(first) and first == other and is_near
    else:
        is_long = len((paper.title or "").split()) >= _WORDS_THAT_TELL
        is_same = is_near or is_alike if is_long else is_near and is_alike
    return row if is_same else None


# Of family names, that are left out or put behind the given name.
_PARTICLES = {
    "van", "von", "de", "der", "den", "del", "di", "da", "la", "le", "ter", "ten", "dos", "el", "al", "jr",
    "sr", "ii", "iii",
}  # fmt: skip


def _are_unlike(authors: Sequence[str] | None, others: Sequence[str] | None) -> bool:
    """Return whether two first authors are surely others, however their names are written."""
    if not (authors and others):
        return False
    names = [_plain_name(each[0]) for each in (authors, others)]
    if len({name.isascii() for name in names}) > 1:  # one may be written in Latin letters
        return False
    families = [name.partition(",")[0] if "," in name else "" for name in names]
    if not all(families):  # which of the words are the family name is not known
        words = [
            {*re.findall(r"\w{2,}", family or name)} for family, name in zip(families, names, strict=True)
        ]
        return bool(words[0] and words[1]) and words[0].isdisjoint(words[1])
    one, other = (sorted(re.findall(r"\w+", name)) for name in names)
    if one == other or letters_of(families[0]) == letters_of(families[1]):
        return False
    one, other = (re.findall(r"\w+", re.sub("['’]", "", family)) for family in families)
    one, other = ([word for word in each if word not in _PARTICLES] or each for each in (one, other))
    # Where the particles are the given names', too: "van der Berg, J" is "Berg, Jan van der".
    return {*one}.isdisjoint(other)


def _plain_name(name: str) -> str:
    """Return a name in small letters without accents."""
    decomposed = unicodedata.normalize("NFKD", name.casefold())
    return "".join(each for each in decomposed if not unicodedata.combining(each))


def _family_name(authors: Sequence[str] | None) -> str:
    """Return the letters of the first author's family name; "" if there is none.

    Names are "Family, Given", or in tables of users "Given Family" too.
    """
    if not authors:
        return ""
    family, comma, _ = authors[0].partition(",")
    if not comma:  # "Smith JA", or "John Smith"
        words = [word for word in family.split() if not re.fullmatch(r"[A-Z]{1,3}\.?", word)]
        family = (words or [""])[-1]
    return letters_of(_plain_name(family))


def letters_of(title: str | None) -> str:
    """Return the letters and digits of a title, by which titles of several sources are compared."""
    return re.sub(r"[\W_]+", "", (title or "").casefold())


def rows_of_one(values: Iterable[str | None]) -> dict[str | None, int | None]:
    """Return value -> its row; None for one that several rows have, and for an empty one."""
    rows: dict[str | None, int | None] = {}
    for row, value in enumerate(values):
        rows[value] = row if value and value not in rows else None
    return rows
