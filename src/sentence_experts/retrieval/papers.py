"""The papers of a corpus as a search shows them: their facts, identifiers, filters and citations."""

from __future__ import annotations

import fnmatch
import hashlib
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sentence_experts.corpus.corpus_folder import BODIES, CITATIONS, DOMAINS, PAPERS
from sentence_experts.corpus.identifiers import (
    normalise_doi,
    normalise_pmcid,
    normalise_pmid,
    parse_identifier,
)
from sentence_experts.corpus.paper import KINDS, NOTICE_KINDS
from sentence_experts.errors import InputError, UsageError, brief
from sentence_experts.retrieval.citation_export import paper_url
from sentence_experts.retrieval.matching import letters_of, rows_of_one
from sentence_experts.retrieval.texts import joined, sections_of
from sentence_experts.retrieval.value_counts import count_papers, folded
from sentence_experts.storage import OpenFiles

if TYPE_CHECKING:
    from sentence_experts.corpus.corpus_folder import CorpusFolder
    from sentence_experts.pairs.domains import DomainRules

logger = logging.getLogger(__name__)

FACTS = (
    *("paper_id", "pmid", "pmcid", "doi", "title", "authors", "abstract", "year", "article_type", "kind"),
    *("subjects", "keywords", "mesh", "journal", "volume", "issue", "pages", "retracted", "entry", "file"),
)
# Filter -> the column that it looks at; the domains are in none.
VALUES = {
    **{"year": "year", "type": "article_type", "journal": "journal", "domain": "domain"},
    **{"keyword": "keywords", "mesh": "mesh"},
}
_ID_COLUMNS = ("paper_id", "paper_id", "doi", "pmid", "pmcid", "openalex")
_LINKS = 1 << 20  # citations read at once; the ids of all papers are hashed for each
_NAMED = 8  # number of values that a message names
_GROUPS, _FILTERS = 8, 64  # row groups of 16,384 papers, and filters' results, in memory


_YEARS = re.compile(r"(\d{4})?(\.\.)?(\d{4})?")


@dataclass(frozen=True)
class Filters:
    """Conditions that papers must meet to be found; an empty condition admits all papers.

    Attributes:
        years: first and last year; None for an open end.
        type, journal, domain, keyword, mesh: at least one of these values each, upper or lower case; `*`
            stands for any text, unless a paper has just this value. Domains are those that a corpus was
            fetched by, else its subjects; MeSH headings are compared without their stars and qualifiers.
        notices: whether corrections, editorials and other notices (`NOTICE_KINDS`) are found too.
    """

    years: tuple[int | None, int | None] = (None, None)
    type: tuple[str, ...] = ()
    journal: tuple[str, ...] = ()
    domain: tuple[str, ...] = ()
    keyword: tuple[str, ...] = ()
    mesh: tuple[str, ...] = ()
    notices: bool = True

    @classmethod
    def of(
        cls, year: str | int | None = None, notices: bool = True, **values: Sequence[str] | None
    ) -> Filters:
        """Return filters as people write them; `year` is "2015", "2015..2020", "2015.." or "..2020".

        >>> Filters.of("2015..").years
        (2015, None)
        """
        given = {name: tuple(each or ()) for name, each in values.items()}
        return cls(_years(year), **given, notices=notices)


def _years(year: str | int | None) -> tuple[int | None, int | None]:
    if year is None:
        return None, None
    text = str(year).strip()
    match = _YEARS.fullmatch(text)
    if match is None or not (match[1] or match[3]) or (match[3] and not match[2]):
        raise UsageError(f"`year`: {text!r} is not of the form 2015, 2015..2020, 2015.. or ..2020")
    first, last = (int(each) if each else None for each in (match[1], match[3] if match[2] else match[1]))
    if first is not None and last is not None and first > last:
        raise UsageError(f"`year`: {text!r}: the first year must come before the last")
    return first, last


class Papers:
    """The table of papers of a corpus, of which only what is needed is read."""

    def __init__(self, corpus: CorpusFolder, domains: Path | Mapping[str, Any] | None = None) -> None:
        """Open the table; `domains` are rules that sort papers into domains (`DomainRules.of`)."""
        self.corpus = corpus
        self._rules: DomainRules | None = None
        self._has_told = self._has_told_years = False
        if domains is not None:
            from sentence_experts.pairs.domains import DomainRules

            self._rules = DomainRules.of(domains)
        # Open all the time, since a server keeps the corpus that it started with if another takes its place.
        self._tables: dict[str, pa.NativeFile] = {}
        try:
            for table in filter(None, (corpus.citations, corpus.domains, corpus.bodies, corpus.papers)):
                self._tables[table.name] = pa.OSFile(str(table))
            self._file = pq.ParquetFile(self._tables[PAPERS])
            self.files = OpenFiles(corpus.path / name for name in self._tables)
        except (pa.ArrowInvalid, OSError) as error:
            raise InputError(f"{table} is damaged ({brief(error)}): make it again") from error
        self.count: int = self._file.metadata.num_rows
        sizes = [self._file.metadata.row_group(n).num_rows for n in range(self._file.num_row_groups)]
        self._starts = np.cumsum([0, *sizes])
        self._names = [name for name in FACTS if name in self._file.schema_arrow.names]
        self._reading = RLock()  # a Parquet file is read by one thread at a time
        self._checked: set[str] = set()
        self._columns: dict[str, Any] = {}
        self._group = lru_cache(_GROUPS)(self._read_group)
        self._passing = lru_cache(_FILTERS)(self._pass)  # every route of one search asks for the same
        self._counts = lru_cache(lambda parameter: count_papers(self._filtered(parameter)))

    def facts(self, rows: Iterable[int]) -> list[dict[str, Any]]:
        """Return the `FACTS` that the corpus has of the papers in these rows, and a `link`.

        `domains` are there too if the corpus has a table of them, or rules were given.
        """
        has_domains = self._rules is not None or DOMAINS in self._tables
        facts = []
        for row in rows:
            group = int(np.searchsorted(self._starts, row, side="right")) - 1
            fields = self._group(group).slice(int(row - self._starts[group]), 1).to_pylist()[0]
            fields["link"] = paper_url(fields)
            if has_domains:
                fields["domains"] = self.domains[row].as_py() or []
            facts.append(fields)
        return facts

    def _read_group(self, number: int) -> pa.Table:
        with self._reading:
            return self._file.read_row_group(number, columns=self._names)

    def _table(self, name: str) -> pa.NativeFile | None:
        """Return an open table beside that of the papers, if there is one.

        Raises:
            InputError: it is not the one that was written.
        """
        file = self._tables.get(name)
        with self._reading:
            if file is not None and name not in self._checked:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                if self.corpus.hashes.get(name, digest) != digest:
                    raise self.corpus.describe_change(name)
                self._checked.add(name)
        return file

    def texts(self, rows: Sequence[int], unit: str) -> list[str]:
        """Return the texts of papers as a unit has them, full texts too."""
        facts = self.facts(rows)
        sections = sections_of(self._table(BODIES), [one["paper_id"] for one in facts])
        return [joined(one, unit, sections[one["paper_id"]]) for one in facts]

    def column(self, name: str) -> pa.Array:
        """Return a whole column; nulls where the corpus has no such column."""
        with self._reading:
            if name not in self._columns:
                known = name in self._file.schema_arrow.names
                nothing = pa.nulls(self.count, pa.string())
                column = self._file.read(columns=[name])[name].combine_chunks() if known else nothing
                self._columns[name] = column
            return self._columns[name]

    @cached_property
    def domains(self) -> pa.Array:
        """The domains of each paper: by rules, or as the corpus was fetched, or else its subjects."""
        known: dict[str, list[str]] = {}
        if self._rules is not None:
            from sentence_experts.pairs.domains import COLUMNS

            classify, names = self._rules.classifier(), ["paper_id", *COLUMNS.values(), "year"]
            rows = self._file.read(columns=list(dict.fromkeys(names))).to_pylist()
            known = {row["paper_id"]: list(classify(row)) for row in rows}
        elif DOMAINS in self._tables:
            table = pq.read_table(self._table(DOMAINS), columns=["paper_id", "domain"])
            for paper, domain in zip(*(column.to_pylist() for column in table.columns), strict=True):
                known.setdefault(paper, []).append(domain)
        else:
            return self.column("subjects")
        lists = [known.get(paper) for paper in self.column("paper_id").to_pylist()]
        return pa.array(lists, pa.list_(pa.string()))

    def find(self, ids: Sequence[str]) -> list[int]:
        """Return the row of each paper, by its DOI, PMID, PMCID or `paper_id`."""
        rows = self.rows_of(ids)
        if None in rows:
            unknown = ids[rows.index(None)]
            raise InputError(
                f"{self.corpus.path}: no paper with the id {unknown!r} (DOI, PMID, PMCID, paper id)"
            )
        return [row for row in rows if row is not None]

    def rows_of(self, ids: Sequence[str]) -> list[int | None]:
        """Return the row of each of these papers, by an id of any kind; None where it is not there."""
        by_id: dict[str, int] = {}
        names = {given: _names(given) for given in ids}
        for number, column in enumerate(_ID_COLUMNS):
            wanted = {given: of[number] for given, of in names.items() if given not in by_id and of[number]}
            if wanted:
                values = self.column(column)
                rows = np.flatnonzero(_is_in(values, wanted.values()))[::-1]  # so that the first one stays
                found = dict(zip(values.take(pa.array(rows)).to_pylist(), rows.tolist(), strict=True))
                by_id |= {given: found[value] for given, value in wanted.items() if value in found}
        return [by_id.get(given) for given in ids]

    @cached_property
    def by_title(self) -> dict[str | None, int | None]:
        """The letters of a title -> its row; None where several papers have it."""
        return rows_of_one(map(letters_of, self.column("title").to_pylist()))

    @cached_property
    def by_entry(self) -> dict[str | None, int | None]:
        """Entry of a reference manager -> its row; None where several papers have it."""
        return rows_of_one(self.column("entry").to_pylist())

    def places(self, filters: Filters | None) -> NDArray[np.bool_] | None:
        """Return whether each paper passes the filters, (papers,); None if there are none."""
        is_open = filters in (None, Filters())
        if filters is None or is_open or (filters == Filters(notices=False) and not self._notices.any()):
            return None
        return self._passing(filters)

    def _pass(self, filters: Filters) -> NDArray[np.bool_]:
        allowed = np.ones(self.count, bool)
        first, last = filters.years
        if first is not None or last is not None:
            years = self.column("year")
            if years.null_count == self.count:
                raise InputError(f"`year`: no paper of {self.corpus.path} has one")
            self._tell_of_years(years.null_count)
            numbers = pc.fill_null(years, -1).to_numpy(zero_copy_only=False)
            allowed &= (numbers >= (first or 0)) & (numbers <= (last if last is not None else 1 << 30))
        if not filters.notices:
            allowed &= ~self._notices
        for parameter in VALUES:
            if values := getattr(filters, parameter, ()):
                allowed &= self._has(parameter, values)
        return allowed

    @cached_property
    def _notices(self) -> NDArray[np.bool_]:
        """Whether each paper is a correction, an editorial or another notice, (papers,)."""
        # Every search asks for this; `pa.array` and `to_numpy`, of which `pc.is_in` needs one, import pandas.
        kinds = self.column("kind").dictionary_encode("encode")
        is_notice = np.array([kind in NOTICE_KINDS for kind in kinds.dictionary.to_pylist()], dtype=bool)
        return is_notice[np.from_dlpack(kinds.indices).astype(np.intp)]

    def hidden(self, filters: Filters | None) -> int:
        """Return the number of papers that pass all filters, but are notices, which the filters leave out."""
        if filters is None or filters.notices:
            return 0
        passing = self.places(replace(filters, notices=True))
        return int((self._notices if passing is None else self._notices & passing).sum())

    def without_year(self, filters: Filters) -> int:
        """Return the number of papers that pass all filters but that of years, since they have no year."""
        if filters.years == (None, None):
            return 0
        passing, missing = self.places(replace(filters, years=(None, None))), self.column("year").is_null()
        without = np.asarray(missing)
        return int((without if passing is None else without & passing).sum())

    def _filtered(self, parameter: str) -> pa.Array:
        """Return the column that a filter looks at: one value per paper, or a list."""
        if parameter == "mesh":
            return self._descriptors
        return self.domains if parameter == "domain" else self.column(VALUES[parameter])

    @cached_property
    def _descriptors(self) -> pa.Array:
        """The descriptors of the MeSH headings of each paper."""
        from sentence_experts.pairs.domains import descriptor_of

        column = self.column("mesh")
        if not pa.types.is_list(column.type):
            return column
        headings = column.values.dictionary_encode()
        names = pa.array(map(descriptor_of, headings.dictionary.to_pylist()), pa.string())
        return pa.ListArray.from_arrays(column.offsets, names.take(headings.indices))

    def _has(self, parameter: str, wanted: Sequence[str]) -> NDArray[np.bool_]:
        """Return whether a value of each paper fits one of the patterns, in which `*` stands for any text."""
        column = self._filtered(parameter)
        values = column.flatten() if pa.types.is_list(column.type) else column
        known = values.unique().drop_null().to_pylist()
        fitting: set[str] = set()
        for pattern in wanted:
            fits = re.compile(fnmatch.translate(re.sub(r"[\[?]", r"[\g<0>]", folded(pattern))))
            exact = {value for value in known if folded(value) == folded(pattern)}  # such as "C*-algebras"
            matching = exact or {value for value in known if fits.match(folded(value))}
            if not matching:
                counts = list(self.values(parameter))
                shown = ", ".join(counts[:_NAMED]) + (", ..." if len(counts) > _NAMED else "")
                raise InputError(
                    f"`{parameter}`: no paper of {self.corpus.path} has {pattern!r}; there are "
                    f"{shown or 'none'}"
                )
            fitting |= matching
        inside = _is_in(values, fitting)
        if parameter == "type":
            self._tell_of_kinds(wanted, inside)
        if values is column:
            return inside
        allowed = np.zeros(self.count, bool)
        allowed[np.asarray(pc.list_parent_indices(column))[inside]] = True
        return allowed

    def _tell_of_kinds(self, wanted: Sequence[str], inside: NDArray[np.bool_]) -> None:
        """Warn, once, of papers of a kind that is asked for as a type: each source has its own words."""
        names = {folded(each) for each in wanted} & KINDS
        if self._has_told or not names:
            return
        types, kinds = (self.column(name).to_pylist() for name in ("article_type", "kind"))
        others = Counter(
            types[row] for row, kind in enumerate(kinds) if kind in names and not inside[row] and types[row]
        )
        if others:
            self._has_told = True
            named = ", ".join(f"{name} ({count:,})" for name, count in others.most_common(_NAMED))
            logger.warning(f"`type`: papers of this kind have other types, too, and are left out: {named}")

    def _tell_of_years(self, missing: int) -> None:
        """Warn, once, where a filter of years leaves out many papers that have none."""
        if missing > 0.1 * self.count and not self._has_told_years:
            self._has_told_years = True
            logger.warning(f"`year`: {missing:,} of {self.count:,} papers have none, and are left out")

    def values(self, parameter: str, rows: Sequence[int] | None = None) -> dict[str, int]:
        """Return the values of one of `VALUES`, such as "year" -> number of papers, most frequent first.

        Years are in their order. Values that differ only in their case are one, as for filters, in the most
        frequent spelling. `rows` limits the count to these papers.
        """
        if parameter not in VALUES:
            raise UsageError(f"no values of {parameter!r}; there are {', '.join(VALUES)}")
        if rows is None:
            counts = [*self._counts(parameter).items()]
        else:
            counts = [*count_papers(self._filtered(parameter).take(pa.array(rows, pa.int64()))).items()]
        counts.sort(key=lambda pair: pair[0] if parameter == "year" else (-pair[1], pair[0]))
        return {str(value): count for value, count in counts}

    def citations(self, rows: Sequence[int]) -> list[tuple[int, int]]:
        """Return (citing row, cited row) of each citation between two of these papers."""
        wanted, (cites, _) = set(rows), self._links
        return [
            (row, other) for row in sorted(wanted) for other in self._linked(row, *cites) if other in wanted
        ]

    def cites(self, row: int) -> list[int]:
        """Return the papers of the corpus that a paper cites."""
        return self._linked(row, *self._links[0])

    def cited_by(self, row: int) -> list[int]:
        """Return the papers of the corpus that cite a paper."""
        return self._linked(row, *self._links[1])

    @staticmethod
    def _linked(row: int, starts: NDArray[np.int64], others: NDArray[np.int64]) -> list[int]:
        return list(dict.fromkeys(others[starts[row] : starts[row + 1]].tolist()))

    @cached_property
    def _links(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """The citations between papers of the corpus, as rows: what each paper cites, then what cites it.

        The places where the citations of each paper begin, (papers + 1,), and the other papers, (citations,).
        """
        ids = self.column("paper_id")
        found = [np.empty((2, 0), np.int64)]
        for batch in pq.ParquetFile(self._table(CITATIONS)).iter_batches(_LINKS, columns=["citing", "cited"]):
            rows = [pc.fill_null(pc.index_in(batch[name], value_set=ids), -1) for name in ("citing", "cited")]
            ends = np.array([each.to_numpy(zero_copy_only=False) for each in rows], np.int64)
            found.append(ends[:, (ends >= 0).all(axis=0)])
        links = []
        both = np.concatenate(found, axis=1)
        for own, other in (both, both[::-1]):
            order = np.argsort(own, kind="stable")
            links.append((np.searchsorted(own[order], np.arange(self.count + 1)), other[order]))
        return links


def _is_in(values: pa.Array, wanted: Iterable[str | None]) -> NDArray[np.bool_]:
    return np.asarray(pc.is_in(values, value_set=pa.array(list(wanted), pa.string())), bool)


def _names(given: str) -> tuple[str | None, ...]:
    """Return the values in `_ID_COLUMNS` of a paper with this id."""
    text = given.strip()
    known = parse_identifier(text)
    return (
        text,
        known.name(),
        known.doi or normalise_doi(text),
        known.pmid or normalise_pmid(text),
        known.pmcid or (normalise_pmcid(text) if text[:3].lower() == "pmc" else None),
        f"W{known.openalex}" if known.openalex else None,
    )
