"""The pairs dataset, in memory or on disk: a Parquet file per split, a manifest, a dataset card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_experts.errors import InputError, UsageError
from sentence_experts.names import LABEL
from sentence_experts.pairs.card import dataset_card
from sentence_experts.pairs.ratings import check_labels, warn_of_ratings
from sentence_experts.pairs.splits import OTHER_NAMES, SPLITS, fold_texts, split_named
from sentence_experts.pairs.table_folder import TableFolder
from sentence_experts.storage import sha256_text
from sentence_experts.table_values import identifiers, texts
from sentence_experts.tables import check_columns, is_path, name_of_table, read_columns, read_table, to_arrow

if TYPE_CHECKING:
    import pandas as pd

# The sentence-transformers trainer reads anchor, positive and label (1 linked, 0 not); the card's default
# configuration shows it these alone. The rest says where the pair comes from.
TRAINER_COLUMNS = ("anchor", "positive", "label")
KNOWN_LINKS = "known_links.parquet"
# What is known of the works of validation and test beside their text.
WORKS = "works.parquet"
WORKS_SCHEMA = pa.schema([
    ("paper_id", pa.string()),
    ("times_cited", pa.int64()),
    ("references", pa.int64()),
    ("year", pa.int32()),
    ("journal", pa.string()),
])  # fmt: skip
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
# What the columns of users' tables are read as; the others are numbers.
READ = {
    **dict.fromkeys(("anchor", "positive"), texts),
    **dict.fromkeys(("domain", "anchor_id", "positive_id"), identifiers),
}
WITHIN = "within"  # a column of pairs by proximity: the closest level, such as "sentence"
# A column of lists of ids, in validation and test: the papers through which a linked pair is linked.
LINKED_BY = "linked_by"
NEGATIVE = "negative"  # an optional column of tables from the user
ONE_DOMAIN = "all"


class Pairs(TableFolder):
    """Pairs of texts in train, validation and test, in memory or in a folder.

    Each split is an Arrow table of `PAIR_COLUMNS`: two texts, label (1 linked, 0 a negative), domain, count
    (how often the pair was linked, 0 for a negative) and the ids of the two papers. Validation and test of
    `compile_pairs` also have `linked_by`, the ids of the papers that link the pair: articles that cite both
    (co-citation), shared references (coupling) or the one that cites the other; empty for a negative.
    """

    kind = "pairs"
    manifest_kinds: ClassVar[Mapping[str, type]] = {"domains": dict}
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
        """Pairs of any form.

        Args:
            source: a `Pairs`; a folder of pairs; the file of a table; a table in memory (pandas, polars,
                Arrow, `datasets.Dataset`, a list of dicts, a mapping of columns); or a mapping from split to
                one of these tables, such as a `DatasetDict`. The columns are as `from_tables` describes; a
                column `split` holds the split of each row.
            split: what a table without a column `split` is; None if it must have one.
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
            given = {OTHER_NAMES.get(name, name): whole_table(source[name]) for name in map(str, source)}
        else:
            given = _by_split(whole_table(source), split, name_of_table(source))
        for name, table in given.items():
            if labelled and name != "train":
                check_columns(f"{name_of_table(source)}, {name}", ["label"], table.column_names)
        pairs = cls.from_tables(**given)
        files = source.values() if isinstance(source, Mapping) else [source]
        names = [Path(each).name for each in files if is_path(each)]
        return replace(pairs, manifest={**pairs.manifest, "source": ", ".join(names)}) if names else pairs

    @classmethod
    def from_table(cls, table: Any) -> Pairs:
        """Pairs from one table: training pairs, or those of several splits if it has a column `split`.

        Example:
            >>> import pandas as pd
            >>> frame = pd.DataFrame({"anchor": ["a cat", "a rose"], "positive": ["a kitten", "a tulip"],
            ...                       "domain": ["animals", "plants"]})
            >>> Pairs.from_table(frame)
            Pairs(train: 2, validation: 0, test: 0; domains: animals, plants; in memory)
        """
        return cls.of(table)

    @classmethod
    def from_tables(cls, train: Any = None, validation: Any = None, test: Any = None) -> Pairs:
        """Pairs from a table per split (pandas, polars, Arrow, `datasets.Dataset`); a split may be missing.

        Columns: `anchor` and `positive` (texts); optional `label` (default 1), `domain` or `route` (default
        "all"), `count` (default the label), `anchor_id` and `positive_id` (default: a hash of the text
        without case, punctuation and white space), and `negative` (a text unlike both, for training).

        Raises:
            InputError: a column or a text is missing, a label is neither 0 nor 1, pairs without labels have
                scores, or there is no pair.
        """
        given = dict(zip(SPLITS, (train, validation, test), strict=True))
        tables = {
            name: PAIRS_SCHEMA.empty_table() if table is None else _given_pairs(whole_table(table), name)
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
        """Pairs of tables that have all columns already, with a manifest that gets their counts."""
        tables = {f"{name}.parquet": splits[name] for name in SPLITS} | {KNOWN_LINKS: known_links}
        tables |= {} if works is None else {WORKS: works}
        return cls(None, cls.new_manifest(domains=count_pairs(splits), **manifest), tables)

    def split(self, name: str) -> pa.Table:
        """The pairs of `train`, `validation` or `test`.

        Raises:
            UsageError: no such split.
            InputError: a column is missing.
        """
        if name not in SPLITS:
            raise UsageError(f"no split {name!r}; there are {', '.join(SPLITS)}")
        table = self.table(f"{name}.parquet")
        if table is None:
            raise InputError(f"{self.path}: {name}.parquet is missing")
        missing = [column for column in PAIR_COLUMNS if column not in table.column_names]
        if missing:
            raise InputError(
                f"{self.path or self.name}, {name}: column {missing[0]!r} is missing, "
                f"found {', '.join(table.column_names)}"
            )
        return table

    def known_links(self) -> pa.Table:
        """Every linked pair of the training works, sampled or not: string columns `left_id` < `right_id`.

        Such works are not negatives of each other, wherever they meet. A folder without this table, of an
        early version, knows the links of its training pairs.
        """
        links = self.table(KNOWN_LINKS)
        return links_of(self.split("train")) if links is None else links

    def works(self) -> pa.Table | None:
        """What is known of the works of validation and test beside their text: `paper_id`, `times_cited` and
        `references` within the corpus (0 references for works outside), `year`, `journal`.

        None for pairs from tables, and for folders of an early version.
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
        """A hash that changes when the bytes of a split or of the known links do; the same after saving."""
        return sha256_text(*self.hashes().values())

    def about(self, manifest: dict[str, Any]) -> dict[str, str]:
        """The dataset card."""
        # Training pairs have no `linked_by`, and a configuration has the same columns in all splits.
        full = [name for name in self.split("train").column_names if name != LINKED_BY]
        return {"README.md": dataset_card(manifest, {"pairs": TRAINER_COLUMNS, "full": full})}

    def to_pandas(self) -> pd.DataFrame:
        """All pairs as one DataFrame, with a column `split`."""
        tables = [self.split(name) for name in SPLITS]
        named = [
            table.append_column("split", pa.array([name] * table.num_rows, pa.string()))
            for name, table in zip(SPLITS, tables, strict=True)
        ]
        return pa.concat_tables(named, promote_options="default").to_pandas()

    def __repr__(self) -> str:
        counts = [f"{name}: {self.number_of_rows(f'{name}.parquet'):,}" for name in SPLITS]
        place = "in memory" if self.path is None else self.path
        return f"Pairs({', '.join(counts)}; domains: {', '.join(self.domains)}; {place})"


def describe_domain(name: str) -> str:
    """A domain as messages name it, with a hint if the pairs have no column `domain`."""
    return f"domain {name!r}" + ", that of pairs without a column `domain`" * (name == ONE_DOMAIN)


def count_pairs(splits: Mapping[str, pa.Table]) -> dict[str, dict[str, Any]]:
    """Domain -> split -> the numbers of positives, negatives and papers."""
    names = sorted({name for table in splits.values() for name in table["domain"].unique().to_pylist()})
    counts: dict[str, dict[str, Any]] = {name: {} for name in names}
    for domain in names:
        for split, table in splits.items():
            rows = table.filter(pc.equal(table["domain"], domain))
            papers = pa.chunked_array([*rows["anchor_id"].chunks, *rows["positive_id"].chunks], pa.string())
            positives = pc.sum(rows["label"]).as_py() or 0
            counts[domain][split] = {
                "positives": positives,
                "negatives": rows.num_rows - positives,
                "papers": len(papers.unique()),
            }
    return counts


def whole_table(source: Any) -> pa.Table:
    """A table, with `domain` for `route`."""
    table = read_table(source, read_columns(source)) if is_path(source) else to_arrow(source)
    if "domain" in table.column_names:
        return table
    return table.rename_columns(["domain" if name == "route" else name for name in table.column_names])


def _by_split(table: pa.Table, split: str | None, where: str) -> dict[str, pa.Table]:
    """The table's rows by its column `split`; all are of `split` if it has none."""
    if split is not None and "split" not in table.column_names:
        return {split: table}
    check_columns(where, ["split"], table.column_names)
    given = texts(table["split"], f"{where}, column split").to_pylist()
    names = [split_named(name, where) for name in given]
    column = pa.array(names, pa.string())
    return {name: table.filter(pc.equal(column, name)) for name in SPLITS if name in names}


def _given_pairs(table: pa.Table, split: str) -> pa.Table:
    """The pairs of a user's table; rated ones without labels would all count as linked."""
    if "label" not in table.column_names:
        check_labels(split, table)
        warn_of_ratings(split, table, [name for name in table.column_names if name not in PAIR_COLUMNS])
    return pair_table(table, split)


def pair_table(table: pa.Table, split: str) -> pa.Table:
    """The table with all of `PAIR_COLUMNS`, checked."""
    missing = [name for name in ("anchor", "positive") if name not in table.column_names]
    if missing:
        raise InputError(
            f"{split}: column {missing[0]!r} is missing, found {', '.join(table.column_names) or 'none'}"
        )
    columns = {
        name: READ[name](table[name], f"{split}, column {name}") if name in READ else table[name]
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
    except (pa.ArrowException, ValueError) as error:
        raise InputError(f"{split}: {' '.join(str(error).split())}") from error
    empty = [name for name in PAIR_COLUMNS if whole[name].null_count]
    if empty:
        raise InputError(f"{split}: column {empty[0]!r} has rows without a value")
    try:
        LABEL.check("domain", *whole["domain"].unique().to_pylist())
    except ValueError as error:
        raise InputError(f"{split}: {error}") from error
    if not pc.all(pc.is_in(whole["label"], pa.array([0, 1]))).as_py() and rows:
        raise InputError(f"{split}: a label is 1 (linked) or 0 (a negative)")
    if NEGATIVE in table.column_names:
        negative = texts(table[NEGATIVE], f"{split}, column {NEGATIVE}")
        whole = whole.append_column(NEGATIVE, negative)
    return whole.combine_chunks()


def links_of(train: pa.Table) -> pa.Table:
    """The linked pairs of a training table, in the form of `Pairs.known_links`."""
    linked = train.filter(pc.equal(train["label"], 1))
    ends = zip(linked["anchor_id"].to_pylist(), linked["positive_id"].to_pylist(), strict=True)
    pairs = sorted({(min(two), max(two)) for two in ends if two[0] != two[1]})
    columns = [pa.array(side, pa.string()) for side in zip(*pairs, strict=True)] if pairs else None
    return pa.table(columns, schema=LINKS_SCHEMA) if columns else LINKS_SCHEMA.empty_table()
