"""Names of files in the SQL of DuckDB."""

from __future__ import annotations

import re
from pathlib import Path


def quote(text: str) -> str:
    """Return a text as an SQL string.

    >>> quote("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def scan_parquet(path: Path, is_pattern: bool = False) -> str:
    """Return the SQL that reads a Parquet file; the name is a pattern if `is_pattern`, its folder never.

    By itself DuckDB takes signs in a path for a pattern, and folders such as `year=2020` for columns.

    >>> scan_parquet(Path("a[1]/papers.parquet"))
    "read_parquet('a[[]1[]]/papers.parquet', hive_partitioning = false)"
    """
    folder, name = (re.sub(r"([\[\]*?])", r"[\1]", str(part)) for part in (path.parent, path.name))
    literal = quote(f"{folder}/{path.name if is_pattern else name}")
    return f"read_parquet({literal}, hive_partitioning = false)"
