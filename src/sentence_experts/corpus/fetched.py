"""What a journal holds, as sources of a corpus: documents, papers, links, and what stands beside them."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from sentence_experts.corpus.building import Extra
from sentence_experts.corpus.config import FetchConfig
from sentence_experts.corpus.formats.archives import Source
from sentence_experts.corpus.paper import Rejection
from sentence_experts.corpus.shards import Shard, papers_file, write_links
from sentence_experts.corpus.sources.citations import Citations
from sentence_experts.corpus.sources.icite import bulk_links
from sentence_experts.corpus.sources.origins import Names, Origin
from sentence_experts.corpus.tables import (
    DOMAINS,
    DOMAINS_SCHEMA,
    PAPERS,
    PROVENANCE,
    PROVENANCE_SCHEMA,
    write_stream,
)
from sentence_experts.storage import sha256_file

_LINKS_IN_A_SHARD = 1_000_000
_PAPERS_IN_A_SHARD = 20_000
_ENDS = 1 << 20


@dataclass
class Fetched:
    """The part of a journal that a plan asks for, with the `building.Fetch` questions.

    Attributes:
        plan: what was asked for.
        origin: where the articles came from.
        found: a domain -> the ids that its query found and the plan takes.
        ids: all of them, in order.
        names: the kept ones' names.
        extras: papers and links that are no documents.
        set_aside: what could not be fetched.
    """

    plan: FetchConfig
    origin: Origin
    found: dict[str, list[str]]
    ids: list[str]
    names: dict[str, Names]
    set_aside: list[Rejection]
    extras: list[Extra] = field(default_factory=list)

    def sources(self) -> list[Source]:
        """The fetched XML as one source."""
        documents = lambda: self.origin.documents(self.ids)  # noqa: E731
        return [Source(self.plan.source, "fetched", Path(), documents)]

    def rejections(self) -> list[Rejection]:
        """What could not be fetched, was not there, or was left out on purpose."""
        return [*dict.fromkeys(self.set_aside), *self.origin.left_out(self.ids)]

    def finish(self, out: Path) -> dict[str, Any]:
        """Write the tables of domains and of provenance; what the manifest says of the fetch."""
        write_stream(out / DOMAINS, self._domains(out / PAPERS), DOMAINS_SCHEMA)
        write_stream(out / PROVENANCE, self._provenance(), PROVENANCE_SCHEMA)
        with_abstract = _with_abstract(out / PAPERS, out / DOMAINS)
        domains = {
            name: {
                "query": query,
                "found": len(self.found[name]),
                "kept": sum(one in self.names for one in self.found[name]),
                "with_abstract": with_abstract.get(name, 0),
                "published": self.plan.published.get(name),
            }
            for name, query in self.plan.domains.items()
        }
        return {
            "tables": {name: sha256_file(out / name) for name in (DOMAINS, PROVENANCE)},
            "fetch": {"plan": self.plan.identity(), "domains": domains},
        }

    def _domains(self, papers: Path) -> Iterator[pa.RecordBatch]:
        """Each paper under the domains whose queries found it, by any of its names."""
        rows = [
            (domain, kind, name)
            for domain, ids in self.found.items()
            for one in ids
            for kind, name in self.names.get(one, {}).items()
        ]
        columns = zip(*rows, strict=True) if rows else [()] * 3
        named = pa.table([pa.array(column, pa.string()) for column in columns], ["domain", "kind", "name"])
        with duckdb.connect() as database:
            database.register("named", named)
            query = " UNION ".join(
                f"SELECT p.paper_id, n.domain FROM read_parquet(?) p JOIN named n ON n.kind = '{kind}' "
                f"AND n.name = p.{kind}"
                for kind in ("pmid", "pmcid", "doi")
            )
            ordered = database.sql(f"{query} ORDER BY ALL", params=[str(papers)] * 3)
            yield from ordered.to_arrow_reader(8192)

    def _provenance(self) -> Iterator[pa.RecordBatch]:
        rows = self.origin.provenance(self.ids)
        while group := list(itertools.islice(rows, 8192)):
            columns = zip(*group, strict=True)
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, pa.string()) for column in columns], schema=PROVENANCE_SCHEMA
            )


def _with_abstract(papers: Path, domains: Path) -> dict[str, int]:
    """How many papers of each domain have an abstract."""
    with duckdb.connect() as database:
        rows = database.execute(
            "SELECT d.domain, count(*) FROM read_parquet(?) d JOIN read_parquet(?) p USING (paper_id) "
            "WHERE p.abstract IS NOT NULL GROUP BY d.domain",
            [str(domains), str(papers)],
        ).fetchall()
    return {str(name): int(number) for name, number in rows}


@dataclass(frozen=True)
class FetchedPapers:
    """Papers that come as records of their own form, not as XML."""

    origin: Origin
    ids: list[str]

    def described(self) -> list[dict[str, Any]]:
        """One source; its hash is over the records."""
        digest, count = hashlib.sha256(), 0
        for one, paper in self.origin.papers(self.ids):
            digest.update(f"{one}\0{paper!r}\0".encode())
            count += 1
        return [{"name": "records", "kind": "fetched", "size": count, "sha256": digest.hexdigest()}]

    def parse(self, shards: Path, first_source: int) -> None:
        """Write the papers as shards."""
        papers = self.origin.papers(self.ids)
        for number in itertools.count():
            group = list(itertools.islice(papers, _PAPERS_IN_A_SHARD))
            if number and not group:
                return
            if not papers_file(shards, first_source, number).exists():
                shard = Shard(first_source, number)
                for one, paper in group:
                    shard.add(paper, one)
                shard.write(shards)


@dataclass(frozen=True)
class FetchedLinks:
    """Citations that a service gave."""

    name: str
    citations: Citations
    pmids: list[str]

    def described(self) -> list[dict[str, Any]]:
        """One source; its hash is over the links."""
        digest, count = hashlib.sha256(), 0
        for citing, cited in self.citations.links(self.pmids):
            digest.update(f"{citing}\0{cited}\0".encode())
            count += 1
        return [{"name": self.name, "kind": "citations", "size": count, "sha256": digest.hexdigest()}]

    def parse(self, shards: Path, first_source: int) -> None:
        """Write the links as shards."""
        links = self.citations.links(self.pmids)
        for number in itertools.count():
            group = list(itertools.islice(links, _LINKS_IN_A_SHARD))
            if number and not group:
                return
            if not papers_file(shards, first_source, number).exists():
                citing, cited = zip(*group, strict=True) if group else ((), ())
                columns = (pa.array(column, pa.string()) for column in (citing, cited))
                write_links(shards, first_source, number, *columns)


@dataclass(frozen=True)
class BulkLinks:
    """The links of some papers out of iCite's whole table."""

    table: Path
    pmids: list[str]
    threads: int

    def described(self) -> list[dict[str, Any]]:
        """One source; its hash is over the PMIDs and the file's size, beginning and end, since the whole has
        tens of GB."""
        size = self.table.stat().st_size
        digest = hashlib.sha256("\0".join(self.pmids).encode())
        with open(self.table, "rb") as file:
            digest.update(file.read(_ENDS))
            file.seek(max(0, size - _ENDS))
            digest.update(file.read(_ENDS))
        return [
            {"name": self.table.name, "kind": "citations", "size": size, "sha256_of_ends": digest.hexdigest()}
        ]

    def parse(self, shards: Path, first_source: int) -> None:
        """Write the links as shards."""
        number = -1
        for number, table in enumerate(_in_groups(bulk_links(self.table, self.pmids, self.threads))):
            write_links(shards, first_source, number, table["citing"], table["cited"])
        if number < 0:
            write_links(shards, first_source, 0, pa.array([], pa.string()), pa.array([], pa.string()))


def _in_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= _LINKS_IN_A_SHARD:
            yield pa.Table.from_batches(waiting).combine_chunks()
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting).combine_chunks()
