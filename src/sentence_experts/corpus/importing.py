"""`import_corpus` and `add_to_corpus`: articles, records and tables to a corpus, and more of them."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from sentence_experts.config import with_settings
from sentence_experts.corpus.building import JOURNAL, Sources, TableSource, build_corpus, open_corpus_output
from sentence_experts.corpus.config import ImportConfig
from sentence_experts.corpus.corpus_folder import MANIFEST, CorpusFolder, build_in_memory, following
from sentence_experts.corpus.formats.archives import find_sources, kind_of
from sentence_experts.corpus.formats.exports import EXPORTS
from sentence_experts.corpus.formats.openalex import RecordFilter
from sentence_experts.corpus.parts import read_rejections
from sentence_experts.corpus.record_files import (
    RECORD_SUFFIXES,
    RecordFile,
    RecordFiles,
    find_exports_among,
    find_record_files,
)
from sentence_experts.corpus.records import CorpusRecords
from sentence_experts.corpus.records_sql import SAME_WORK
from sentence_experts.corpus.user_tables import is_table_of_papers, read_user_tables
from sentence_experts.corpus.workers import number_of_workers
from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage import Output, check_apart, check_listed
from sentence_experts.tables import Table

logger = logging.getLogger(__name__)

_FIELDS = ("field", "subfield")  # columns that `field` matches
_EXPORTS = (".ris", ".nbib", ".bib", ".bibtex")  # files that nobody has but to read them
_OTHER_EXPORTS = (".ciw", ".enw")
_TABLES = (".csv", ".tsv", ".parquet", ".csv.gz", ".tsv.gz")
_MEANT = (*_EXPORTS, *_OTHER_EXPORTS, *_TABLES, *RECORD_SUFFIXES, ".xml", ".nxml")
# Reasons why a record is set aside that need no warning: another one counts, it was not wanted, or its table
# tells of it (`UserTable.parse`).
_EXPECTED = {
    *("duplicate", "replaced", "deleted", "filtered", "not-a-paper", "xpac"),
    *("bad-row", "broken-row"),
}


@with_settings(ImportConfig)
def import_corpus(
    sources: Iterable[Path | str] | Path | str = (),
    out: Path | str | None = None,
    config: ImportConfig | None = None,
    overwrite: bool = False,
    *,
    papers: Table | None = None,
    citations: Table | None = None,
    **settings: Any,
) -> CorpusFolder:
    """Read articles and tables into a corpus.

    Args:
        sources: folders, `.xml`/`.nxml` files, `.tar[.gz|.xz|.bz2]` and `.zip` archives of JATS or PubMed
            articles, in any mix; with `format`, or where there are no such, files and folders of JSON, JSON
            lines (also `.gz`) of OpenAlex, and exports: RIS, NBIB, BibTeX, CSV of PubMed
            and Zotero. The folder of a corpus is a source too, and a file like `papers`.
        out: the folder of the corpus; without it the corpus lasts as long as the returned object.
        config: settings; those given by name come before it.
        overwrite: start over, replacing another corpus in `out`.
        papers: a table of papers (a file or data frame): `id`, `title`, and if known `abstract`, `year`,
            `subjects`, `mesh`, `keywords`, `doi`, `pmid`, `pmcid`, `full_text`, ... (`read_user_tables`).
        citations: a table of citations between them: `citing`, `cited`.

    Raises:
        InputError: a source is missing, of an unknown kind, or changed meanwhile, or another process is
            writing `out`.
        UsageError: nothing to import, a bad setting, or `out` holds something else.

    Example:
        >>> corpus = import_corpus(papers=[{"id": "1", "title": "Roots of rice", "abstract": "Roots grow."}])
        >>> corpus.to_pandas()["title"].tolist()
        ['Roots of rice']
    """
    config = ImportConfig.of(config, **settings)
    paths = _check_paths(sources)
    if out is None:
        read = gather_sources(paths, config, papers, citations)
        return build_in_memory(lambda folder: _import(folder, read, config, False))
    check_apart(out, overwrite, *paths, papers, citations)
    for path in paths:
        if os.path.realpath(path) == os.path.realpath(out) and not (path / MANIFEST).is_file():
            raise UsageError(f"{path} is read: give another `out`")
        if path.is_dir() and Path(os.path.realpath(path)) in Path(os.path.realpath(out)).parents:
            raise UsageError(f"{out} is inside {path}, which is read: give an `out` beside it")
    read = gather_sources(paths, config, papers, citations)
    is_whole = config.model_dump(exclude_defaults=True).keys() <= {"workers", "memory"}
    has_tables = papers is not None or citations is not None
    read.followed = (
        is_whole and not has_tables and [Path(os.path.abspath(out))] == [following(path) for path in paths]
    )
    return _import(Path(out), read, config, overwrite)


def _check_paths(sources: Any) -> list[Path]:
    given = [sources] if isinstance(sources, str | Path) else sources
    paths: list[Any] = list(given) if isinstance(given, Iterable) else [None]
    if not all(isinstance(each, str | Path) for each in paths):
        raise UsageError(f"`sources` are paths, not {type(sources).__name__}")
    if "" in paths:  # as from a variable that is not set; it would mean the working directory
        raise UsageError("`sources`: an empty path")
    return [Path(each) for each in paths]


def gather_sources(
    sources: Iterable[Path | str], config: ImportConfig, papers: Table | None, citations: Table | None
) -> Sources:
    """Find the files of all sources, and check them.

    Raises:
        InputError: as `import_corpus`.
        UsageError: there are none.
    """
    paths = _check_paths(sources)
    for folder in filter(Path.is_dir, paths):
        check_listed(folder, hidden=".")
    corpora = [path for path in paths if (path / MANIFEST).is_file()]
    tables = [] if config.format else [path for path in paths if is_table_of_papers(path)]
    others = [path for path in paths if path not in (*corpora, *tables)]
    record_paths = [path for path in others if config.format or _holds_records(path)]
    article_paths = [path for path in others if path not in record_paths]
    among = [file for path in article_paths if path.is_dir() for file in find_exports_among(path)]
    for folder in filter(Path.is_dir, article_paths):  # links are set aside by name
        read = (each for each in folder.rglob("*") if kind_of(each) or each.is_symlink())
        _tell_of_ignored(folder, (*read, *(file.path for file in among)), False)
    files = find_sources(article_paths)
    archives = (file.path for file in files if file.kind in ("tar", "zip"))
    elsewhere = frozenset((*archives, *(file.path.resolve() for file in among)))
    files = [replace(file, elsewhere=elsewhere) for file in files]
    if (config.field or config.years) and not (record_paths or among):
        name = "field" if config.field else "years"
        raise UsageError(f"`{name}` chooses among records of OpenAlex or exports; no source has any")
    if (config.field or config.years) and (files or tables or papers is not None):
        logger.warning(
            "field and years choose among records of OpenAlex and exports: articles and tables are kept whole"
        )
    records = [CorpusRecords(CorpusFolder.open(path)) for path in corpora]
    if fetched := [each.corpus.path.name for each in records if each.corpus.domains is not None]:
        logger.warning(
            f"{', '.join(fetched)}: the domains and provenance of fetched papers are not kept: give rules "
            "for domains when pairs are compiled (`suggest_domains` writes some)"
        )
    extras: list[TableSource] = [*records]
    if record_paths or among:
        extras.append(_record_files(record_paths, among, config))
    extras += read_user_tables(tables if papers is None else [papers, *tables], citations)
    if not files and not extras:
        raise UsageError("nothing to import: name at least one folder, file or archive, or give `papers`")
    return Sources(files, extras, config.full_text, [each.fingerprint for each in records])


def _holds_records(path: Path) -> bool:
    """Return whether a file, or every file of a folder, is of a kind that holds records, not articles."""
    if not path.is_dir():
        return not kind_of(path) and path.name.lower().endswith(RECORD_SUFFIXES)
    has_records = False
    for _, _, files in os.walk(path):
        for name in files:
            if kind_of(Path(name)):
                return False
            has_records = has_records or name.lower().endswith(RECORD_SUFFIXES)
    return has_records


def _record_files(paths: list[Path], among: list[RecordFile], config: ImportConfig) -> RecordFiles:
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
    files = []
    for path in paths:
        found = find_record_files(path, config.format)
        if path.is_dir():
            _tell_of_ignored(path, (file.path for file in found), config.format is not None)
        files += found
    files += among
    if config.field and (exports := [file.name for file in files if file.format in EXPORTS]):
        logger.warning(
            f"`field`: exports have no fields, and are kept whole: {len(exports):,} ({exports[0]})"
        )
    if len({file.name for file in files}) < len(files):  # files of several folders
        files = [replace(file, name=file.path.as_posix()) for file in files]
    return RecordFiles(files, RecordFilter(config.field, config.years), number_of_workers(config.workers))


def _tell_of_ignored(folder: Path, read: Iterable[Path], has_format: bool) -> None:
    """Tell of the files in a folder that are not read: by name where they may be meant to be."""
    kinds, meant = Counter[str](), dict[str, list[str]]()
    for file in sorted(set(folder.rglob("*")) - set(read)):
        name = file.name.lower()
        is_file = file.is_file() and name[0] not in "._"
        if file.is_symlink() and (file.is_dir() or (is_file and name.endswith(_MEANT))):
            what = "links"
        elif not is_file:
            continue
        elif name.endswith(_EXPORTS):
            what = "exports" if file.stat().st_size else "empty files"
        elif name.endswith(_OTHER_EXPORTS):
            what = "exports that can be read as RIS or BibTeX alone"
        elif name.endswith(_TABLES) and is_table_of_papers(file):
            what = "tables of papers"
        else:
            what = "articles" if has_format and kind_of(file) == "file" else ""
        if what:
            meant.setdefault(what, []).append(file.relative_to(folder).as_posix())
        else:
            kinds[file.suffix.lower() or "without ending"] += 1
    if meant:
        named = ", ".join(f"{what} {len(names):,} ({names[0]})" for what, names in meant.items())
        logger.warning(f"{folder}: files that are not read: {named}; name as sources those that you want")
    if kinds:
        named = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(10))
        logger.info(f"{folder}: other files that are not read: {named}")


def _import(out: Path, read: Sources, config: ImportConfig, overwrite: bool) -> CorpusFolder:
    with open_corpus_output(out, overwrite) as place:
        corpus = _build(place, read, config)
    counts = corpus.manifest["counts"]
    if odd := {reason: n for reason, n in counts["rejected"].items() if reason not in _EXPECTED}:
        told = ", ".join(f"{reason} {number:,}" for reason, number in odd.items())
        logger.warning(f"not read, in all: {told} ({corpus.rejected.name} names them)")
    if config.full_text and not corpus.bodies:
        logger.warning("`full_text`: no text is kept, as no source holds the text of an article")
    _tell_of_citations(corpus, any(each["kind"] == "table of citations" for each in read.described))
    values = [one for column in _FIELDS if config.field for one in corpus.count_values(column)]
    for name in config.field or ():
        if values and re.search("[^\\W\\d]", name) and not RecordFilter((name,)).admits(None, values):
            logger.warning(f"`field`: {name!r} matches no paper that was kept; is it misspelt?")
    if counts["with_abstract"] < 0.8 * counts["with_title"]:
        use = "to make pairs and to search" if counts["citations"] else "to search them (unit title)"
        logger.info(
            f"{counts['with_abstract']:,} of {counts['papers']:,} papers have an abstract, "
            f"{counts['with_title']:,} a title: titles suffice {use}"
        )
    return corpus


def _tell_of_citations(corpus: CorpusFolder, has_table: bool) -> None:
    """Tell of citations that may have ids of another form than the papers."""
    counts = corpus.manifest["counts"]
    by_others = 2 * counts["citations_by_others"] > counts["citations"]
    if not counts["citations"] or not (by_others or (has_table and not counts["in_corpus_citations"])):
        return
    papers, cited = (
        pq.read_table(file, columns=[name])[name]
        for file, name in ((corpus.papers, "paper_id"), (corpus.citations, "cited"))
    )
    if not len(cited := cited.drop_null()):
        return
    # Works outside the corpus may well cite papers of it, which makes pairs.
    is_linking = pc.any(pc.is_in(cited, value_set=papers.combine_chunks())).as_py()
    if by_others:
        (logger.info if is_linking else logger.warning)(
            f"{counts['citations_by_others']:,} of {counts['citations']:,} citations are by works that the "
            "corpus does not have: their `citing` names none of its papers (write `pmid:` before a PMID)"
        )
    if has_table and not is_linking:
        logger.warning(
            f"no citation is of a paper of the corpus: a cited work is {cited[0].as_py()!r}, a paper "
            f"{papers[0].as_py()!r}; if some are, give the ids of the papers, or DOIs or PMIDs that they have"
        )


def _build(place: Output, read: Sources, config: ImportConfig) -> CorpusFolder:
    """Build a corpus in its place, and complete it; a finished one only if requests failed before."""
    chosen = {"full_text": read.full_text, "complete": config.complete}
    settings = {name: value for name, value in chosen.items() if value} | {"followed": read.followed}
    if place.begin({"sources": [*read.described, *read.corpora], **settings}) == "finished":
        if not place.result["missing"]:
            return CorpusFolder.open(place.path)
        place.reopen()
    build = partial(build_corpus, place, read, config.workers, memory=config.memory)
    if not config.complete:
        return build()
    from sentence_experts.corpus.completing import complete_papers
    from sentence_experts.corpus.fetching import open_client, openalex_key

    email, key = config.email or os.environ.get("NCBI_EMAIL"), openalex_key(config.api_key)
    with open_client(config.services, place.final / JOURNAL, email, key) as client:
        return build(complete=partial(complete_papers, client))


@with_settings(ImportConfig)
def add_to_corpus(
    corpus: CorpusFolder | Path | str,
    sources: Iterable[Path | str] | Path | str = (),
    config: ImportConfig | None = None,
    *,
    papers: Table | None = None,
    citations: Table | None = None,
    **settings: Any,
) -> CorpusFolder:
    """Add sources to a corpus: works that it has already are completed, others become new papers.

    The tables are those of one import of everything, in any order of steps: later versions of records of
    PubMed and OpenAlex replace earlier ones, and deletions delete. Vectors stay: the next `build_index`
    encodes only the new papers. Pairs have to be compiled again.

    Args:
        corpus: a finished corpus, or its folder. It is replaced when the new one is whole.
        sources: sources as for `import_corpus`.
        config: settings of reading; those given by name come before it.
        papers: a table of papers, as for `import_corpus`.
        citations: a table of citations between them.

    Raises:
        InputError: as `import_corpus`, or there is no corpus, or one of 0.2.0 or earlier, or one whose tables
            have changed since they were written.
        UsageError: nothing to add or complete, or the corpus was fetched: its tables of domains and
            provenance belong to its queries.

    Example:
        >>> from sentence_experts import import_corpus
        >>> rice = import_corpus(papers=[{"id": "1", "title": "Rice", "abstract": ""}])
        >>> add_to_corpus(rice, papers=[{"id": "2", "title": "Sleep", "abstract": ""}])
        CorpusFolder('...', 2 papers, 0 citations)
    """
    config = ImportConfig.of(config, **settings)
    if not isinstance(corpus, CorpusFolder | str | os.PathLike):
        raise UsageError(f"`corpus` is a corpus or its folder, no {type(corpus).__name__}")
    if isinstance(corpus, CorpusFolder):
        CorpusRecords(corpus)  # refuses tables in memory
    folder = corpus.path if isinstance(corpus, CorpusFolder) else Path(corpus)
    # A temporary folder lasts as long as an object that holds it.
    temporary = corpus._temporary if isinstance(corpus, CorpusFolder) else None
    with open_corpus_output(folder, overwrite=True) as place:
        before = CorpusFolder.open(folder)
        before.fingerprint()  # refuses tables that were changed: they are made anew of the records
        if before.domains is not None:
            raise UsageError(
                f"{folder}: fetched by queries, whose domains and provenance a merged corpus does not have; "
                "import this folder and the sources into a new corpus, with rules for its domains"
            )
        if any(source.get("full_text") for source in before.manifest["sources"]):
            config = ImportConfig.of(config, full_text=True)
        read = gather_sources([folder, *_check_paths(sources)], config, papers, citations)
        has = [source | {"name": None} for source in before.manifest["sources"]]
        if not config.complete and all(source | {"name": None} in has for source in read.described):
            logger.info(f"{folder}: has all of these sources already")
            return replace(before, _temporary=temporary)
        others = _count_other_records(before)
        merged = _build(place, read, config)
    old, new = (each.manifest["counts"]["papers"] for each in (before, merged))
    logger.info(f"{folder}: {new:,} papers, {old:,} before")
    if (again := _count_other_records(merged) - others) > 0:
        logger.warning(
            f"{folder}: {again:,} records more are of papers that have another; the fuller one counts, of "
            f"equals not always the new one ({merged.rejected.name} names them); to take corrections, import "
            "all sources again with `overwrite`"
        )
    return replace(merged, _temporary=temporary)


def _count_other_records(corpus: CorpusFolder) -> int:
    """Return the number of records that are others of a paper than the one that counts."""
    return sum(each.records for each in read_rejections(corpus.rejected) if each.detail.startswith(SAME_WORK))
