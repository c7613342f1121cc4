"""The steps from references to citations as SQL: identifiers learned from references, links, mentions."""

from __future__ import annotations

from sentence_experts.corpus.resolving_sql import KINDS, PREFIX, pairs

BY_NUMBER = """(citing IS NULL AND doi IS NULL AND pmid IS NULL AND pmcid IS NULL AND other IS NULL
    AND title IS NULL AND openalex IS NOT NULL AND NOT coalesce(retracts, false))"""
"""References that have nothing but a number, as all of OpenAlex have. They are by far the most, and are
linked range by range (`numbered`)."""
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
    # Nothing is learned where the articles settle it: of works whose DOI a record states, and of DOIs that
    # belong to an article. Those references count all the same: what they say outvotes a wrong one.
    """CREATE TABLE reference_ids AS
    SELECT r.doi, r.pmid, r.pmcid,
      (r.doi IS NULL OR r.doi NOT IN (SELECT doi FROM works WHERE doi IS NOT NULL))
      AND (r.pmid IS NULL OR r.pmid NOT IN (
          SELECT pmid FROM works WHERE pmid IS NOT NULL AND doi IS NOT NULL))
      AND (r.pmcid IS NULL OR r.pmcid NOT IN (
          SELECT pmcid FROM works WHERE pmcid IS NOT NULL AND doi IS NOT NULL)) AS unsettled
    FROM stated_references r
    WHERE (r.doi IS NOT NULL)::INT + (r.pmid IS NOT NULL)::INT + (r.pmcid IS NOT NULL)::INT > 1
      AND NOT coalesce(r.retracts, false)""",
    pairs("pmid_doi", "pmid", "doi", "reference_ids", "unsettled"),
    pairs("pmcid_doi", "pmcid", "doi", "reference_ids", "unsettled"),
    pairs("pmcid_pmid", "pmcid", "pmid", "reference_ids", "unsettled"),
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
    """CREATE TABLE openalex_names AS
    WITH named AS (
        SELECT openalex, paper_id, 0 AS rank FROM identified WHERE openalex IS NOT NULL
        UNION ALL SELECT w.openalex, i.paper_id, 1 FROM works w JOIN identified i USING (key)
            WHERE w.openalex IS NOT NULL AND w.openalex IS DISTINCT FROM i.openalex
    ) SELECT openalex, first(paper_id ORDER BY rank, paper_id) AS paper_id FROM named GROUP BY openalex""",
    # Works that are cited by numbers alone need no further names.
    f"""CREATE TABLE paper_names AS
    WITH named AS (
        {_NAMED}
        UNION ALL SELECT 'own:' || w.other, i.paper_id, 1 FROM works w JOIN identified i USING (key)
            WHERE w.other IS NOT NULL
    ) SELECT name, first(paper_id ORDER BY rank, paper_id) AS paper_id FROM named
    WHERE EXISTS (SELECT 1 FROM stated_references WHERE NOT {BY_NUMBER}) GROUP BY name""",
)


def numbered(condition: str) -> str:
    """Return the query for references by number alone of papers of `identified` that meet a condition."""
    return f"""
    SELECT r.spot, r.source, r.position, r.year, i.paper_id AS citing,
        coalesce(w.paper_id, 'openalex:W' || r.openalex) AS cited, w.paper_id IS NOT NULL AS in_corpus
    FROM (SELECT * FROM stated_references WHERE {BY_NUMBER}) r
    JOIN (SELECT spot, paper_id FROM identified WHERE {condition}) i ON i.spot = r.spot
    LEFT JOIN openalex_names w ON w.openalex = r.openalex"""


LINKS = (
    f"""CREATE TABLE linked AS
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
    FROM (SELECT * FROM stated_references WHERE NOT {BY_NUMBER}) r
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
    LEFT JOIN openalex_names w ON w.openalex = r.openalex
    WHERE i.spot IS NOT NULL OR r.citing IS NOT NULL""",
    """CREATE TABLE retracted AS
    SELECT DISTINCT cited AS paper_id FROM linked WHERE retracts AND in_corpus""",
    # Of a paper with several records, the references and mentions of the best one count.
    f"""CREATE TABLE listed AS
    SELECT l.spot, l.position, l.citing, l.cited,
        (l.spot, l.position) IN (SELECT (spot, reference) FROM all_mentions) AS mentioned
    FROM (
        SELECT spot, position, citing, cited FROM linked WHERE NOT retracts
        UNION ALL SELECT spot, position, citing, cited
            FROM ({numbered("spot IN (SELECT spot FROM stated_papers WHERE has_body)")})
    ) l JOIN stated_papers p USING (spot) WHERE p.has_body""",
)


def links(first: str | None, end: str | None) -> tuple[str, ...]:
    """Return the statements that make the tables `numbered` and `links` of a range of citing works."""
    return (
        f"CREATE OR REPLACE TABLE numbered AS {numbered(between('paper_id', first, end))}",
        f"""CREATE OR REPLACE TABLE links AS
    SELECT citing, cited, title AS cited_title, year AS cited_year, in_corpus, from_corpus, source, position,
        CASE WHEN cited IS NULL THEN 1 ELSE row_number() OVER (PARTITION BY citing, cited ORDER BY
            (title IS NULL), position, source, title, year) END AS place
    FROM (
        SELECT citing, cited, title, year, in_corpus, from_corpus, source, position FROM linked
        WHERE NOT retracts AND {between("citing", first, end)}
        UNION ALL SELECT citing, cited, NULL, year, in_corpus, true, source, position FROM numbered
    ) WHERE cited IS NULL OR cited <> citing""",
    )


def between(column: str, first: str | None, end: str | None) -> str:
    """Return the condition that a column is from `first` to before `end`, SQL strings or None (no limit)."""
    limits = [f"{column} >= {first}"] * (first is not None) + [f"{column} < {end}"] * (end is not None)
    return " AND ".join(limits) or "true"


LINKS_IN_ORDER = """
    SELECT citing, cited, cited_title, cited_year FROM links WHERE place = 1
    ORDER BY citing, source, position, cited, cited_title, cited_year"""
MENTIONS_IN_ORDER = """
    SELECT l.citing, l.cited, m.section, m.section_title, m.section_kind, m.paragraph, m.sentence, m.bracket,
        m.position
    FROM all_mentions m JOIN listed l ON l.spot = m.spot AND l.position = m.reference
    WHERE l.cited IS NOT NULL AND l.cited <> l.citing
    ORDER BY l.citing, m.paragraph, m.position, m.reference, l.cited"""

OF_NUMBERED = """
    SELECT count(*) AS references, count(*) FILTER (WHERE cited = citing) AS self_citations,
        count(*) FILTER (WHERE NOT in_corpus) AS references_by_unknown_number
    FROM numbered"""
OF_LINKS = """
    SELECT count(*) FILTER (WHERE place > 1) AS duplicate_citations,
        count(*) FILTER (WHERE place = 1) AS citations,
        count(*) FILTER (WHERE place = 1 AND in_corpus AND from_corpus) AS in_corpus_citations,
        count(*) FILTER (WHERE place = 1 AND NOT from_corpus) AS citations_by_others
    FROM links"""
OF_LINKED = """
    SELECT count(*) AS references,
        count(doi) AS references_with_doi, count(pmid) AS references_with_pmid, count(title) AS
        references_with_title, count(DISTINCT doi) AS distinct_cited_dois,
        count(*) FILTER (WHERE cited IS NULL) AS unidentified_references,
        count(*) FILTER (WHERE cited = citing) AS self_citations,
        count(*) FILTER (WHERE NOT in_corpus AND starts_with(cited, 'openalex:')) AS
        references_by_unknown_number
    FROM linked WHERE NOT retracts"""
OF_LISTED = """
    SELECT count(*) AS references_with_body, count(*) FILTER (WHERE NOT mentioned) AS
        references_never_mentioned
    FROM (SELECT bool_or(mentioned) AS mentioned FROM listed WHERE cited <> citing GROUP BY citing, cited)"""
NUMBERS_OF_LINKS = (
    *("references", "references_with_doi", "references_with_pmid", "references_with_title"),
    *("distinct_cited_dois", "unidentified_references", "self_citations", "references_by_unknown_number"),
    *("duplicate_citations", "citations", "in_corpus_citations", "citations_by_others"),
)
"""The sum of the three counts above."""
