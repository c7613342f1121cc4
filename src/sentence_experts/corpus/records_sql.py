"""The first steps of resolving a corpus as SQL: copies and revisions of records, the best one of each work.

Joins run as they are written: the right-hand table of a join is kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Ask = Callable[[str], list[tuple[Any, ...]]]
"""Answers a query with rows."""


def match_identifiers(name: str, left: str, right: str, rows: str, open_rows: str = "true") -> str:
    """Return the statement that makes a table of (left, right) identifiers, one partner for either at most.

    All rows count, but a pair is learned only if an `open_rows` row states it.
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


KINDS = ("doi", "pmid", "pmcid", "openalex")
"""Identifiers, from the one that names a work first."""
PREFIX = {"doi": "doi:", "pmid": "pmid:", "pmcid": "pmc:", "openalex": "openalex:W"}
_KEY = "coalesce(" + ", ".join(f"'{PREFIX[kind]}' || {kind}" for kind in KINDS) + ", other)"

# Where a record stands, whatever else is imported with it: the name of its file, without folders, and its
# place in there. A document has the name of its member, in whatever folder or archive it lies.
_IS_DOCUMENT = "regexp_matches(lower(member), '[.]n?xml([.]gz)?$')"
_FILE = f"regexp_extract(CASE WHEN {_IS_DOCUMENT} THEN member ELSE n.name END, '[^/]*$')"
_IN_FILE = f"(spot & {(1 << 44) - 1})"
_IN_ORDER = f"{_FILE}, CASE WHEN NOT {_IS_DOCUMENT} THEN {_IN_FILE} END, content, spot"

# ---- records that are there twice ------------------------------------------------------------------

# Records of PubMed and OpenAlex are equal only in one file, whose name tells what they replace.
_EQUAL = f"content, CASE WHEN version IS NOT NULL THEN {_FILE} END"
_FIRST = f"{_FILE}, CASE WHEN version IS NULL THEN {_IN_FILE} ELSE -{_IN_FILE} END, spot"
FIND_COPIES = (
    f"""CREATE TABLE copies AS
    WITH placed AS (
        SELECT spot, source, deleted, record, n.name AS source_name, member, other, {_KEY} AS key,
            row_number() OVER ordered AS place, first_value(source) OVER ordered AS first_source,
            first_value(concat(n.name, '/', member)) OVER ordered AS first_in
        FROM all_papers JOIN source_names n USING (source)
        WHERE content IN (SELECT content FROM all_papers GROUP BY content HAVING count(*) > 1)
        WINDOW ordered AS (PARTITION BY {_EQUAL} ORDER BY {_FIRST})
    ) SELECT * EXCLUDE place FROM placed WHERE place > 1""",
    "CREATE VIEW distinct_papers AS SELECT * FROM all_papers ANTI JOIN copies USING (spot)",
    # Citations of tables belong to no record.
    """CREATE TABLE citations_of_tables AS
    SELECT min(source) AS source, min(part) AS part, * EXCLUDE (source, part) FROM all_references
    WHERE record IS NULL GROUP BY ALL""",
)
CITATIONS_OF_TABLES = """
    SELECT * EXCLUDE spot FROM citations_of_tables ORDER BY source, part, position, citing, other, title"""
COPIES = """
    SELECT source_name, member, key, 'duplicate', 'the same record as ' || first_in
    FROM copies WHERE member IS NOT NULL AND NOT deleted ORDER BY 1, 2, record, spot"""

# ---- revisions of PubMed's records ----------------------------------------------------------------

# In names of files numbers are compared as numbers: "week 10" comes after "week 2".
_PADDED = f"regexp_replace({_FILE}, '([0-9]+)', '00000000000\\1', 'g')"
_IN_NUMBERS = f"regexp_replace({_PADDED}, '0*([0-9]{{12}})', '\\1', 'g')"
_WORK = "coalesce('openalex:W' || openalex, 'pmid:' || pmid)"
MAKE_REVISIONS = (
    # Only works with several records can have a replaced one.
    f"""CREATE TABLE revised_works AS
    SELECT {_WORK} AS work FROM distinct_papers WHERE version IS NOT NULL
    GROUP BY work HAVING count(*) > 1 OR bool_or(deleted)""",
    # The last mention of each version of a record, in the order of the files' names, unless the day of
    # another one's revision is later, of those that no deletion follows.
    f"""CREATE TABLE revisions AS
    WITH mentions AS (
        SELECT a.spot, {_WORK} AS work, a.version, a.deleted, a.member, n.name AS source_name, a.record,
            {_IN_NUMBERS} AS file, {_IN_FILE} AS in_file, a.content, a.revised
        FROM distinct_papers a JOIN source_names n USING (source)
        WHERE a.version IS NOT NULL AND {_WORK} IN (SELECT work FROM revised_works)
    ), deletions AS (
        SELECT *, max(CASE WHEN deleted THEN row(file, in_file) END)
            OVER (PARTITION BY work, version) AS deletion FROM mentions
    ), dated AS (
        SELECT *, CASE WHEN deletion IS NULL OR row(file, in_file) > deletion THEN revised END AS day
        FROM deletions
    ), ordered AS (
        SELECT *, coalesce(day < max(day) OVER (PARTITION BY work, version), false) AS is_older FROM dated
    ), aged AS (
        SELECT *, row_number() OVER last_first AS age, first_value(deleted) OVER last_first AS gone,
            first_value(source_name || '/' || member) OVER last_first AS last_in
        FROM ordered
        WINDOW last_first AS (PARTITION BY work, version
            ORDER BY is_older, file DESC, in_file DESC, content DESC, spot DESC)
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
    "CREATE VIEW valid_papers AS SELECT * FROM distinct_papers ANTI JOIN set_aside USING (spot)",
)

REPLACED_RECORDS = """
    SELECT source_name, member, work, CASE WHEN gone THEN 'deleted' ELSE 'replaced' END,
        (CASE WHEN gone THEN 'withdrawn by ' ELSE 'a later record is in ' END) || last_in
    FROM set_aside WHERE NOT deleted ORDER BY 1, 2, record, spot"""

# ---- articles ------------------------------------------------------------------------------------


_PLACE = "source, member, record"

# The best of several records of a work comes first, those that only complete others come last. Works with one
# record, by far the most, are not sorted.
_WORKS = f"""
    CREATE TABLE works AS
    WITH keyed AS (SELECT *, {_KEY} AS key FROM record_ids),
    several AS (SELECT key FROM keyed GROUP BY key HAVING count(*) > 1),
    rated AS (
        SELECT spot, content, p.references, has_body, abstract IS NOT NULL AS has_abstract,
            version IS NULL AS is_only,
            (title IS NOT NULL)::INT + (year IS NOT NULL)::INT + (article_type IS NOT NULL)::INT
            + (journal IS NOT NULL)::INT + (licence IS NOT NULL)::INT + (len(subjects) > 0)::INT
            + (len(mesh) > 0)::INT + (len(keywords) > 0)::INT AS filled
        FROM valid_papers p
    )
    SELECT *, 1::BIGINT AS place FROM keyed ANTI JOIN several ON several.key IS NOT DISTINCT FROM keyed.key
    UNION ALL
    SELECT k.*, row_number() OVER (PARTITION BY k.key ORDER BY
        n.completes, (p.references > 0) DESC, has_body DESC, has_abstract DESC, is_only DESC, filled DESC,
        p.references DESC, {_IN_ORDER})
    FROM rated p JOIN (
        SELECT keyed.* FROM keyed SEMI JOIN several ON several.key IS NOT DISTINCT FROM keyed.key
    ) k USING (spot) JOIN source_names n USING (source)"""


def _is_own_id(column: str) -> str:
    """Return the condition that an id is one of a table of the user's, not a hash of what a record says."""
    return f"{column} NOT LIKE 'text:%' AND {column} NOT LIKE 'file:%'"


_LONG_TITLE = 40  # characters
_DIGITS_OF_ROWS = 6  # of the longest number of a row
# In bytes, as DuckDB counts edits.
_FAR = "levenshtein(lower(a.title), lower(b.title)) > {} * greatest(strlen(a.title), strlen(b.title))"

_ONE_OF_EACH = " AND ".join(f"min({{0}}{kind}) IS NOT DISTINCT FROM max({{0}}{kind})" for kind in KINDS)
# The user's own id may be a PMID that other records state as such.
_OWN_NAMES = """(
    SELECT *, other AS name FROM record_ids WHERE other NOT LIKE 'file:%'
    UNION ALL SELECT *, pmid FROM record_ids
    WHERE pmid IN (SELECT other FROM record_ids) AND other IS DISTINCT FROM pmid)"""
# A table may give an own id a DOI or PMID that another one, such as an earlier version of it, did not have.
# The identifiers of records with one own id and titles alike are put together, unless two of them differ; so
# are those of records with the same texts, if these are more than "Editorial".
_NAMES_TO_JOIN = f"""
    SELECT name FROM {_OWN_NAMES} GROUP BY name
    HAVING min({_KEY}) <> max({_KEY})
        AND (name NOT LIKE 'text:%' OR ({_ONE_OF_EACH.format("")}))"""
_JOIN_BY_OWN_NAMES = f"""
    CREATE OR REPLACE TABLE record_ids AS
    WITH named AS (
        SELECT r.*, p.title FROM {_OWN_NAMES} r JOIN valid_papers p USING (spot)
        WHERE r.name IN ({_NAMES_TO_JOIN})
            AND (r.name NOT LIKE 'text:%' OR p.abstract IS NOT NULL OR len(p.title) > {_LONG_TITLE})
    ), joined AS (
        SELECT a.spot, {", ".join(f"any_value(b.{kind}) AS {kind}" for kind in KINDS)}
        FROM named a JOIN named b ON b.name = a.name AND (a.title = b.title OR ({_FAR.format(0.4)}) IS FALSE
            OR (a.other = b.other AND (a.title IS NULL OR b.title IS NULL)))
        GROUP BY a.spot, a.name HAVING {_ONE_OF_EACH.format("b.")}
    ), once AS (
        SELECT spot, {", ".join(f"any_value({kind}) AS {kind}" for kind in KINDS)}
        FROM joined GROUP BY spot HAVING {_ONE_OF_EACH.format("")}
    )
    SELECT r.spot, {", ".join(f"coalesce(r.{kind}, j.{kind}) AS {kind}" for kind in KINDS)}, r.other, {_PLACE}
    FROM record_ids r LEFT JOIN once j USING (spot)"""

# The first of the users' own ids that sources give to different works, how many there are, and whether most
# shared ones have unlike titles.
# Works that share an identifier are the same, and so are copies; what is in one corpus was compared before.
OWN_IDS_OF_OTHER_WORKS = f"""
    WITH named AS (
        SELECT w.other, w.key, n.name, w.source, n.corpus, p.title
        FROM works w JOIN valid_papers p USING (spot) JOIN source_names n ON n.source = w.source
        WHERE p.title IS NOT NULL AND {_is_own_id("w.other")}
    ), shared AS (
        SELECT a.other, a.name AS first, a.title AS one, b.name AS second, b.title AS another,
            {_FAR.format(0.6)} AND (a.key <> b.key OR a.key = a.other) AS unlike, a.key <> b.key AS differs
        FROM named a JOIN named b
            ON b.other = a.other AND a.source < b.source AND (a.corpus = b.corpus) IS NOT TRUE
    ), alike AS (SELECT count(*) AS copies FROM copies WHERE source <> first_source AND {_is_own_id("other")})
    SELECT * EXCLUDE (unlike, differs),
        (SELECT count(DISTINCT other) FROM shared WHERE unlike OR differs) AS number,
        (SELECT sum(unlike::INT) / (count(*) + any_value(copies)) FROM shared, alike) > 0.5 AS is_most
    FROM shared WHERE unlike OR differs ORDER BY unlike DESC, other LIMIT 1"""


def _read_bare(column: str, kind: str, prefix: str, digits: int) -> str:
    number = f"nullif(regexp_extract(c.{column}, '^{prefix}0*([1-9][0-9]{{0,{digits - 1}}})$', 1), '')"
    is_long = f"len(c.{column}) > bare.short" if kind == "pmid" else "true"
    return f"CASE WHEN bare.{kind} AND {is_long} THEN {number} END"


# Bare digits in a table of citations may be a PMID, and "W12" a work of OpenAlex, if papers have any. The
# user's own ids come first; if these are numbers of rows, others as short are of rows that are not there.
_MAKE_REFERENCES = (
    f"""CREATE TABLE bare AS
    SELECT count(pmid) > 0 AS pmid, count(openalex) > 0 AS openalex, coalesce(max(len(other)) FILTER (
        regexp_full_match(other, '[0-9]{{1,{_DIGITS_OF_ROWS}}}') AND pmid IS DISTINCT FROM other), 0) AS short
    FROM works""",
    f"""CREATE VIEW valid_references AS
    SELECT * FROM all_references ANTI JOIN (SELECT spot FROM set_aside UNION ALL SELECT spot FROM copies)
        USING (spot) WHERE record IS NOT NULL
    UNION ALL SELECT c.* REPLACE (
        coalesce(c.pmid, {_read_bare("other", "pmid", "", 8)}) AS pmid,
        coalesce(c.openalex, {_read_bare("other", "openalex", "W", 11)}::BIGINT) AS openalex,
        coalesce(c.citing_key, 'pmid:' || {_read_bare("citing", "pmid", "", 8)},
            'openalex:W' || {_read_bare("citing", "openalex", "W", 11)}) AS citing_key
    ) FROM citations_of_tables c, bare""",
)


def choose_records(ask: Ask) -> Iterator[str]:
    """Fill in the identifiers of article records from each other, then choose the best record per work.

    Then the references of the records that are left are read.
    """
    yield f"CREATE TABLE record_ids AS SELECT spot, {', '.join(KINDS)}, other, {_PLACE} FROM valid_papers"
    # Twice: a record that has only a PMID may need one that links the PMID to a PMCID, and another that links
    # the PMCID to a DOI.
    for _ in range(2):
        yield from _fill(ask)
    if ask(f"{_NAMES_TO_JOIN} LIMIT 1"):
        yield _JOIN_BY_OWN_NAMES
        for _ in range(2):
            yield from _fill(ask)
    yield _WORKS
    yield "DROP TABLE record_ids"
    # Where records of several works state the same PMID, it belongs to one of them: the one that is named
    # after it, else the one whose records state it most often.
    for kind in KINDS[1:]:
        yield match_identifiers(f"{kind}_of", kind, "key", _STATED_BY.format(kind, PREFIX[kind]))
    owned = " ".join(f"LEFT JOIN {kind}_of USING (key)" for kind in KINDS[1:])
    columns = ", ".join(f"{kind}_of.{kind}" for kind in KINDS[1:])
    yield f"""
    CREATE TABLE kept AS SELECT w.spot, w.key, w.doi, {columns} FROM works w {owned} WHERE w.place = 1
        AND w.key NOT IN (SELECT key FROM works WHERE key IN (SELECT key FROM works WHERE member IS NULL)
            GROUP BY key HAVING bool_and(member IS NULL) AND key IS NOT NULL)"""
    for kind in KINDS[1:]:
        yield f"DROP TABLE {kind}_of"
    yield from _MAKE_REFERENCES


def _fill(ask: Ask) -> Iterator[str]:
    """Complete the identifiers of each record by those that other records state with them."""
    learned: dict[str, list[str]] = {}
    for number, kind in enumerate(KINDS[1:], start=1):
        # Only if a record lacks what another one of the same work has.
        higher = KINDS[:number]
        differ = ", ".join(f"bool_or({each} IS NULL) AND bool_or({each} IS NOT NULL)" for each in higher)
        differing = ask(f"""SELECT {", ".join(f"bool_or({each}_differs)" for each in higher)} FROM (
            SELECT unnest([{{{", ".join(f"'{each}_differs': false" for each in higher)}}}], recursive := true)
            UNION ALL SELECT {differ} FROM record_ids WHERE {kind} IS NOT NULL GROUP BY {kind})""")[0]
        for each, differs in zip(higher, differing, strict=True):
            if differs:
                yield match_identifiers(f"record_{kind}_{each}", kind, each, "record_ids")
                learned.setdefault(each, []).append(kind)
    if not learned:
        return
    columns = [
        f"coalesce({', '.join([f'r.{each}', *(f'{by}_{each}.{each}' for by in learned[each])])}) AS {each}"
        if each in learned
        else f"r.{each}"
        for each in KINDS
    ]
    joins = " ".join(
        f"LEFT JOIN record_{by}_{each} {by}_{each} ON {by}_{each}.{by} = r.{by}"
        for each, kinds in learned.items()
        for by in kinds
    )
    yield f"""
    CREATE OR REPLACE TABLE record_ids AS
    SELECT r.spot, {", ".join(columns)}, r.other, {_PLACE} FROM record_ids r {joins}"""


_STATED_BY = """(
    SELECT key, {0} FROM works WHERE key = '{1}' || {0}
        OR '{1}' || {0} NOT IN (SELECT key FROM works WHERE key IS NOT NULL))"""


# Ids in tables of citations that no paper has, but would have with other zeros in front or in another case.
_FOLDED = "lower(ltrim(regexp_replace({}, '[.]0$', ''), '0'))"
NEARLY_IDS = f"""
    WITH own AS (SELECT DISTINCT other AS id FROM works WHERE other IS NOT NULL AND {_is_own_id("other")}),
    folded AS (SELECT {_FOLDED.format("id")} AS folded, min(id) AS id FROM own GROUP BY folded),
    named AS (
        SELECT citing AS id FROM citations_of_tables WHERE citing_key IS NULL
        UNION ALL SELECT other FROM citations_of_tables
        WHERE {" AND ".join(f"{kind} IS NULL" for kind in KINDS)}
    )
    SELECT count(DISTINCT n.id), min(n.id), min_by(f.id, n.id) FROM named n
    JOIN folded f ON f.folded = {_FOLDED.format("n.id")} AND f.folded <> ''
    WHERE n.id NOT IN (SELECT id FROM own)"""
_WORDS = "trim(regexp_replace(lower(p.title), '[^\\pL\\pN]+', ' ', 'g'))"
# A record with the identifier of a work with an unlike title, and how many there are; a translation is one.
OTHER_TITLES = f"""
    WITH titled AS (
        SELECT w.key, w.place, p.title, w.spot, {_WORDS} AS words FROM valid_papers p
        JOIN (SELECT * FROM works WHERE key IN (SELECT key FROM works WHERE place > 1)) w USING (spot)
        WHERE regexp_matches(key, '^({"|".join(PREFIX.values())})') AND p.title IS NOT NULL
    )
    SELECT b.key, a.title, b.title, count(*) OVER () FROM titled a JOIN titled b ON b.key = a.key
    WHERE a.place = 1 AND b.place > 1 AND {_FAR.format(0.6)}
        AND NOT contains(a.words, b.words) AND NOT contains(b.words, a.words)
        AND NOT regexp_full_match(a.words || '/' || b.words, '.*(not available|no title|untitled).*')
    ORDER BY b.key, b.spot LIMIT 1"""

# A record without a member only completes others, as an abstract apart from its paper does.
SAME_WORK = "the same work as "
DUPLICATES = f"""
    SELECT n.name, w.member, w.key, 'duplicate',
        '{SAME_WORK}' || m.name || '/' || coalesce(k.member, k.record::VARCHAR)
    FROM works w JOIN works k ON k.key = w.key AND k.place = 1
    JOIN source_names n ON n.source = w.source JOIN source_names m ON m.source = k.source
    WHERE w.place > 1 AND w.member IS NOT NULL AND k.member IS NOT NULL
    ORDER BY 1, 2, w.record, w.spot"""
