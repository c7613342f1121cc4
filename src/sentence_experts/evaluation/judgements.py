"""Queries and the papers that people judged for them: TREC's and BEIR's files.

TREC: `qrels.txt` with lines `query 0 paper relevance`. BEIR: a table with the columns query-id, corpus-id and
score, tabs between them. The queries' texts stand in `queries.jsonl` (`_id`, `text`) or `queries.tsv` (id,
tab, text), beside the judgements or one folder above them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sentence_experts.errors import InputError
from sentence_experts.storage import check_regular

NAMES = ("queries.jsonl", "queries.tsv")


@dataclass(frozen=True)
class Judgements:
    """Queries, and the papers that people judged for them.

    Attributes:
        queries: query id -> text, of the queries that were judged.
        relevance: query id -> paper -> grade; 0 and less is not relevant.
    """

    queries: Mapping[str, str]
    relevance: Mapping[str, Mapping[str, float]]

    @classmethod
    def read(cls, qrels: Path | str, queries: Path | str | None = None) -> Judgements:
        """Read judgements and the texts of their queries.

        Raises:
            InputError: a file is missing or has another layout, or a judged query has no text.
        """
        relevance = _read_qrels(Path(qrels))
        file = _queries_beside(Path(qrels)) if queries is None else Path(queries)
        texts = _read_queries(file)
        if missing := [query for query in relevance if not texts.get(query, "").strip()]:
            raise InputError(f"{file}: no text of query {missing[0]!r}, which {qrels} judges")
        return cls({query: texts[query] for query in relevance}, relevance)


def _lines(file: Path) -> list[str]:
    check_regular(file)
    try:
        return file.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError as error:
        raise InputError(f"{file}: no such file") from error
    except IsADirectoryError as error:
        raise InputError(f"{file}: a folder; give the file of judgements in it") from error
    except (UnicodeDecodeError, OSError) as error:
        raise InputError(f"{file}: cannot be read: {error}") from error


def _read_qrels(file: Path) -> dict[str, dict[str, float]]:
    relevance: dict[str, dict[str, float]] = {}
    for number, line in enumerate(_lines(file), start=1):
        cells = line.split("\t") if line.count("\t") == 2 else line.split()
        if not cells or (number == 1 and cells[-1].strip().lower() in ("score", "relevance", "rel")):
            continue
        try:
            query, *_, paper, grade = cells
            if len(cells) not in (3, 4) or not math.isfinite(value := float(grade)):
                raise ValueError
        except ValueError as error:
            raise InputError(
                f"{file}, line {number}: expected `query 0 paper relevance` (TREC) or `query-id corpus-id "
                f"score` (BEIR), found {line[:80]!r}"
            ) from error
        relevance.setdefault(query.strip(), {})[paper.strip()] = value
    if not relevance:
        raise InputError(f"{file}: no judgements in it")
    return relevance


def _queries_beside(qrels: Path) -> Path:
    for folder in (qrels.parent, qrels.parent.parent):
        for name in NAMES:
            if (folder / name).is_file():
                return folder / name
    raise InputError(f"{qrels}: no {' or '.join(NAMES)} beside it or one folder above: give `queries`")


def _read_queries(file: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    form = '{"_id": ..., "text": ...}' if file.suffix == ".jsonl" else "id, tab, text"
    for number, line in enumerate(_lines(file), start=1):
        if not line.strip():
            continue
        try:
            if file.suffix == ".jsonl":
                row = json.loads(line)
                query, text = str(row["_id"]), str(row["text"])
            else:
                query, text = line.split("\t", 1)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"{file}, line {number}: expected {form}, found {line[:80]!r}") from error
        texts[query.strip()] = text
    return texts
