"""`fetch_corpus`: queries to a corpus; articles are fetched into a journal, then imported.

The journal (`journal.sqlite` in the corpus's folder) holds every answer. So a fetch that was interrupted goes
on where it stopped, another domain costs only what is new, and the corpus depends only on the journal.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from sentence_experts.config import with_settings
from sentence_experts.corpus.building import JOURNAL, Additions, Sources, build_corpus, open_corpus_output
from sentence_experts.corpus.config import FetchConfig, Services
from sentence_experts.corpus.corpus_folder import (
    DOMAINS,
    DOMAINS_SCHEMA,
    PAPERS,
    PROVENANCE,
    PROVENANCE_SCHEMA,
    CorpusFolder,
    build_in_memory,
)
from sentence_experts.corpus.formats.archives import Document, Source
from sentence_experts.corpus.paper import Rejection
from sentence_experts.corpus.parts import COMPLETING, CorpusPart, find_missing_groups, make_table
from sentence_experts.corpus.sources.client import Client, Names
from sentence_experts.corpus.sources.journal import MEMORY, open_journal
from sentence_experts.corpus.sources.openalex import OpenAlexSource
from sentence_experts.corpus.sources.pmc import PmcSource
from sentence_experts.corpus.sql_files import scan_parquet
from sentence_experts.errors import UsageError
from sentence_experts.progress import progress
from sentence_experts.storage import PartStore, write_stream

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

_PAPERS_PER_PART = 20_000
_NAMED = pa.schema([("domain", pa.string()), ("name", pa.string())])


@dataclass(frozen=True)
class FetchEstimate:
    """The size of a fetch.

    Attributes:
        articles: domain -> number of articles that its query finds.
        to_fetch: domain -> number of articles that would be fetched.
    """

    articles: dict[str, int]
    to_fetch: dict[str, int]

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per domain."""
        import pandas as pd

        table = pd.DataFrame({"found": self.articles, "to_fetch": self.to_fetch})
        return table.rename_axis("domain").reset_index()


@with_settings(FetchConfig)
def estimate_fetch(config: FetchConfig | None = None, **settings: Any) -> FetchEstimate:
    """Count what a fetch would find; nothing else is requested, and nothing is stored.

    Args:
        config: settings; those given by name come before it.

    Raises:
        UsageError: a query that the service does not understand or that finds nothing, or a bad setting.
        UnreachableError: no connection.

    Example:
        >>> estimate_fetch(domains={"copd": "copd[title]"}).articles  # doctest: +SKIP
        {'copd': 2345}
    """
    config = _complete(FetchConfig.of(config, **settings))
    with open_client(config.services, MEMORY, config.email, config.api_key) as client:
        source = _make_source(client, config)
        articles = {name: source.count(query) for name, query in config.domains.items()}
    limited = {name: min(count, config.max_articles or count) for name, count in articles.items()}
    return FetchEstimate(articles, limited)


@with_settings(FetchConfig)
def fetch_corpus(
    config: FetchConfig | None = None,
    out: Path | str | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> CorpusFolder:
    """Fetch the articles that queries find, with their references, into a corpus.

    What could not be fetched after every attempt is set aside by name; the same call requests it again.

    Args:
        config: settings; those given by name come before it.
        out: the folder of the corpus; without it the corpus lasts as long as the returned object.
        overwrite: make the corpus in `out` again; what both have in common is not fetched again.

    Raises:
        UsageError: a query that the service does not understand, a bad setting, or `out` was made with other
            settings.
        UnreachableError: no connection; what was fetched is kept.
        InputError: `out` is in use or holds other files.

    Example:
        >>> fetch_corpus(out="fetched", domains={"copd": "copd[title]"}, max_articles=100)  # doctest: +SKIP
    """
    config = _complete(FetchConfig.of(config, **settings))
    if out is None:
        return build_in_memory(lambda folder: _fetch_to(folder, config, False))
    return _fetch_to(Path(out), config, overwrite)


def _complete(config: FetchConfig) -> FetchConfig:
    """Return the settings, with the address and key of the environment if they have none."""
    if not config.domains:
        raise UsageError("`domains`: give at least one NAME=QUERY")
    email = config.email or os.environ.get("NCBI_EMAIL")
    if config.source == "openalex":
        return FetchConfig.of(config, email=email, api_key=openalex_key(config.api_key))
    if not email:
        raise UsageError(
            "no email: NCBI requires the address of its users; give `email=you@example.org` or set NCBI_EMAIL"
        )
    return FetchConfig.of(config, email=email, api_key=config.api_key or os.environ.get("NCBI_API_KEY"))


def openalex_key(given: str | None) -> str:
    """Return the key that OpenAlex requires: the given one, or the environment's.

    Raises:
        UsageError: there is none.
    """
    if key := given or os.environ.get("OPENALEX_API_KEY"):
        return key
    raise UsageError(
        "no key: OpenAlex requires one, free at openalex.org/settings/api; give `api_key` or set "
        "OPENALEX_API_KEY"
    )


@contextmanager
def open_client(
    services: Services, journal: Path, email: str | None, api_key: str | None
) -> Iterator[Client]:
    """Open services whose answers are kept in a journal."""
    with open_journal(journal) as answers, Client(services, answers, email or "", api_key) as client:
        yield client


def _make_source(client: Client, config: FetchConfig) -> OpenAlexSource | PmcSource:
    if config.source == "openalex":
        return OpenAlexSource(client, config.keep_retracted)
    return PmcSource(client, config.licences, config.keep_retracted)


def _fetch_to(out: Path, config: FetchConfig, overwrite: bool) -> CorpusFolder:
    with open_corpus_output(out, overwrite) as place:
        if place.begin({"fetch": config.identity()}) == "finished":
            if not place.result["missing"]:
                return CorpusFolder.open(out)
            place.reopen()
        with open_client(config.services, out / JOURNAL, config.email, config.api_key) as client:
            source = _make_source(client, config)
            fetched = Fetched(config, {})
            for name, query in config.domains.items():
                if not (found := source.find(query)):
                    if isinstance(source, OpenAlexSource):
                        source.forget(query)  # there may be some another day
                    raise UsageError(f"{name}: no record matches {query!r}")
                fetched.found[name] = len(found)
                chosen = fetched.ids_by_domain[name] = sample(found, config.max_articles)
                of_all = f" of {len(found):,}" if len(found) > len(chosen) else ""
                logger.info(f"{name}: {len(chosen):,}{of_all} articles")
            ids = sorted({one for found in fetched.ids_by_domain.values() for one in found})
            if isinstance(source, PmcSource):  # `find` of OpenAlex has brought the works
                with progress("articles", len(ids)) as advance:
                    source.fetch(ids, advance)
            if client.set_aside:
                logger.warning(
                    f"{len(client.set_aside):,} answers or records were missing or unusable; they are listed "
                    "in rejected.jsonl, and the next call requests them again"
                )
            fetched.left_out += dict.fromkeys(client.set_aside)
            fetched.describe(source, ids)
            if isinstance(source, OpenAlexSource):
                read = Sources([], [FetchedPapers(source, ids)])
            else:
                read = Sources([fetched.documents(source, ids)], full_text=config.full_text)
            additions = Additions(fetched.left_out, fetched.finish)
            return build_corpus(place, read, config.workers, additions=additions)


def sample(ids: list[str], maximum: int | None) -> list[str]:
    """Return at most `maximum` of the ids, in their order: always the same ones; a larger sample contains
    a smaller one."""
    if maximum is None or len(ids) <= maximum:
        return ids
    by_hash = sorted(ids, key=lambda one: hashlib.sha256(one.encode()).digest())
    return sorted(by_hash[:maximum])


@dataclass
class Fetched:
    """The additional tables of a fetched corpus.

    Attributes:
        config: the settings of the fetch.
        ids_by_domain: domain -> the ids that its query found, or the sample of them.
        found: domain -> the number of ids that its query found.
        names: id -> names of the kept papers.
        provenance: record, address, version, licence code and SHA-256 of each kept paper.
        left_out: records that could not be fetched, were not there, or were left out on purpose.
    """

    config: FetchConfig
    ids_by_domain: dict[str, list[str]]
    found: dict[str, int] = field(default_factory=dict)
    names: dict[str, Names] = field(default_factory=dict)
    provenance: list[tuple[str | None, ...]] = field(default_factory=list)
    left_out: list[Rejection] = field(default_factory=list)

    def documents(self, source: PmcSource, ids: list[str]) -> Source:
        """Return the articles in the journal as a source of documents."""

        def documents() -> Iterator[Document]:
            for record in source.records(ids):
                if record.body is not None:
                    name = f"{record.id}.{record.version}.xml"
                    yield Document(name, len(record.body), data=record.body)

        return Source(self.config.source, "fetched", Path(), documents)

    def describe(self, source: OpenAlexSource | PmcSource, ids: list[str]) -> None:
        """Note the names and the provenance of the records, and why others are left out."""
        for record in source.records(ids):
            if record.body is None:
                self.left_out.append(Rejection(self.config.source, None, record.id, *record.reason))
                continue
            self.names[record.id] = record.names
            digest = hashlib.sha256(record.body).hexdigest()
            row = (record.id, record.address, record.version, record.licence, digest)
            self.provenance.append(row)

    def finish(self, out: Path) -> tuple[list[str], dict[str, Any]]:
        """Write the tables of domains and of provenance; return their names and a part of the manifest."""
        with_abstract = self._write_domains(out)
        provenance = make_table(self.provenance, PROVENANCE_SCHEMA)
        write_stream(out / PROVENANCE, provenance.to_batches(8192), PROVENANCE_SCHEMA)
        domains = {
            name: {
                "query": query,
                "found": self.found[name],
                "kept": sum(one in self.names for one in self.ids_by_domain[name]),
                "with_abstract": with_abstract.get(name, 0),
                "published": self.config.published.get(name),
            }
            for name, query in self.config.domains.items()
        }
        return [DOMAINS, PROVENANCE], {"fetch": {"plan": self.config.identity(), "domains": domains}}

    def _write_domains(self, out: Path) -> dict[str, int]:
        """Write each paper with the domains whose queries found it, matched by any of its names; return the
        number of papers with an abstract per domain."""
        rows = [
            (domain, f"{kind}:{name}")
            for domain, ids in self.ids_by_domain.items()
            for one in ids
            for kind, name in self.names.get(one, {}).items()
        ]
        names = ", ".join(f"'{kind}:' || {kind}" for kind in ("pmid", "pmcid", "doi", "openalex"))
        with duckdb.connect() as database:
            database.register("named", make_table(rows, _NAMED))
            database.execute(
                f"""CREATE TABLE found AS
                SELECT DISTINCT paper_id, domain, abstract IS NOT NULL AS has_abstract
                FROM (SELECT paper_id, abstract, unnest([{names}]) AS name
                      FROM {scan_parquet(out / PAPERS)})
                JOIN named USING (name)"""
            )
            ordered = database.sql("SELECT paper_id, domain FROM found ORDER BY ALL")
            write_stream(out / DOMAINS, ordered.to_arrow_reader(8192), DOMAINS_SCHEMA)
            counts = "SELECT domain, count(*) FROM found WHERE has_abstract GROUP BY ALL"
            return dict(database.sql(counts).fetchall())


@dataclass(frozen=True)
class FetchedPapers:
    """Papers of OpenAlex; unless they are `whole`, they only complete papers of other sources."""

    source: OpenAlexSource
    ids: list[str]
    whole: bool = True

    def described(self) -> list[dict[str, Any]]:
        """Describe the one source, hashed over its records."""
        digest, count = hashlib.sha256(), 0
        for one, paper in self.source.papers(self.ids):
            digest.update(f"{one}\0{paper}\0".encode())
            count += 1
        kind = "fetched" if self.whole else COMPLETING
        return [{"name": "records", "kind": kind, "size": count, "sha256": digest.hexdigest()}]

    def paths(self) -> list[Path]:
        """Return no files: the journal is this process's."""
        return []

    def parse(self, parts: PartStore, first_source: int) -> None:
        """Write the papers as parts."""
        papers = self.source.papers(self.ids)
        for number, group in find_missing_groups(parts, first_source, papers, _PAPERS_PER_PART):
            part = CorpusPart(first_source, number)
            for one, paper in group:
                if self.whole:
                    part.add(paper, one)
                else:  # references stay as the other sources have them, and no record is replaced
                    part.add(replace(paper, citations=(), cites_openalex=(), version=None), None)
            part.write(parts)
