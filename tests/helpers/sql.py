"""Queries over small tables, run on DuckDB as the package runs them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from sentence_experts.pairs.config import PairsConfig
from sentence_experts.pairs.sql_engine import open_engine


def run_query(query: Callable[..., str], *tables: Mapping[str, Any] | pa.Table) -> list[dict[str, Any]]:
    """The rows of the query that a function makes of the names of these tables."""
    with (
        tempfile.TemporaryDirectory() as folder,
        open_engine(PairsConfig.of(None), Path(folder) / "pairs") as engine,
    ):
        rows: list[dict[str, Any]] = engine.rows(
            query(*(engine.store(pa.table(t)) for t in tables))
        ).to_pylist()
        return rows


def columns(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> dict[str, list[Any]]:
    """A table of the rows, by column."""
    return {name: [row[number] for row in rows] for number, name in enumerate(names)}
