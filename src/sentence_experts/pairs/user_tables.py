"""Tables of pairs from users: files, tables in memory and hub datasets, with their columns checked."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_experts.errors import InputError, UsageError, require
from sentence_experts.names import LABEL
from sentence_experts.pairs.splits import OTHER_NAMES, SPLITS, fold_texts, split_named
from sentence_experts.storage import sha256_text
from sentence_experts.tables import (
    Table,
    check_columns,
    identifiers,
    is_path,
    name_of_table,
    read_columns,
    read_table,
    texts,
    to_arrow,
)

logger = logging.getLogger(__name__)

PAIRS_SCHEMA = pa.schema([
    ("anchor", pa.string()),
    ("positive", pa.string()),
    ("label", pa.int64()),
    ("domain", pa.string()),
    ("count", pa.int64()),
    ("anchor_id", pa.string()),
    ("positive_id", pa.string()),
])  # fmt: skip
PAIR_COLUMNS: tuple[str, ...] = tuple(PAIRS_SCHEMA.names)
LINKS_SCHEMA = pa.schema([("left_id", pa.string()), ("right_id", pa.string())])
NEGATIVE = "negative"  # an optional column: a text unlike the anchor
ONE_DOMAIN = "all"
# How the columns of users' tables are read; the others are numbers.
_READ = {
    **dict.fromkeys(("anchor", "positive"), texts),
    **dict.fromkeys(("domain", "anchor_id", "positive_id"), identifiers),
}
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_FILE = re.compile(r"\.(csv|tsv|jsonl|parquet|gz|txt)$")
_RATING = re.compile(r"scor|rat(e|ing)|simil|relate|relevan|gold|grade|stars", re.IGNORECASE)


def whole_table(source: Any) -> pa.Table:
    """A table, with `domain` for `route`."""
    table = read_table(source, read_columns(source)) if is_path(source) else to_arrow(source)
    if "domain" in table.column_names:
        return table
    return table.rename_columns(["domain" if name == "route" else name for name in table.column_names])


def table_or_dataset(source: Table, subset: str | None) -> pa.Table:
    """All rows of a source; those of a hub dataset that is split have a column `split`.

    Raises:
        InputError: it cannot be read.
        UsageError: `subset` of something else than a hub dataset.
    """
    if is_path(source):
        path = Path(source)
        if path.is_dir() or (not (path.exists() or _FILE.search(path.name)) and _HUB_ID.fullmatch(str(path))):
            return _hub_dataset(str(source), subset)
    if subset is not None:
        raise UsageError(f"`subset` is for hub datasets, and {name_of_table(source)} is a table")
    return whole_table(source)


def _hub_dataset(name: str, subset: str | None) -> pa.Table:
    require("datasets", "models")
    from sentence_experts.compat.datasets import load_splits

    loaded = load_splits(name, subset)
    known = {split: each for split in loaded if (each := OTHER_NAMES.get(split, split)) in SPLITS}
    if not known:
        raise InputError(
            f"{name} has the splits {', '.join(loaded)}, none of {', '.join(SPLITS)}; give a file of the one "
            "to use"
        )
    if left_out := [split for split in loaded if split not in known]:
        logger.warning(f"{name}: left out: the split{'s' * (len(left_out) > 1)} {', '.join(left_out)}")
    tables = {each: whole_table(loaded[split]) for split, each in known.items()}
    return tables["train"] if set(tables) == {"train"} else with_split_column(tables)


def with_split_column(tables: dict[str, pa.Table]) -> pa.Table:
    """The tables of all splits as one, with a column `split`."""
    named = [
        table.append_column("split", pa.array([name] * table.num_rows, pa.string()))
        for name, table in tables.items()
    ]
    return pa.concat_tables(named, promote_options="default")


def tables_by_split(table: pa.Table, split: str | None, where: str) -> dict[str, pa.Table]:
    """The table's rows by its column `split`; all are of `split` if it has none."""
    if split is not None and "split" not in table.column_names:
        return {split: table}
    check_columns(where, ["split"], table.column_names)
    given = texts(table["split"], f"{where}, column split").to_pylist()
    names = [split_named(name, where) for name in given]
    column = pa.array(names, pa.string())
    return {name: table.filter(pc.equal(column, name)) for name in SPLITS if name in names}


def pair_table(table: pa.Table, split: str) -> pa.Table:
    """The table with all of `PAIR_COLUMNS`, checked; `split` names it in messages.

    Raises:
        InputError: a column or a value is missing, a label is neither 0 nor 1, or pairs without labels have
            scores.
    """
    missing = [name for name in ("anchor", "positive") if name not in table.column_names]
    if missing:
        raise InputError(
            f"{split}: column {missing[0]!r} is missing, found {', '.join(table.column_names) or 'none'}"
        )
    _check_ratings(split, table)
    columns = {
        name: _READ[name](table[name], f"{split}, column {name}") if name in _READ else table[name]
        for name in PAIR_COLUMNS
        if name in table.column_names
    }
    if "label" in columns and pa.types.is_string(columns["label"].type):
        columns["label"] = identifiers(columns["label"], f"{split}, column label")  # "1.0" as 1
    rows = table.num_rows
    columns.setdefault("label", pa.array(np.ones(rows, dtype=np.int64)))
    columns.setdefault("domain", pa.array([ONE_DOMAIN] * rows, pa.string()))
    columns.setdefault("count", columns["label"])
    for end in ("anchor", "positive"):
        if f"{end}_id" not in columns:
            folded = fold_texts(columns[end]).to_pylist()
            ids = [None if text is None else sha256_text(text)[:16] for text in folded]
            columns[f"{end}_id"] = pa.array(ids, pa.string())
    try:
        whole = pa.table({name: columns[name] for name in PAIR_COLUMNS}).cast(PAIRS_SCHEMA)
        LABEL.check("domain", *pc.drop_null(whole["domain"].unique()).to_pylist())
    except (pa.ArrowException, ValueError) as error:
        raise InputError(f"{split}: {' '.join(str(error).split())}") from error
    if empty := [name for name in PAIR_COLUMNS if whole[name].null_count]:
        raise InputError(f"{split}: column {empty[0]!r} has rows without a value")
    if NEGATIVE in table.column_names:
        negative = texts(table[NEGATIVE], f"{split}, column {NEGATIVE}")
        whole = whole.append_column(NEGATIVE, negative)
    return whole.combine_chunks()


def _check_ratings(name: str, table: pa.Table) -> None:
    """Refuse rated pairs, as a rating is neither linked nor not; warn of a column that seems to hold some.

    Raises:
        InputError: the column `label`, or `score` without one, holds something else than 0 and 1.
    """
    seen = [column for column in table.column_names if column not in PAIR_COLUMNS and _RATING.search(column)]
    labelled = "label" in table.column_names
    for column in ["label"] if labelled else sorted(seen, key="score".__ne__):
        try:
            values = pc.drop_null(pc.cast(table[column], pa.float64()))
        except pa.ArrowException:
            if column not in ("label", "score"):
                continue
            first = next(value for value in table[column].to_pylist() if not _is_number(value))
            message = f"the column {column} holds {first!r}; a label is 1 (linked) or 0"
            raise InputError(f"{name}: {message}") from None
        if not len(values):
            continue
        low, high = (f"{each:g}" for each in pc.min_max(values).as_py().values())
        if column == "score" or (labelled and not pc.all(pc.is_in(values, pa.array([0.0, 1.0]))).as_py()):
            raise InputError(
                f"{name}: a label is 1 (linked) or 0, and the column {column} holds ratings from {low} to "
                f"{high}; rated pairs are evaluated as a task of the kind sts (`compile_tasks`), not trained "
                "on"
            )
        if not labelled and pc.count_distinct(values).as_py() > 1:
            logger.warning(
                f"{name}: the column {column} ({low} to {high}) is not read: every row counts as linked. "
                "If it rates how similar the texts are, evaluate the file as a task of the kind sts "
                "(`compile_tasks`); if it is 1 for linked and 0 for not, rename it to label"
            )


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return value is None
    return True


def links_of(train: pa.Table) -> pa.Table:
    """The linked pairs of a training table, in the form of `Pairs.known_links`."""
    linked = train.filter(pc.equal(train["label"], 1))
    ends = zip(linked["anchor_id"].to_pylist(), linked["positive_id"].to_pylist(), strict=True)
    pairs = sorted({(min(two), max(two)) for two in ends if two[0] != two[1]})
    return pa.table([[two[end] for two in pairs] for end in (0, 1)], schema=LINKS_SCHEMA)
