"""The steps of resolving a corpus as SQL: revisions, works, references, links, papers, counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sentence_experts.corpus.identifiers import SIMULATED_DOI

Ask = Callable[[str], list[tuple[Any, ...]]]
"""Answers a query with rows."""


def _pairs(name: str, left: str, right: str, rows: str, open_rows: str = "true") -> str:
    """A table of (left, right) identifiers, at most one partner for either side.

    All rows count, but only pairs that one of the `open_rows` states are learned.
    """
    return f"""
    CREATE OR REPLACE TABLE {name} AS
    WITH counted AS (
        SELECT {left}, {right}, count(*) AS times, bool_or({open_rows}) AS is_open FROM {rows}
        WHERE {left} IS NOT NULL AND {right} IS NOT NULL GROUP BY ALL
    ), ranked AS (
        SELECT *, row_number() OVER (PARTITION BY {left} ORDER BY times DESC, {right}) AS of_left,
                  row_number() OVER (PARTITION BY {right} ORDER BY times DESC, {left}) AS of_right
        FROM counted
    ) SELECT {left}, {right} FROM ranked WHERE of_left = 1 AND of_right = 1 AND is_open"""


# ---- revisions of PubMed's records ----------------------------------------------------------------

_WORK = "coalesce('openalex:W' || openalex, 'pmid:' || pmid)"
REVISIONS = (
    # Only works with several records can have a replaced one.
    f"""CREATE TABLE revised AS
    SELECT {_WORK} AS work FROM all_papers WHERE version IS NOT NULL
    GROUP BY work HAVING count(*) > 1 OR bool_or(deleted)""",
    # The last mention of each version of a record, in the order of the files' names.
    f"""CREATE TABLE revisions AS
    WITH mentions AS (
        SELECT a.spot, {_WORK} AS work, a.version, a.deleted, a.member, n.name AS source_name, a.record,
            regexp_extract(a.member, '[^/]*$') AS file
        FROM all_papers a JOIN source_names n USING (source)
        WHERE a.version IS NOT NULL AND {_WORK} IN (SELECT work FROM revised)
    ), aged AS (
        SELECT *, row_number() OVER last_first AS age, first_value(deleted) OVER last_first AS gone,
            first_value(source_name || '/' || member) OVER last_first AS last_in
        FROM mentions
        WINDOW last_first AS (PARTITION BY work, version
            ORDER BY file DESC, source_name DESC, member DESC, record DESC, spot DESC)
    ) SELECT *, age = 1 AND NOT gone AND version = max(version) FILTER (age = 1 AND NOT gone)
        OVER (PARTITION BY work) AS stands
    FROM aged""",
    # A later version replaces the earlier ones too.
    """CREATE TABLE set_aside AS
    SELECT r.spot, r.deleted, r.source_name, r.member, r.work, r.record, r.gone,
        coalesce(CASE WHEN r.gone OR r.age > 1 THEN r.last_in END,
            s.source_name || '/' || s.member) AS last_in
    FROM revisions r LEFT JOIN revisions s ON s.work = r.work AND s.stands
    WHERE r.stands IS DISTINCT FROM true""",
    "CREATE VIEW stated_papers AS SELECT * FROM all_papers ANTI JOIN set_aside USING (spot)",
    "CREATE VIEW stated_references AS SELECT * FROM all_references ANTI JOIN set_aside USING (spot)",
)

REVISED = """
    SELECT source_name, member, work, CASE WHEN gone THEN 'deleted' ELSE 'replaced' END,
        (CASE WHEN gone THEN 'withdrawn by ' ELSE 'a later record is in ' END) || last_in
    FROM set_aside WHERE NOT deleted ORDER BY 1, 2, record, spot"""

# ---- articles ------------------------------------------------------------------------------------


_KINDS = ("doi", "pmid", "pmcid", "openalex", "s2")
"""Identifiers, from the one that names a work first."""
_PREFIX = {"doi": "doi:", "pmid": "pmid:", "pmcid": "pmc:", "openalex": "openalex:W", "s2": "s2:"}
_KEY = "coalesce(" + ", ".join(f"'{_PREFIX[kind]}' || {kind}" for kind in _KINDS) + ", other)"


def records(ask: Ask) -> Iterator[str]:
    """Article records: fill in identifiers from each other, then choose the best record per work."""
    yield f"""CREATE TABLE record_ids AS SELECT spot, {", ".join(_KINDS)}, other,
        CASE WHEN starts_with(other, 's2:') THEN other END AS s2_paper FROM stated_papers"""
    # Twice: a record that has only a PMID may need one that links the PMID to a PMCID, and another that links
    # the PMCID to a DOI.
    for _ in range(2):
        yield from _fill(ask)
    yield f"""
    CREATE TABLE works AS
    WITH keyed AS (SELECT *, {_KEY} AS key FROM record_ids)
    SELECT k.*, n.name AS source_name, p.member, p.record,
           row_number() OVER (PARTITION BY k.key ORDER BY
               (p.references > 0) DESC, (p.abstract IS NOT NULL) DESC, (p.version IS NULL) DESC,
               filled DESC, p.references DESC,
               n.name, p.member, p.record, k.spot) AS place
    FROM keyed k JOIN (
        SELECT *, (title IS NOT NULL)::INT + (year IS NOT NULL)::INT + (article_type IS NOT NULL)::INT
            + (journal IS NOT NULL)::INT + (licence IS NOT NULL)::INT + (len(subjects) > 0)::INT
            + (len(mesh) > 0)::INT + (len(keywords) > 0)::INT AS filled
        FROM stated_papers
    ) p USING (spot) JOIN source_names n USING (source)"""
    # Where records of several works state the same PMID, it belongs to one of them: the one that is named
    # after it, else the one whose records state it most often.
    for kind in _KINDS[1:]:
        yield _pairs(f"{kind}_of", kind, "key", _STATED_BY.format(kind, _PREFIX[kind]))
    owned = " ".join(f"LEFT JOIN {kind}_of USING (key)" for kind in _KINDS[1:])
    columns = ", ".join(f"{kind}_of.{kind}" for kind in _KINDS[1:])
    yield f"""
    CREATE TABLE kept AS SELECT w.spot, w.key, w.doi, {columns} FROM works w {owned} WHERE w.place = 1
        AND w.key NOT IN (SELECT key FROM works WHERE key IN (SELECT key FROM works WHERE member IS NULL)
            GROUP BY key HAVING bool_and(member IS NULL) AND key IS NOT NULL)"""


def _fill(ask: Ask) -> Iterator[str]:
    """Complete the identifiers of each record by those that other records state with them."""
    learned: dict[str, list[str]] = {}
    for number, kind in enumerate((*_KINDS[1:], "s2_paper"), start=1):
        # Only if a record lacks what another one of the same work has.
        higher = _KINDS[:number]
        differ = ", ".join(f"bool_or({each} IS NULL) AND bool_or({each} IS NOT NULL)" for each in higher)
        differing = ask(f"""SELECT {", ".join(f"bool_or({each}_differs)" for each in higher)} FROM (
            SELECT unnest([{{{", ".join(f"'{each}_differs': false" for each in higher)}}}], recursive := true)
            UNION ALL SELECT {differ} FROM record_ids WHERE {kind} IS NOT NULL GROUP BY {kind})""")[0]
        for each, differs in zip(higher, differing, strict=True):
            if differs:
                yield _pairs(f"record_{kind}_{each}", kind, each, "record_ids")
                learned.setdefault(each, []).append(kind)
    if not learned:
        return
    columns = [
        f"coalesce({', '.join([f'r.{each}', *(f'{by}_{each}.{each}' for by in learned[each])])}) AS {each}"
        if each in learned
        else f"r.{each}"
        for each in _KINDS
    ]
    joins = " ".join(
        f"LEFT JOIN record_{by}_{each} {by}_{each} ON {by}_{each}.{by} = r.{by}"
        for each, kinds in learned.items()
        for by in kinds
    )
    yield f"""
    CREATE OR REPLACE TABLE record_ids AS
    SELECT r.spot, {", ".join(columns)}, r.other, r.s2_paper FROM record_ids r {joins}"""


_STATED_BY = """(
    SELECT key, {0} FROM works WHERE key = '{1}' || {0}
        OR '{1}' || {0} NOT IN (SELECT key FROM works WHERE key IS NOT NULL))"""


# ---- references ----------------------------------------------------------------------------------

_BY_NUMBER = """(citing IS NULL AND doi IS NULL AND pmid IS NULL AND pmcid IS NULL AND other IS NULL
    AND title IS NULL AND (openalex IS NOT NULL OR s2 IS NOT NULL))"""
"""References that have nothing but a number, as all of OpenAlex have."""
_NAMED = " UNION ALL ".join(
    f"""SELECT '{_PREFIX[kind]}' || {kind} AS name, paper_id, 0 AS rank FROM identified
        WHERE {kind} IS NOT NULL
    """
    + (
        f"""UNION ALL SELECT '{_PREFIX[kind]}' || w.{kind}, i.paper_id, 1
        FROM works w JOIN identified i USING (key) WHERE w.{kind} IS NOT NULL"""
        if kind != "doi"
        else ""
    )
    for kind in _KINDS
)


def _number_names(kind: str) -> str:
    return f"""CREATE TABLE {kind}_names AS
    WITH named AS (
        SELECT {kind}, paper_id, 0 AS rank FROM identified WHERE {kind} IS NOT NULL
        UNION ALL SELECT w.{kind}, i.paper_id, 1 FROM works w JOIN identified i USING (key)
            WHERE w.{kind} IS NOT NULL AND w.{kind} IS DISTINCT FROM i.{kind}
    ) SELECT {kind}, first(paper_id ORDER BY rank, paper_id) AS paper_id FROM named GROUP BY {kind}"""


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
    _pairs("pmid_doi", "pmid", "doi", "reference_ids", "unsettled"),
    _pairs("pmcid_doi", "pmcid", "doi", "reference_ids", "unsettled"),
    _pairs("pmcid_pmid", "pmcid", "pmid", "reference_ids", "unsettled"),
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
        one_doi AS doi, pmid, pmcid, openalex, s2 FROM chosen""",
    _number_names("openalex"),
    _number_names("s2"),
    # Works that are cited by numbers alone need no further names.
    f"""CREATE TABLE paper_names AS
    WITH named AS (
        {_NAMED}
        UNION ALL SELECT 'own:' || w.other, i.paper_id, 1 FROM works w JOIN identified i USING (key)
            WHERE w.other IS NOT NULL
    ) SELECT name, first(paper_id ORDER BY rank, paper_id) AS paper_id FROM named
    WHERE EXISTS (SELECT 1 FROM stated_references WHERE NOT {_BY_NUMBER}) GROUP BY name""",
)

# ---- links ---------------------------------------------------------------------------------------

LINKS = (
    f"""CREATE TABLE linked AS
    SELECT r.source, r.spot, r.position, r.retracts, r.doi, r.pmid, r.title, r.year,
        coalesce(i.paper_id, by_own.paper_id, by_key.paper_id, citing_doi.doi,
            r.citing_key, r.citing) AS citing,
        coalesce(o.paper_id, d.paper_id, p.paper_id, c.paper_id, l.paper_id, w.paper_id, s.paper_id,
            'doi:' || r.doi, 'doi:' || a.doi, 'doi:' || b.doi,
            'pmid:' || r.pmid, 'pmid:' || e.pmid, 'pmc:' || r.pmcid,
            'openalex:W' || r.openalex, 's2:' || r.s2, r.other) AS cited,
        coalesce(i.paper_id, by_own.paper_id, by_key.paper_id) IS NOT NULL AS from_corpus,
        coalesce(o.paper_id, d.paper_id, p.paper_id, c.paper_id, l.paper_id, w.paper_id, s.paper_id)
            IS NOT NULL AS in_corpus
    FROM (SELECT * FROM stated_references WHERE NOT {_BY_NUMBER}) r
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
    LEFT JOIN s2_names s ON s.s2 = r.s2
    WHERE i.spot IS NOT NULL OR r.citing IS NOT NULL
    UNION ALL
    SELECT r.source, r.spot, r.position, r.retracts, NULL, NULL, NULL, r.year, i.paper_id,
        coalesce(w.paper_id, s.paper_id, 'openalex:W' || r.openalex, 's2:' || r.s2), true,
        coalesce(w.paper_id, s.paper_id) IS NOT NULL
    FROM (SELECT * FROM stated_references WHERE {_BY_NUMBER}) r JOIN identified i ON i.spot = r.spot
    LEFT JOIN openalex_names w ON w.openalex = r.openalex
    LEFT JOIN s2_names s ON s.s2 = r.s2""",
    """CREATE TABLE retracted AS
    SELECT DISTINCT cited AS paper_id FROM linked WHERE retracts AND in_corpus""",
    """CREATE TABLE links AS
    SELECT citing, cited, title AS cited_title, year AS cited_year, in_corpus, from_corpus, source, position,
        CASE WHEN cited IS NULL THEN 1 ELSE row_number() OVER (PARTITION BY citing, cited ORDER BY
            (title IS NULL), position, source, title, year) END AS place
    FROM linked WHERE NOT retracts AND (cited IS NULL OR cited <> citing)""",
    # Of a paper with several records, the references and mentions of the best one count.
    """CREATE TABLE listed AS
    SELECT l.spot, l.position, l.citing, l.cited,
        (l.spot, l.position) IN (SELECT (spot, reference) FROM all_mentions) AS mentioned
    FROM linked l LEFT JOIN stated_papers p USING (spot)
    WHERE NOT l.retracts AND (p.has_body OR (p.spot IS NULL AND mentioned))""",
)

# ---- papers --------------------------------------------------------------------------------------

_SINGLE = (
    "title",
    "abstract",
    "year",
    "article_type",
    "journal",
    "licence",
    "topic",
    "subfield",
    "field",
    "language",
)
_LISTS = ("subjects", "mesh", "keywords")
_OWN_OR_OTHERS = "CASE WHEN len(p.{0}) > 0 OR o.{0} IS NULL THEN p.{0} ELSE o.{0} END AS {0}"
_OF_BEST = "first(p.{0} ORDER BY w.place) FILTER ({1}) AS {0}"

# What the best record of a work lacks comes from the next best: PubMed has MeSH headings, PMC licences.
COMPLETE = f"""
    CREATE TABLE papers AS
    WITH together AS (
        SELECT w.key, bool_or(p.retracted) AS retracted,
            {", ".join(_OF_BEST.format(name, f"p.{name} IS NOT NULL") for name in _SINGLE)},
            {", ".join(_OF_BEST.format(name, f"len(p.{name}) > 0") for name in _LISTS)}
        FROM works w JOIN stated_papers p USING (spot)
        WHERE w.key IN (SELECT key FROM works WHERE place > 1) GROUP BY w.key
    )
    SELECT i.paper_id, i.pmid, i.pmcid, i.doi, 'W' || i.openalex AS openalex, i.s2::VARCHAR AS s2,
        {", ".join(f"coalesce(p.{name}, o.{name}) AS {name}" for name in _SINGLE)},
        {", ".join(_OWN_OR_OTHERS.format(name) for name in _LISTS)},
        p.retracted OR coalesce(o.retracted, false) OR t.paper_id IS NOT NULL AS retracted, p.has_body
    FROM identified i JOIN stated_papers p USING (spot)
    LEFT JOIN together o USING (key) LEFT JOIN retracted t ON t.paper_id = i.paper_id"""

PAPERS_IN_ORDER = """
    SELECT paper_id, pmid, pmcid, doi, openalex, s2, title, abstract, year, article_type, subjects, mesh,
        keywords, journal, licence, topic, subfield, field, language, retracted, has_body
    FROM papers ORDER BY paper_id"""
CITATIONS_IN_ORDER = """
    SELECT citing, cited, cited_title, cited_year FROM links WHERE place = 1
    ORDER BY citing, source, position, cited, cited_title, cited_year"""
# A context is a sentence of unknown place: a section and paragraph of its own. The text itself comes first.
MENTIONS_IN_ORDER = """
    WITH placed AS (
        SELECT l.citing, l.cited, m.*, bool_or(m.context IS NULL) OVER (PARTITION BY l.citing) AS has_text
        FROM all_mentions m JOIN listed l ON l.spot = m.spot AND l.position = m.reference
        WHERE l.cited IS NOT NULL AND l.cited <> l.citing
    ), numbered AS (
        SELECT DISTINCT ON (citing, context, cited) citing, cited, context,
            dense_rank() OVER (PARTITION BY citing ORDER BY context) AS place
        FROM placed WHERE context IS NOT NULL AND NOT has_text
    )
    SELECT * EXCLUDE reference FROM (
        SELECT citing, cited, section, section_title, section_kind, paragraph, sentence, bracket, position,
            reference
        FROM placed WHERE context IS NULL
        UNION ALL SELECT citing, cited, place, NULL, 'other', place, 1,
            row_number() OVER (PARTITION BY citing, place ORDER BY cited), 0, 0 FROM numbered
    ) ORDER BY citing, paragraph, position, reference, cited"""
# Of a paper with several records, the text of the best one that has any.
BODIES_IN_ORDER = """
    WITH best AS (
        SELECT key, arg_min(spot, place) AS spot FROM works SEMI JOIN all_bodies USING (spot) GROUP BY key
    )
    SELECT i.paper_id, b.section, b.text
    FROM best JOIN identified i USING (key) JOIN all_bodies b ON b.spot = best.spot
    ORDER BY i.paper_id, b.position"""
# A record without a member only completes others, as an abstract apart from its paper does.
DUPLICATES = """
    SELECT w.source_name, w.member, w.key, 'duplicate',
        'the same work as ' || k.source_name || '/' || coalesce(k.member, k.record::VARCHAR)
    FROM works w JOIN works k ON k.key = w.key AND k.place = 1
    WHERE w.place > 1 AND w.member IS NOT NULL AND k.member IS NOT NULL
    ORDER BY 1, 2, w.record, w.spot"""

COUNTS = (
    """SELECT count(*) AS articles, count(*) FILTER (WHERE place > 1) AS duplicates,
        count(*) FILTER (WHERE place = 1 AND key NOT IN (SELECT key FROM kept)) AS completing_no_paper
    FROM works""",
    f"""SELECT count(*) AS papers, count(*) FILTER (WHERE title IS NOT NULL) AS with_title,
        count(*) FILTER (WHERE abstract IS NOT NULL) AS with_abstract, count(topic) AS with_topic,
        count(*) FILTER (WHERE starts_with(doi, '{SIMULATED_DOI}')) AS simulated,
        count(*) FILTER (WHERE article_type = 'research-article') AS research_articles,
        count(*) FILTER (WHERE retracted) AS retracted
    FROM papers""",
    """SELECT count(*) AS references,
        count(doi) AS references_with_doi, count(pmid) AS references_with_pmid, count(title) AS
        references_with_title, count(DISTINCT doi) AS distinct_cited_dois,
        count(*) FILTER (WHERE cited IS NULL) AS unidentified_references,
        count(*) FILTER (WHERE cited = citing) AS self_citations,
        count(*) FILTER (WHERE NOT in_corpus AND regexp_matches(cited, '^(openalex|s2):')) AS
        references_by_unknown_number
    FROM linked WHERE NOT retracts""",
    """SELECT count(*) FILTER (WHERE place > 1) AS duplicate_citations,
        count(*) FILTER (WHERE place = 1) AS citations,
        count(*) FILTER (WHERE place = 1 AND in_corpus AND from_corpus) AS in_corpus_citations,
        count(*) FILTER (WHERE place = 1 AND NOT from_corpus) AS citations_by_others,
        count(DISTINCT cited) FILTER (WHERE place = 1) AS distinct_cited_works
    FROM links""",
    "SELECT count(*) AS papers_with_body FROM papers WHERE has_body",
    """SELECT count(*) AS references_with_body, count(*) FILTER (WHERE NOT mentioned) AS
        references_never_mentioned
    FROM (SELECT bool_or(mentioned) AS mentioned FROM listed WHERE cited <> citing GROUP BY citing, cited)""",
    f"SELECT count(*) AS mentions FROM ({MENTIONS_IN_ORDER})",
)
_TALLY = """
    SELECT coalesce({column}::VARCHAR, 'unknown'), count(*)
    FROM papers GROUP BY 1 ORDER BY 1"""
TALLIES = {f"by_{column}": _TALLY.format(column=column) for column in ("article_type", "year", "licence")}
