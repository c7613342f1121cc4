"""The pairs dataset, in memory or on disk: a Parquet file per split, a manifest, a dataset card."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_experts.errors import InputError, UsageError
from sentence_experts.pairs.card import dataset_card
from sentence_experts.pairs.config import ONE_DOMAIN, SPLITS
from sentence_experts.pairs.pair_tables import (
    NEGATIVE,
    PAIR_COLUMNS,
    PAIRS_SCHEMA,
    find_contradicted,
    is_one_table,
    links_of,
    pair_table,
    pair_up_negatives,
    read_tables,
    split_column,
    whole_table,
)
from sentence_experts.pairs.table_folder import TableFolder
from sentence_experts.storage import sha256_text
from sentence_experts.tables import check_columns, is_path, name_of_table

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

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
            return source._with_stated_negatives() if labelled else source
        if is_path(source) and (Path(source).is_dir() or not Path(source).suffix):
            return cls.of(cls.open(source), split, labelled)
        where = name_of_table(source)
        given = read_tables(source, where)
        first, table = next(iter(given.items()))
        must_have_column = split is None and not first
        if must_have_column or ("split" in table.column_names and is_one_table(given)):
            numbers = split_column(table, where)
            rows = {name: np.flatnonzero(numbers == number) for number, name in enumerate(SPLITS)}
            given = {name: table.take(mine) for name, mine in rows.items() if len(mine)}
        elif not first:
            given = {split or "train": table}
        for name, table in given.items():
            if labelled and name != "train":
                check_columns(f"{where}, {name}", ["label"], table.column_names)
        pairs = cls.from_tables(**given)
        pairs = pairs._with_stated_negatives() if labelled else pairs
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
        for name, table in tables.items():
            told = [each for each in ("anchor_id", "positive_id", "label", "domain", NEGATIVE)
                    if each in table.column_names]  # fmt: skip
            again = table.num_rows - table.group_by(told).aggregate([]).num_rows
            if again and name != "train":
                logger.warning(
                    f"{name}: rows that repeat another one count each time: {again:,} of {table.num_rows:,} "
                    "(`import_pairs` leaves them out)"
                )
            if count := int(find_contradicted(table).sum()):
                logger.warning(
                    f"{name}: {count:,} rows say the opposite of others about the same texts, or have a "
                    "negative that is linked with their anchor: they stay (`import_pairs` leaves them out)"
                )
        return cls.in_memory(tables, links_of(tables["train"]), {})

    def _with_stated_negatives(self) -> Pairs:
        """Return the pairs with the stated negatives of validation and test as pairs of label 0."""
        splits = {name: self.split(name) for name in SPLITS}
        stated = [name for name in SPLITS[1:] if NEGATIVE in splits[name].column_names]
        if not stated:
            return self
        for name in stated:
            splits[name] = pair_up_negatives(splits[name])
        made = self.in_memory(splits, self.known_links(), {}, self.works())
        named = {} if self.path is None else {"source": self.name}
        return replace(made, manifest={**self.manifest, "domains": made.manifest["domains"], **named})

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
        import pandas as pd

        frames = [self.split(name).to_pandas().assign(split=name) for name in SPLITS]
        return pd.concat(frames, ignore_index=True)

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
