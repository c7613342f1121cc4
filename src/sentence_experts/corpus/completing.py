"""Complete the papers of an import that lack an abstract, by their identifiers, from OpenAlex.

OpenAlex is reached through the client of `fetch_corpus`, and its answers are kept in a journal in the
corpus's folder, so that an interrupted run requests nothing twice.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from sentence_experts.corpus.building import JOURNAL, Additions, TableSource
from sentence_experts.corpus.corpus_folder import PAPERS
from sentence_experts.corpus.fetching import FetchedPapers
from sentence_experts.corpus.paper import NOT_FETCHED, Rejection
from sentence_experts.corpus.sources.client import Client, FailedError
from sentence_experts.corpus.sources.openalex import OpenAlexSource
from sentence_experts.progress import progress

logger = logging.getLogger(__name__)

_KINDS = ("openalex", "doi", "pmid", "pmcid")
"""Kinds of names to look papers up by, the best one first."""
_PER_QUERY = 50
_ENDS_VALUE = re.compile(r"[,|\s]")  # signs that end a value in a query


def complete_papers(client: Client, papers: Path) -> tuple[TableSource, Additions]:
    """Fetch the records of a table's papers without an abstract (a `building.Completion`)."""
    table = pq.read_table(papers, columns=["abstract", *_KINDS])
    rows = table.filter(table["abstract"].is_null()).select(_KINDS).to_pylist()
    lacking = [{kind: name for kind, name in row.items() if name} for row in rows]
    by_kind: dict[str, set[str]] = {kind: set() for kind in _KINDS}
    for names in lacking:
        usable = (kind for kind in _KINDS if kind in names and not _ENDS_VALUE.search(names[kind]))
        if kind := next(usable, None):
            by_kind[kind].add(names[kind])
    queries = [
        (kind, sorted(names)[start : start + _PER_QUERY])
        for kind, names in by_kind.items()
        for start in range(0, len(names), _PER_QUERY)
    ]
    source = OpenAlexSource(client, keep_retracted=True)
    found: set[str] = set()
    known_before = 0
    with progress("papers without an abstract, from OpenAlex", len(queries)) as advance:
        for kind, batch in queries:
            query = f"{kind}:{'|'.join(batch)}"
            is_known = source.knows(query)
            try:
                found.update(source.find(query))
                known_before += len(batch) * is_known
            except FailedError as error:
                more = f" and {len(batch) - 1} more" if len(batch) > 1 else ""
                named = f"{kind} {batch[0]}{more}"
                client.set_aside.append(Rejection("openalex", None, named, NOT_FETCHED, str(error)))
            advance()
    requested, failed = sum(map(len, by_kind.values())), list(dict.fromkeys(client.set_aside))

    def count_completed(out: Path) -> tuple[list[str], dict[str, Any]]:
        """Count the papers that have an abstract now."""
        complete = pq.read_table(out / PAPERS, columns=list(_KINDS), filters=[("abstract", "!=", "")])
        known = {kind: set(complete[kind].to_pylist()) for kind in _KINDS}
        completed = sum(any(name in known[kind] for kind, name in one.items()) for one in lacking)
        text = f"{completed:,} of {len(lacking):,} papers without an abstract have one from OpenAlex now"
        if without := len(lacking) - requested:
            text += f"; {without:,} have no identifier to look them up by"
        if known_before:
            text += f"; {known_before:,} were looked up earlier, and not again"
            text += f": to ask anew, delete {JOURNAL} in its folder"
        if failed:
            text += f"; {len(failed):,} requests failed: give the same command again"
        logger.info(text)
        counts = {"lacking": len(lacking), "asked": requested, "found": len(found)}
        return [], {"completed": {"from": "OpenAlex", **counts, "completed": completed}}

    return FetchedPapers(source, sorted(found), whole=False), Additions(failed, count_completed)
