"""Parsed papers and references to one row per work: identifiers resolved, duplicates found, citations linked.

Everything is SQL on DuckDB over the parts, so memory stays bounded and the rest goes to disk.

Which identifiers name the same work is learned in one step, never chained: from the articles' own records
first, then, for works that these do not settle, from references with several identifiers. A pair counts only
if each side names the other most often (ties: the smallest), so that one wrong reference cannot join two
works.

PubMed's files revise each other: they are applied in the order of their names, and the last version of a
record counts, unless it was deleted after that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from sentence_experts.corpus.identifiers import SIMULATED_DOI
from sentence_experts.corpus.paper import Rejection
from sentence_experts.corpus.parts import MENTIONS, REFERENCES
from sentence_experts.storage import PartStore

SCRATCH = "resolving"  # folder of temporary files
_MEMORY = "256MB"
_ROWS_IN_A_BATCH = 8192

_SPOT = "((source::BIGINT << 44) | (part::BIGINT << 20) | record)"


class Resolved:
    """A resolved corpus inside DuckDB."""

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        self._database = database

    def papers(self) -> Iterator[pa.RecordBatch]:
        """The papers in the order of their ids, as in `PAPERS_SCHEMA`."""
        return self._stream(_PAPERS_IN_ORDER)

    def citations(self) -> Iterator[pa.RecordBatch]:
        """The citations, ordered by citing paper and place in its list, as in `CITATIONS_SCHEMA`."""
        return self._stream(_CITATIONS_IN_ORDER)

    def mentions(self) -> Iterator[pa.RecordBatch]:
        """The mentions, ordered by citing paper and place in its text, as in `MENTIONS_SCHEMA`."""
        return self._stream(_MENTIONS_IN_ORDER)

    def stated_papers(self) -> int:
        """The number of all records that were read, before duplicates are found."""
        (count,) = self._database.execute("SELECT count(*) FROM all_papers").fetchone() or (0,)
        return int(count)

    def duplicates(self) -> list[Rejection]:
        """The records of works that another record describes better, and the PubMed records that a later file
        replaces or deletes."""
        queries = (_DUPLICATES, _REVISED)
        return [Rejection(*row) for query in queries for row in self._database.execute(query).fetchall()]

    def counts(self) -> dict[str, Any]:
        """The counts for the manifest."""
        counts: dict[str, Any] = {}
        for query in _COUNTS:
            counts |= self._database.sql(query).to_arrow_table().to_pylist()[0]
        for name, query in _TALLIES.items():
            counts[name] = {str(key): number for key, number in self._database.execute(query).fetchall()}
        return counts

    def _stream(self, query: str) -> Iterator[pa.RecordBatch]:
        yield from self._database.sql(query).to_arrow_reader(_ROWS_IN_A_BATCH)


@contextmanager
def resolving(parts: PartStore, source_names: list[str], threads: int) -> Iterator[Resolved]:
    """Resolve parts; while this runs, their folder also holds the database's temporary files."""
    scratch = parts.folder / SCRATCH
    settings: Any = {
        "memory_limit": _MEMORY, "temp_directory": str(scratch), "threads": threads,
        "preserve_insertion_order": False, "autoinstall_known_extensions": False,
    }  # fmt: skip
    with duckdb.connect(":memory:", config=settings) as database:
        database.execute("CREATE TABLE source_names (source INTEGER, name VARCHAR)")
        database.executemany("INSERT INTO source_names VALUES (?, ?)", list(enumerate(source_names)))
        for view, suffix in (("papers", None), ("references", REFERENCES), ("mentions", MENTIONS)):
            files = _quoted(parts.path("*", suffix))
            database.execute(
                f'CREATE VIEW "all_{view}" AS SELECT *, {_SPOT} AS spot FROM read_parquet({files})'
            )
        for statement in (*_REVISIONS, *_records(), *_REFERENCE_IDS, *_LINKS, _COMPLETE):
            database.execute(statement)
        yield Resolved(database)


def _quoted(path: Path) -> str:
    """A path as an SQL string in which only the file name is a pattern."""
    folder = re.sub(r"([\[\]*?])", r"[\1]", str(path.parent))
    return "'" + f"{folder}/{path.name}".replace("'", "''") + "'"


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

_REVISIONS = (
    # The last mention of each version of a record, in the order of the files' names.
    """CREATE TABLE revisions AS
    WITH mentions AS (
        SELECT a.spot, a.pmid, a.version, a.deleted, a.member, n.name AS source_name, a.record,
            regexp_extract(a.member, '[^/]*$') AS file
        FROM all_papers a JOIN source_names n USING (source) WHERE a.version IS NOT NULL
    ), aged AS (
        SELECT *, row_number() OVER last_first AS age, first_value(deleted) OVER last_first AS gone,
            first_value(source_name || '/' || member) OVER last_first AS last_in
        FROM mentions
        WINDOW last_first AS (PARTITION BY pmid, version
            ORDER BY file DESC, source_name DESC, member DESC, record DESC, spot DESC)
    ) SELECT *, age = 1 AND NOT gone AND version = max(version) FILTER (age = 1 AND NOT gone)
        OVER (PARTITION BY pmid) AS stands
    FROM aged""",
    # A later version replaces the earlier ones too.
    """CREATE TABLE set_aside AS
    SELECT r.spot, r.deleted, r.source_name, r.member, r.pmid, r.record, r.gone,
        coalesce(CASE WHEN r.gone OR r.age > 1 THEN r.last_in END,
            s.source_name || '/' || s.member) AS last_in
    FROM revisions r LEFT JOIN revisions s ON s.pmid = r.pmid AND s.stands
    WHERE r.stands IS DISTINCT FROM true""",
    "CREATE VIEW stated_papers AS SELECT * FROM all_papers ANTI JOIN set_aside USING (spot)",
    "CREATE VIEW stated_references AS SELECT * FROM all_references ANTI JOIN set_aside USING (spot)",
)

_REVISED = """
    SELECT source_name, member, 'pmid:' || pmid, CASE WHEN gone THEN 'deleted' ELSE 'replaced' END,
        (CASE WHEN gone THEN 'withdrawn by ' ELSE 'a later record is in ' END) || last_in
    FROM set_aside WHERE NOT deleted ORDER BY 1, 2, record, spot"""

# ---- articles ------------------------------------------------------------------------------------


def _records() -> Iterator[str]:
    """Article records: fill in identifiers from each other, then choose the best record per work."""
    yield """CREATE TABLE record_ids AS SELECT spot, doi, pmid, pmcid, other FROM stated_papers"""
    # Twice: a record that has only a PMID may need one that links the PMID to a PMCID, and another that links
    # the PMCID to a DOI.
    for _ in range(2):
        yield _pairs("record_pmid_doi", "pmid", "doi", "record_ids")
        yield _pairs("record_pmcid_doi", "pmcid", "doi", "record_ids")
        yield _pairs("record_pmcid_pmid", "pmcid", "pmid", "record_ids")
        yield """
        CREATE OR REPLACE TABLE record_ids AS
        SELECT r.spot, coalesce(r.doi, a.doi, b.doi) AS doi,
               coalesce(r.pmid, c.pmid) AS pmid, r.pmcid, r.other
        FROM record_ids r
        LEFT JOIN record_pmid_doi a ON a.pmid = r.pmid
        LEFT JOIN record_pmcid_doi b ON b.pmcid = r.pmcid
        LEFT JOIN record_pmcid_pmid c ON c.pmcid = r.pmcid"""
    yield """
    CREATE TABLE works AS
    WITH keyed AS (
        SELECT spot, doi, pmid, pmcid, other,
               coalesce('doi:' || doi, 'pmid:' || pmid, 'pmc:' || pmcid, other) AS key
        FROM record_ids
    )
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
    yield _pairs("pmid_of", "pmid", "key", _STATED_BY.format("pmid", "pmid:"))
    yield _pairs("pmcid_of", "pmcid", "key", _STATED_BY.format("pmcid", "pmc:"))
    yield """
    CREATE TABLE kept AS
    SELECT w.spot, w.key, w.doi, a.pmid, b.pmcid
    FROM works w LEFT JOIN pmid_of a USING (key) LEFT JOIN pmcid_of b USING (key) WHERE w.place = 1"""


_STATED_BY = """(
    SELECT key, {0} FROM works WHERE key = '{1}' || {0}
        OR '{1}' || {0} NOT IN (SELECT key FROM works WHERE key IS NOT NULL))"""


# ---- references ----------------------------------------------------------------------------------

_REFERENCE_IDS = (
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
        one_doi AS doi, pmid, pmcid FROM chosen""",
    """CREATE TABLE paper_names AS
    WITH named AS (
        SELECT 'doi:' || doi AS name, paper_id, 0 AS rank FROM identified WHERE doi IS NOT NULL
        UNION ALL SELECT 'pmid:' || pmid, paper_id, 0 FROM identified WHERE pmid IS NOT NULL
        UNION ALL SELECT 'pmc:' || pmcid, paper_id, 0 FROM identified WHERE pmcid IS NOT NULL
        UNION ALL SELECT 'pmid:' || w.pmid, i.paper_id, 1 FROM works w JOIN identified i USING (key)
            WHERE w.pmid IS NOT NULL
        UNION ALL SELECT 'pmc:' || w.pmcid, i.paper_id, 1 FROM works w JOIN identified i USING (key)
            WHERE w.pmcid IS NOT NULL
        UNION ALL SELECT 'own:' || w.other, i.paper_id, 1 FROM works w JOIN identified i USING (key)
            WHERE w.other IS NOT NULL
    ) SELECT name, first(paper_id ORDER BY rank, paper_id) AS paper_id FROM named GROUP BY name""",
)

# ---- links ---------------------------------------------------------------------------------------

_LINKS = (
    """CREATE TABLE linked AS
    SELECT r.source, r.spot, r.position, r.retracts, r.doi, r.pmid, r.title, r.year,
        coalesce(i.paper_id, by_own.paper_id, by_key.paper_id, citing_doi.doi,
            r.citing_key, r.citing) AS citing,
        coalesce(o.paper_id, d.paper_id, p.paper_id, c.paper_id, l.paper_id,
            'doi:' || r.doi, 'doi:' || a.doi, 'doi:' || b.doi,
            'pmid:' || r.pmid, 'pmid:' || e.pmid, 'pmc:' || r.pmcid, r.other) AS cited,
        coalesce(i.paper_id, by_own.paper_id, by_key.paper_id) IS NOT NULL AS from_corpus,
        coalesce(o.paper_id, d.paper_id, p.paper_id, c.paper_id, l.paper_id) IS NOT NULL AS in_corpus
    FROM stated_references r
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
    WHERE i.spot IS NOT NULL OR r.citing IS NOT NULL""",
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
    FROM linked l JOIN stated_papers p USING (spot) WHERE p.has_body AND NOT l.retracts""",
)

# ---- papers --------------------------------------------------------------------------------------

_SINGLE = ("title", "abstract", "year", "article_type", "journal", "licence")
_LISTS = ("subjects", "mesh", "keywords")
_OWN_OR_OTHERS = "CASE WHEN len(p.{0}) > 0 OR o.{0} IS NULL THEN p.{0} ELSE o.{0} END AS {0}"
_OF_BEST = "first(p.{0} ORDER BY w.place) FILTER ({1}) AS {0}"

# What the best record of a work lacks comes from the next best: PubMed has MeSH headings, PMC licences.
_COMPLETE = f"""
    CREATE TABLE papers AS
    WITH together AS (
        SELECT w.key, bool_or(p.retracted) AS retracted,
            {", ".join(_OF_BEST.format(name, f"p.{name} IS NOT NULL") for name in _SINGLE)},
            {", ".join(_OF_BEST.format(name, f"len(p.{name}) > 0") for name in _LISTS)}
        FROM works w JOIN stated_papers p USING (spot)
        WHERE w.key IN (SELECT key FROM works WHERE place > 1) GROUP BY w.key
    )
    SELECT i.paper_id, i.pmid, i.pmcid, i.doi,
        {", ".join(f"coalesce(p.{name}, o.{name}) AS {name}" for name in _SINGLE)},
        {", ".join(_OWN_OR_OTHERS.format(name) for name in _LISTS)},
        p.retracted OR coalesce(o.retracted, false) OR t.paper_id IS NOT NULL AS retracted
    FROM identified i JOIN stated_papers p USING (spot)
    LEFT JOIN together o USING (key) LEFT JOIN retracted t ON t.paper_id = i.paper_id"""

_PAPERS_IN_ORDER = """
    SELECT paper_id, pmid, pmcid, doi, title, abstract, year, article_type, subjects, mesh, keywords, journal,
        licence, retracted
    FROM papers ORDER BY paper_id"""
_CITATIONS_IN_ORDER = """
    SELECT citing, cited, cited_title, cited_year FROM links WHERE place = 1
    ORDER BY citing, source, position, cited, cited_title, cited_year"""
_MENTIONS_IN_ORDER = """
    SELECT l.citing, l.cited, m.section, m.section_title, m.section_kind, m.paragraph, m.sentence, m.bracket,
        m.position
    FROM all_mentions m JOIN listed l ON l.spot = m.spot AND l.position = m.reference
    WHERE l.cited IS NOT NULL AND l.cited <> l.citing
    ORDER BY l.citing, m.paragraph, m.position, m.reference"""
_DUPLICATES = """
    SELECT w.source_name, w.member, w.key, 'duplicate',
        'the same work as ' || k.source_name || '/' || coalesce(k.member, k.record::VARCHAR)
    FROM works w JOIN works k ON k.key = w.key AND k.place = 1 WHERE w.place > 1
    ORDER BY 1, 2, w.record, w.spot"""

_COUNTS = (
    """SELECT count(*) AS articles, count(*) FILTER (WHERE place > 1) AS duplicates FROM works""",
    f"""SELECT count(*) AS papers, count(*) FILTER (WHERE abstract IS NOT NULL) AS with_abstract,
        count(*) FILTER (WHERE starts_with(doi, '{SIMULATED_DOI}')) AS simulated,
        count(*) FILTER (WHERE article_type = 'research-article') AS research_articles,
        count(*) FILTER (WHERE retracted) AS retracted
    FROM papers""",
    """SELECT count(*) AS references,
        count(doi) AS references_with_doi, count(pmid) AS references_with_pmid, count(title) AS
        references_with_title, count(DISTINCT doi) AS distinct_cited_dois,
        count(*) FILTER (WHERE cited IS NULL) AS unidentified_references,
        count(*) FILTER (WHERE cited = citing) AS self_citations
    FROM linked WHERE NOT retracts""",
    """SELECT count(*) FILTER (WHERE place > 1) AS duplicate_citations,
        count(*) FILTER (WHERE place = 1) AS citations,
        count(*) FILTER (WHERE place = 1 AND in_corpus AND from_corpus) AS in_corpus_citations,
        count(*) FILTER (WHERE place = 1 AND NOT from_corpus) AS citations_by_others,
        count(DISTINCT cited) FILTER (WHERE place = 1) AS distinct_cited_works
    FROM links""",
    """SELECT count(*) AS papers_with_body FROM identified JOIN stated_papers USING (spot) WHERE has_body""",
    """SELECT count(*) AS references_with_body, count(*) FILTER (WHERE NOT mentioned) AS
        references_never_mentioned
    FROM listed""",
    f"SELECT count(*) AS mentions FROM ({_MENTIONS_IN_ORDER})",
)
_TALLY = """
    SELECT coalesce({column}::VARCHAR, 'unknown'), count(*)
    FROM papers GROUP BY 1 ORDER BY 1"""
_TALLIES = {f"by_{column}": _TALLY.format(column=column) for column in ("article_type", "year", "licence")}
