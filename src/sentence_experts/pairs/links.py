"""Which works are linked, and how often: co-citation, bibliographic coupling, direct citation.

Each relation is one ibis expression over `citations(citing, cited)`, distinct rows of node numbers, and
`works(work)`, the nodes that may stand in a pair. The same code runs on any SQL engine that ibis speaks
to. Each gives `left, right, count` with left < right.
"""

from __future__ import annotations

from collections.abc import Callable

import ibis
import ibis.expr.types as ir


def co_citation(citations: ir.Table, works: ir.Table, rare: int) -> ir.Table:
    """Two works cited by the same paper; the count is the number of papers that cite both.

    The citing paper itself need not be one of `works`, and `rare` has no meaning here.
    Source: Hallee et al. 2025, Methods, Data compilation.
    """
    kept = citations.semi_join(works, citations.cited == works.work)
    other = kept.view()
    both = kept.join(other, [kept.citing == other.citing, kept.cited < other.cited])
    return _counted(both.select(left=kept.cited, right=other.cited))


def coupling(citations: ir.Table, works: ir.Table, rare: int) -> ir.Table:
    """Two papers that cite the same work (bibliographic coupling); the count is of shared references.

    Only references cited by at most `rare` papers count: what half a field cites (a method, a program)
    says little about the two papers that share it.
    """
    times_cited = citations.group_by("cited").aggregate(papers=citations.citing.count())
    rare_references = times_cited.filter(times_cited.papers.between(2, rare))
    kept = citations.semi_join(rare_references, "cited")
    kept = kept.semi_join(works, kept.citing == works.work)
    other = kept.view()
    both = kept.join(other, [kept.cited == other.cited, kept.citing < other.citing])
    return _counted(both.select(left=kept.citing, right=other.citing))


def citation(citations: ir.Table, works: ir.Table, rare: int) -> ir.Table:
    """One paper cites the other; the count is 2 where each cites the other. `rare` has no meaning here."""
    kept = citations.semi_join(works, citations.citing == works.work)
    others = works.view()
    kept = kept.semi_join(others, kept.cited == others.work)
    ends = kept.select(left=ibis.least(kept.citing, kept.cited), right=ibis.greatest(kept.citing, kept.cited))
    return _counted(ends.filter(ends.left != ends.right))


RELATIONS: dict[str, Callable[[ir.Table, ir.Table, int], ir.Table]] = {
    "co-citation": co_citation,
    "coupling": coupling,
    "citation": citation,
}


def _counted(ends: ir.Table) -> ir.Table:
    return ends.group_by("left", "right").aggregate(count=ends.count())


def citing_both(pairs: ir.Table, citations: ir.Table) -> ir.Table:
    """`pair, article`: each article that cites both works of a row of `pairs(pair, left, right)`."""
    first, second = citations.view(), citations.view()
    cites_left = pairs.join(first, pairs.left == first.cited).select("pair", "right", article="citing")
    both = cites_left.semi_join(
        second, [cites_left.article == second.citing, cites_left.right == second.cited]
    )
    return both.select("pair", "article")


def linked_by_any(candidates: ir.Table, citations: ir.Table) -> ir.Table:
    """Those rows of `candidates(left, right)` that any relation links: the opposite of a clean negative.

    Works from the candidates outwards, so its cost follows their number and not that of all links.
    Every shared reference counts here, however often it is cited.
    """
    first, second = citations.view(), citations.view()
    from_left_up = candidates.join(first, candidates.left == first.cited).select("left", "right", "citing")
    co_cited = from_left_up.semi_join(
        second, [from_left_up.citing == second.citing, from_left_up.right == second.cited]
    )
    from_left_down = candidates.join(first, candidates.left == first.citing).select("left", "right", "cited")
    coupled = from_left_down.semi_join(
        second, [from_left_down.cited == second.cited, from_left_down.right == second.citing]
    )
    forth = candidates.semi_join(first, [candidates.left == first.citing, candidates.right == first.cited])
    back = candidates.semi_join(first, [candidates.right == first.citing, candidates.left == first.cited])
    return ibis.union(
        *(hits.select("left", "right") for hits in (co_cited, coupled, forth, back)), distinct=True
    )
