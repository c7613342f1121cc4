"""Links between works and their counts, as SQL: co-citation, bibliographic coupling, direct citation.

Each function returns a query that runs on DuckDB and on Spark, over `citations(citing, cited)`, by id,
possibly repeated, and `members(paper_id, domain_number, member)`: the works that can be in a pair, each with
a number within each of its domains. A relation gives `one, other, count` with one < other, of members of one
domain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


def co_citation(citations: str, members: str) -> str:
    """Two works cited by the same paper; the count is the number of papers that cite both.

    The citing paper itself need not be a member. Source: Hallee et al. 2025, Methods, Data compilation.
    """
    return _sharing("citing", f"{citations} AS c JOIN {members} AS m ON c.cited = m.paper_id")


def coupling(citations: str, members: str) -> str:
    """Two papers that cite the same work (bibliographic coupling); the count is of shared references.

    The cited work itself need not be a member.
    """
    return _sharing("cited", f"{citations} AS c JOIN {members} AS m ON c.citing = m.paper_id")


def citation(citations: str, members: str) -> str:
    """One paper cites the other; the count is 2 if each cites the other."""
    return f"""WITH ends AS (SELECT DISTINCT a.member AS citing, b.member AS cited
            FROM {citations} AS c JOIN {members} AS a ON c.citing = a.paper_id
            JOIN {members} AS b ON c.cited = b.paper_id AND a.domain_number = b.domain_number
            WHERE a.member <> b.member)
        SELECT least(citing, cited) AS one, greatest(citing, cited) AS other, count(*) AS count
        FROM ends GROUP BY least(citing, cited), greatest(citing, cited)"""


RELATIONS: dict[str, Callable[[str, str], str]] = {
    "co-citation": co_citation,
    "coupling": coupling,
    "citation": citation,
}

# The ends of a citation that are members, if it makes pairs.
MEMBER_ENDS = {"co-citation": ("cited",), "coupling": ("citing",), "citation": ("citing", "cited")}


def _sharing(through: str, ends: str) -> str:
    """Count the third works that pairs of members of one domain share."""
    pairs = pairs_in_lists(f"SELECT {through}, domain_number, member FROM {ends}", [through])
    return f"SELECT one, other, count(*) AS count FROM ({pairs}) AS pairs GROUP BY one, other"


def pairs_in_lists(ends: str, through: Sequence[str], keep: Sequence[str] = ()) -> str:
    """`one, other, *keep` for each two members of one domain that share the values of `through`, once for
    each such values, of a query for `*through, domain_number, member`.

    Each of those values has a sorted list of members, and each member pairs with those after it: half the
    rows of a join of `ends` with itself, and no hash table of `ends`.
    """
    kept = "".join(f"{name}, " for name in keep)
    return f"""SELECT {kept}element_at(members, place) AS one,
            explode(slice(members, place + 1, cardinality(members))) AS other
        FROM (SELECT {kept}members, explode(sequence(1, cardinality(members) - 1)) AS place
            FROM (SELECT {kept}array_sort(array_agg(DISTINCT member)) AS members FROM ({ends}) AS ends
                GROUP BY {", ".join(through)}, domain_number) AS lists
            WHERE cardinality(members) > 1) AS places"""


def identified(citations: str) -> str:
    """`citing, cited` of the references with an identifier, without those of a work to itself."""
    return f"(SELECT citing, cited FROM {citations} WHERE citing <> cited)"


def references_of_few(citations: str, members: str, rare: int) -> str:
    """`cited`: the works that members cite and that at most `rare` papers of the corpus cite.

    A work that half a field cites (a method, a program) tells little about two papers that share it.
    """
    return f"""SELECT cited FROM {citations} AS every SEMI JOIN (
            SELECT cited FROM {citations} AS c SEMI JOIN {members} AS m ON c.citing = m.paper_id
        ) AS theirs USING (cited) GROUP BY cited HAVING count(DISTINCT citing) BETWEEN 2 AND {rare}"""


def long_lists(references: str, max_references: int) -> str:
    """`citing`: the papers with more than `max_references` entries in their list, identified or not."""
    return f"SELECT citing FROM {references} GROUP BY citing HAVING count(*) > {max_references}"


def linking(pairs: str, citations: str, relation: str) -> str:
    """`pair, through`: the works that link each row of `pairs(pair, one, other)`, or its own that does.

    That is each citing article with co-citation, each shared reference with coupling, and with citation the
    work that cites the other.
    """
    if relation == "citation":
        return f"""SELECT pair, one AS through FROM {pairs} AS p SEMI JOIN {citations} AS c
                ON p.one = c.citing AND p.other = c.cited
            UNION ALL SELECT pair, other FROM {pairs} AS p SEMI JOIN {citations} AS c
                ON p.other = c.citing AND p.one = c.cited"""
    ours, third = ("cited", "citing") if relation == "co-citation" else ("citing", "cited")
    return f"""SELECT pair, a.{third} AS through FROM {pairs} AS p JOIN {citations} AS a ON p.one = a.{ours}
        SEMI JOIN {citations} AS b ON a.{third} = b.{third} AND p.other = b.{ours}"""
