"""The pairs dataset, in memory or on disk: a Parquet file per split, a manifest, a dataset card.

Tables of pairs come from files, tables in memory and hub datasets, with their columns checked.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_experts.errors import InputError, UsageError, require
from sentence_experts.names import LABEL
from sentence_experts.pairs.card import dataset_card
from sentence_experts.pairs.config import ONE_DOMAIN, OTHER_NAMES, SPLITS
from sentence_experts.pairs.splits import fold_texts
from sentence_experts.pairs.table_folder import TableFolder
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

if TYPE_CHECKING:
    import pandas as pd

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
# Column of a user's table -> the function that reads it; other columns are numbers.
_READ: dict[str, Any] = dict.fromkeys(("anchor", "positive", NEGATIVE), texts) | dict.fromkeys(
    ("domain", "anchor_id", "positive_id"), identifiers
)
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_FILE = re.compile(r"\.(csv|tsv|jsonl|parquet|gz|txt)$")
# The sentence-transformers trainer reads anchor, positive and label (1 linked, 0 not); the card's default
# configuration shows it these alone. The rest says where the pair comes from.
TRAINER_COLUMNS = ("anchor", "positive", "label")
KNOWN_LINKS = "known_links.parquet"
# Facts about the works of validation and test beside their text.
WORKS = "works.parquet"
WORKS_SCHEMA = pa.schema([
    ("paper_id", pa.string()),
    ("times_cited", pa.int64()),
    ("references", pa.int64()),
    ("year", pa.int32()),
    ("journal", pa.string()),
])  # fmt: skip
WITHIN = "within"  # a column of pairs by proximity: the closest level, such as "sentence"
# A column of lists of ids, in validation and test: the papers through which a linked pair is linked.
LINKED_BY = "linked_by"


class Pairs(TableFolder):
    """Pairs of texts in train, validation and test, in memory or in a folder.

    Each split is an Arrow table of `PAIR_COLUMNS`: two texts, label (1 linked, 0 a negative), domain, count
    (how often the pair was linked, 0 for a negative) and the ids of the two papers. Validation and test of
    `compile_pairs` also have `linked_by`, the ids of the papers that link the pair: articles that cite both
    (co-citation), shared references (coupling) or the one that cites the other; empty for a negative.
    """

    kind = "pairs"
    sections = ("domains",)
    names = (*(f"{split}.parquet" for split in SPLITS), KNOWN_LINKS, WORKS, "README.md")

    @classmethod
    def open(cls, path: Path | str) -> Pairs:
        """Open a folder written by `compile_pairs` or `Pairs.save`.

        Raises:
            InputError: the folder holds no pairs.
        """
        return cls(Path(path), cls.read_manifest(Path(path)))

    @classmethod
    def of(cls, source: Any, split: str | None = "train", labelled: bool = False) -> Pairs:
        """Read pairs in any form.

        Args:
            source: a `Pairs`; a folder of pairs; the file of a table; a table in memory (pandas, polars,
                Arrow, `datasets.Dataset`, a list of dicts, a mapping of columns); or a mapping from split to
                one of these tables, such as a `DatasetDict`. The columns are as `from_tables` describes; a
                column `split` holds the split of each row.
            split: the split of a table without a column `split`; None if it must have one.
            labelled: whether the pairs of validation and test must have labels.

        Raises:
            InputError: a file cannot be read, or a column or a value is missing.

        Example:
            >>> Pairs.of([{"anchor": "a cat", "positive": "a kitten", "split": "dev"}])
            Pairs(train: 0, validation: 1, test: 0; domains: all; in memory)
        """
        if isinstance(source, cls):
            return source
        if is_path(source) and (Path(source).is_dir() or not Path(source).suffix):
            return cls.open(source)
        if isinstance(source, Mapping) and set(source) <= {*SPLITS, *OTHER_NAMES}:
            known = _name_splits(source, "the mapping")
            given = {name: whole_table(source[each]) for each, name in known.items()}
        else:
            table, where = whole_table(source), name_of_table(source)
            if split is not None and "split" not in table.column_names:
                given = {split: table}
            else:
                numbers = split_column(table, where)
                rows = {name: np.flatnonzero(numbers == number) for number, name in enumerate(SPLITS)}
                given = {name: table.take(mine) for name, mine in rows.items() if len(mine)}
        for name, table in given.items():
            if labelled and name != "train":
                check_columns(f"{name_of_table(source)}, {name}", ["label"], table.column_names)
        pairs = cls.from_tables(**given)
        files = source.values() if isinstance(source, Mapping) else [source]
        names = [Path(each).name for each in files if is_path(each)]
        return replace(pairs, manifest={**pairs.manifest, "source": ", ".join(names)}) if names else pairs

    @classmethod
    def from_tables(cls, train: Any = None, validation: Any = None, test: Any = None) -> Pairs:
        """Read a table per split (pandas, polars, Arrow, `datasets.Dataset`); a split may be missing.

        Columns: `anchor` and `positive` (texts); optional `label` (default 1), `domain` or `route` (default
        "all"), `count` (default the label), `anchor_id` and `positive_id` (default: a hash of the text
        without case, punctuation and white space), and `negative` (a text unlike both, for training).

        Raises:
            InputError: a column or a text is missing, a label is neither 0 nor 1, pairs without labels have
                scores, or there is no pair.
        """
        given = dict(zip(SPLITS, (train, validation, test), strict=True))
        tables = {
            name: PAIRS_SCHEMA.empty_table() if table is None else pair_table(whole_table(table), name)
            for name, table in given.items()
        }
        if not any(table.num_rows for table in tables.values()):
            raise InputError("no pairs: every table is empty")
        return cls.in_memory(tables, links_of(tables["train"]), {})

    @classmethod
    def in_memory(
        cls,
        splits: Mapping[str, pa.Table],
        known_links: pa.Table,
        manifest: Mapping[str, Any],
        works: pa.Table | None = None,
    ) -> Pairs:
        """Make pairs of tables that have all columns, with a manifest that gets their counts."""
        tables = {f"{name}.parquet": splits[name] for name in SPLITS} | {KNOWN_LINKS: known_links}
        tables |= {} if works is None else {WORKS: works}
        return cls(None, cls.new_manifest(domains=count_pairs(splits), **manifest), tables)

    def split(self, name: str) -> pa.Table:
        """Return the pairs of `train`, `validation` or `test`.

        Raises:
            UsageError: no such split.
            InputError: a column is missing.
        """
        if name not in SPLITS:
            raise UsageError(f"no split {name!r}; there are {', '.join(SPLITS)}")
        table = self.required(f"{name}.parquet")
        check_columns(f"{self.path or self.name}, {name},", PAIR_COLUMNS, table.column_names)
        return table

    def known_links(self) -> pa.Table:
        """Return every linked pair of the training works, sampled or not: columns `left_id` < `right_id`.

        The columns are strings. Such works are not negatives of each other, wherever they meet.

        Raises:
            InputError: the table is missing.
        """
        return self.required(KNOWN_LINKS)

    def works(self) -> pa.Table | None:
        """Return facts about the works of validation and test: `paper_id`, `times_cited` and
        `references` within the corpus (0 references for works outside), `year`, `journal`.

        None for pairs from tables.
        """
        return self.table(WORKS)

    @property
    def domains(self) -> list[str]:
        """The names of the domains, sorted."""
        return sorted(self.manifest["domains"])

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the pairs were compiled with; empty for pairs from tables."""
        settings: dict[str, Any] = self.manifest.get("settings", {})
        return settings

    @property
    def are_simulated(self) -> bool:
        """Whether texts have the DOI of a simulated work, so that figures say nothing about science."""
        return any(self.manifest.get(source, {}).get("simulated") for source in ("corpus", "imported"))

    def fingerprint(self) -> str:
        """Hash the bytes of the splits and of the known links; the hash stays the same after saving."""
        return sha256_text(*self.hashes().values())

    def about(self, manifest: dict[str, Any]) -> dict[str, str]:
        """Return the dataset card."""
        # Training pairs have no `linked_by`, and a configuration has the same columns in all splits.
        full = [name for name in self.split("train").column_names if name != LINKED_BY]
        return {"README.md": dataset_card(manifest, {"pairs": TRAINER_COLUMNS, "full": full})}

    def to_pandas(self) -> pd.DataFrame:
        """Return all pairs as one DataFrame, with a column `split`."""
        return with_split_column({name: self.split(name) for name in SPLITS}).to_pandas()

    def __repr__(self) -> str:
        counts = [f"{name}: {self.number_of_rows(f'{name}.parquet'):,}" for name in SPLITS]
        place = "in memory" if self.path is None else self.path
        return f"Pairs({', '.join(counts)}; domains: {', '.join(self.domains)}; {place})"


def describe_domain(name: str) -> str:
    """Name a domain for a message, with a hint if the pairs have no column `domain`."""
    return f"domain {name!r}" + ", that of pairs without a column `domain`" * (name == ONE_DOMAIN)


def count_pairs(splits: Mapping[str, pa.Table]) -> dict[str, dict[str, Any]]:
    """Count positives, negatives and papers: domain -> split -> the numbers."""
    names = sorted({name for table in splits.values() for name in table["domain"].unique().to_pylist()})

    def count(rows: pa.Table) -> dict[str, int]:
        papers = pa.chunked_array([*rows["anchor_id"].chunks, *rows["positive_id"].chunks], pa.string())
        positives = pc.sum(rows["label"]).as_py() or 0
        negatives = rows.num_rows - positives
        return {"positives": positives, "negatives": negatives, "papers": len(papers.unique())}

    return {
        domain: {
            split: count(table.filter(pc.equal(table["domain"], domain))) for split, table in splits.items()
        }
        for domain in names
    }


# ---- tables of users ----------------------------------------------------------------------


def whole_table(source: Any) -> pa.Table:
    """Read a table, and rename the column `route` to `domain`."""
    table = read_table(source, read_columns(source)) if is_path(source) else to_arrow(source)
    if "domain" in table.column_names:
        return table
    return table.rename_columns(["domain" if name == "route" else name for name in table.column_names])


def table_or_dataset(source: Table, subset: str | None) -> pa.Table:
    """Read all rows of a source; those of a hub dataset that is split have a column `split`.

    Raises:
        InputError: it cannot be read.
        UsageError: `subset` is given for something else than a hub dataset.
    """
    if is_path(source):
        path = Path(source)
        if path.is_dir() or (not (path.exists() or _FILE.search(path.name)) and _HUB_ID.fullmatch(str(path))):
            return _load_hub_dataset(str(source), subset)
    if subset is not None:
        raise UsageError(f"`subset` is for hub datasets, and {name_of_table(source)} is a table")
    return whole_table(source)


def _load_hub_dataset(name: str, subset: str | None) -> pa.Table:
    require("datasets", "models")
    from sentence_experts.compat.datasets import load_splits

    loaded = load_splits(name, subset)
    if not (known := _name_splits(loaded, name)):
        raise InputError(
            f"{name} has the splits {', '.join(loaded)}, none of {', '.join(SPLITS)}; give a file of the one "
            "to use"
        )
    if left_out := [split for split in loaded if split not in known]:
        logger.warning(f"{name}: left out: the split{'s' * (len(left_out) > 1)} {', '.join(left_out)}")
    tables = {each: whole_table(loaded[split]) for split, each in known.items()}
    return tables["train"] if set(tables) == {"train"} else with_split_column(tables)


def _name_splits(names: Iterable[str], where: str) -> dict[str, str]:
    """Return the splits among some names, each with its name here, such as "validation" of "dev".

    Raises:
        InputError: two are names of one split.
    """
    known = {name: each for name in names if (each := OTHER_NAMES.get(name, name)) in SPLITS}
    for split in SPLITS:
        if len(same := [name for name, each in known.items() if each == split]) > 1:
            raise InputError(f"{where} has {' and '.join(same)}, which are one split here: join them")
    return known


def with_split_column(tables: dict[str, pa.Table]) -> pa.Table:
    """Join the tables of all splits into one, with a column `split`."""
    named = [
        table.append_column("split", pa.array([name] * table.num_rows, pa.string()))
        for name, table in tables.items()
    ]
    return pa.concat_tables(named, promote_options="default")


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
    folded = str(value or "").strip().lower()
    name = OTHER_NAMES.get(folded, folded)
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
    _check_labels(split, table)
    columns = {
        name: _READ[name](table[name], f"{split}, column {name}") if name in _READ else table[name]
        for name in (*PAIR_COLUMNS, NEGATIVE)
        if name in table.column_names
    }
    if "label" in columns:
        columns["label"] = pc.cast(columns["label"], pa.float64())  # "1.0" as 1
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
    if NEGATIVE in columns:
        whole = whole.append_column(NEGATIVE, columns[NEGATIVE])
    return whole.combine_chunks()


def _check_labels(name: str, table: pa.Table) -> None:
    """Check that labels are 0 and 1: a rating is neither linked nor not.

    Raises:
        InputError: the column `label` holds something else, or there is none but a column `score`.
    """
    column = "label" if "label" in table.column_names else "score"
    if column not in table.column_names:
        return
    try:
        values = pc.drop_null(pc.cast(table[column], pa.float64()))
    except pa.ArrowException as error:
        raise InputError(f"{name}: the column {column}: {error}; a label is 1 (linked) or 0") from error
    if column == "score" or not pc.all(pc.is_in(values, pa.array([0.0, 1.0])), min_count=0).as_py():
        low, high = (f"{each or 0:g}" for each in pc.min_max(values).as_py().values())
        raise InputError(
            f"{name}: a label is 1 (linked) or 0, and the column {column} holds ratings from {low} to "
            f"{high}; rated pairs are evaluated as a task of the kind sts (`compile_tasks`), not trained on"
        )


def links_of(train: pa.Table) -> pa.Table:
    """Return the linked pairs of a training table, in the form of `Pairs.known_links`."""
    linked = train.filter(pc.equal(train["label"], 1))
    ends = zip(linked["anchor_id"].to_pylist(), linked["positive_id"].to_pylist(), strict=True)
    pairs = sorted({(min(two), max(two)) for two in ends if two[0] != two[1]})
    return pa.table([[two[end] for two in pairs] for end in (0, 1)], schema=LINKS_SCHEMA)
