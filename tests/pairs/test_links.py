"""Each relation against its definition, spelled out in plain Python on random citation graphs."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from helpers.sql import columns, run_query
from sentence_experts.corpus.importing import import_corpus
from sentence_experts.pairs.compile import compile_pairs
from sentence_experts.pairs.graph import find_links
from sentence_experts.pairs.links import RELATIONS, references_of_few, select_linked_members, select_linking

Citations = set[tuple[int, int]]


def random_citations(seed: int, nodes: int = 30, rows: int = 120) -> Citations:
    rng = np.random.default_rng(seed)
    return {(a, b) for a, b in rng.integers(0, nodes, size=(rows, 2)).tolist() if a != b}


def counted(relation: str, citations: Citations, works: list[int], rare: int) -> dict[tuple[int, int], int]:
    def query(table: str, members: str) -> str:
        if relation == "coupling":
            few = references_of_few(table, members, rare)
            table = f"(SELECT * FROM {table} SEMI JOIN ({few}) AS few USING (cited))"
        return select_linked_members(relation, table, members)

    members = columns(("paper_id", "domain_number", "member"), [(work, 0, work) for work in works])
    rows = run_query(query, columns(("citing", "cited"), sorted(citations)), members)
    return {(row["one"], row["other"]): row["count"] for row in rows}


def by_definition(
    relation: str, citations: Citations, works: set[int], rare: int
) -> dict[tuple[int, int], int]:
    cites: dict[int, set[int]] = {}
    for citing, cited in citations:
        cites.setdefault(citing, set()).add(cited)
    times = Counter(cited for _, cited in citations)
    counts: Counter[tuple[int, int]] = Counter()
    if relation == "co-citation":
        for references in cites.values():
            counts.update(combinations(sorted(references & works), 2))
    elif relation == "coupling":
        for one, other in combinations(sorted(works & set(cites)), 2):
            shared = [reference for reference in cites[one] & cites[other] if times[reference] <= rare]
            if shared:
                counts[one, other] = len(shared)
    else:
        counts.update(tuple(sorted(pair)) for pair in citations if set(pair) <= works)
    return dict(counts)


@pytest.mark.parametrize("relation", sorted(RELATIONS))
@pytest.mark.parametrize("rare", [2, 4, 100])
def test_each_relation_counts_what_its_definition_says(relation: str, rare: int) -> None:
    citations = random_citations(seed=rare)
    works = set(range(5, 30))
    found = counted(relation, citations, sorted(works), rare)
    assert found == by_definition(relation, citations, works, rare)
    assert found, "an empty graph would prove nothing"
    assert all(left < right for left, right in found)


@pytest.mark.parametrize("table", [True, False])
def test_text_links_finds_every_relation_and_nothing_else(
    table: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sentence_experts.pairs.graph.MAX_TABLE", 4_000 if table else 0)
    citations = random_citations(3, nodes=40, rows=60)
    linked: set[tuple[int, int]] = set()
    for relation in RELATIONS:
        linked |= set(by_definition(relation, citations, set(range(40)), rare=10**6))
    # Links through papers that are not asked for count.
    asked = np.arange(5, 40)
    candidates = np.array(list(combinations(asked.tolist(), 2)))
    mask = find_links(asked, *np.array(sorted(citations)).T)(*candidates.T)
    expected = {pair for pair in linked if min(pair) >= 5}
    assert {tuple(pair) for pair in candidates[mask].tolist()} == expected
    assert 0 < len(expected) < len(candidates)


@pytest.mark.parametrize("relation", sorted(RELATIONS))
def test_linking_papers_are_those_that_are_counted(relation: str) -> None:
    citations = random_citations(4)
    counts = by_definition(relation, citations, set(range(30)), rare=10**6)
    pairs = columns(("pair", "one", "other"), [(row, *pair) for row, pair in enumerate(sorted(counts))])
    table = columns(("citing", "cited"), sorted(citations))
    rows = run_query(lambda asked, cited: select_linking(asked, cited, relation), pairs, table)
    through: dict[int, set[int]] = {}
    for row in rows:
        through.setdefault(row["pair"], set()).add(row["through"])
    for row, (one, other) in enumerate(sorted(counts)):
        if relation == "citation":
            assert through[row] == {a for a, b in ((one, other), (other, one)) if (a, b) in citations}
        else:
            ends = {(paper, end) if relation == "co-citation" else (end, paper)
                    for paper in through[row] for end in (one, other)}  # fmt: skip
            assert ends <= citations
            assert len(through[row]) == counts[one, other]


def test_works_that_long_lists_link_are_no_negatives() -> None:
    count = 40
    rows = [{"id": f"p{n:02d}", "title": f"A {n}", "abstract": f"Text {n}."} for n in range(count)]
    rows += [{"id": f"c{n:02d}", "title": f"Citing {n}"} for n in range(count)]
    cited = {f"c{n:02d}": [n, (n + 1) % count, (n + 2) % count] for n in range(count)}
    cited["review"] = list(range(30))
    citations = [{"citing": a, "cited": f"p{n:02d}"} for a, each in cited.items() for n in each]
    corpus = import_corpus(papers=[*rows, {"id": "review", "title": "Review"}], citations=citations)
    pairs = compile_pairs(
        corpus, unit="abstract", split="random", fractions=[0.6, 0.2, 0.2], max_references=10,
        negatives="random",
    )  # fmt: skip
    trained = pairs.split("train").to_pandas()
    known = {tuple(row.values()) for row in pairs.known_links().to_pylist()}
    by_review = sorted(name for name in {*trained.anchor_id, *trained.positive_id} if int(name[1:]) < 30)
    assert len(by_review) > 10
    assert {(a, b) for a in by_review for b in by_review if a < b} <= known
