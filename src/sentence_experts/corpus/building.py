"""Documents, papers and citations to a corpus: parsed on all cores, resolved, and written.

Beside the corpus grows `.partial/`, a folder of shards named after the sources' hashes. A run that is
interrupted, at whatever moment, finds its finished shards there and parses only the rest. The shards' limits
depend on the sources alone, so the number of workers leaves no trace in the result.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from sentence_experts import __version__
from sentence_experts.corpus.formats.archives import Source
from sentence_experts.corpus.paper import Rejection
from sentence_experts.corpus.parsing import parse_sources, source_hash
from sentence_experts.corpus.resolving import resolving
from sentence_experts.corpus.shards import Shard, read_rejections, write_rejections
from sentence_experts.corpus.tables import (
    CITATIONS,
    CITATIONS_SCHEMA,
    DOMAINS,
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    PAPERS,
    PAPERS_SCHEMA,
    PROVENANCE,
    REJECTED,
    CorpusFolder,
    write_stream,
)
from sentence_experts.errors import InputError
from sentence_experts.storage import sha256_file, sha256_text, write_json

logger = logging.getLogger(__name__)

PARTIAL = ".partial"
JOURNAL = "journal.sqlite"
PLAN = "fetch.json"
OURS = frozenset({
    PARTIAL, PAPERS, CITATIONS, MANIFEST, REJECTED, DOMAINS, PROVENANCE,
    PLAN, JOURNAL, f"{JOURNAL}-wal", f"{JOURNAL}-shm",
})  # fmt: skip


class Extra(Protocol):
    """Papers and citations that come otherwise than as XML documents."""

    def described(self) -> list[dict[str, Any]]:
        """For the manifest: name, kind, size and SHA-256 of each source."""

    def parse(self, shards: Path, first_source: int) -> None:
        """Write what there is as shards of sources `first_source` and the next, one for each described."""


class Fetch(Protocol):
    """What a fetched corpus has beside the tables."""

    def rejections(self) -> list[Rejection]:
        """What could not be fetched, or was left out on purpose."""

    def finish(self, out: Path) -> dict[str, Any]:
        """Write the other tables; gives their hashes (`tables`) and what the manifest says of the fetch."""


def build_corpus(
    out: Path,
    sources: list[Source],
    extras: Sequence[Extra],
    *,
    workers: int | None,
    overwrite: bool,
    fetch: Fetch | None = None,
) -> CorpusFolder:
    """Parse, resolve and write a corpus; what an interrupted run has parsed is used again.

    Raises:
        InputError: `out` holds another corpus and may not be replaced.
    """
    workers = workers or cores()
    described = []
    for source in sources:
        size, digest = source_hash(source)
        described.append({"name": source.name, "kind": source.kind, "size": size, "sha256": digest})
    firsts = []
    for extra in extras:
        firsts.append(len(described))
        described += extra.described()
    request = sha256_text(FORMAT, str(FORMAT_VERSION), __version__, json.dumps(described, sort_keys=True))
    if finished := _finished(out, request, overwrite):
        logger.info(f"{out} is finished and its sources have not changed: nothing to do")
        return finished

    shards = _shard_folder(out, request)
    ignored = parse_sources(sources, shards, workers)
    for first, extra in zip(firsts, extras, strict=True):
        extra.parse(shards, first)
    return _write_corpus(out, shards, described, request, ignored, workers, fetch)


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _finished(out: Path, request: str, overwrite: bool) -> CorpusFolder | None:
    """The corpus in `out` if it is the one asked for; an error if it is another that may not be replaced."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; --out names a folder")
    if not (out / MANIFEST).exists():
        strangers = sorted(path.name for path in out.iterdir() if not _is_ours(path)) if out.is_dir() else []
        if strangers and not overwrite:
            raise InputError(
                f"{out} holds other files ({', '.join(strangers[:3])}): choose an empty or new folder, "
                "or give --overwrite to write the corpus beside them"
            )
        return None
    try:
        corpus = CorpusFolder.open(out)
    except InputError:
        if not overwrite:
            raise
        return None
    if corpus.manifest["request"] == request and _is_whole(corpus):
        return corpus
    if not overwrite:
        names = ", ".join(source["name"] for source in corpus.manifest["sources"][:3])
        raise InputError(
            f"{out} holds a corpus made of other sources or by another version (made of {names}): "
            "choose another --out, or give --overwrite to replace it"
        )
    return None


def _is_ours(path: Path) -> bool:
    return path.name in OURS or path.name.startswith(".")


def _is_whole(corpus: CorpusFolder) -> bool:
    return all(
        sha256_file(corpus.path / name) == digest for name, digest in corpus.manifest["tables"].items()
    )


def _shard_folder(out: Path, request: str) -> Path:
    """Where this request's shards lie; those of another request are of no use any more."""
    partial = out / PARTIAL
    shards = partial / request[:16]
    if partial.is_dir():
        for other in partial.iterdir():
            if other != shards:
                shutil.rmtree(other, ignore_errors=True)
    if shards.is_dir():
        logger.info(f"going on with an interrupted import in {out}")
        for leftover in [*shards.glob(".*.tmp"), *shards.glob("resolving")]:
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    shards.mkdir(parents=True, exist_ok=True)
    return shards


def _write_corpus(
    out: Path,
    shards: Path,
    described: list[dict[str, Any]],
    request: str,
    ignored: int,
    workers: int,
    fetch: Fetch | None,
) -> CorpusFolder:
    # Without a manifest there is no corpus: it goes first and comes last.
    (out / MANIFEST).unlink(missing_ok=True)
    # An empty shard, so that there are tables to read even if nothing was parsed.
    Shard(len(described), 0).write(shards)
    rejections = [
        rejection for path in sorted(shards.glob("*.rejected.jsonl")) for rejection in read_rejections(path)
    ]
    with resolving(shards, [source["name"] for source in described], workers) as resolved:
        write_stream(out / PAPERS, resolved.papers(), PAPERS_SCHEMA)
        write_stream(out / CITATIONS, resolved.citations(), CITATIONS_SCHEMA)
        rejections += resolved.duplicates()
        counts = resolved.counts()
    rejections += fetch.rejections() if fetch else []
    rejections.sort(key=_by_place)
    write_rejections(out / REJECTED, rejections)
    counts["rejected"] = dict(Counter(rejection.reason for rejection in rejections))
    counts["other_files"] = ignored
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "version": __version__,
        "request": request,
        "sources": described,
        "counts": counts,
        "tables": {name: sha256_file(out / name) for name in (PAPERS, CITATIONS)},
    }
    if fetch:
        told = fetch.finish(out)
        manifest["tables"] |= told.pop("tables")
        manifest |= told
    write_json(out / MANIFEST, manifest)
    shutil.rmtree(out / PARTIAL, ignore_errors=True)
    if not counts["papers"]:
        logger.info(f"warning: no article was found in the sources; {out / REJECTED} says what was set aside")
    return CorpusFolder.open(out)


def _by_place(rejection: Rejection) -> tuple[Any, ...]:
    record = rejection.record or ""
    return (rejection.source, rejection.member or "", len(record), record, rejection.reason, rejection.detail)
