"""The SQL of pairs: the works that can be in one, and their links; every query runs on DuckDB and on Spark.

Each function returns a query over tables (names, or queries in brackets): `citations(citing, cited)`, by id,
possibly repeated, and `members(paper_id, domain_number, member)`, the works that can be in a pair, each with
a number within each of its domains. A relation gives `one, other, count` with one < other, of members of one
domain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sentence_experts.pairs.config import LEVELS, NOT_WORDS, UNSEEN, Level

_WHITE_SPACE = " \t\n\r\v\f"

UNITS: dict[str, str] = {
    "abstract": "SELECT paper_id, abstract AS text, year FROM {papers}",
    # The most frequent title of each cited work outside the corpus, too.
    "title": """SELECT paper_id, title AS text, year FROM {papers}
        UNION ALL SELECT cited, cited_title, year FROM (
            SELECT cited, cited_title, min(cited_year) AS year,
                row_number() OVER (PARTITION BY cited ORDER BY count(*) DESC, cited_title) AS place
            FROM {citations} AS mentioned ANTI JOIN {papers} AS inside ON mentioned.cited = inside.paper_id
            WHERE cited IS NOT NULL AND length(cited_title) > 0 GROUP BY cited, cited_title
        ) AS titles WHERE place = 1""",
    "title+abstract": "SELECT paper_id, title || '\n' || abstract AS text, year "
    "FROM {papers} WHERE length(title) > 0 AND length(abstract) > 0",
}
# Units that works outside the corpus have too.
BEYOND_THE_CORPUS = ("title",)


def select_folded_texts(unit: str, papers: str, citations: str) -> str:
    """Select `paper_id, text, year, folded` of all works with the unit's text.

    `folded` is equal for texts that differ only in case, punctuation and white space: a hash, as it is only
    compared.
    """
    # Letters whose lower case differs between engines: a separate dot, another letter at a word's end.
    lower = f"replace(lower(translate(text, 'İΣς{UNSEEN}', 'iσσ')), 'ß', 'ss')"
    words = f"regexp_extract_all({lower}, '[^{NOT_WORDS}]+', 0)"
    return f"""SELECT paper_id, text, year, md5(array_join({words}, ' ')) AS folded
        FROM ({UNITS[unit].format(papers=papers, citations=citations)}) AS texts
        WHERE length(trim(BOTH '{_WHITE_SPACE}' FROM text)) > 0"""


def select_numbered_works(texts: str, domains: str) -> str:
    """Select `work, paper_id, year, same_text` of the works of `domains(paper_id, domain)`, ordered by id.

    `same_text` is the smallest number among the works of one text (a paper published twice), which count as
    one paper for leaks.
    """
    return f"""WITH works AS (
            SELECT paper_id, year, folded, CAST(row_number() OVER (ORDER BY paper_id) - 1 AS INT) AS work
            FROM {texts} SEMI JOIN {domains} USING (paper_id)
        ) SELECT work, paper_id, year, min(work) OVER (PARTITION BY folded) AS same_text FROM works"""


def select_numbered_members(works: str, domains: str) -> str:
    """Select `paper_id, work, domain, domain_number, member`: a row per domain of a work, numbered by domain
    and work."""
    return f"""SELECT *, CAST(row_number() OVER (ORDER BY domain_number, work) - 1 AS INT) AS member
        FROM (SELECT DISTINCT paper_id, work, domain, dense_rank() OVER (ORDER BY domain) AS domain_number
            FROM {domains} JOIN {works} USING (paper_id)) AS members"""


def domains_of_cited(works: str, papers: str, citations: str, memberships: str, keep_ties: bool) -> str:
    """Select `paper_id, domain` of works outside the corpus: the domain that cites them most.

    On a tie it is each of these domains, or, unless `keep_ties`, none. Papers of the corpus have the domains
    of the rules, or none: `memberships(paper_id, domain)`.
    """
    tied = "" if keep_ties else "GROUP BY cited HAVING count(*) = 1"
    return f"""WITH outside AS (SELECT paper_id FROM {works} ANTI JOIN {papers} USING (paper_id)),
        cited AS (SELECT DISTINCT citing, cited FROM {citations} AS c SEMI JOIN outside
            ON c.cited = outside.paper_id),
        counted AS (SELECT cited, domain, count(*) AS votes
            FROM cited JOIN {memberships} AS m ON cited.citing = m.paper_id GROUP BY cited, domain),
        ranked AS (SELECT cited, domain, rank() OVER (PARTITION BY cited ORDER BY votes DESC) AS place
            FROM counted)
        SELECT cited AS paper_id, {"domain" if keep_ties else "min(domain) AS domain"} FROM ranked
            WHERE place = 1 {tied}"""


def within_years(memberships: str, works: str, years: Mapping[str, tuple[int, int]]) -> str:
    """Select rows of `memberships(paper_id, domain)` whose work is of its domain's years, if it has any."""
    conditions = [
        f"(domain <> '{domain}' OR coalesce(year BETWEEN {first} AND {last}, false))"
        for domain, (first, last) in sorted(years.items())
    ]
    return f"""SELECT paper_id, domain FROM {memberships} AS memberships JOIN {works} USING (paper_id)
        WHERE {" AND ".join(["true", *conditions])}"""


def select_touching(citations: str, works: str) -> str:
    """Select distinct rows of `citations(citing, cited)` that a work of `works(paper_id)` makes or gets."""
    return f"""SELECT citing, cited FROM {citations} AS c SEMI JOIN {works} AS w ON c.cited = w.paper_id
        UNION SELECT citing, cited FROM {citations} AS c SEMI JOIN {works} AS w ON c.citing = w.paper_id"""


# ---- relations -----------------------------------------------------------------------------------


RELATIONS = ("co-citation", "coupling", "citation")
# Relation -> the end of a citation that is a member, and the end that two members share.
_ENDS = {"co-citation": ("cited", "citing"), "coupling": ("citing", "cited")}


def select_linked_members(relation: str, citations: str, members: str) -> str:
    """Select `one, other, count` of the members that a relation links; third works need not be members.

    The count is of the papers that cite both (co-citation), of shared references (coupling), or 2 if each
    cites the other (citation). Source of co-citation: Hallee et al. 2025, Methods, Data compilation.
    """
    if relation == "citation":
        return f"""WITH ends AS (SELECT DISTINCT a.member AS citing, b.member AS cited
                FROM {citations} AS c JOIN {members} AS a ON c.citing = a.paper_id
                JOIN {members} AS b ON c.cited = b.paper_id AND a.domain_number = b.domain_number
                WHERE a.member <> b.member)
            SELECT least(citing, cited) AS one, greatest(citing, cited) AS other, count(*) AS count
            FROM ends GROUP BY least(citing, cited), greatest(citing, cited)"""
    ours, third = _ENDS[relation]
    ends = f"""SELECT {third}, domain_number, member
        FROM {citations} AS c JOIN {members} AS m ON c.{ours} = m.paper_id"""
    pairs = _pairs_in_lists(ends, [third])
    return f"SELECT one, other, count(*) AS count FROM ({pairs}) AS pairs GROUP BY one, other"


def _pairs_in_lists(ends: str, through: Sequence[str], keep: str = "") -> str:
    """Select `one, other` (and a column to keep) of every two members of one domain with the same values of
    `through`, once for each such values, of a query for `*through, domain_number, member`.

    Each of those values has a sorted list of members, and each member pairs with those after it: half the
    rows of a join of `ends` with itself, and no hash table of `ends`.
    """
    return f"""SELECT {keep} element_at(members, place) AS one,
            explode(slice(members, place + 1, cardinality(members))) AS other
        FROM (SELECT {keep} members, explode(sequence(1, cardinality(members) - 1)) AS place
            FROM (SELECT {keep} array_sort(array_agg(DISTINCT member)) AS members FROM ({ends}) AS ends
                GROUP BY {", ".join(through)}, domain_number) AS lists
            WHERE cardinality(members) > 1) AS places"""


def references_of_few(citations: str, members: str, rare: int) -> str:
    """Select `cited`: the works that members cite and that at most `rare` papers of the corpus cite.

    A work that half a field cites (a method, a program) tells little about two papers that share it.
    """
    return f"""SELECT cited FROM {citations} AS every SEMI JOIN (
            SELECT cited FROM {citations} AS c SEMI JOIN {members} AS m ON c.citing = m.paper_id
        ) AS theirs USING (cited) GROUP BY cited HAVING count(DISTINCT citing) BETWEEN 2 AND {rare}"""


def select_linking(pairs: str, citations: str, relation: str) -> str:
    """Select `pair, through`: the works that link each row of `pairs(pair, one, other)`.

    They are the citing articles with co-citation, the shared references with coupling, and with citation the
    work that cites the other.
    """
    if relation == "citation":
        return f"""SELECT pair, one AS through FROM {pairs} AS p SEMI JOIN {citations} AS c
                ON p.one = c.citing AND p.other = c.cited
            UNION ALL SELECT pair, other FROM {pairs} AS p SEMI JOIN {citations} AS c
                ON p.other = c.citing AND p.one = c.cited"""
    ours, third = _ENDS[relation]
    return f"""SELECT pair, a.{third} AS through FROM {pairs} AS p JOIN {citations} AS a ON p.one = a.{ours}
        SEMI JOIN {citations} AS b ON a.{third} = b.{third} AND p.other = b.{ours}"""


# ---- proximity -----------------------------------------------------------------------------------

# Level -> the columns that number a place of it within its article.
_PLACE: dict[str, tuple[str, ...]] = {
    "article": (),
    "section": ("section",),
    "paragraph": ("paragraph",),
    "sentence": ("paragraph", "sentence"),
    "bracket": ("paragraph", "bracket"),
}


def co_cited_within(citations: str, mentions: str, members: str, within: Level) -> str:
    """Select `one, other, count, level` of works that an article cites together at a level or closer.

    `count` is the number of such articles, `level` the number in `LEVELS` of the closest one. The tables are
    as in `select_linked_members`, and `mentions(citing, cited, section, paragraph, sentence, bracket)`.
    """
    together = []
    for number in range(LEVELS.index(within), len(LEVELS)):
        through = ("citing", *_PLACE[LEVELS[number]])
        cited = citations if LEVELS[number] == "article" else mentions
        ends = f"""SELECT {", ".join(through)}, domain_number, member
            FROM {cited} AS c JOIN {members} AS m ON c.cited = m.paper_id"""
        pairs = _pairs_in_lists(ends, through, keep="citing,")
        together.append(f"SELECT one, other, citing, {number} AS level FROM ({pairs}) AS pairs")
    return f"""WITH of_article AS (SELECT one, other, max(level) AS level
            FROM ({" UNION ALL ".join(together)}) AS together GROUP BY one, other, citing)
        SELECT one, other, count(*) AS count, CAST(max(level) AS BIGINT) AS level
        FROM of_article GROUP BY one, other"""
