"""Documents, papers and citations to a corpus: parsed on all cores, resolved, and written.

Parsed parts are kept in `.partial/` until the corpus is whole. A run that was interrupted finds its finished
parts there and parses only the rest. Where a part ends depends only on the sources, so the result does not
depend on the number of workers.
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
from sentence_experts.corpus.config import ImportConfig
from sentence_experts.corpus.formats.archives import Source
from sentence_experts.corpus.paper import Rejection
from sentence_experts.corpus.parsing import parse_sources, source_hash
from sentence_experts.corpus.parts import REJECTED as PART_REJECTED
from sentence_experts.corpus.parts import CorpusPart, open_parts, read_rejections, write_rejections
from sentence_experts.corpus.resolving import SCRATCH, resolving
from sentence_experts.corpus.tables import (
    CITATIONS,
    CITATIONS_SCHEMA,
    DOMAINS,
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    MENTIONS,
    MENTIONS_SCHEMA,
    PAPERS,
    PAPERS_SCHEMA,
    PROVENANCE,
    REJECTED,
    CorpusFolder,
    write_stream,
)
from sentence_experts.errors import InputError
from sentence_experts.storage import PartStore, sha256_file, sha256_text, write_json

logger = logging.getLogger(__name__)

PARTIAL = ".partial"
JOURNAL = "journal.sqlite"
PLAN = "fetch.json"
OURS = frozenset({
    PARTIAL, PAPERS, CITATIONS, MENTIONS, MANIFEST, REJECTED, DOMAINS, PROVENANCE,
    PLAN, JOURNAL, f"{JOURNAL}-wal", f"{JOURNAL}-shm",
})  # fmt: skip


class TableSource(Protocol):
    """Papers or citations that are no XML documents."""

    def described(self) -> list[dict[str, Any]]:
        """Describe each source for the manifest: name, kind, size, SHA-256."""

    def parse(self, parts: PartStore, first_source: int) -> None:
        """Write the parts of all described sources, which are numbered from `first_source`."""


class Fetch(Protocol):
    """The additional tables of a fetched corpus."""

    def rejections(self) -> list[Rejection]:
        """What could not be fetched, or was left out on purpose."""

    def finish(self, out: Path) -> dict[str, Any]:
        """Write the tables; returns their hashes (`tables`) and a description for the manifest (`fetch`)."""


def build_corpus(
    out: Path,
    sources: list[Source],
    extras: Sequence[TableSource],
    config: ImportConfig,
    fetch: Fetch | None = None,
) -> CorpusFolder:
    """Parse, resolve and write a corpus, going on with the parts of an interrupted run.

    Raises:
        InputError: `out` holds another corpus and must not be replaced.
    """
    workers = config.workers or cores()
    described: list[dict[str, Any]] = []
    for source in sources:
        size, digest = source_hash(source)
        described.append({"name": source.name, "kind": source.kind, "size": size, "sha256": digest})
    firsts = []
    for extra in extras:
        firsts.append(len(described))
        described += extra.described()
    # MENTIONS: a corpus of an earlier version, without them, is another one.
    made_by = (FORMAT, str(FORMAT_VERSION), __version__, MENTIONS)
    request = sha256_text(*made_by, json.dumps(described, sort_keys=True))
    if finished := _finished(out, request, config.overwrite):
        logger.info(f"{out} is finished and its sources have not changed: nothing to do")
        return finished

    parts = open_parts(out / PARTIAL, request=request)
    if parts.keys():
        logger.info(f"going on with an interrupted import in {out}")
    for leftover in parts.folder.glob(".*.tmp"):
        leftover.unlink()
    shutil.rmtree(parts.folder / SCRATCH, ignore_errors=True)
    ignored = parse_sources(sources, parts, workers)
    for first, extra in zip(firsts, extras, strict=True):
        extra.parse(parts, first)
    return _write_corpus(out, parts, described, request, ignored, workers, fetch)


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _finished(out: Path, request: str, overwrite: bool) -> CorpusFolder | None:
    """The corpus in `out` if it is the wanted one; an error if it is another that must not be replaced."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; `out` must be a folder")
    if not (out / MANIFEST).exists():
        files = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
        strangers = [name for name in files if name not in OURS and not name.startswith(".")]
        if strangers and not overwrite:
            raise InputError(
                f"{out} holds other files ({', '.join(strangers[:3])}): choose an empty or new folder, "
                "or give `overwrite` to write the corpus beside them"
            )
        return None
    try:
        corpus = CorpusFolder.open(out)
    except InputError:
        if not overwrite:
            raise
        return None
    tables = corpus.manifest["tables"].items()
    if corpus.manifest["request"] == request and all(sha256_file(out / name) == sha for name, sha in tables):
        return corpus
    if not overwrite:
        names = ", ".join(source["name"] for source in corpus.manifest["sources"][:3])
        raise InputError(
            f"{out} holds a corpus made of other sources or by another version (made of {names}): "
            "choose another `out`, or give `overwrite` to replace it"
        )
    return None


def _write_corpus(
    out: Path,
    parts: PartStore,
    described: list[dict[str, Any]],
    request: str,
    ignored: int,
    workers: int,
    fetch: Fetch | None,
) -> CorpusFolder:
    # Without a manifest there is no corpus: it is removed first and written last.
    (out / MANIFEST).unlink(missing_ok=True)
    # An empty part, so that there are tables to read if nothing was parsed.
    CorpusPart(len(described), 0).write(parts)
    rejections = [rejection for path in parts.paths(PART_REJECTED) for rejection in read_rejections(path)]
    with resolving(parts, [source["name"] for source in described], workers) as resolved:
        write_stream(out / PAPERS, resolved.papers(), PAPERS_SCHEMA)
        write_stream(out / CITATIONS, resolved.citations(), CITATIONS_SCHEMA)
        write_stream(out / MENTIONS, resolved.mentions(), MENTIONS_SCHEMA)
        rejections += resolved.duplicates()
        counts = resolved.counts()
    rejections += fetch.rejections() if fetch else []
    rejections.sort(key=_by_place)
    write_rejections(out / REJECTED, rejections)
    if not counts["papers"]:
        raise _nothing_read(out, parts, [str(source["name"]) for source in described], rejections)
    counts["rejected"] = dict(Counter(rejection.reason for rejection in rejections))
    counts["other_files"] = ignored
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "version": __version__,
        "request": request,
        "sources": described,
        "counts": counts,
        "tables": {name: sha256_file(out / name) for name in (PAPERS, CITATIONS, MENTIONS)},
    }
    if fetch:
        fetched = fetch.finish(out)
        manifest["tables"] |= fetched.pop("tables")
        manifest |= fetched
    write_json(out / MANIFEST, manifest)
    parts.remove()
    return CorpusFolder.open(out)


def _nothing_read(out: Path, parts: PartStore, sources: list[str], rejected: list[Rejection]) -> InputError:
    """The error of a corpus without papers; leaves only the list of what was set aside."""
    parts.remove()
    for name in (PAPERS, CITATIONS):
        (out / name).unlink(missing_ok=True)
    where = ", ".join(sources[:3]) + (f" and {len(sources) - 3} more" if len(sources) > 3 else "")
    if not rejected:
        return InputError(f"{where}: holds no article (.xml, .nxml, or an archive of them) and no record")
    first = rejected[0]
    named = "/".join(filter(None, [first.member, first.record])) or first.source
    return InputError(
        f"{where}: no article could be read; {len(rejected):,} were set aside, the first is {named} "
        f"({first.reason}: {first.detail}); all are listed in {out / REJECTED}"
    )


def _by_place(rejection: Rejection) -> tuple[Any, ...]:
    record = rejection.record or ""
    return (rejection.source, rejection.member or "", len(record), record, rejection.reason, rejection.detail)
