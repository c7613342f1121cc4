"""Find where the text of a JATS article mentions its references: section, paragraph, sentence, bracket.

Captions of figures, tables and supplements, cells of tables, items of lists and footnotes are separate
paragraphs, not parts of the text around them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain

from lxml import etree

from sentence_experts.corpus.formats.markup import Element, local_name, plain_text
from sentence_experts.corpus.formats.references import citations_of
from sentence_experts.corpus.formats.sentences import CITATION_IN_WORDS, CITATION_NUMBER, find_sentence_starts
from sentence_experts.corpus.paper import Citation, Mention

PARAGRAPHS = frozenset({"p", "title", "td", "th", "attrib", "term", "verse-line"})
"""Elements that hold running text; a nested one is a separate paragraph."""
_SECTIONS = frozenset({"sec", "app"})
_WHERE_CITED = PARAGRAPHS | {"xref"}  # a citation in a citation is part of it
_CITING = frozenset({"bibr", "ref"})  # values of `ref-type`

_OTHER = "other"
_WORDS = {
    "introduction": "intro introduction introductory background",
    "methods": "method methods methodology material materials experimental procedure procedures patients "
    "subjects participants methodological",
    "results": "result results finding findings",
    "discussion": "discussion discussions conclusion conclusions concluding remarks perspective perspectives "
    "summary outlook",
    # Words that may stand beside those above in a heading.
    "": "and or of the for with general main brief online star section sections design details study future "
    "overview extended supplementary key",
}  # fmt: skip
_KIND_OF_WORD = {word: kind for kind, words in _WORDS.items() for word in words.split()}
_LETTERS = re.compile(r"[^\W\d_]+")
_NUMERAL = re.compile(r"[ivx]+", re.I)

_DASH = r"[\-‐-―−]"
_NO_MARKS = dict.fromkeys(map(ord, (CITATION_IN_WORDS, CITATION_NUMBER)))
_NUMBERS = re.compile(rf"\W*(\d{{1,4}})(?:\s*{_DASH}\s*(\d{{1,4}}))?\W*")
_ONLY_A_DASH = re.compile(rf"[\s\[\]()]*{_DASH}[\s\[\]()]*")
# Signs between citations of one group: "[1], [2]", "1,2", "(Smith, 2000; Jones, 2001)".
_WITHIN_GROUP = re.compile(rf"(?:[\s,;()\[\]…]|{_DASH})*")
_USUAL_SEPARATORS = frozenset({"; ", ", ", ",", ";"})
_BRACKET = re.compile(r"[(\[)\]]")
# Numbers of four digits are years.
_MAX_NUMBER = 999

# The first fields of a place: number, title and kind of a section.
_Section = tuple[int, str | None, str]
# A `Mention` without its reference.
_Place = tuple[int, str | None, str, int, int, int, int]
_PARAGRAPH, _POSITION = 3, 6
# A citation mark: its place, the ids of its references, the first and last number that it shows ("3" or
# "3-7"), whether only a dash stands between it and the mark before. Plain tuples, as there are many.
_Mark = tuple[_Place, list[str], int | None, int | None, bool]


class ReferenceList:
    """The references of an article: their order, their ids, and which citations each one holds.

    Attributes:
        citations: the citations of all references.
    """

    def __init__(self) -> None:
        self.citations: list[Citation] = []
        self._number: dict[str, int] = {}
        self._ranges: list[range] = []

    def add(self, ref: Element) -> None:
        """Read a `ref` element."""
        ids = [ref.get("id")] if ref.get("id") else [node.get("id") for node in ref]
        for one in filter(None, ids):
            self._number.setdefault(one, len(self._ranges))
        first = len(self.citations)
        self.citations.extend(citations_of(ref))
        self._ranges.append(range(first, len(self.citations)))

    def numbers(self, ids: list[str]) -> list[int]:
        """Return the numbers of the references with these ids, without unknown ids."""
        return [self._number[one] for one in ids if one in self._number]

    def positions(self, numbers: list[int]) -> list[int]:
        """Return the positions in `citations` of the references of these numbers."""
        return list(chain.from_iterable(self._ranges[each] for each in numbers if each < len(self._ranges)))


class ArticleText:
    """The citation marks in the text of one article, and the text of its body if it is wanted.

    Attributes:
        has_body: whether the article has a body with text.
    """

    def __init__(self, full_text: bool = False) -> None:
        self.has_body = False
        self._full_text = full_text
        self._body: list[tuple[Element | None, list[str]]] = []
        self._marks: list[_Mark] = []
        self._paragraphs = 0
        self._titles: dict[Element, str | None] = {}
        self._sections: dict[Element, _Section | None] = {}  # element around a paragraph -> section
        self._numbers: dict[Element, int] = {}  # section -> its number

    def add(self, paragraph: Element, in_body: bool) -> None:
        """Read a paragraph, and those in it. Their text is changed."""
        self.has_body = self.has_body or in_body
        parent = paragraph.getparent()
        if paragraph.tag == "title" and local_name(parent) in _SECTIONS:
            self._titles.setdefault(parent, plain_text(paragraph))
        # Cells of tables are left out.
        elif (
            self._full_text
            and in_body
            and paragraph.tag in ("p", "title")
            and (text := plain_text(paragraph))
        ):
            section = next(paragraph.iterancestors("{*}sec"), None)
            if not self._body or self._body[-1][0] is not section:
                self._body.append((section, []))
            self._body[-1][1].append(text)
        citing: dict[Element, list[Element]] = {}
        for xref in paragraph.iter("xref"):
            if xref.get("ref-type") in _CITING:
                around = next(xref.iterancestors(*_WHERE_CITED))
                if around.tag != "xref" and self._section_of(around):
                    citing.setdefault(around, []).append(xref)
        if citing:
            ordered = [inner for inner in paragraph.iter(*PARAGRAPHS) if inner in citing]
            numbered = list(enumerate(ordered, self._paragraphs))
            self._paragraphs += len(ordered)
            # The innermost first: the text around them is read without them.
            marks = [
                mark
                for number, inner in numbered[::-1]
                for mark in self._marks_in(inner, number, citing[inner])
            ]
            self._marks += sorted(marks, key=lambda mark: (mark[0][_PARAGRAPH], mark[0][_POSITION]))

    def _marks_in(self, paragraph: Element, number: int, xrefs: list[Element]) -> Iterator[_Mark]:
        """Read the citations of a paragraph, and remove paragraphs that are nested in it."""
        where = self._section_of(paragraph)
        assert where is not None
        etree.strip_elements(paragraph, *PARAGRAPHS, with_tail=False)
        shown = [_mark(xref) for xref in xrefs]
        text, places = _text_with_marks(paragraph, xrefs, [mark for mark, _, _ in shown])
        starts = find_sentence_starts(text, places[0], places[-1]) if len(places) > 1 else []
        before = places[0]
        sentence = bracket = 0
        for xref, place, (_, first, last) in zip(xrefs, places, shown, strict=True):
            dashed = False
            if place != before and text[before + 1 : place] not in _USUAL_SEPARATORS:
                dashed = _ONLY_A_DASH.fullmatch(text, before + 1, place) is not None
                was, sentence = sentence, bisect_right(starts, place)
                start = starts[sentence - 1] if sentence else 0
                bracket += was != sentence or not _in_one_group(text, start, before, place)
            ids = (xref.get("rid") or "").split()
            yield (*where, number, sentence, bracket, place), ids, first, last, dashed
            before = place

    def _section_of(self, paragraph: Element) -> _Section | None:
        """Return number, title and kind of the innermost section of a paragraph; None inside a reference."""
        parent = paragraph.getparent()
        if parent not in self._sections:
            around = list(paragraph.iterancestors("{*}sec", "{*}app", "{*}ref"))
            section: _Section | None = (0, None, _OTHER)
            if any(local_name(node) == "ref" for node in around):
                section = None
            elif around:
                stated = [(self._titles.get(node), node.get("sec-type")) for node in around]
                number = self._numbers.setdefault(around[0], len(self._numbers) + 1)
                section = (number, stated[0][0], kind_of(stated[::-1]))
            self._sections[parent] = section
        return self._sections[parent]

    def mentions(self, references: ReferenceList) -> tuple[Mention, ...]:
        """Return the mentions of the references, in the order of the paragraphs.

        Text before the first section of an article that has sections is its introduction.
        """
        first_sectioned = next((number for number, mark in enumerate(self._marks) if mark[0][0]), 0)
        all_mentions = []
        for number, (place, cited) in enumerate(_find_cited(self._marks, references)):
            if number < first_sectioned:
                place = (0, None, "introduction", *place[3:])
            all_mentions += [Mention._make((citation, *place)) for citation in cited]
        return tuple(all_mentions)

    def body(self) -> tuple[tuple[str | None, str], ...]:
        """Return (title of the section, text) in reading order; paragraphs stand on their own lines."""
        return tuple((self._titles.get(section), "\n".join(texts)) for section, texts in self._body)


def _mark(xref: Element) -> tuple[str, int | None, int | None]:
    """Replace the text of a citation by one character; returns it and the numbers that the text shows."""
    text = "".join(xref.itertext()) if len(xref) else xref.text or ""
    del xref[:]
    shown = None if text[:1].isalpha() else _NUMBERS.fullmatch(text)
    xref.text = CITATION_NUMBER if shown or not text.strip() else CITATION_IN_WORDS
    if shown is None or int(shown[1]) > _MAX_NUMBER:
        return xref.text, None, None
    return xref.text, int(shown[1]), int(shown[2] or shown[1])


def _text_with_marks(paragraph: Element, xrefs: list[Element], marks: list[str]) -> tuple[str, list[int]]:
    """Return the text of a paragraph and the places of its marks, the characters in `xrefs`."""
    text = etree.tostring(paragraph, method="text", encoding="unicode", with_tail=False)
    if text.count(CITATION_IN_WORDS) + text.count(CITATION_NUMBER) != len(xrefs):
        # The article's own text has characters of marks.
        for node in paragraph.iter():
            if node.text and node not in xrefs:
                node.text = node.text.translate(_NO_MARKS)
            if node.tail:
                node.tail = node.tail.translate(_NO_MARKS)
        text = etree.tostring(paragraph, method="text", encoding="unicode", with_tail=False)
    places, place = [], -1
    for mark in marks:
        place = text.find(mark, place + 1)
        places.append(place)
    return text, places


def _in_one_group(text: str, start: int, one: int, other: int) -> bool:
    """Return whether two marks of one sentence stand in one bracket, or with only punctuation between.

    A bracket that is never closed ends with its sentence, which begins at `start`.
    """
    if _WITHIN_GROUP.fullmatch(text, one + 1, other):
        return True
    depth = text.count("(", start, one) + text.count("[", start, one)
    depth -= text.count(")", start, one) + text.count("]", start, one)
    if depth > 0:
        for bracket in _BRACKET.finditer(text, one + 1, other):
            depth += 1 if bracket[0] in "([" else -1
            if not depth:
                return False
    return depth > 0


def _find_cited(marks: list[_Mark], references: ReferenceList) -> Iterator[tuple[_Place, list[int]]]:
    """Yield the place of each mark with the citations that it stands for.

    "[3-7]" may be two marks with a dash between, or one that names the first, the ends, or all. The
    references between are taken where the numbers shown agree with the places in the reference list.
    """
    before: tuple[int, int] | None = None
    for place, ids, first, last, after_dash in marks:
        numbers = references.numbers(ids)
        if first is None or last is None or not numbers:
            before = None
        else:
            span = last - first
            if span > 0 and (len(numbers) == 1 or numbers[-1] - numbers[0] == span):
                numbers = list(range(numbers[0], numbers[0] + span + 1))
            elif after_dash and before and 0 < first - before[1] == numbers[0] - before[0]:
                numbers = [*range(before[0] + 1, numbers[0]), *numbers]
            before = numbers[-1], last
        yield place, references.positions(numbers)


def kind_of(sections: Sequence[tuple[str | None, str | None]]) -> str:
    """Return the kind of the first of nested sections that has one, given (title, `sec-type`) of each.

    >>> kind_of([("2. Materials and methods", None), ("Results of the pilot", None)])
    'methods'
    """
    kinds = (_kind(title, sec_type) for title, sec_type in sections)
    return next((kind for kind in kinds if kind != _OTHER), _OTHER)


@lru_cache(maxsize=4096)
def _kind(title: str | None, sec_type: str | None) -> str:
    """Return the kind of one section by its `sec-type` (`materials|methods`), else by its title.

    A title counts if it has no other words ("Results and discussion", not "Effects of drying methods"); the
    first word with a kind decides.
    """
    for text in (sec_type, title):
        words = [word.lower() for word in _LETTERS.findall(text or "")]
        if len(words) > 1 and _NUMERAL.fullmatch(words[0]):
            words = words[1:]
        kinds = [_KIND_OF_WORD.get(word) for word in words]
        if any(kinds) and None not in kinds:
            return next(filter(None, kinds))
    return _OTHER
