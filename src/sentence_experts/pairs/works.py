"""The works that can be in a pair, with their text: abstracts, titles, or both.

Each unit is one ibis expression over the corpus tables that gives `paper_id, text, year`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import ibis
import ibis.expr.types as ir

from sentence_experts.pairs.splits import NOT_WORDS

TITLE_AND_ABSTRACT = "\n"
# Letters whose lower case differs between engines: a separate dot, another letter at the end of a word.
SPECIAL_LETTERS = (("İ", "i"), ("Σ", "σ"))


def abstracts(papers: ir.Table, citations: ir.Table) -> ir.Table:
    """Corpus papers with an abstract."""
    return _with_text(papers.select("paper_id", "year", text=papers.abstract))


def titles_and_abstracts(papers: ir.Table, citations: ir.Table) -> ir.Table:
    """Corpus papers with both, the title on its own line."""
    both = papers.filter(papers.title.length() > 0, papers.abstract.length() > 0)
    return _with_text(both.select("paper_id", "year", text=both.title + TITLE_AND_ABSTRACT + both.abstract))


def titles(papers: ir.Table, citations: ir.Table) -> ir.Table:
    """Titles of corpus papers, and the most frequent title of each cited work outside the corpus."""
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

# Units that works outside the corpus have too.
BEYOND_THE_CORPUS = ("title",)


def _with_text(works: ir.Table) -> ir.Table:
    with_text = works.filter(works.text.notnull(), works.text.strip().length() > 0)
    return with_text.select("paper_id", "text", "year")


def folded_texts(unit: str, papers: ir.Table, citations: ir.Table) -> ir.Table:
    """`paper_id, text, year, folded` of all works with the unit's text.

    `folded` is equal for texts that differ only in case, punctuation and white space: a hash, as it is only
    compared.
    """
    works = UNITS[unit](papers, citations)
    text = works.text
    for letter, small in SPECIAL_LETTERS:
        text = text.replace(letter, small)
    return works.mutate(folded=text.lower().re_replace(NOT_WORDS, " ").strip().hexdigest("md5"))


def numbered_works(texts: ir.Table, domains: ir.Table) -> ir.Table:
    """`work, paper_id, year, same_text` of the works of `domains(paper_id, domain)`, in the order of the ids.

    `same_text` is the smallest number among the works of one text (a paper published twice), which count as
    one paper for leaks.
    """
    works = texts.semi_join(domains, "paper_id").select("paper_id", "year", "folded")
    works = works.mutate(work=_numbered_by(works.paper_id))
    first = works.group_by("folded").aggregate(same_text=works.work.min())
    return works.join(first, "folded").select("work", "paper_id", "year", "same_text")


def numbered_members(works: ir.Table, domains: ir.Table, names: ir.Table) -> ir.Table:
    """`paper_id, work, group, member`: each work once for each of its domains, ordered by domain and work.

    `names(domain, group)` numbers the domains.
    """
    members = domains.join(names, "domain").join(works, "paper_id").select("paper_id", "work", "group")
    members = members.distinct()
    return members.mutate(member=_numbered_by(members.group, members.work))


def _numbered_by(*order: ir.Value) -> ir.Value:
    return ibis.row_number().over(ibis.window(order_by=order)).cast("int32")


def with_texts_of(texts: ir.Table, works: ir.Table) -> ir.Table:
    """`paper_id` of `works(paper_id)`, and of the other works with a text of theirs (reprints)."""
    wanted = texts.semi_join(works, "paper_id").select("folded")
    return texts.semi_join(wanted, "folded").select("paper_id")


def citations_touching(citations: ir.Table, works: ir.Table) -> ir.Table:
    """Distinct rows of `citations(citing, cited)` that a work of `works(paper_id)` makes or receives."""
    either = citations.cited.isin(works.paper_id) | citations.citing.isin(works.paper_id)
    return citations.filter(either).distinct()


def number_nodes(works: ir.Table, wanted: ir.Table, citations: ir.Table) -> ir.Table:
    """`node, paper_id`: a number for each end of a citation and each of `wanted(paper_id)`.

    `works(paper_id, work)` keep the numbers 0, 1, ... that they have; the rest follows in the order of the
    ids.
    """
    ends = ibis.union(
        wanted.select("paper_id"),
        citations.select(paper_id="citing"),
        citations.select(paper_id="cited"),
        distinct=True,
    )
    others = ends.anti_join(works, "paper_id")
    node = _numbered_by(others.paper_id) + works.count().as_scalar()
    others = others.mutate(node=node.cast("int32"))
    return works.select("paper_id", node="work").union(others.select("paper_id", "node"))


def same_texts(texts: ir.Table, nodes: ir.Table) -> ir.Table:
    """`paper_id, node, same_text` of the nodes with a text: the smallest number of those with that text."""
    named = texts.select("paper_id", "folded").join(nodes, "paper_id")
    first = named.group_by("folded").aggregate(same_text=named.node.min())
    return named.join(first, "folded").select("paper_id", "node", "same_text")


def numbered_citations(citations: ir.Table, nodes: ir.Table) -> ir.Table:
    """The citations under node numbers: `citing, cited`."""
    citing, cited = nodes.view(), nodes.view()
    joined = citations.join(citing, citations.citing == citing.paper_id).select("cited", citing_node="node")
    return joined.join(cited, joined.cited == cited.paper_id).select(citing="citing_node", cited="node")


def citations_of_texts(citations: ir.Table, texts: ir.Table) -> ir.Table:
    """`citing, cited` with each node under its `same_text`: a citation of a reprint is one of the paper."""
    citing, cited = texts.view(), texts.view()
    joined = citations.left_join(citing, citations.citing == citing.node).select(
        "cited", citing=ibis.coalesce(citing.same_text, citations.citing)
    )
    joined = joined.left_join(cited, joined.cited == cited.node).select(
        "citing", cited=ibis.coalesce(cited.same_text, joined.cited)
    )
    return joined.filter(joined.citing != joined.cited).distinct()


def within_years(memberships: ir.Table, works: ir.Table, years: Mapping[str, tuple[int, int]]) -> ir.Table:
    """Rows of `memberships(paper_id, domain)` whose work is of its domain's years, if it has any."""
    dated = memberships.join(works.select("paper_id", "year"), "paper_id")
    conditions = [
        (dated.domain != domain) | dated.year.between(first, last).fill_null(False)
        for domain, (first, last) in sorted(years.items())
    ]
    return dated.filter(ibis.and_(*conditions)).select("paper_id", "domain")


def domains_of_cited(
    works: ir.Table, papers: ir.Table, citations: ir.Table, memberships: ir.Table
) -> ir.Table:
    """`paper_id, domain` of works outside the corpus: the domain that cites them most, none on a tie.

    Papers of the corpus have the domains of the rules, or none: `memberships(paper_id, domain)`.
    """
    outside = works.anti_join(papers, "paper_id").select("paper_id")
    identified = citations.filter(citations.cited.notnull()).select("citing", "cited")
    cited = identified.semi_join(outside, identified.cited == outside.paper_id).distinct()
    votes = cited.join(memberships, cited.citing == memberships.paper_id).select("cited", "domain")
    counted = votes.group_by("cited", "domain").aggregate(votes=votes.count())
    most = counted.group_by("cited").aggregate(most=counted.votes.max())
    winners = counted.join(most, "cited").filter(lambda each: each.votes == each.most)
    names = winners.group_by("cited").aggregate(rivals=winners.count(), domain=winners.domain.min())
    return names.filter(names.rivals == 1).select("domain", paper_id="cited")
