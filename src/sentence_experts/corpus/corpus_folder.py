"""A corpus on disk: its tables, a manifest that describes them, and the records that were set aside."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sentence_experts.cells import NO_VALUES, identifiers
from sentence_experts.corpus.config import COUNTED
from sentence_experts.corpus.paper import (
    TELLING,
    Paper,
    clean_abstract,
    is_retracted,
    is_type_of_retracted,
    kind_named,
    kind_of,
)
from sentence_experts.corpus.sql_files import scan_parquet
from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage import (
    RECORD,
    check_kinds,
    check_version,
    read_checked_record,
    read_json,
    sha256_file,
    sha256_text,
    temporary_folder,
    write_parquet,
)
from sentence_experts.tables import check_columns, list_unread, to_arrow

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

FORMAT = "sentence-experts corpus"
FORMAT_VERSION = 1
_FOLLOWING = ".corpus"  # at the end of the name
PAPERS = "papers.parquet"
CITATIONS = "citations.parquet"
MENTIONS = "mentions.parquet"
BODIES = "bodies.parquet"
MANIFEST = "manifest.json"
REJECTED = "rejected.jsonl"
DOMAINS = "domains.parquet"
PROVENANCE = "provenance.parquet"

_IDS = ("paper_id", "citing", "cited", "pmid")  # columns of texts or numbers
_TEXT, _TEXTS, _NUMBER = pa.string(), pa.list_(pa.string()), pa.int32()


def _make_schema(required: str, **columns: pa.DataType) -> pa.Schema:
    """Return a schema of columns, of which the required ones are never null."""
    names = required.split()
    return pa.schema([pa.field(name, kind, nullable=name not in names) for name, kind in columns.items()])


PAPERS_SCHEMA = _make_schema(
    "paper_id retracted", paper_id=_TEXT, pmid=_TEXT, pmcid=_TEXT, doi=_TEXT, openalex=_TEXT, title=_TEXT,
    abstract=_TEXT, authors=_TEXTS, year=_NUMBER, volume=_TEXT, issue=_TEXT, pages=_TEXT, article_type=_TEXT,
    kind=_TEXT, subjects=_TEXTS, mesh=_TEXTS, keywords=_TEXTS, organisms=_TEXTS, journal=_TEXT,
    licence=_TEXT, topic=_TEXT, subfield=_TEXT, field=_TEXT, language=_TEXT, entry=_TEXT, file=_TEXT,
    retracted=pa.bool_(), has_body=pa.bool_(),
)  # fmt: skip
"""One row per work, ordered by `paper_id`: `doi:10...` (lower case), else `pmid:123`, else `pmc:PMC123`, else
`openalex:W123`, else the user's own id or `file:...`. `authors`
are "Family, Given" or "Family, Given, Suffix", collective names as they are. `kind` is "article", "review" or
one of `paper.NOTICE_KINDS`. `organisms` are those that JATS articles name, which are among the keywords too.
`topic`, `subfield` and `field` are of OpenAlex's primary topic. `entry` is the key in a reference
manager ("@key" of BibTeX, or Zotero's own), `file` the path of the PDF there. `has_body` tells whether its
text came too."""

LIST_COLUMNS = tuple(field.name for field in PAPERS_SCHEMA if pa.types.is_list(field.type))
TEXT_COLUMNS = tuple(field.name for field in PAPERS_SCHEMA if pa.types.is_string(field.type))[5:]
"""The columns of papers that are lists, and those that are texts other than identifiers."""

CITATIONS_SCHEMA = _make_schema("citing", citing=_TEXT, cited=_TEXT, cited_title=_TEXT, cited_year=_NUMBER)
"""One row per reference, in the order of each citing paper's list. `cited` is null for a work without
identifier."""

MENTIONS_SCHEMA = _make_schema(
    "citing cited section section_kind paragraph sentence bracket position", citing=_TEXT, cited=_TEXT,
    section=_NUMBER, section_title=_TEXT, section_kind=_TEXT, paragraph=_NUMBER, sentence=_NUMBER,
    bracket=_NUMBER, position=_NUMBER,
)  # fmt: skip
"""One row per place in the text of a paper that cites an identified work, in reading order. `section` and
`paragraph` are numbers within the paper, `sentence` and `bracket` (a group of citations) within the
paragraph; `position` counts the characters of the paragraph before it, a citation as one. `section_kind` is
introduction, methods, results, discussion or other."""

BODIES_SCHEMA = _make_schema("paper_id text", paper_id=_TEXT, section=_TEXT, text=_TEXT)
"""Full texts, where they are kept: one row per stretch of text in one section, in reading order, papers as
in `PAPERS_SCHEMA`. `section` is the title of the innermost section."""

DOMAINS_SCHEMA = _make_schema("paper_id domain", paper_id=_TEXT, domain=_TEXT)
"""For a fetched corpus: one row per paper and domain whose query found it, ordered by both."""

PROVENANCE_SCHEMA = _make_schema(
    "record address sha256", record=_TEXT, address=_TEXT, version=_TEXT, licence_code=_TEXT, sha256=_TEXT
)
"""For a fetched corpus: one row per record, by its id: where it came from, the version of the article, the
licence that the service states, the SHA-256 of what was fetched."""

# A corpus, its folder, a table of papers, or a tuple of tables: papers and citations.
Corpus = Any


@dataclass(frozen=True)
class CorpusFolder:
    """A finished corpus.

    Attributes:
        path: folder of the corpus.
        manifest: sources and settings that it was made from, with counts.
        hashes: SHA-256 of each table as it was written; empty for tables in memory.

    Example:
        >>> corpus = CorpusFolder.open("corpus")
        >>> corpus.to_pandas()[["paper_id", "title"]].shape
        (120, 2)
    """

    path: Path
    manifest: dict[str, Any]
    hashes: dict[str, str] = field(default_factory=dict, compare=False)
    _temporary: TemporaryDirectory[str] | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        counts = self.manifest.get("counts", {})
        known = [
            f"{counts[name]:,} {name}" for name in ("papers", "citations") if type(counts.get(name)) is int
        ]
        return f"CorpusFolder({', '.join([repr(str(self.path)), *known])})"

    @classmethod
    def open(cls, path: CorpusFolder | Path | str) -> CorpusFolder:
        """Return the corpus in a folder; a corpus itself stays as it is.

        Raises:
            InputError: the folder holds no finished corpus, or one of another format version, or one whose
                manifest has changed.
        """
        if isinstance(path, CorpusFolder):
            return path
        if not isinstance(path, str | os.PathLike):
            raise InputError(f"a {type(path).__name__} is no corpus: give the folder of one")
        path = Path(path)
        if not (path / MANIFEST).is_file():
            read_checked_record(path / RECORD)  # it may be being replaced
            if (path / ".partial").is_dir():
                raise InputError(
                    f"{path} holds no finished corpus: the same call again continues where it stopped"
                )
            if (beside := following(path)).is_dir():
                raise InputError(f"{path} is no corpus: give {beside}, into which `serve` has imported it")
            why = f"(no {MANIFEST})" if path.exists() else "(no such file or folder)"
            raise InputError(f"{path} holds no corpus {why}: make one with `import_corpus` or `fetch_corpus`")
        manifest = read_json(path / MANIFEST)
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise InputError(
                f"{path / MANIFEST} does not describe a corpus; this folder was made by something else"
            )
        record = read_checked_record(path / RECORD) or {}
        check_version(path / MANIFEST, manifest.get("format_version"), FORMAT_VERSION)
        check_kinds(path / MANIFEST, manifest, counts=dict, tables=dict, sources=list, fetch=dict)
        tables = sorted({PAPERS, CITATIONS, *manifest.get("tables", {})})
        if missing := [name for name in tables if not (path / name).is_file()]:
            raise InputError(f"{path} lacks {' and '.join(missing)}: make it again with `overwrite`")
        stated = {name: digest for name, digest in manifest.get("tables", {}).items() if digest}
        corpus = cls(path, manifest, stated | (record.get("files") or {}))
        corpus.hash_file(MANIFEST)
        return corpus

    @classmethod
    def of(cls, corpus: Corpus) -> CorpusFolder:
        """Return a corpus given as such, as its folder, or as tables of papers, or of papers and citations.

        `papers` needs a column `paper_id`; any other of `PAPERS_SCHEMA` may be missing, and a column `domain`
        gives the domain of each paper. Titles and types tell of notices and retractions, as in an import.
        `citations` needs `citing` and `cited`.

        Raises:
            InputError: the folder holds no corpus, or a table lacks a column.
        """
        if isinstance(corpus, cls | str | Path):
            return cls.open(corpus)
        papers, citations = corpus if isinstance(corpus, tuple) else (corpus, CITATIONS_SCHEMA.empty_table())
        return build_in_memory(lambda place: _write_tables(place, to_arrow(papers), to_arrow(citations)))

    @property
    def label(self) -> str:
        """The name of the folder, or of the file that it follows, marked if papers are simulated."""
        simulated = self.manifest.get("counts", {}).get("simulated")
        return f"{self.path.resolve().name.removesuffix(_FOLLOWING)}{' (SIMULATED)' if simulated else ''}"

    @property
    def papers(self) -> Path:
        """The table of papers (`PAPERS_SCHEMA`)."""
        return self.path / PAPERS

    @property
    def citations(self) -> Path:
        """The table of citations (`CITATIONS_SCHEMA`)."""
        return self.path / CITATIONS

    @property
    def has_mentions(self) -> bool:
        """Whether it records where in the papers' texts works are cited."""
        return bool(self.manifest.get("counts", {}).get("mentions"))

    @property
    def mentions(self) -> Path:
        """The table of the places in the papers' texts that cite (`MENTIONS_SCHEMA`).

        Raises:
            InputError: the corpus has none: no paper came with its text.
        """
        if not self.has_mentions:
            raise InputError(
                f"{self.path} does not record where papers are cited in a text: none of its papers came with "
                "their text, as PubMed records and tables do not; import JATS articles with their bodies"
            )
        return self.path / MENTIONS

    @property
    def bodies(self) -> Path | None:
        """The table of full texts (`BODIES_SCHEMA`), if they were kept (`full_text`)."""
        return self._optional(BODIES)

    @property
    def rejected(self) -> Path:
        """The records that were set aside, one JSON object per line."""
        return self.path / REJECTED

    @property
    def domains(self) -> Path | None:
        """The table of the domains whose queries found the papers (`DOMAINS_SCHEMA`), if it was fetched."""
        return self._optional(DOMAINS)

    def _optional(self, name: str) -> Path | None:
        return self.path / name if name in self.manifest.get("tables", {}) else None

    def fingerprint(self) -> str:
        """Return a hash of the tables' contents, equal for equal corpora in any folder.

        Raises:
            InputError: a table has changed since it was written.
        """
        names = {PAPERS, CITATIONS, *filter(self._optional, (MENTIONS, BODIES, DOMAINS))}
        return sha256_text(*(f"{name}={self.hash_file(name)}" for name in sorted(names)))

    def hash_file(self, name: str) -> str:
        """Return the hash of a table, or of the manifest.

        Raises:
            InputError: it has changed since it was written.
        """
        digest = sha256_file(self.path / name)
        if self.hashes.get(name, digest) != digest:
            raise self.describe_change(name)
        return digest

    def describe_change(self, name: str) -> InputError:
        """Return the error of a table that is not as the manifest says: replaced meanwhile, or damaged."""
        try:
            replaced = read_json(self.path / MANIFEST) != self.manifest
        except (InputError, OSError):  # its new one is not there yet
            replaced = True
        if replaced:
            return InputError(
                f"{self.path} was replaced since it was opened: open it again, or give the same command again"
            )
        return InputError(f"{self.path / name} has changed since it was written: make the corpus again")

    def count_values(self, column: str, limit: int | None = None) -> dict[str, int]:
        """Count the papers that have each value of a column, such as `subjects`.

        MeSH headings count without their qualifiers and stars. Values that differ only in their case are one,
        in the most frequent spelling, as rules of domains have it.

        Args:
            column: one of `subjects`, `mesh`, `keywords`, `topic`, `subfield`, `field`, `journal`,
                `article_type`, `kind`, `language`, `licence`, `year`.
            limit: maximum number of values; the most frequent ones come first.

        Raises:
            UsageError: no such column.
            InputError: the table has changed since it was written.

        Example:
            >>> from sentence_experts import import_corpus
            >>> rows = [{"id": n, "title": "Rice", "abstract": "", "subjects": "Food; Rice"} for n in (1, 2)]
            >>> import_corpus(papers=rows).count_values("subjects")
            {'Food': 2, 'Rice': 2}
        """
        import duckdb

        if column not in COUNTED:
            raise UsageError(f"no values of {column!r}; there are {', '.join(COUNTED)}")
        value = f"unnest({column})" if column in ("subjects", "mesh", "keywords") else f"{column}::VARCHAR"
        value = f"trim(split_part({value}, '/', 1), '* ')" if column == "mesh" else value
        query = f"""WITH listed AS (
            SELECT DISTINCT paper_id, value
            FROM (SELECT paper_id, {value} AS value FROM {scan_parquet(self.papers)}) WHERE value IS NOT NULL
        ), spelled AS (SELECT value, count(*) AS times FROM listed GROUP BY value)
        SELECT first(value ORDER BY times DESC, value) AS most, count(DISTINCT paper_id) AS papers
        FROM listed JOIN spelled USING (value) GROUP BY lower(value) ORDER BY papers DESC, most LIMIT ?"""
        if self.hashes:
            self.hash_file(PAPERS)
        with _name_damaged_file(self.papers), duckdb.connect() as database:
            rows = database.execute(query, [limit or 1 << 60]).fetchall()
        return {str(value): int(papers) for value, papers in rows}

    def to_pandas(self, table: str = "papers") -> pd.DataFrame:
        """Read a table of the corpus: "papers", "citations", "mentions", "bodies" (full texts), or, if it was
        fetched, "domains" or "provenance".

        Raises:
            InputError: the corpus has no such table, or it has changed since it was written.
        """
        file = self.path / f"{table}.parquet"
        if not file.is_file():
            raise InputError(f"{self.path} has no table {table!r}")
        if self.hashes:
            self.hash_file(file.name)
        with _name_damaged_file(file):
            frame: pd.DataFrame = pq.read_table(file).to_pandas()
        return frame


@contextmanager
def _name_damaged_file(file: Path) -> Iterator[None]:
    """Raise an error of reading a table as one that names its file."""
    import duckdb

    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{file} is damaged ({reason}): make it again with `overwrite`") from error


def build_in_memory(build: Callable[[Path], CorpusFolder]) -> CorpusFolder:
    """Return a corpus in a temporary folder that lasts as long as the returned object."""
    temporary = temporary_folder()
    return replace(build(Path(temporary.name) / "corpus"), _temporary=temporary)


def _write_tables(folder: Path, papers: pa.Table, citations: pa.Table) -> CorpusFolder:
    folder.mkdir()
    papers = _fold_names(papers, PAPERS_SCHEMA, "papers")
    citations = _fold_names(citations, CITATIONS_SCHEMA, "citations")
    if "retracted" not in papers.column_names:
        papers = papers.append_column("retracted", pa.array([False] * papers.num_rows))
    table = _read_titles(_with_schema(papers, PAPERS_SCHEMA, "papers"))
    counts = table["paper_id"].value_counts()
    if twice := counts.filter(pc.greater(counts.field("counts"), 1)).field("values").to_pylist():
        raise InputError(
            f"papers: {len(twice):,} `paper_id` stand in several rows, the first is {twice[0]!r}: give one "
            "row per paper"
        )
    tables = {PAPERS: table, CITATIONS: _link_once(_with_schema(citations, CITATIONS_SCHEMA, "citations"))}
    if "domain" in papers.column_names:
        names = pc.utf8_trim_whitespace(identifiers(papers["domain"], "papers, column domain"))
        names = pc.if_else(pc.is_in(names, pa.array(["", *NO_VALUES])), None, names)
        known = pa.table({"paper_id": papers["paper_id"], "domain": names}).drop_null()
        tables[DOMAINS] = _with_schema(known, DOMAINS_SCHEMA, "papers")
    for name, each in tables.items():
        write_parquet(folder / name, each)
    manifest = {"format": FORMAT, "format_version": FORMAT_VERSION, "tables": dict.fromkeys(tables, "")}
    return CorpusFolder(folder, {**manifest, "counts": {}})


def _link_once(citations: pa.Table) -> pa.Table:
    """Leave out citations that repeat others, and those of papers by themselves, as an import does."""
    rows = pa.array(np.arange(citations.num_rows))
    known = citations.select(["citing", "cited"]).append_column("row", rows)
    known = known.filter(pc.fill_null(pc.not_equal(known["citing"], known["cited"]), False))
    first = known.group_by(["citing", "cited"]).aggregate([("row", "min")])["row_min"]
    is_first = pc.or_(pc.is_in(rows, value_set=first.combine_chunks()), pc.is_null(citations["cited"]))
    return citations.filter(is_first)


def _read_titles(table: pa.Table) -> pa.Table:
    """Return papers with their kind and retraction as their titles and types tell, as an import has them.

    Blank titles and abstracts are none.
    """
    titles = pc.if_else(
        pc.match_substring_regex(table["title"], "|".join(TELLING), ignore_case=True), table["title"], None
    )
    names = ("article_type", "kind", "retracted")
    rows = list(zip(titles.to_pylist(), *(table[name].to_pylist() for name in names), strict=True))
    papers = {
        row: Paper(
            title=row[0],
            article_type=row[1],
            kind=kind_named(row[2]),
            retracted=row[3] or is_type_of_retracted(row[2]),
        )
        for row in {*rows}
    }
    told = {row: (kind_of(paper), is_retracted(paper)) for row, paper in papers.items()}
    columns = {
        "kind": [told[row][0] for row in rows],
        "retracted": [told[row][1] for row in rows],
        "title": [text if text and text.strip() else None for text in table["title"].to_pylist()],
        "abstract": [
            clean_abstract(text) if text and text.strip() else None for text in table["abstract"].to_pylist()
        ],
    }
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(
            place, table.schema.field(place), pa.array(values, table.schema.field(place).type)
        )
    return table


def following(path: Path) -> Path:
    """Return the folder of the corpus that follows a file or folder of papers while that is served."""
    return Path(os.path.abspath(path) + _FOLLOWING)


def _fold_names(table: pa.Table, schema: pa.Schema, what: str) -> pa.Table:
    """Return a table whose columns have the schema's names for them, as "title" for "Title"."""
    there = [*table.column_names]
    times = Counter(name.strip().lower() for name in there)
    told = set[str]()
    for place, name in enumerate(there):
        folded = name.strip().lower()
        if folded in there or folded not in (*schema.names, "domain"):
            continue
        if times[folded] > 1:
            raise InputError(f"{what}: two columns are named {folded!r} but for their case; rename one")
        if folded != "domain" and not _fits(table[name], schema.field(folded)):
            logger.warning(f"{what}: the column {name!r} is not read: its values are not of {folded!r}")
            told.add(name)
            continue
        there[place] = folded
    rest = {name: name.strip().lower() for name in there if name not in told}
    if notes := list_unread(rest, [*schema.names, "domain"]):
        logger.warning(f"{what}: columns that are not used: {', '.join(notes)}")
    return table.rename_columns(there)


def _fits(column: pa.ChunkedArray, field: pa.Field) -> bool:
    """Return whether a column could be that of the schema."""
    if column.null_count and not field.nullable:
        return False
    if field.name in _IDS:
        return True
    try:
        _read_years(column, field.name).cast(field.type)
    except (pa.ArrowException, ValueError):
        return False
    return True


def _read_years(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return a column of plain values; of dates in the place of years, their years."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    is_year = name in ("year", "cited_year")
    is_date = pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)
    return pc.year(column) if is_year and is_date else column


def _with_schema(table: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
    """Return the columns of a schema; nulls stand in for columns that the table may lack."""
    needed = [field.name for field in schema if not field.nullable]
    check_columns(name, [*needed, *(["cited"] if schema is CITATIONS_SCHEMA else [])], table.column_names)
    columns = []
    for each in schema:
        if each.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, each.type))
            continue
        column = table[each.name]
        if each.name in _IDS:
            column = pc.utf8_trim_whitespace(identifiers(column, f"{name}, column {each.name}"))
        column = _read_years(column, each.name)
        if column.null_count and not each.nullable:
            missing = f"{column.null_count:,} of {len(column):,} rows have no `{each.name}`"
            raise InputError(f"{name}: {missing}")
        try:
            columns.append(column.cast(each.type))
        except (pa.ArrowException, ValueError) as error:
            raise InputError(
                f"{name}, column {each.name}: {column.type} where {each.type} is needed "
                f"({' '.join(str(error).split())}); import_corpus reads tables in other forms"
            ) from error
    return pa.table(columns, schema=schema)
