"""The later steps of resolving a corpus as SQL: papers, citations, counts; see `records_sql` for the first.

Joins run as they are written: the right-hand table of a join is kept in memory.
"""

from __future__ import annotations

from sentence_experts.corpus.corpus_folder import LIST_COLUMNS, PAPERS_SCHEMA, TEXT_COLUMNS
from sentence_experts.corpus.identifiers import SIMULATED_DOI
from sentence_experts.corpus.paper import NOTICE_KINDS
from sentence_experts.corpus.records_sql import KINDS, PREFIX, match_identifiers

# ---- papers --------------------------------------------------------------------------------------

_SINGLE = ("year", *(column for column in TEXT_COLUMNS if column != "kind"))


def _merge_column(column: str) -> str:
    """Return the SQL of a column of a paper's best record, falling back to the work's other records."""
    own = f"p.{column} IS NOT NULL"
    if column == "kind":
        own = "p.kind <> 'article' OR o.kind IS NULL"
    elif column in LIST_COLUMNS:
        own = f"len(p.{column}) > 0 OR o.{column} IS NULL"
    return f"CASE WHEN {own} THEN p.{column} ELSE o.{column} END AS {column}"


_FIRST_STATED = "first(p.{0} ORDER BY w.place) FILTER ({1}) AS {0}"

# Missing values come from the next best record: PubMed has MeSH headings, PMC licences.
TOGETHER = f"""
    CREATE TABLE together AS
    SELECT w.key, bool_or(p.retracted) AS retracted, bool_or(p.has_body) AS has_body,
        {", ".join(_FIRST_STATED.format(name, f"p.{name} IS NOT NULL") for name in _SINGLE)},
        {_FIRST_STATED.format("kind", "p.kind <> 'article'")},
        {", ".join(_FIRST_STATED.format(name, f"len(p.{name}) > 0") for name in LIST_COLUMNS)}
    FROM valid_papers p JOIN (
        SELECT * FROM works WHERE key IN (SELECT key FROM works WHERE place > 1)
    ) w USING (spot) GROUP BY w.key"""


def select_papers(condition: str) -> str:
    """Return the query for the papers of `identified` that meet a condition, in the order of their ids."""
    return f"""
    SELECT i.paper_id, i.pmid, i.pmcid, i.doi, 'W' || i.openalex AS openalex,
        {", ".join(map(_merge_column, PAPERS_SCHEMA.names[5:-2]))},
        p.retracted OR coalesce(o.retracted, false) OR t.paper_id IS NOT NULL AS retracted,
        p.has_body OR coalesce(o.has_body, false) AS has_body
    FROM valid_papers p JOIN (SELECT * FROM identified WHERE {condition}) i USING (spot)
    LEFT JOIN together o USING (key) LEFT JOIN retracted t ON t.paper_id = i.paper_id
    ORDER BY i.paper_id"""


# ---- from references to citations ------------------------------------------------------------------

_NAMED = " UNION ALL ".join(
    f"""SELECT '{PREFIX[kind]}' || {kind} AS name, paper_id, 0 AS rank FROM identified
        WHERE {kind} IS NOT NULL
    """
    + (
        f"""UNION ALL SELECT '{PREFIX[kind]}' || w.{kind}, i.paper_id, 1
        FROM works w JOIN identified i USING (key) WHERE w.{kind} IS NOT NULL"""
        if kind != "doi"
        else ""
    )
    for kind in KINDS
)


REFERENCE_IDS = (
    # No identifier is learned for works whose DOI a record gives, or for DOIs of articles. Their references
    # count all the same, and outvote a wrong one.
    """CREATE TABLE reference_ids AS
    SELECT r.doi, r.pmid, r.pmcid,
      (r.doi IS NULL OR r.doi NOT IN (SELECT doi FROM works WHERE doi IS NOT NULL))
      AND (r.pmid IS NULL OR r.pmid NOT IN (
          SELECT pmid FROM works WHERE pmid IS NOT NULL AND doi IS NOT NULL))
      AND (r.pmcid IS NULL OR r.pmcid NOT IN (
          SELECT pmcid FROM works WHERE pmcid IS NOT NULL AND doi IS NOT NULL)) AS unsettled
    FROM valid_references r
    WHERE (r.doi IS NOT NULL)::INT + (r.pmid IS NOT NULL)::INT + (r.pmcid IS NOT NULL)::INT > 1
      AND NOT coalesce(r.retracts, false)""",
    match_identifiers("pmid_doi", "pmid", "doi", "reference_ids", "unsettled"),
    match_identifiers("pmcid_doi", "pmcid", "doi", "reference_ids", "unsettled"),
    match_identifiers("pmcid_pmid", "pmcid", "pmid", "reference_ids", "unsettled"),
    # A paper without a DOI takes the one that references agree on, unless two papers would take the same.
    """CREATE TABLE identified AS
    WITH offered AS (
        SELECT k.*, coalesce(k.doi, a.doi, b.doi) AS learned FROM kept k
        LEFT JOIN pmid_doi a ON a.pmid = k.pmid LEFT JOIN pmcid_doi b ON b.pmcid = k.pmcid
    ), chosen AS (
        SELECT *,
            CASE WHEN doi IS NOT NULL OR count(*) OVER (PARTITION BY learned) = 1 THEN learned END AS one_doi
        FROM offered
    )
    SELECT spot, key, coalesce('doi:' || one_doi, key) AS paper_id,
        one_doi AS doi, pmid, pmcid, openalex FROM chosen""",
    "DROP TABLE kept",
    f"""CREATE TABLE paper_names AS
    WITH named AS (
        {_NAMED}
        UNION ALL SELECT 'own:' || w.other, i.paper_id, 1 FROM works w JOIN identified i USING (key)
            WHERE w.other IS NOT NULL
    ) SELECT name, first(paper_id ORDER BY rank, paper_id) AS paper_id FROM named GROUP BY name""",
)


LINKS = (
    """CREATE TABLE linked AS
    SELECT r.source, r.spot, r.position, r.retracts, r.doi, r.pmid, r.title, r.year,
        coalesce(i.paper_id, by_own.paper_id, by_key.paper_id, citing_doi.doi,
            r.citing_key, r.citing) AS citing,
        coalesce(o.paper_id, d.paper_id, p.paper_id, c.paper_id, l.paper_id, w.paper_id,
            'doi:' || r.doi, 'doi:' || a.doi, 'doi:' || b.doi,
            'pmid:' || r.pmid, 'pmid:' || e.pmid, 'pmc:' || r.pmcid,
            'openalex:W' || r.openalex, r.other) AS cited,
        coalesce(i.paper_id, by_own.paper_id, by_key.paper_id) IS NOT NULL AS from_corpus,
        coalesce(o.paper_id, d.paper_id, p.paper_id, c.paper_id, l.paper_id, w.paper_id)
            IS NOT NULL AS in_corpus
    FROM valid_references r
    LEFT JOIN identified i ON i.spot = r.spot
    LEFT JOIN paper_names by_own ON by_own.name = 'own:' || r.citing
    LEFT JOIN paper_names by_key ON by_key.name = r.citing_key
    LEFT JOIN (SELECT 'pmid:' || pmid AS key, 'doi:' || doi AS doi FROM pmid_doi) citing_doi
        ON citing_doi.key = r.citing_key
    LEFT JOIN paper_names o ON o.name = 'own:' || r.other
    LEFT JOIN paper_names d ON d.name = 'doi:' || r.doi
    LEFT JOIN paper_names p ON p.name = 'pmid:' || r.pmid
    LEFT JOIN paper_names c ON c.name = 'pmc:' || r.pmcid
    LEFT JOIN pmid_doi a ON a.pmid = r.pmid
    LEFT JOIN pmcid_doi b ON b.pmcid = r.pmcid
    LEFT JOIN pmcid_pmid e ON e.pmcid = r.pmcid
    LEFT JOIN paper_names l ON l.name = coalesce(
        'doi:' || r.doi, 'doi:' || a.doi, 'doi:' || b.doi, 'pmid:' || r.pmid, 'pmid:' || e.pmid)
    LEFT JOIN paper_names w ON w.name = 'openalex:W' || r.openalex
    WHERE i.spot IS NOT NULL OR r.citing IS NOT NULL OR r.retracts""",
    """CREATE TABLE retracted AS
    SELECT DISTINCT cited AS paper_id FROM linked WHERE retracts AND in_corpus""",
    # If a paper has several records, the references and mentions of the best one count; any of them retracts.
    """CREATE TABLE listed AS
    SELECT l.spot, l.position, l.citing, l.cited,
        (l.spot, l.position) IN (SELECT (spot, reference) FROM all_mentions) AS mentioned
    FROM linked l JOIN valid_papers p USING (spot) WHERE NOT retracts AND p.has_body""",
)


def make_links(condition: str) -> str:
    """Return the statement that makes the table `links` of the citing works that meet a condition."""
    return f"""CREATE OR REPLACE TABLE links AS
    SELECT citing, cited, title AS cited_title, year AS cited_year, in_corpus, from_corpus, position,
        (spot IS NULL, source) AS rank,
        CASE WHEN cited IS NULL AND spot IS NOT NULL THEN 1 ELSE row_number() OVER (
            PARTITION BY citing, cited, CASE WHEN cited IS NULL THEN (title, year) END
            ORDER BY (title IS NULL), position, rank, title, year) END AS place
    FROM linked WHERE NOT retracts AND {condition} AND (cited IS NULL OR cited <> citing)"""


def limit_range(column: str, first: str | None, end: str | None) -> str:
    """Return the condition that a column is from `first` to before `end`, SQL strings or None (no limit)."""
    limits = [f"{column} >= {first}"] * (first is not None) + [f"{column} < {end}"] * (end is not None)
    return " AND ".join(limits) or "true"


LINKS_IN_ORDER = """
    SELECT citing, cited, cited_title, cited_year FROM links WHERE place = 1
    ORDER BY citing, rank, position, cited, cited_title, cited_year"""
MENTIONS_IN_ORDER = """
    SELECT l.citing, l.cited, m.section, m.section_title, m.section_kind, m.paragraph, m.sentence, m.bracket,
        m.position
    FROM all_mentions m JOIN listed l ON l.spot = m.spot AND l.position = m.reference
    WHERE l.cited IS NOT NULL AND l.cited <> l.citing
    ORDER BY l.citing, m.paragraph, m.position, m.reference, l.cited"""

# ---- queries for the tables -----------------------------------------------------------------------

# If a paper has several records, the best record with a text supplies it.
BODIES_IN_ORDER = """
    WITH best AS (
        SELECT key, arg_min(spot, place) AS spot FROM works SEMI JOIN all_bodies USING (spot) GROUP BY key
    )
    SELECT i.paper_id, b.section, b.text
    FROM all_bodies b JOIN best ON best.spot = b.spot JOIN identified i USING (key)
    ORDER BY i.paper_id, b.position"""
COUNT_WORKS = """
    SELECT count(*) FILTER (WHERE NOT completes) + any_value(copies) AS articles,
        count(*) FILTER (WHERE NOT completes AND place > 1) + any_value(copies) AS duplicates,
        count(*) FILTER (WHERE place = 1 AND key NOT IN (SELECT key FROM identified)) AS completing_no_paper
    FROM works JOIN source_names USING (source), (
        SELECT count(*) AS copies FROM copies WHERE member IS NOT NULL AND NOT deleted
    )"""
COUNT_PAPERS = f"""
    SELECT count(*) AS papers, count(title) AS with_title, count(abstract) AS with_abstract,
        count(topic) AS with_topic,
        count(doi) AS with_doi, count(*) FILTER (WHERE len(authors) > 0) AS with_authors,
        count(*) FILTER (WHERE starts_with(doi, '{SIMULATED_DOI}')) AS simulated,
        count(*) FILTER (WHERE article_type = 'research-article') AS research_articles,
        count(*) FILTER (WHERE retracted) AS retracted,
        count(*) FILTER (WHERE kind IN {tuple(sorted(NOTICE_KINDS))}) AS notices,
        count(*) FILTER (WHERE has_body) AS papers_with_body
    FROM papers"""
_TALLY = """
    SELECT coalesce({column}::VARCHAR, 'unknown'), count(*)
    FROM papers GROUP BY 1 ORDER BY 1"""
TALLIES = {
    f"by_{column}": _TALLY.format(column=column) for column in ("article_type", "kind", "year", "licence")
}
COUNT_LINKS = """
    SELECT count(*) FILTER (WHERE place > 1) AS duplicate_citations,
        count(*) FILTER (WHERE place = 1) AS citations,
        count(*) FILTER (WHERE place = 1 AND in_corpus AND from_corpus) AS in_corpus_citations,
        count(*) FILTER (WHERE place = 1 AND NOT from_corpus) AS citations_by_others
    FROM links"""
COUNT_LINKED = """
    SELECT count(*) AS references,
        count(doi) AS references_with_doi, count(pmid) AS references_with_pmid, count(title) AS
        references_with_title, count(DISTINCT doi) AS distinct_cited_dois,
        count(*) FILTER (WHERE cited IS NULL) AS unidentified_references,
        count(*) FILTER (WHERE cited = citing) AS self_citations,
        count(*) FILTER (WHERE NOT in_corpus AND starts_with(cited, 'openalex:')) AS
        references_by_unknown_number
    FROM linked WHERE NOT retracts"""
COUNT_CITED = """
    SELECT count(DISTINCT cited) AS distinct_cited_works, (SELECT count(*) FROM mentions) AS mentions
    FROM citations"""
COUNT_LISTED = """
    SELECT count(*) AS references_with_body, count(*) FILTER (WHERE NOT mentioned) AS
        references_never_mentioned
    FROM (SELECT bool_or(mentioned) AS mentioned FROM listed WHERE cited <> citing GROUP BY citing, cited)"""
