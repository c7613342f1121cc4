"""Train, validation and test pairs of anybody: a folder of ours, one table with a split column, or tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.json as json
import pyarrow.parquet as pq

from sentence_experts.errors import InputError, UsageError
from sentence_experts.evaluation.pairs import PAIR_COLUMNS
from sentence_experts.pairs.dataset import PairsFolder
from sentence_experts.pairs.splits import NOT_WORDS, SPLITS

TEXTS = ("anchor", "positive")
ONE_DOMAIN = "all"
OTHER_NAMES = {"val": "validation", "valid": "validation", "dev": "validation"}
READERS: dict[str, Callable[[Path], pa.Table]] = {
    ".parquet": pq.read_table,
    ".csv": lambda path: _delimited(path, ","),
    ".tsv": lambda path: _delimited(path, "\t"),
    ".jsonl": json.read_json,
    ".ndjson": json.read_json,
}


def read_pair_sets(pairs: Path | None, files: Mapping[str, Path]) -> dict[str, pa.Table]:
    """Split -> its pairs with the columns of `pairs.PAIR_COLUMNS`, and no others.

    A label that is not given is 1 in training pairs, a domain "all"; the id of a text without id is the text
    itself, case, punctuation and white space aside.

    Args:
        pairs: a folder written by `sentence-experts pairs`, or a table with the columns anchor, positive,
            label and split. None with `files`.
        files: split -> a table of its pairs.

    Raises:
        UsageError: both or neither are given, or an unknown split.
        InputError: a file cannot be read, a column or a value is missing, or there is no train or test split.
    """
    if (pairs is None) == (not files):
        raise UsageError("give PAIRS (a folder or a table), or --train FILE and --test FILE")
    if pairs is None:
        tables = {split: (_read(path), path) for split, path in files.items()}
    elif pairs.is_dir():
        folder = PairsFolder.open(pairs)
        tables = {split: (folder.split(split), pairs / f"{split}.parquet") for split in SPLITS}
    else:
        tables = {split: (table, pairs) for split, table in _by_split(_read(pairs), pairs).items()}
    for split in ("train", "test"):
        if split not in tables or tables[split][0].num_rows == 0:
            raise InputError(f"an audit compares training with test pairs; there are no {split} pairs")
    return {split: _completed(table, split, path) for split, (table, path) in tables.items()}


def fold_texts(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts that differ in case, punctuation and white space alone, made equal."""
    return pc.utf8_trim_whitespace(pc.replace_substring_regex(pc.utf8_lower(texts), NOT_WORDS, " "))


def _read(path: Path) -> pa.Table:
    if not path.exists():
        raise InputError(f"{path}: there is no such file or folder of pairs")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: cannot tell its format; endings known: {', '.join(READERS)}")
    try:
        return reader(path)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path}: cannot be read as {path.suffix}: {error}") from error


def _delimited(path: Path, delimiter: str) -> pa.Table:
    # A title such as "2020" is a text, too.
    types = {name: pa.string() for name in (*TEXTS, "anchor_id", "positive_id", "domain", "split")}
    return csv.read_csv(
        path,
        parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=csv.ConvertOptions(column_types=types),
    )


def _by_split(table: pa.Table, path: Path) -> dict[str, pa.Table]:
    if "split" not in table.column_names:
        raise InputError(f"{path}: no column 'split'; columns are {', '.join(table.column_names)}")
    names = table["split"].unique().to_pylist()
    unknown = [name for name in names if OTHER_NAMES.get(name, name) not in SPLITS]
    if unknown:
        raise InputError(f"{path}: split {unknown[0]!r} is none of {', '.join(SPLITS)}")
    return {
        split: table.filter(
            pc.is_in(
                table["split"], pa.array([name for name in names if OTHER_NAMES.get(name, name) == split])
            )
        )
        for split in SPLITS
        if any(OTHER_NAMES.get(name, name) == split for name in names)
    }


def _completed(table: pa.Table, split: str, path: Path) -> pa.Table:
    columns = table.column_names
    missing = [name for name in TEXTS if name not in columns]
    if "label" not in columns and split != "train":
        missing.append("label")
    if missing:
        raise InputError(f"{path}: no column {missing[0]!r}; columns are {', '.join(columns)}")
    made = {name: table[name].cast(pa.string()) for name in TEXTS}
    made["label"] = table["label"].cast(pa.int64()) if "label" in columns else _always(1, table)
    made["domain"] = table["domain"].cast(pa.string()) if "domain" in columns else _always(ONE_DOMAIN, table)
    for name in TEXTS:
        given = f"{name}_id" in columns
        made[f"{name}_id"] = table[f"{name}_id"].cast(pa.string()) if given else fold_texts(made[name])
    for name, column in made.items():
        if column.null_count:
            raise InputError(f"{path}: {split} row {column.to_pylist().index(None) + 1} has no {name}")
    if not set(made["label"].unique().to_pylist()) <= {0, 1}:
        raise InputError(f"{path}: {split} labels must be 0 or 1")
    return pa.table({name: made[name] for name in PAIR_COLUMNS})


def _always(value: int | str, table: pa.Table) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array([value] * table.num_rows)])
