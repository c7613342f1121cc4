"""Pairs of datasets of the hub, and of those that the authors of the domain experts published."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa

from sentence_experts.errors import UsageError, require
from sentence_experts.pairs.pair_tables import name_of_split, read_tables
from sentence_experts.table_files import format_of
from sentence_experts.tables import Table, check_columns, is_path, name_of_table

_RELEASED = "abstract_domain_"
_TOKENS = {"skincancer": "cancer"}  # as the domain is called by the token of their checkpoints
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_OTHER_FILE = re.compile(r"\.(gz|xz|zip|xlsx?|ods|arrow|feather)$", re.IGNORECASE)


def load_hub_dataset(source: Table, subset: str | None) -> Table:
    """Load a hub dataset, by its name or folder; other sources are returned as they are."""
    path = Path(source) if is_path(source) else None
    if path is not None:
        is_file = format_of(path) or _OTHER_FILE.search(path.name) or path.exists()
        is_name = _HUB_ID.fullmatch(str(path)) and not is_file
        if path.is_dir() or is_name:
            require("datasets", "models")
            from sentence_experts.compat.datasets import load_splits

            return load_splits(str(source), subset)
    if subset is not None:
        raise UsageError(f"`subset` is for hub datasets, and {name_of_table(source)} is a table")
    return source


def read_released(source: Table, subset: str | None) -> dict[str, dict[str, pa.Table]]:
    """Read a dataset of the domain experts' authors, or all in a folder: folder -> split -> table.

    Each is the folder of a domain, `abstract_domain_copd`, with two abstracts (a, b) and a label in a row.
    """
    path = Path(source).resolve() if is_path(source) else None
    if path is None or not path.is_dir():
        return {}
    folders = [each for each in (path, *sorted(path.iterdir())) if each.name.startswith(_RELEASED)]
    given = {}
    for folder in folders:
        domain = folder.name.removeprefix(_RELEASED)
        loaded = load_hub_dataset(folder, subset)
        columns = ["a", "b", "label"]
        for split, dataset in loaded.items():
            check_columns(name_of_split(str(folder), split), columns, dataset.column_names)
            loaded[split] = dataset.select_columns(columns)
        tables = read_tables(loaded, str(folder), {"a": "anchor", "b": "positive"})
        for split, table in tables.items():
            names = pa.array([_TOKENS.get(domain, domain)] * table.num_rows, pa.string())
            tables[split] = table.append_column("domain", names)
        given[str(folder)] = tables
    return given
