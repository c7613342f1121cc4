"""The works that may stand in a pair, with their text: abstracts, titles, or both.

Each unit is one ibis expression over the corpus tables that gives `paper_id, text, year`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import ibis
import ibis.expr.types as ir

from sentence_experts.pairs.splits import NOT_WORDS

TITLE_AND_ABSTRACT = "\n"


def abstracts(papers: ir.Table, citations: ir.Table) -> ir.Table:
    """Corpus papers with an abstract."""
    return _with_text(papers.select("paper_id", "year", text=papers.abstract))


def titles_and_abstracts(papers: ir.Table, citations: ir.Table) -> ir.Table:
    """Corpus papers with both, the title on a line of its own."""
    both = papers.filter(papers.title.length() > 0, papers.abstract.length() > 0)
    return _with_text(both.select("paper_id", "year", text=both.title + TITLE_AND_ABSTRACT + both.abstract))


def titles(papers: ir.Table, citations: ir.Table) -> ir.Table:
    """Corpus papers by their title, and cited works outside the corpus by the title most often given."""
    inside = _with_text(papers.select("paper_id", "year", text=papers.title))
    named = citations.filter(citations.cited.notnull(), citations.cited_title.length() > 0)
    outside = named.anti_join(papers, named.cited == papers.paper_id)
    given = outside.group_by("cited", "cited_title").aggregate(
        times=outside.count(), year=outside.cited_year.min()
    )
    rank = ibis.row_number().over(
        ibis.window(group_by=given.cited, order_by=[given.times.desc(), given.cited_title.asc()])
    )
    ranked = given.mutate(rank=rank)
    usual = ranked.filter(ranked.rank == 0)
    return inside.union(_with_text(usual.select("year", paper_id="cited", text="cited_title")))


UNITS: dict[str, Callable[[ir.Table, ir.Table], ir.Table]] = {
    "abstract": abstracts,
    "title": titles,
    "title+abstract": titles_and_abstracts,
}


def _with_text(works: ir.Table) -> ir.Table:
    kept = works.filter(works.text.notnull(), works.text.strip().length() > 0)
    return kept.select("paper_id", "text", "year")


def number_nodes(papers: ir.Table, citations: ir.Table) -> ir.Table:
    """`node, paper_id`: one number for every id, in the order of the ids; joins on numbers are cheap."""
    ids = ibis.union(
        papers.select("paper_id"),
        citations.select(paper_id=citations.citing),
        citations.filter(citations.cited.notnull()).select(paper_id="cited"),
        distinct=True,
    )
    return ids.mutate(node=ibis.row_number().over(ibis.window(order_by=ids.paper_id)))


def numbered_works(unit: str, papers: ir.Table, citations: ir.Table, nodes: ir.Table) -> ir.Table:
    """`work, paper_id, text, year, same_text`: works under their node number.

    `same_text` is the smallest number among the works whose text is the same but for case, punctuation and
    white space (a paper published twice): such works are one paper where leaks are concerned.
    """
    works = UNITS[unit](papers, citations).join(nodes, "paper_id")
    folded = works.text.lower().re_replace(NOT_WORDS, " ").strip()
    works = works.mutate(folded=folded)
    return works.mutate(
        same_text=works.node.min().over(ibis.window(group_by=works.folded)),
    ).select("paper_id", "text", "year", "same_text", work="node")


def numbered_citations(citations: ir.Table, nodes: ir.Table) -> ir.Table:
    """`citing, cited`: distinct citations under node numbers, unidentified works left out."""
    citing, cited = nodes.view(), nodes.view()
    joined = citations.join(citing, citations.citing == citing.paper_id).select("cited", citing_node="node")
    joined = joined.join(cited, joined.cited == cited.paper_id).select(citing="citing_node", cited="node")
    return joined.filter(joined.citing != joined.cited).distinct()


def citations_of_texts(citations: ir.Table, works: ir.Table) -> ir.Table:
    """`citing, cited` with each work under its `same_text`: what cites a reprint cites the paper."""
    texts = works.select("work", "same_text")
    citing, cited = texts.view(), texts.view()
    joined = citations.left_join(citing, citations.citing == citing.work).select(
        "cited", citing=ibis.coalesce(citing.same_text, citations.citing)
    )
    joined = joined.left_join(cited, joined.cited == cited.work).select(
        "citing", cited=ibis.coalesce(cited.same_text, joined.cited)
    )
    return joined.filter(joined.citing != joined.cited).distinct()


def within_years(memberships: ir.Table, works: ir.Table, years: Mapping[str, tuple[int, int]]) -> ir.Table:
    """Rows of `memberships(work, domain)` whose work came out in its domain's years, where it has any."""
    dated = memberships.join(works.select("work", "year"), "work")
    conditions = [
        (dated.domain != domain) | dated.year.between(first, last).fill_null(False)
        for domain, (first, last) in sorted(years.items())
    ]
    return dated.filter(ibis.and_(*conditions)).select("work", "domain")


def domains_of_cited(
    works: ir.Table, papers: ir.Table, citations: ir.Table, memberships: ir.Table
) -> ir.Table:
    """`work, domain` for works outside the corpus: the domain that cites them most, ties left out.

    A paper of the corpus has the domains that the rules give it, or none. `papers` has the nodes of the
    corpus's papers.
    """
    outside = works.anti_join(papers, works.work == papers.node).select("work")
    citing = citations.join(memberships, citations.citing == memberships.work).select("cited", "domain")
    votes = citing.semi_join(outside, citing.cited == outside.work)
    counted = votes.group_by("cited", "domain").aggregate(votes=votes.count())
    most = counted.votes.max().over(ibis.window(group_by=counted.cited))
    winners = counted.mutate(most=most)
    winners = winners.filter(winners.votes == winners.most)
    rivals = winners.mutate(rivals=winners.count().over(ibis.window(group_by=winners.cited)))
    return rivals.filter(rivals.rivals == 1).select("domain", work="cited")
