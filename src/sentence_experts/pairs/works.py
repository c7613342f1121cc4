"""The works that can be in a pair, as SQL: their texts, their numbers and their domains.

Each function returns a query over tables (names, or queries in brackets) that runs on DuckDB and on Spark.
"""

from __future__ import annotations

from collections.abc import Mapping

from sentence_experts.pairs.splits import NOT_WORDS

TITLE_AND_ABSTRACT = "\n"
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
    "title+abstract": f"SELECT paper_id, title || '{TITLE_AND_ABSTRACT}' || abstract AS text, year "
    "FROM {papers} WHERE length(title) > 0 AND length(abstract) > 0",
}
# Units that works outside the corpus have too.
BEYOND_THE_CORPUS = ("title",)


def folded_texts(unit: str, papers: str, citations: str) -> str:
    """`paper_id, text, year, folded` of all works with the unit's text.

    `folded` is equal for texts that differ only in case, punctuation and white space: a hash, as it is only
    compared.
    """
    # Two letters whose lower case differs between engines: a separate dot, another letter at a word's end.
    lower = "lower(replace(replace(text, 'İ', 'i'), 'Σ', 'σ'))"
    words = f"regexp_extract_all({lower}, '[^{NOT_WORDS}]+', 0)"
    return f"""SELECT paper_id, text, year, md5(array_join({words}, ' ')) AS folded
        FROM ({UNITS[unit].format(papers=papers, citations=citations)}) AS texts
        WHERE length(trim(BOTH '{_WHITE_SPACE}' FROM text)) > 0"""


def numbered_works(texts: str, domains: str) -> str:
    """`work, paper_id, year, same_text` of the works of `domains(paper_id, domain)`, in the order of the ids.

    `same_text` is the smallest number among the works of one text (a paper published twice), which count as
    one paper for leaks.
    """
    return f"""WITH works AS (
            SELECT paper_id, year, folded, CAST(row_number() OVER (ORDER BY paper_id) - 1 AS INT) AS work
            FROM {texts} SEMI JOIN {domains} USING (paper_id)
        ) SELECT work, paper_id, year, min(work) OVER (PARTITION BY folded) AS same_text FROM works"""


def numbered_members(works: str, domains: str, names: str) -> str:
    """`paper_id, work, domain_number, member`: each work once for each of its domains, by domain and work.

    `names(domain, domain_number)` numbers the domains.
    """
    return f"""SELECT paper_id, work, domain_number,
            CAST(row_number() OVER (ORDER BY domain_number, work) - 1 AS INT) AS member
        FROM (SELECT DISTINCT paper_id, work, domain_number
            FROM {domains} JOIN {names} USING (domain) JOIN {works} USING (paper_id)) AS members"""


def domains_of_cited(works: str, papers: str, citations: str, memberships: str) -> str:
    """`paper_id, domain` of works outside the corpus: the domain that cites them most, none on a tie.

    Papers of the corpus have the domains of the rules, or none: `memberships(paper_id, domain)`.
    """
    return f"""WITH outside AS (SELECT paper_id FROM {works} ANTI JOIN {papers} USING (paper_id)),
        cited AS (SELECT DISTINCT citing, cited FROM {citations} AS c SEMI JOIN outside
            ON c.cited = outside.paper_id),
        counted AS (SELECT cited, domain, count(*) AS votes
            FROM cited JOIN {memberships} AS m ON cited.citing = m.paper_id GROUP BY cited, domain),
        ranked AS (SELECT cited, domain, rank() OVER (PARTITION BY cited ORDER BY votes DESC) AS place
            FROM counted)
        SELECT cited AS paper_id, min(domain) AS domain FROM ranked WHERE place = 1
        GROUP BY cited HAVING count(*) = 1"""


def within_years(memberships: str, works: str, years: Mapping[str, tuple[int, int]]) -> str:
    """Rows of `memberships(paper_id, domain)` whose work is of its domain's years, if it has any."""
    conditions = [
        f"(domain <> '{domain}' OR coalesce(year BETWEEN {first} AND {last}, false))"
        for domain, (first, last) in sorted(years.items())
    ]
    return f"""SELECT paper_id, domain FROM {memberships} AS memberships JOIN {works} USING (paper_id)
        WHERE {" AND ".join(["true", *conditions])}"""


def same_text_works(texts: str, works: str) -> str:
    """`paper_id` of `works(paper_id)`, and of the other works with a text of theirs (reprints)."""
    return f"""SELECT paper_id FROM {texts} SEMI JOIN (
        SELECT folded FROM {texts} SEMI JOIN {works} USING (paper_id)) AS wanted USING (folded)"""
