"""Where the text of a JATS article mentions its references: section, paragraph, sentence, bracket.

Read are the body, appendices, and floats outside the body; not abstracts, acknowledgements, notes in the back
matter, and the letters and replies of sub-articles. Captions of figures, tables and supplements, cells of
tables, items of lists and footnotes are separate paragraphs, not parts of the text around them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from lxml import etree

from sentence_experts.corpus.formats.body import BodyText
from sentence_experts.corpus.formats.markup import Element, plain_text
from sentence_experts.corpus.formats.sections import INTRODUCTION, OTHER, Section, kind_of
from sentence_experts.corpus.formats.secure_xml import RecordLimits, UnreadableArticleError
from sentence_experts.corpus.formats.sentences import CITATION_IN_WORDS, CITATION_NUMBER, sentence_starts
from sentence_experts.corpus.paper import Mention

# Elements that hold running text; a nested one is a separate paragraph.
PARAGRAPHS = frozenset({"p", "title", "td", "th", "attrib", "term", "verse-line"})
# Parts of an article whose text is read.
REGIONS = frozenset({"body", "app", "floats-group", "floats-wrap"})
SECTIONS = frozenset({"sec", "app"})
_OUTSIDE = frozenset({"sub-article", "response", "front", "front-stub", "ref"})
_WHERE_CITED = PARAGRAPHS | {"xref"}  # a citation in a citation is part of it
_CITING = frozenset({"bibr", "ref"})  # values of `ref-type`

_DASH = r"[\-‐-―−]"
_NO_MARKS = dict.fromkeys(map(ord, (CITATION_IN_WORDS, CITATION_NUMBER)))
_NUMBERS = re.compile(rf"\W*(\d{{1,4}})(?:\s*{_DASH}\s*(\d{{1,4}}))?\W*")
_ONLY_A_DASH = re.compile(rf"[\s\[\]()]*{_DASH}[\s\[\]()]*")
# Between citations of one group: "[1], [2]", "1,2", "(Smith, 2000; Jones, 2001)".
_WITHIN_GROUP = re.compile(rf"(?:[\s,;()\[\]…]|{_DASH})*")
_USUAL_SEPARATORS = frozenset({"; ", ", ", ",", ";"})
_LONGEST_DASH = 8
_BRACKET = re.compile(r"[(\[)\]]")
# Numbers of four digits are years.
_MAX_NUMBER = 999


class ReferenceList:
    """The references of an article: their order, their ids, and which citations each one holds."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._citations: list[range] = []

    def add(self, ref: Element, first: int, end: int) -> None:
        """Add a `ref` element with the citations `first` to `end - 1`."""
        ids = [ref.get("id")] if ref.get("id") else [node.get("id") for node in ref]
        for one in filter(None, ids):
            self._number.setdefault(one, len(self._citations))
        self._citations.append(range(first, end))

    def numbers(self, ids: list[str]) -> list[int]:
        """The numbers of the references with these ids, without unknown ids."""
        if len(ids) == 1:
            return [self._number[ids[0]]] if ids[0] in self._number else []
        return [self._number[one] for one in ids if one in self._number]

    def citations(self, numbers: list[int]) -> Sequence[int]:
        """The citations in the references of these numbers; there are none beyond the list."""
        if len(numbers) == 1:
            return self._citations[numbers[0]]
        inside = [number for number in numbers if number < len(self._citations)]
        return [citation for number in inside for citation in self._citations[number]]


# The first fields of a place: number, title and kind of a section.
_Section = tuple[int, str | None, str]
# Whether an element is in one of the regions (None: in what is left out of them), and its sections.
_Around = tuple[bool | None, tuple[Element, ...]]
# A `Mention` without its reference.
_Place = tuple[int, str | None, str, int, int, int, int]
_PARAGRAPH, _POSITION = 3, 6


# A citation mark: its place, the ids of its references, the first and last number that it shows ("3" or
# "3-7"), whether only a dash stands between it and the mark before. Plain tuples, as there are many.
_Mark = tuple[_Place, list[str], int | None, int | None, bool]


class ArticleText:
    """Collects the citation marks in the text of one article, from its tree or while it is streamed.

    Attributes:
        has_body: whether the article has a body with text.
        body: the body's text, if it is wanted.
    """

    def __init__(self, full_text: bool = False) -> None:
        self.has_body = False
        self.body = BodyText() if full_text else None
        self._marks: list[_Mark] = []
        self._paragraphs: set[Element] = set()
        self._titles: dict[Element, str | None] = {}
        self._sections: dict[Element, _Section | None] = {}  # by the element around a paragraph
        self._places: dict[Element, _Around] = {}
        self._numbers: dict[Element, int] = {}  # of sections
        self._regions: list[str] = []
        self._depth = 0
        self._too_large = False
        self._nested = False

    def read_whole(self, article: Element, xrefs: Iterable[Element]) -> None:
        """Read an article element with these citations. The text of its paragraphs is changed."""
        for body in article.iterfind("body"):
            self.has_body = self.has_body or next(body.iter(*PARAGRAPHS), None) is not None
            if self.body is not None:
                inside: set[Element] = set()
                for paragraph in body.iter(*PARAGRAPHS):
                    if paragraph not in inside:
                        inside.update(paragraph.iterdescendants(*PARAGRAPHS))
                        self.body.add(paragraph)
        self._read(xrefs)

    def begin(self, tag: str, limits: RecordLimits) -> None:
        """An element of a streamed article begins."""
        if tag in REGIONS:
            self._regions.append(tag)
        elif tag in PARAGRAPHS and self._regions:
            if not self._depth:
                limits.begin()
            self._depth += 1

    def ends(self, tag: str, limits: RecordLimits) -> bool:
        """An element of a streamed article ends; True if it is a paragraph to `end`.

        Of a paragraph that would fill the memory nothing is read.
        """
        if tag in REGIONS and self._regions:
            self._regions.pop()
        if not self._depth:
            return False
        if not self._too_large:
            try:
                limits.count("a paragraph")
            except UnreadableArticleError:
                self._too_large = True
        self._depth -= tag in PARAGRAPHS
        return not self._depth

    def end(self, paragraph: Element) -> None:
        """Read a streamed paragraph and what it contains."""
        self.has_body = self.has_body or "body" in self._regions
        section = paragraph.getparent()
        if paragraph.tag == "title" and etree.QName(section).localname in SECTIONS:
            self._titles.setdefault(section, plain_text(paragraph))
        if not self._too_large:
            if self.body is not None and "body" in self._regions:
                self.body.add(paragraph)
            self._read(filter(is_citation, list(paragraph.iter("xref"))))
        self._too_large = False

    @property
    def keeps(self) -> bool:
        """Whether the elements that end now are needed later, as parts of a paragraph."""
        return self._depth > 0 and not self._too_large

    def _read(self, xrefs: Iterable[Element]) -> None:
        citing: dict[Element, list[Element]] = {}
        paragraph_of: dict[Element, Element | None] = {}
        for xref in xrefs:
            parent = xref.getparent()
            if parent not in paragraph_of:
                paragraph_of[parent] = _paragraph_around(parent)
            if (paragraph := paragraph_of[parent]) is not None:
                citing.setdefault(paragraph, []).append(xref)
        for paragraph in citing:
            if paragraph not in self._paragraphs:
                self._read_paragraph(paragraph, citing)

    def _read_paragraph(self, paragraph: Element, citing: dict[Element, list[Element]]) -> None:
        """Read a paragraph and those in it, once. What is nested in it is removed."""
        where = self._section_of(paragraph)
        if where is None:
            return
        number = len(self._paragraphs)
        self._paragraphs.add(paragraph)
        nested = False
        for inner in paragraph.iterdescendants(*PARAGRAPHS):
            nested = True
            if inner in citing and inner not in self._paragraphs:
                self._read_paragraph(inner, citing)
        if nested:
            self._nested = True
            etree.strip_elements(paragraph, *PARAGRAPHS, with_tail=False)
        xrefs = citing[paragraph]
        shown = [_mark(xref) for xref in xrefs]
        text, places = _text_with_marks(paragraph, xrefs, [mark for mark, _, _ in shown])
        starts = sentence_starts(text, places[0], places[-1]) if len(places) > 1 else []
        marks, before = self._marks, places[0]
        sentence = bracket = 0
        for xref, place, (_, first, last) in zip(xrefs, places, shown, strict=True):
            between = text[before + 1 : place]
            dashed = False
            if place != before and between not in _USUAL_SEPARATORS:
                dashed = len(between) < _LONGEST_DASH and _ONLY_A_DASH.fullmatch(between) is not None
                was, sentence = sentence, bisect_right(starts, place)
                start = starts[sentence - 1] if sentence else 0
                bracket += was != sentence or not _in_one_group(text, start, before, place)
            ids = (xref.get("rid") or "").split()
            marks.append(((*where, number, sentence, bracket, place), ids, first, last, dashed))
            before = place

    def _section_of(self, paragraph: Element) -> _Section | None:
        """The number in the article, the title and the kind of the innermost section of a paragraph; None
        outside of the regions."""
        parent = paragraph.getparent()
        if parent not in self._sections:
            inside, sections = self._around(parent)
            self._sections[parent] = self._number_section(sections) if inside else None
        return self._sections[parent]

    def _around(self, node: Element | None) -> _Around:
        """Whether an element is in a region, and the sections that it is or stands in."""
        new: list[Element] = []
        while node is not None and node not in self._places:
            new.append(node)
            node = node.getparent()
        inside, sections = (False, ()) if node is None else self._places[node]
        for node in reversed(new):
            tag = node.tag.rpartition("}")[2]
            if tag in SECTIONS:
                sections = (node, *sections)
            inside = None if inside is None or tag in _OUTSIDE else inside or tag in REGIONS
            self._places[node] = inside, sections
        return inside, sections

    def _number_section(self, around: Sequence[Element]) -> _Section:
        """The section of the elements around a paragraph, the innermost first."""
        if not around:
            return 0, None, OTHER
        stated = [Section(self._title_of(each), each.get("sec-type")) for each in around]
        number = self._numbers.setdefault(around[0], len(self._numbers) + 1)
        return number, stated[0].title, kind_of(stated[::-1])

    def _title_of(self, section: Element) -> str | None:
        if section not in self._titles:
            title = section.find("title")
            self._titles[section] = None if title is None else plain_text(title)
        return self._titles[section]

    def mentions(self, references: ReferenceList) -> tuple[Mention, ...]:
        """The mentions of the references, in the order of the paragraphs.

        Text before the first section of an article that has sections is its introduction.
        """
        marks = self._marks
        if self._nested:  # those were read before the text around them
            marks.sort(key=lambda mark: (mark[0][_PARAGRAPH], mark[0][_POSITION]))
        first_sectioned = next((number for number, mark in enumerate(marks) if mark[0][0]), 0)
        all_mentions = []
        for number, (place, cited) in enumerate(_cited(marks, references)):
            if number < first_sectioned:
                place = (0, None, INTRODUCTION, *place[3:])
            all_mentions += [Mention._make((citation, *place)) for citation in cited]
        return tuple(all_mentions)


def is_citation(xref: Element) -> bool:
    """Whether an `xref` element cites a reference, not a figure or a table."""
    return xref.get("ref-type") in _CITING


def _paragraph_around(node: Element | None) -> Element | None:
    """The innermost paragraph that an element is or stands in; None if a citation comes first."""
    while node is not None and node.tag not in _WHERE_CITED:
        node = node.getparent()
    return None if node is None or node.tag == "xref" else node


def _mark(xref: Element) -> tuple[str, int | None, int | None]:
    """Replace the text of a citation by one character; returns it and the numbers that the text shows."""
    text = xref.text or ""
    if len(xref):
        text = "".join(xref.itertext())
        del xref[:]
    mark = _mark_of(text)
    xref.text = mark[0]
    return mark


@lru_cache(maxsize=4096)
def _mark_of(text: str) -> tuple[str, int | None, int | None]:
    shown = None if text[:1].isalpha() else _NUMBERS.fullmatch(text)
    mark = CITATION_NUMBER if shown or not text.strip() else CITATION_IN_WORDS
    if shown is None or int(shown[1]) > _MAX_NUMBER:
        return mark, None, None
    first = int(shown[1])
    return mark, first, int(shown[2]) if shown[2] else first


def _text_with_marks(paragraph: Element, xrefs: list[Element], marks: list[str]) -> tuple[str, list[int]]:
    """The text of a paragraph and the places of its marks, the characters in `xrefs`."""
    text = etree.tostring(paragraph, method="text", encoding="unicode", with_tail=False)
    if text.count(CITATION_IN_WORDS) + text.count(CITATION_NUMBER) != len(xrefs):
        _remove_marks(paragraph, set(xrefs))
        text = etree.tostring(paragraph, method="text", encoding="unicode", with_tail=False)
    places, place = [], -1
    for mark in marks:
        place = text.find(mark, place + 1)
        places.append(place)
    return text, places


def _remove_marks(paragraph: Element, marks: set[Element]) -> None:
    """Remove the characters of marks from the article's own text."""
    for node in paragraph.iter():
        if node.text and node not in marks:
            node.text = node.text.translate(_NO_MARKS)
        if node.tail:
            node.tail = node.tail.translate(_NO_MARKS)


def _in_one_group(text: str, start: int, one: int, other: int) -> bool:
    """Whether two marks of one sentence stand in one bracket, or with only punctuation between.

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


def _cited(marks: list[_Mark], references: ReferenceList) -> Iterator[tuple[_Place, Sequence[int]]]:
    """The place of each mark with the citations that it stands for.

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
        yield place, references.citations(numbers)
