"""Links between works and their counts: co-citation, bibliographic coupling, direct citation.

Each relation is one ibis expression over `citations(citing, cited)`, by id, possibly repeated, and
`members(paper_id, group, member)`: the works that can be in a pair, each with a number within each of its
groups (domains). It gives `left, right, count` with left < right, of members of one group. The same code runs
on any SQL engine of ibis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ibis
import ibis.expr.types as ir


def co_citation(citations: ir.Table, members: ir.Table) -> ir.Table:
    """Two works cited by the same paper; the count is the number of papers that cite both.

    The citing paper itself need not be a member. Source: Hallee et al. 2025, Methods, Data compilation.
    """
    received = citations.join(members, citations.cited == members.paper_id)
    return _sharing(received.select("group", "member", through="citing"))


def coupling(citations: ir.Table, members: ir.Table) -> ir.Table:
    """Two papers that cite the same work (bibliographic coupling); the count is of shared references.

    The cited work itself need not be a member.
    """
    made = citations.join(members, citations.citing == members.paper_id)
    return _sharing(made.select("group", "member", through="cited"))


def citation(citations: ir.Table, members: ir.Table) -> ir.Table:
    """One paper cites the other; the count is 2 if each cites the other."""
    other = members.view()
    citing = citations.join(members, citations.citing == members.paper_id)
    citing = citing.select("cited", "group", one="member")
    ends = citing.join(other, [citing.cited == other.paper_id, citing.group == other.group])
    ends = ends.select(citing.one, other=other.member).filter(lambda each: each.one != each.other).distinct()
    ends = ends.select(left=ibis.least(ends.one, ends.other), right=ibis.greatest(ends.one, ends.other))
    return ends.group_by("left", "right").aggregate(count=ends.count())


RELATIONS: dict[str, Callable[[ir.Table, ir.Table], ir.Table]] = {
    "co-citation": co_citation,
    "coupling": coupling,
    "citation": citation,
}

# The ends of a citation that are members, if it makes pairs.
MEMBER_ENDS = {"co-citation": ("cited",), "coupling": ("citing",), "citation": ("citing", "cited")}


def _sharing(ends: ir.Table) -> ir.Table:
    """Count the third works that pairs of members of one group share: `ends(through, group, member)`."""
    pairs = pairs_in_lists(ends, ("through",))
    return pairs.group_by("left", "right").aggregate(count=pairs.count())


def pairs_in_lists(ends: ir.Table, through: Sequence[str], keep: Sequence[str] = ()) -> ir.Table:
    """`left, right, *keep` for each two members of one group that share the values of `through`, once for
    each such values: `ends(*through, group, member)`.

    Each of those values has a sorted list of members, and each member pairs with those after it: half the
    rows of a join of `ends` with itself, and no hash table of `ends`.
    """
    lists = ends.group_by(*through, "group").aggregate(members=ends.member.collect(distinct=True))
    lists = lists.filter(lists.members.length() > 1).select(*keep, members=lists.members.sort())
    places = lists.select(*keep, "members", place=ibis.range(0, lists.members.length() - 1).unnest())
    return places.select(
        *keep, left=places.members[places.place], right=places.members[places.place + 1 :].unnest()
    )


def identified(citations: ir.Table) -> ir.Table:
    """`citing, cited` of the references with an identifier, without those of a work to itself."""
    known = citations.filter(citations.cited.notnull(), citations.citing != citations.cited)
    return known.select("citing", "cited")


def references_of_few(citations: ir.Table, members: ir.Table, rare: int) -> ir.Table:
    """`cited`: the works that members cite and that at most `rare` papers of the corpus cite.

    A work that half a field cites (a method, a program) tells little about two papers that share it.
    """
    theirs = citations.semi_join(members, citations.citing == members.paper_id).select("cited")
    every = citations.semi_join(theirs, "cited").distinct()
    times = every.group_by("cited").aggregate(papers=every.count())
    return times.filter(times.papers.between(2, rare)).select("cited")


def long_lists(references: ir.Table, max_references: int) -> ir.Table:
    """`citing`: the papers with more than `max_references` entries in their list, identified or not."""
    lengths = references.group_by("citing").aggregate(entries=references.count())
    return lengths.filter(lengths.entries > max_references).select("citing")


def citing_both(pairs: ir.Table, citations: ir.Table) -> ir.Table:
    """`pair, article`: each article that cites both works of a row of `pairs(pair, left, right)`."""
    return _through_third(pairs, citations, "cited", "citing").select("pair", article="third")


def linking(pairs: ir.Table, citations: ir.Table, relation: str) -> ir.Table:
    """`pair, through`: what links the works of each row of `pairs(pair, left, right)`.

    That is each citing article with co-citation, each shared reference with coupling, and with citation the
    work that cites the other.
    """
    if relation == "co-citation":
        return _through_third(pairs, citations, "cited", "citing").select("pair", through="third")
    if relation == "coupling":
        return _through_third(pairs, citations, "citing", "cited").select("pair", through="third")
    forth = pairs.semi_join(citations, [pairs.left == citations.citing, pairs.right == citations.cited])
    back = pairs.semi_join(citations, [pairs.right == citations.citing, pairs.left == citations.cited])
    return forth.select("pair", through="left").union(back.select("pair", through="right"))


def _through_third(pairs: ir.Table, citations: ir.Table, ours: str, theirs: str) -> ir.Table:
    """Each row of `pairs(left, right, ...)` with each `third` work that citations link both its works to."""
    first, second = citations.view(), citations.view()
    reached = pairs.join(first, pairs.left == first[ours]).select(*pairs.columns, third=theirs)
    return reached.semi_join(second, [reached.third == second[theirs], reached.right == second[ours]])
