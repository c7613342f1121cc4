"""Tables of pairs: from files, tables in memory and hub datasets, with their columns checked."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_experts.cells import NO_VALUES, BadRowError, as_link, holds_list_of_texts, identifiers, texts
from sentence_experts.errors import InputError
from sentence_experts.names import LABEL
from sentence_experts.pairs.config import ONE_DOMAIN, OTHER_NAMES, SPLITS, UNSEEN
from sentence_experts.pairs.splits import find_components, fold_texts
from sentence_experts.storage import sha256_text
from sentence_experts.tables import (
    Table,
    check_columns,
    class_names,
    is_path,
    name_of_table,
    read_columns,
    read_table,
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
_READ_COLUMNS = (*PAIR_COLUMNS, NEGATIVE, "score", "split")


def _read_ids(column: pa.ChunkedArray, what: str) -> pa.ChunkedArray:
    if not any(isinstance(each, str) for each in column.to_pylist()):
        return identifiers(column, what)
    trimmed = pc.utf8_trim_whitespace(column.cast(pa.string()))
    return identifiers(_without_no_values(trimmed, trimmed), what)


def _without_no_values(column: pa.ChunkedArray, seen: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without the cells that are seen as empty, as R and pandas write these, too."""
    return pc.if_else(pc.is_in(seen, pa.array(["", *NO_VALUES])), None, column)


def read_texts(column: pa.ChunkedArray, what: str) -> pa.ChunkedArray:
    """Return a column of texts, without those of white space and unseen characters alone, or "NA"."""
    found = texts(column, what)
    lists = _find_lists(found)
    if lists and len(lists) > (len(found) - found.null_count) / 2:  # a single one may be a text
        raise InputError(f"{what}: lists of texts, not texts ({lists[0][:40]}): give each a row")
    seen = pc.utf8_trim(pc.utf8_trim_whitespace(found), characters=f"{UNSEEN} \t\r\n\u00a0")
    return _without_no_values(found, seen)


def _find_lists(column: pa.ChunkedArray) -> list[str]:
    """Return the texts of a column that are lists of texts."""
    bracketed = column.filter(pc.match_substring_regex(column, r"^\s*[\[{]"))
    return [*filter(holds_list_of_texts, bracketed.to_pylist())]


# Column of a user's table -> the function that reads it; other columns are numbers.
_READ: dict[str, Any] = dict.fromkeys(("anchor", "positive", NEGATIVE), read_texts) | {
    "domain": identifiers,
    **dict.fromkeys(("anchor_id", "positive_id"), _read_ids),
}
_NO_AND_YES = {
    ("no", "yes"), ("false", "true"), ("negative", "positive"), ("different", "same"), ("unlinked", "linked"),
    ("unrelated", "related"), ("irrelevant", "relevant"), ("dissimilar", "similar"), ("n", "y"),
    ("contradiction", "entailment"), ("neg", "pos"),
}  # fmt: skip


def whole_table(source: Any, names: Mapping[str, str] | None = None) -> pa.Table:
    """Read a table; columns that are read have their names, in whatever case, or those that `names` gives.

    Raises:
        InputError: it cannot be read, or two columns have one name.
    """
    table = read_table(source, read_columns(source)) if is_path(source) else to_arrow(source)
    if table.num_columns:  # spreadsheets end in empty rows
        filled = reduce(pc.or_, (column.is_valid() for column in table.columns)).to_numpy()
        table = table.slice(0, int(np.flatnonzero(filled).max(initial=-1)) + 1)
    known = {name: name for name in _READ_COLUMNS}
    known |= {name.lower(): new for name, new in (names or {}).items()}
    renamed = [known.get(name.strip().lower(), name) for name in table.column_names]
    if "domain" not in renamed:
        renamed = ["domain" if name.strip().lower() == "route" else name for name in renamed]
    if twice := next((name for name, times in Counter(renamed).items() if times > 1), None):
        raise InputError(f"{name_of_table(source)}: two columns are {twice!r}; rename or drop one")
    labels = [name for name, new in zip(table.column_names, renamed, strict=True) if new == "label"]
    return number_no_and_yes(table, source, labels).rename_columns(renamed)


def number_no_and_yes(table: pa.Table, source: Any, columns: Iterable[str]) -> pa.Table:
    """Return a table with 0 and 1 for a ClassLabel of two classes that say no and yes, in some columns."""
    known = class_names(source)
    for name in columns:
        values, classes = table[name].to_pylist(), known.get(name, [])
        if is_no_and_yes(classes) and all(each is None or each in classes for each in values):
            numbers = [None if each is None else classes.index(each) for each in values]
            table = table.set_column(table.column_names.index(name), name, pa.array(numbers, pa.int64()))
    return table


def is_no_and_yes(classes: Sequence[str]) -> bool:
    """Return whether there are two classes, of which the second says yes: their numbers are labels of pairs.

    >>> is_no_and_yes(["not_duplicate", "duplicate"]), is_no_and_yes(["entailment", "not_entailment"])
    (True, False)
    """
    said = tuple(re.sub(r"[\W_]+", " ", each.casefold()).strip() for each in classes)
    if len(said) != 2:
        return False
    no, yes = said
    return said in _NO_AND_YES or no in (f"no {yes}", f"non {yes}", f"not {yes}")


def read_tables(source: Table, where: str, names: Mapping[str, str] | None = None) -> dict[str, pa.Table]:
    """Read the tables of a source as `whole_table` does, by split; the split of a single table is "".

    Args:
        source: a file, a table in memory, or a mapping from splits to tables, such as a `DatasetDict`.
        where: the name of the source in messages.
        names: columns of the source, and their names here.

    Raises:
        InputError: it cannot be read, or a table lacks the texts.
    """
    if _is_divided(source):
        tables = {
            each: whole_table(source[split], names) for split, each in name_splits(source, where).items()
        }
    else:
        tables = {"": whole_table(source, names)}
    _check_tables(tables, where, names or {})
    return tables


def is_one_table(tables: Mapping[str, pa.Table]) -> bool:
    """Return whether tables by split are one: the `DatasetDict` of one file has the split train alone."""
    return list(tables) in ([""], ["train"])


def name_of_split(where: str, split: str) -> str:
    """Return the name of a split of a source in messages."""
    return f"{where}, {split}" if split else where


def _is_divided(source: Any) -> bool:
    """Return whether a source is a mapping from splits to their tables."""
    if not isinstance(source, Mapping):
        return False
    is_dataset = type(source).__module__.partition(".")[0] == "datasets"
    splits = [fold_split(each) in SPLITS for each in source]
    has_tables = all(hasattr(each, "columns") or hasattr(each, "column_names") for each in source.values())
    return is_dataset or (any(splits) and (all(splits) or has_tables))


def _check_tables(tables: Mapping[str, pa.Table], where: str, names: Mapping[str, str]) -> None:
    """Check that the tables of a source have texts; log the columns that are not read."""
    every = {column: None for table in tables.values() for column in table.column_names}
    for split, table in tables.items():
        for end in ("anchor", "positive"):
            if end not in table.column_names:
                given = next((own for own, new in names.items() if new == end), end)
                raise InputError(
                    f"{name_of_split(where, split)} lacks the column {given}, a text of each pair; it has: "
                    f"{', '.join(table.column_names) or 'none'}" + f"; name it with `{end}`" * (end in names)
                )
        if "label" in every and "label" not in table.column_names:
            logger.warning(f"{where}: every row of {split} counts as linked, as it has no column label")
    if "split" in every and not is_one_table(tables):
        logger.warning(f"{where}: not read: the column split; the tables are of {', '.join(tables)}")
    read = {*_READ_COLUMNS} - ({"score"} if "label" in every else set())
    if ignored := [name for name in every if name not in read]:
        logger.warning(f"{where}: {describe_unread(ignored, 'label' in every)}")


def describe_unread(names: Sequence[str], has_labels: bool) -> str:
    """Describe columns that are not read, and what follows if none of a table's columns is of labels."""
    linked = "" if has_labels else "; every row counts as linked, as there is no column label"
    listed = ", ".join(names[:20]) + " ..." * (len(names) > 20)
    return f"not read: the column{'s' * (len(names) > 1)} {listed}{linked}"


def name_splits(names: Iterable[str], where: str) -> dict[str, str]:
    """Return the splits among some names, each with its name here, such as "validation" of "dev".

    Raises:
        InputError: there is none, or two are names of one split.
    """
    names = list(map(str, names))  # of the class NamedSplit in a `DatasetDict`
    known = {name: each for name in names if (each := fold_split(name)) in SPLITS}
    if not known:
        raise InputError(
            f"{where} has the splits {', '.join(names)}, none of {', '.join(SPLITS)}; give the table of "
            "the one to use"
        )
    if left_out := [name for name in names if name not in known]:
        logger.warning(f"{where}: left out: the split{'s' * (len(left_out) > 1)} {', '.join(left_out)}")
    for split in SPLITS:
        if len(same := [name for name, each in known.items() if each == split]) > 1:
            raise InputError(f"{where} has {' and '.join(same)}, which are one split here: join them")
    return known


def fold_split(written: Any) -> str:
    """Return the name of a split here, such as "validation" of "Dev"; other names in lower case."""
    folded = str(written or "").strip().lower()
    return OTHER_NAMES.get(folded, folded)


def split_column(table: pa.Table, where: str) -> np.ndarray:
    """Return the number in `SPLITS` of each row, by a column `split` in any case; `where` names the table.

    Raises:
        InputError: there is no such column, or a cell names no split.
    """
    check_columns(where, ["split"], table.column_names)
    column = texts(table["split"], f"{where}, column split").to_pylist()
    return np.array([SPLITS.index(read_split(value, where)) for value in column], dtype=np.int64)


def read_split(value: Any, where: str) -> str:
    """Return the name in `SPLITS` that a cell of a column `split` means; `where` names the table.

    Raises:
        InputError: it names no split.
    """
    name = fold_split(value)
    if name not in SPLITS:
        raise InputError(f"{where}: split {value!r} is none of {', '.join(SPLITS)}")
    return name


def pair_table(table: pa.Table, split: str) -> pa.Table:
    """Complete a table to all of `PAIR_COLUMNS`, with `negative` if it has one; messages name its `split`.

    Raises:
        InputError: a column or a value is missing, a label is neither 0 nor 1, or pairs without labels have
            scores.
    """
    check_columns(split, ["anchor", "positive"], table.column_names)
    labels = _read_labels(split, table)
    columns = {
        name: _READ[name](table[name], f"{split}, column {name}") if name in _READ else table[name]
        for name in (*PAIR_COLUMNS, NEGATIVE)
        if name in table.column_names
    }
    rows = table.num_rows
    columns["label"] = pa.array(np.ones(rows, dtype=np.int64)) if labels is None else labels
    columns.setdefault("domain", pa.array([ONE_DOMAIN] * rows, pa.string()))
    columns.setdefault("count", columns["label"])
    _check_counts(columns["count"], split)
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
        missing = f"{whole[empty[0]].null_count:,} of {rows:,}"
        raise InputError(f"{split}: column {empty[0]!r} has rows without a value: {missing}")
    if NEGATIVE in columns:
        if lists := _find_lists(columns[NEGATIVE]):
            logger.warning(
                f"{split}, column {NEGATIVE}: {len(lists):,} values are lists of texts, each read as one "
                f"text, such as {lists[0][:40]}: give each text a row"
            )
        whole = whole.append_column(NEGATIVE, columns[NEGATIVE])
    return whole.combine_chunks()


def _check_counts(column: pa.ChunkedArray | pa.Array, split: str) -> None:
    try:
        least = pc.min(column.cast(pa.int64())).as_py()
    except pa.ArrowException as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{split}: column count: whole numbers of links are expected ({reason})") from error
    if least is not None and least < 0:
        raise InputError(f"{split}: column count: {least:,} is no number of links; give 0 or more")


def leave_out_negatives(train: pa.Table, rows: np.ndarray) -> pa.Table:
    """Leave out the negatives of some rows, given by a mask, since they are texts of other sets.

    A pair stays once, with its other negatives if it has any.
    """
    if not rows.any():
        return train
    logger.info(f"{rows.sum():,} negatives of training pairs are left out: they are in other sets")
    negatives = pc.if_else(pa.array(rows), None, train[NEGATIVE])
    train = train.set_column(train.column_names.index(NEGATIVE), NEGATIVE, negatives)
    columns = (train[name].to_pylist() for name in ("domain", "anchor", "positive", "label"))
    pairs = list(zip(*columns, strict=True))
    seen = {pair for pair, left_out in zip(pairs, rows.tolist(), strict=True) if not left_out}
    keep = []
    for pair, left_out in zip(pairs, rows.tolist(), strict=True):
        keep.append(not left_out or pair not in seen)
        seen.add(pair)
    return train.filter(pa.array(keep))


def _read_labels(name: str, table: pa.Table) -> pa.Array | None:
    """Return the labels of pairs, 0 and 1; None if no column is called so. A rating is neither.

    Raises:
        InputError: the column `label` holds something else, or there is none but a column `score`.
    """
    column = "label" if "label" in table.column_names else "score"
    if column not in table.column_names:
        return None
    reason = "a label of a pair is 1 (linked) or 0, in the column label"
    if column == "label":
        try:
            return pa.array(map(as_link, table[column].to_pylist()), pa.int64())
        except BadRowError as error:
            reason = str(error)
    try:
        ratings = pc.cast(table[column], pa.float64())
    except pa.ArrowException as error:
        raise InputError(f"{name}: the column {column}: {reason}") from error
    low, high = (f"{each or 0:g}" for each in pc.min_max(ratings).as_py().values())
    raise InputError(
        f"{name}: a label is 1 (linked) or 0, and the column {column} holds ratings from {low} to "
        f"{high}; rated pairs are evaluated as a task of the kind sts (`compile_tasks`), not trained on"
        + "; a column of labels is called label"
        * (column == "score" and (low, high) == ("0", "1"))
    )


def links_of(train: pa.Table) -> pa.Table:
    """Return the linked pairs of a training table, in the form of `Pairs.known_links`."""
    linked = train.filter(pc.equal(train["label"], 1))
    ends = zip(linked["anchor_id"].to_pylist(), linked["positive_id"].to_pylist(), strict=True)
    pairs = sorted({(min(two), max(two)) for two in ends if two[0] != two[1]})
    return pa.table([[two[end] for two in pairs] for end in (0, 1)], schema=LINKS_SCHEMA)


def find_contradicted(pairs: pa.Table) -> np.ndarray:
    """Find rows that other rows of their domain contradict, (rows,).

    Two texts are linked in one row and unlinked in another, or a row states a negative that is the anchor, or
    that a row links with it.
    """
    if not pairs.num_rows:
        return np.zeros(0, dtype=bool)
    whole, rows = append_stated_negatives(pairs), pairs.num_rows
    first, second = np.sort(number_texts(whole), axis=0)
    of_domain = _number_values(whole["domain"])
    together = np.unique(first * (int(second.max()) + 1) + second, return_inverse=True)[1]
    keys = np.unique(together * (int(of_domain.max()) + 1) + of_domain, return_inverse=True)[1]
    label = pairs["label"].to_numpy()
    unlinked, linked = (np.bincount(keys[:rows], label == each, keys.max() + 1) > 0 for each in (0, 1))
    contradicted: np.ndarray = (unlinked & linked)[keys[:rows]]
    is_linked = (first == second)[rows:] | linked[keys[rows:]]
    contradicted[whole["row"].to_numpy()[rows:][is_linked]] = True
    return contradicted


def append_stated_negatives(table: pa.Table) -> pa.Table:
    """Append a row of label 0 for each anchor and its negative; `row` is the number of its pair."""
    whole = table.append_column("row", pa.array(np.arange(table.num_rows)))
    if NEGATIVE not in table.column_names:
        return whole
    stated = whole.filter(pc.is_valid(whole[NEGATIVE]))
    zero = pa.array(np.zeros(stated.num_rows, np.int64))
    columns = {name: stated[name] for name in ("anchor", "domain", "anchor_id")}
    negatives = pair_table(pa.table({**columns, "positive": stated[NEGATIVE], "label": zero}), NEGATIVE)
    negatives = negatives.append_column("row", stated["row"])
    whole = whole.drop_columns([NEGATIVE])
    return pa.concat_tables([whole, negatives.select(whole.column_names)]).combine_chunks()


def pair_up_negatives(table: pa.Table) -> pa.Table:
    """Return a table with its stated negatives as rows of label 0 instead, each pair of texts once."""
    if not table.num_rows:
        return table.drop_columns([NEGATIVE])
    whole = append_stated_negatives(table)
    ends = np.sort(number_texts(whole), axis=0)
    keys = pa.table({"domain": whole["domain"], "label": whole["label"], "first": ends[0], "second": ends[1]})
    keys = keys.append_column("row", pa.array(np.arange(whole.num_rows)))
    firsts = keys.group_by(["domain", "label", "first", "second"]).aggregate([("row", "min")])["row_min"]
    is_kept = np.arange(whole.num_rows) < table.num_rows
    is_kept[firsts.to_numpy()] = True
    return whole.drop_columns(["row"]).filter(pa.array(is_kept))


def number_texts(pairs: pa.Table) -> np.ndarray:
    """Number the texts of pairs, (2, rows): those of one id have one number, and so have ids of one text."""
    columns = (
        [*pairs["anchor_id"].chunks, *pairs["positive_id"].chunks],
        fold_texts(join_texts(pairs)).chunks,
    )
    ids, texts = (_number_values(pa.chunked_array(chunks, pa.string())) for chunks in columns)
    size = int(ids.max()) + 1
    numbers: np.ndarray = find_components(ids, texts + size, size + int(texts.max()) + 1)[ids]
    return numbers.reshape(2, -1)


def _number_values(column: pa.ChunkedArray) -> np.ndarray:
    """Number the values of a column, in their order."""
    encoded = column.cast(pa.large_string()).combine_chunks().dictionary_encode()  # of more than 2 GiB too
    numbers = np.empty(len(encoded.dictionary), np.int64)
    numbers[pc.sort_indices(encoded.dictionary)] = np.arange(len(numbers))
    found: np.ndarray = numbers[encoded.indices.to_numpy(zero_copy_only=False)]
    return found


def join_ids(table: pa.Table) -> np.ndarray:
    """Join the ids of the anchors and then of the positives: shape (2 * rows,)."""
    ids = pa.chunked_array([*table["anchor_id"].chunks, *table["positive_id"].chunks], pa.string())
    found: np.ndarray = ids.to_numpy(zero_copy_only=False).astype(object)
    return found


def join_texts(table: pa.Table) -> pa.ChunkedArray:
    """Join the texts of the anchors and then of the positives: shape (2 * rows,)."""
    return pa.chunked_array([*table["anchor"].chunks, *table["positive"].chunks], pa.string())
