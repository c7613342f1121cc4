"""Mentions of references in small articles, in the dialects of PMC, PLOS and eLife."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from helpers.small_articles import jats, ref
from sentence_experts.corpus.formats.articles import read_articles
from sentence_experts.corpus.formats.mentions import kind_of
from sentence_experts.corpus.formats.sentences import find_sentence_starts
from sentence_experts.corpus.importing import import_corpus
from sentence_experts.corpus.paper import Mention, Paper

REFS = "".join(
    f'<ref id="b{number}"><citation><pub-id pub-id-type="doi">10.1000/{number}</pub-id></citation></ref>'
    for number in range(1, 10)
)


def with_body(body: str, refs: str = REFS, back: str = "") -> str:
    document = jats(refs=refs).replace("<body><p>Body</p></body>", f"<body>{body}</body>")
    return document.replace("</back>", f"{back}</back>")


def mentions(body: str, refs: str = REFS, back: str = "") -> tuple[Mention, ...]:
    (paper,) = read_articles(with_body(body, refs, back).encode())
    assert isinstance(paper, Paper)
    return paper.mentions


def cite(*numbers: int, shows: str | None = None) -> str:
    ids = " ".join(f"b{number}" for number in numbers)
    return f'<xref ref-type="bibr" rid="{ids}">{shows or numbers[0]}</xref>'


def groups(body: str, what: str = "bracket") -> list[list[int]]:
    """The numbers of the references in each group, in order."""
    found: dict[tuple[int, ...], list[int]] = {}
    for one in mentions(body):
        level = (one.sentence,) if what == "sentence" else (one.sentence, one.bracket)
        found.setdefault((one.paragraph, *level), []).append(one.reference + 1)
    return list(found.values())


def smith(number: int) -> str:
    return cite(number, shows=f"Smith et al., 20{number:02d}")


ELIFE = f"""<sec sec-type="intro" id="s1"><title>Introduction</title>
<p>Cells grow ({smith(1)}; {smith(2)}). They were seen by {cite(3, shows="Lee et al. (1999)")} in <italic>E.
coli</italic> (see also {smith(4)}, e.g. in Fig. 2). {cite(5, shows="Doe (2001)")} disagreed.</p></sec>
<sec sec-type="materials|methods"><title>Materials and methods</title><sec><title>Results of pilots</title>
<p>As before ({smith(1)}).</p></sec></sec>"""
PLOS = f"""<sec id="sec001" sec-type="intro"><title>Introduction</title><p>Shape [{cite(1)},{cite(2)}] and
[{cite(3)}–{cite(6)}]. Roots [{cite(7)}], [{cite(8)}].</p></sec>
<sec sec-type="conclusions"><title>Discussion</title><p>None.</p>
<fig><caption><p>After [{cite(9)}].</p></caption></fig></sec>"""
PMC = f"""<p>Before any section.<sup>{cite(1)},{cite(2, 3, shows="2,3")}</sup> Then
more.<sup>{cite(4, shows="4-6")}</sup></p>
<sec><title>2. Results and discussion</title><p>Many<sup>{cite(7)}</sup>-<sup>{cite(9)}</sup>.</p></sec>
<sec><title>Effects of drying methods</title><p>One {cite(1)}.</p></sec>"""


def test_elife() -> None:
    assert groups(ELIFE) == [[1, 2], [3], [4], [5], [1]]
    assert groups(ELIFE, "sentence") == [[1, 2], [3, 4], [5], [1]]
    assert [(one.section, one.section_title, one.section_kind) for one in mentions(ELIFE)] == [
        *[(1, "Introduction", "introduction")] * 5,
        (2, "Results of pilots", "methods"),
    ]


def test_plos() -> None:
    assert groups(PLOS) == [[1, 2], [3, 4, 5, 6], [7, 8], [9]]
    assert groups(PLOS, "sentence") == [[1, 2, 3, 4, 5, 6], [7, 8], [9]]
    caption = mentions(PLOS)[-1]
    assert (caption.section_kind, caption.paragraph) == ("discussion", 1)


def test_pmc() -> None:
    assert groups(PMC) == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [1]]
    assert groups(PMC, "sentence") == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [1]]
    kinds = [one.section_kind for one in mentions(PMC)]
    assert kinds == [*["introduction"] * 6, *["results"] * 3, "other"]


def test_ranges_that_disagree_with_the_list_are_not_filled() -> None:
    # The list has no place for the numbers 4 and 5 between the references shown as 3 and 6.
    assert groups(f"<p>[{cite(3)}–{cite(4, shows='6')}]</p>") == [[3, 4]]
    assert groups(f"<p>{smith(1)}–{smith(4)}</p>") == [[1, 4]]
    assert groups(f"<p>[{cite(8, shows='8-12')}]</p>") == [[8, 9]]
    assert groups(f"<p>[{cite(2, 4, shows='2–4')}] [{cite(6, 7, 9, shows='6,7,9')}]</p>") == [
        [2, 3, 4, 6, 7, 9]
    ]


def test_floats_lists_and_tables_are_paragraphs_of_their_own() -> None:
    body = f"""<p>First {cite(1)} <list><list-item><p>A {cite(2)}</p></list-item></list> goes on {cite(3)}
    <fig><label>Fig {cite(4)}</label><caption><title>T {cite(5)}</title><p>C {cite(6)}</p></caption></fig></p>
    <table-wrap><table><tr><td>{cite(7)}</td><td>{cite(8)}</td></tr></table></table-wrap>"""
    found: dict[int, list[int]] = {}
    for one in mentions(body):
        found.setdefault(one.paragraph, []).append(one.reference + 1)
    assert list(found.values()) == [[1, 3, 4], [2], [5], [6], [7], [8]]


def test_regions_that_are_read() -> None:
    back = f"<app><title>Appendix</title><sec><title>Methods</title><p>{cite(2)}</p></sec></app>"
    back += f"<ack><p>Thanks {cite(3)}</p></ack>"
    back += f"<ref-list><ref id='x'><note><p>{cite(4)}</p></note></ref></ref-list>"
    tail = f"</back><sub-article><body><p>{cite(5)}</p></body></sub-article><back>"
    found = mentions(f"<p>{cite(1)} <xref ref-type='fig' rid='b6'>F</xref> {cite(99)}</p>", back=back + tail)
    assert [(one.reference + 1, one.section_kind) for one in found] == [(1, "introduction"), (2, "methods")]


def test_one_ref_with_several_works_mentions_each() -> None:
    two = "<ref id='b1'><citation>A. doi:10.1000/a</citation><citation>B.</citation></ref>"
    inner = (
        "<ref><element-citation id='b2'><pub-id pub-id-type='doi'>10.1000/c</pub-id></element-citation></ref>"
    )
    found = mentions(f"<p>{cite(1)} and {cite(2)}</p>", refs=two + inner)
    assert [one.reference for one in found] == [0, 1, 2]


def test_characters_of_marks_in_the_text_itself_do_no_harm() -> None:
    inner = f'<xref ref-type="bibr" rid="b3">{cite(4)}</xref>'
    assert groups(f"<p>A citation in a citation {inner}.</p>") == [[3]]
    assert groups(f"<p>Odd \x81 text \x8f{cite(1)}. Next {cite(2)}\x81</p>") == [[1], [2]]


def test_namespaced_articles() -> None:
    plain = with_body(ELIFE)
    named = plain.replace("<article ", '<article xmlns="https://jats.nlm.nih.gov/ns/archiving/1.3/" ')
    (paper,) = read_articles(named.encode())
    assert isinstance(paper, Paper)
    assert paper.mentions == mentions(ELIFE)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two? Three! (Four.) \"Five.\" Six", 6),
        ("Smith et al. In mice (Fig. A) of J. R. Smith, e.g. E. coli, vs. Controls, i.e. U.S. Mice. End", 2),
        ("It was 3.5 and no. 7. 12 more. p53 is small. The end", 2),
        ("Shown.\x8f,\x8f Next. [\x8f–\x8f] Then \x81. \x81 saw", 4),
        ("", 1),
    ],
)  # fmt: skip
def test_sentences(text: str, sentences: int) -> None:
    assert len(find_sentence_starts(text)) + 1 == sentences


@pytest.mark.parametrize(
    ("title", "sec_type", "kind"),
    [
        ("II. BACKGROUND", None, "introduction"),
        ("Patients and Methods", None, "methods"),
        ("Anything", "materials|methods", "methods"),
        ("Results and Discussion", None, "results"),
        ("Anything", "results|discussion", "results"),
        ("Concluding remarks", "conclusions", "discussion"),
        ("Effects of drying methods on yield", None, "other"),
        (None, None, "other"),
    ],
)
def test_kinds_of_sections(title: str | None, sec_type: str | None, kind: str) -> None:
    assert kind_of([(title, sec_type)]) == kind


def test_the_table_of_a_corpus(folder: Callable[..., Path]) -> None:
    one = with_body(ELIFE)
    other = with_body("<p>None</p>", ref(doi="10.1000/1")).replace("10.1000/a", "10.1000/1")
    without = jats("10.1000/c", refs=REFS).replace("<body><p>Body</p></body>", "")
    corpus = import_corpus(folder(one=one, twin=one, other=other, without=without), workers=1)
    rows = pq.read_table(corpus.mentions).to_pylist()
    assert [row["cited"] for row in rows] == [f"doi:10.1000/{number}" for number in (1, 2, 3, 4, 5, 1)]
    assert {row["citing"] for row in rows} == {"doi:10.1000/a"}
    counts = corpus.manifest["counts"]
    assert counts["papers_with_body"] == 2
    assert counts["mentions"] == len(rows) == 6
    # Four of the nine in the first article; that of the second to itself is none.
    assert counts["references_never_mentioned"] == 4
