"""Properties of resolved identifiers that hold whatever records and references there are."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sentence_experts.corpus.identifiers import parse_identifier
from sentence_experts.corpus.paper import Citation, Paper
from sentence_experts.corpus.parts import CorpusPart, open_parts
from sentence_experts.corpus.resolving import resolving

IDS = ("doi", "pmid", "pmcid")
ALL_IDS = (*IDS, "openalex")
PROPERTY = settings(
    max_examples=2, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)


@dataclass(frozen=True)
class Record:
    """One paper in a document of a source; two records never share a document."""

    source: str
    member: str
    paper: Paper


@dataclass
class Result:
    papers: list[dict[str, Any]]
    citations: list[dict[str, Any]]
    reasons: Counter[str] = field(default_factory=Counter)

    def ids(self) -> list[str]:
        return [row["paper_id"] for row in self.papers]


def resolve(
    records: Sequence[Record], sources: Sequence[str] = ("one", "two"), memory: int | None = None
) -> Result:
    """Resolve the records of some sources, both in the order in which they are given, in as many ranges as
    `memory` (bytes) needs."""
    with tempfile.TemporaryDirectory() as folder:
        parts = open_parts(Path(folder))
        for index, source in enumerate(sources):
            part = CorpusPart(index, 0)
            for record in records:
                if record.source == source:
                    part.add(record.paper, record.member)
            part.write(parts)
        with resolving(parts, [{"name": name, "kind": "file"} for name in sources], {}, 1) as resolved:
            resolved.memory = memory or resolved.memory
            papers = pa.Table.from_batches(resolved.papers()).to_pylist()
            batches = list(resolved.citations())
            citations = pa.Table.from_batches(batches).to_pylist() if batches else []
            reasons = Counter(each.reason for each in resolved.duplicates())
    return Result(papers, citations, reasons)


# ---- what is resolved ----------------------------------------------------------------------------

# One resolving takes far longer than one more record, so an example is many small corpora side by side, none
# of which shares an identifier with another.
_CORPORA = 40
_SPELLED: dict[str, Callable[[int], Any]] = {
    "doi": "10.1000/{}".format, "pmid": str, "pmcid": "PMC{}".format, "openalex": int,
}  # fmt: skip
_NAMED = {"doi": "doi:", "pmid": "pmid:", "pmcid": "pmc:", "openalex": "openalex:"}


def ids_of(work: int, kinds: Sequence[str] = IDS) -> dict[str, Any]:
    return {kind: _SPELLED[kind](work) for kind in kinds}


def _some(random: Random, known: dict[str, Any]) -> dict[str, Any]:
    return {kind: known[kind] for kind in random.sample(list(known), random.randint(1, 3))}


def _messy_ids(random: Random, corpus: int, works: int, kinds: Sequence[str]) -> dict[str, Any]:
    """Some identifiers, each of any work: they may well contradict each other."""
    return _some(random, {kind: ids_of(corpus + random.randint(1, works), kinds)[kind] for kind in kinds})


def _citations(random: Random, corpus: int, messy: bool, kinds: Sequence[str]) -> tuple[Citation, ...]:
    return tuple(
        Citation(**_ids(random, corpus, 6, messy, kinds), title=random.choice((None, "A cited title")))
        for _ in range(random.randint(0, 4))
    )


def _ids(random: Random, corpus: int, works: int, messy: bool, kinds: Sequence[str]) -> dict[str, Any]:
    if messy:
        return _messy_ids(random, corpus, works, kinds)
    return _some(random, ids_of(corpus + random.randint(1, works), kinds))


def records_of(random: Random, *, messy: bool, kinds: Sequence[str] = IDS) -> list[Record]:
    """Records and references that each state a part of what is so, or anything if they are messy."""
    found = []
    for corpus in range(100, 100 * (_CORPORA + 1), 100):
        for _ in range(random.randint(1, 7)):
            known = _ids(random, corpus, 4, messy, kinds)
            version = random.choice((None, None, 1, 2)) if messy and "pmid" in known else None
            paper = Paper(
                **known, title=random.choice((None, "A", "B")), abstract=random.choice((None, "Text")),
                citations=_citations(random, corpus, messy, kinds), version=version,
            )  # fmt: skip
            found.append(Record(random.choice(("one", "two")), f"{len(found):04}.xml", paper))
    return found


# From a seed: hypothesis cannot keep track of so many random values.
RANDOM = st.integers(0, 2**32).map(Random)
MESSY = RANDOM.map(lambda random: records_of(random, messy=True))
TRUE = RANDOM.map(lambda random: records_of(random, messy=False))
MESSY_OF_ALL = RANDOM.map(lambda random: records_of(random, messy=True, kinds=ALL_IDS))
TRUE_OF_ALL = RANDOM.map(lambda random: records_of(random, messy=False, kinds=ALL_IDS))


# ---- what must hold ------------------------------------------------------------------------------


def test_papers_and_citations_are_the_same_in_many_ranges() -> None:
    records = records_of(Random(3), messy=True, kinds=ALL_IDS)
    records += [
        Record("two", f"W{number}", Paper(openalex=number, cites_openalex=(100 + number, 1, 2, 3)))
        for number in range(1, 60)
    ]
    whole = resolve(records)
    assert len(whole.citations) > 300
    assert resolve(records, memory=10_000) == whole


@PROPERTY
@given(MESSY_OF_ALL)
def test_every_work_is_one_row_and_no_two_papers_share_an_id(records: list[Record]) -> None:
    result = resolve(records)
    for kind in ("paper_id", *ALL_IDS):
        stated = [row[kind] for row in result.papers if row[kind] is not None]
        assert len(stated) == len(set(stated)), (kind, result.papers)
    # Nothing is lost: every record is a paper, or is named as a duplicate or as replaced.
    assert len(result.papers) + result.reasons.total() == len(records)
    pairs = [(row["citing"], row["cited"]) for row in result.citations if row["cited"] is not None]
    assert len(pairs) == len(set(pairs))
    assert all(citing in result.ids() and citing != cited for citing, cited in pairs)


@PROPERTY
@given(MESSY_OF_ALL, RANDOM)
def test_order_of_sources_and_records_does_not_matter(records: list[Record], random: Random) -> None:
    shuffled = random.sample(records, len(records))
    first, second = resolve(records), resolve(shuffled, ("two", "one"))
    assert first.papers == second.papers
    assert first.citations == second.citations
    assert first.reasons == second.reasons


@PROPERTY
@given(TRUE_OF_ALL)
def test_correct_records_and_references_are_resolved_correctly(records: list[Record]) -> None:
    result = resolve(records)
    for row in result.papers:
        ids = [row[kind] for kind in ALL_IDS if row[kind]]
        assert len({re.sub(r"^(10.1000/|PMC|W)", "", one) for one in ids}) == 1, row
    # A reference by any of a paper's own ids leads to that paper.
    by_id = {
        _NAMED[kind] + row[kind]: row["paper_id"] for row in result.papers for kind in ALL_IDS if row[kind]
    }
    for row in result.citations:
        assert row["cited"] == by_id.get(row["cited"], row["cited"]), (row, by_id)


@PROPERTY
@given(TRUE, RANDOM)
def test_wrong_references_join_no_two_works(records: list[Record], random: Random) -> None:
    wrong, right = [], []
    for corpus in range(100, 100 * (_CORPORA + 1), 100):
        # The right link is stated twice: for a work that only the wrong reference names, nothing is better.
        true = tuple(Citation(**ids_of(corpus + work)) for work in range(1, 7))
        right += [Paper(doi=f"10.1000/{name}{corpus}", citations=true) for name in ("right", "again")]
        one, other = random.sample(range(1, 7), 2)
        kind, another = random.sample(IDS, 2)
        both = {kind: ids_of(corpus + one)[kind], another: ids_of(corpus + other)[another]}
        wrong.append(Paper(doi=f"10.1000/wrong{corpus}", citations=(Citation(**both),)))
    settled = [*records, *(Record("one", paper.doi or "", paper) for paper in right)]
    before = resolve(settled)
    after = resolve([*settled, *(Record("two", paper.doi or "", paper) for paper in wrong)])
    assert [row for row in after.papers if "wrong" not in row["paper_id"]] == before.papers
    assert [row for row in after.citations if "wrong" not in row["citing"]] == before.citations


def test_references_to_articles_outvote_a_wrong_one() -> None:
    first, second = ids_of(101), ids_of(102)
    right = (Citation(**first), Citation(**second))
    papers = [
        Paper(doi=first["doi"]),
        Paper(doi=second["doi"]),
        *(Paper(doi=f"10.1000/{name}", citations=right) for name in ("right", "again")),
        Paper(doi="10.1000/citing", citations=(Citation(pmcid=first["pmcid"]),)),
    ]
    wrong = Paper(doi="10.1000/wrong", citations=(Citation(pmcid=first["pmcid"], pmid=second["pmid"]),))
    before, after = (
        resolve([Record("one", paper.doi or "", paper) for paper in each])
        for each in (papers, [*papers, wrong])
    )
    assert [row for row in after.citations if "wrong" not in row["citing"]] == before.citations


@PROPERTY
@given(MESSY)
def test_what_is_resolved_resolves_to_itself(records: list[Record]) -> None:
    once = resolve(records)
    cited: dict[str, list[Citation]] = {}
    for row in once.citations:
        doi, pmid, pmcid, *_ = parse_identifier(_named(row["cited"]))
        cited.setdefault(row["citing"], []).append(
            Citation(doi=doi, pmid=pmid, pmcid=pmcid, title=row["cited_title"], year=row["cited_year"])
        )
    again = [
        Record("one", f"{number:04}", Paper(
            **{kind: row[kind] for kind in (*IDS, "title", "abstract")},
            citations=tuple(cited.get(row["paper_id"], ())),
        ))
        for number, row in enumerate(once.papers)
    ]  # fmt: skip
    twice = resolve(again)
    assert twice.papers == once.papers
    assert twice.citations == once.citations


def _named(paper_id: str) -> str:
    """`pmc:PMC1`, `pmid:1` and `doi:10.1` as `parse_identifier` reads them."""
    return paper_id.removeprefix("pmc:")
