"""The answers in a journal as sources of a corpus: documents, papers, citations, additional tables."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from sentence_experts.corpus.config import FetchConfig
from sentence_experts.corpus.corpus_folder import (
    DOMAINS,
    DOMAINS_SCHEMA,
    PAPERS,
    PROVENANCE,
    PROVENANCE_SCHEMA,
)
from sentence_experts.corpus.paper import Rejection
from sentence_experts.corpus.parts import CorpusPart, in_groups, missing_groups, table_of, write_links
from sentence_experts.corpus.sources.openalex import OpenAlexSource
from sentence_experts.corpus.sources.services import Names, Record
from sentence_experts.errors import InputError
from sentence_experts.storage import PartStore, write_stream

_BATCHES_PER_PART = 16  # of a table of citations, of up to 65,536 links each
_PAPERS_PER_PART = 20_000
_ENDS = 1 << 20


@dataclass
class Fetched:
    """The tables that were fetched for a config (a `building.Fetch`).

    Attributes:
        config: the settings of the fetch.
        ids_by_domain: domain -> the ids that its query found, or the sample of them.
        names: id -> names, of the papers that are kept.
        provenance: record, address, version, licence code and SHA-256 of each of them.
        left_out: what could not be fetched, was not there, or was left out on purpose.
    """

    config: FetchConfig
    ids_by_domain: dict[str, list[str]]
    names: dict[str, Names]
    provenance: list[tuple[str | None, ...]]
    left_out: list[Rejection]

    @classmethod
    def of(
        cls, config: FetchConfig, ids_by_domain: dict[str, list[str]], records: Iterable[Record],
        set_aside: list[Rejection],
    ) -> Fetched:  # fmt: skip
        """Describe the records of a fetch."""
        fetched = cls(config, ids_by_domain, {}, [], list(dict.fromkeys(set_aside)))
        for record in records:
            if record.body is None:
                fetched.left_out.append(Rejection(config.source, None, record.id, *record.reason))
                continue
            fetched.names[record.id] = record.names
            digest = hashlib.sha256(record.body).hexdigest()
            row = (record.id, record.address, record.version, record.licence, digest)
            fetched.provenance.append(row)
        return fetched

    def rejections(self) -> list[Rejection]:
        """Return what is left out."""
        return self.left_out

    def finish(self, out: Path) -> tuple[list[str], dict[str, Any]]:
        """Write the tables of domains and of provenance; return their names and a part of the manifest."""
        with duckdb.connect() as database:
            with_abstract = self._write_domains(database, out)
        provenance = table_of(self.provenance, PROVENANCE_SCHEMA)
        write_stream(out / PROVENANCE, provenance.to_batches(8192), PROVENANCE_SCHEMA)
        domains = {
            name: {
                "query": query,
                "found": len(self.ids_by_domain[name]),
                "kept": sum(one in self.names for one in self.ids_by_domain[name]),
                "with_abstract": with_abstract.get(name, 0),
                "published": self.config.published.get(name),
            }
            for name, query in self.config.domains.items()
        }
        return [DOMAINS, PROVENANCE], {"fetch": {"plan": self.config.identity(), "domains": domains}}

    def _write_domains(self, database: duckdb.DuckDBPyConnection, out: Path) -> dict[str, int]:
        """Write each paper with the domains whose queries found it, matched by any of its names; return the
        number of papers with an abstract per domain."""
        rows = [
            (domain, f"{kind}:{name}")
            for domain, ids in self.ids_by_domain.items()
            for one in ids
            for kind, name in self.names.get(one, {}).items()
        ]
        database.register(
            "named", table_of(rows, pa.schema([("domain", pa.string()), ("name", pa.string())]))
        )
        names = ", ".join(f"'{kind}:' || {kind}" for kind in ("pmid", "pmcid", "doi", "openalex"))
        database.execute(
            f"""CREATE TABLE found AS SELECT DISTINCT paper_id, domain, abstract IS NOT NULL AS has_abstract
            FROM (SELECT paper_id, abstract, unnest([{names}]) AS name FROM read_parquet(?))
            JOIN named USING (name)""",
            [str(out / PAPERS)],
        )
        ordered = database.sql("SELECT paper_id, domain FROM found ORDER BY ALL")
        write_stream(out / DOMAINS, ordered.to_arrow_reader(8192), DOMAINS_SCHEMA)
        return dict(
            database.sql("SELECT domain, count(*) FROM found WHERE has_abstract GROUP BY ALL").fetchall()
        )


@dataclass(frozen=True)
class FetchedPapers:
    """Papers of OpenAlex; unless they are `whole`, they only complete those of other sources."""

    source: OpenAlexSource
    ids: list[str]
    whole: bool = True

    def described(self) -> list[dict[str, Any]]:
        """Describe the one source, hashed over its records."""
        digest, count = hashlib.sha256(), 0
        for one, paper in self.source.papers(self.ids):
            digest.update(f"{one}\0{paper}\0".encode())
            count += 1
        kind = "fetched" if self.whole else "completing"
        return [{"name": "records", "kind": kind, "size": count, "sha256": digest.hexdigest()}]

    def parse(self, parts: PartStore, first_source: int) -> None:
        """Write the papers as parts."""
        papers = self.source.papers(self.ids)
        for number, group in missing_groups(parts, first_source, papers, _PAPERS_PER_PART):
            part = CorpusPart(first_source, number)
            for one, paper in group:
                if self.whole:
                    part.add(paper, one)
                else:  # lists of references stay as the other sources have them
                    part.add(replace(paper, citations=(), cites_openalex=()), None)
            part.write(parts)


@dataclass(frozen=True)
class CitationTable:
    """The citations of some papers from the NIH's whole table (`open_citation_collection.csv`)."""

    table: Path
    pmids: list[str]
    threads: int

    def described(self) -> list[dict[str, Any]]:
        """Describe the one source, hashed over the PMIDs and the first and last bytes of the file, which has
        tens of GB."""
        size = self.table.stat().st_size
        digest = hashlib.sha256("\0".join(self.pmids).encode())
        with open(self.table, "rb") as file:
            digest.update(file.read(_ENDS))
            file.seek(max(0, size - _ENDS))
            digest.update(file.read(_ENDS))
        described = {"name": self.table.name, "kind": "citations", "size": size}
        return [described | {"sha256": digest.hexdigest()}]

    def parse(self, parts: PartStore, first_source: int) -> None:
        """Write the citations as parts."""
        links = self.links()
        for number, batches in enumerate(in_groups(links, _BATCHES_PER_PART)):
            write_links(parts, first_source, number, pa.Table.from_batches(batches, links.schema))

    def links(self, memory: str = "2GB") -> pa.RecordBatchReader:
        """Read the links in one pass over some 870 million rows in bounded memory: columns `citing`
        (`pmid:...`) and `cited` (a PMID), in order and each pair once. The table is CSV (also .gz or .zst) or
        Parquet with the columns `citing` and `referenced`.

        Raises:
            InputError: the file has other columns.
        """
        reader = "read_csv(?, header = true, columns = {citing: 'BIGINT', referenced: 'BIGINT'})"
        if self.table.suffix == ".parquet":
            reader = "read_parquet(?)"
        database = duckdb.connect(config={"threads": self.threads, "memory_limit": memory})
        wanted = pa.table({"pmid": pa.array([int(pmid) for pmid in self.pmids], pa.int64())})
        database.register("wanted", wanted)
        try:
            return database.sql(
                f"""SELECT DISTINCT 'pmid:' || citing AS citing, referenced::VARCHAR AS cited
                FROM {reader}
                WHERE citing IN (SELECT pmid FROM wanted) OR referenced IN (SELECT pmid FROM wanted)
                ORDER BY ALL""",
                params=[str(self.table)],
            ).to_arrow_reader(1 << 16)
        except duckdb.Error as error:
            first = str(error).splitlines()[0]
            raise InputError(f"{self.table}: not a table of citing,referenced PMIDs: {first}") from error
