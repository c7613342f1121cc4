"""The table that `import_pairs` reads: a file, a table in memory, or a hub dataset."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pyarrow as pa

from sentence_experts.errors import InputError, UsageError, require
from sentence_experts.pairs.dataset import whole_table
from sentence_experts.pairs.splits import OTHER_NAMES, SPLITS
from sentence_experts.tables import Table, is_path, name_of_table

logger = logging.getLogger(__name__)
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def pairs_table(source: Table, subset: str | None) -> pa.Table:
    """All rows of a source; those of a hub dataset that is split have a column `split`.

    Raises:
        InputError: it cannot be read.
        UsageError: `subset` of something else than a hub dataset.
    """
    if is_path(source) and _is_hub_dataset(Path(source)):
        return _of_splits(str(source), subset)
    if subset is not None:
        raise UsageError(f"`subset` is for hub datasets, and {name_of_table(source)} is a table")
    return whole_table(source)


def _is_hub_dataset(path: Path) -> bool:
    """Whether a path is the id of a hub dataset, or the folder of one."""
    if path.exists():
        return path.is_dir()
    return bool(_HUB_ID.fullmatch(str(path))) and not re.search(
        r"\.(csv|tsv|jsonl|parquet|gz|txt)$", path.name
    )


def _of_splits(name: str, subset: str | None) -> pa.Table:
    require("datasets", "models")
    from sentence_experts.compat.datasets import load_splits

    loaded = load_splits(name, subset)
    named = {split: OTHER_NAMES.get(split, split) for split in loaded}
    known = {split: each for split, each in named.items() if each in SPLITS}
    if not known:
        raise InputError(
            f"{name} has the splits {', '.join(loaded)}, none of {', '.join(SPLITS)}; give a file of the one "
            "to use"
        )
    if left_out := [split for split in loaded if split not in known]:
        logger.warning(f"{name}: left out: the split{'s' * (len(left_out) > 1)} {', '.join(left_out)}")
    tables = {each: whole_table(loaded[split]) for split, each in known.items()}
    if set(tables) == {"train"}:  # has not been split yet
        return tables["train"]
    return pa.concat_tables(
        [
            table.append_column("split", pa.array([each] * table.num_rows, pa.string()))
            for each, table in tables.items()
        ],
        promote_options="default",
    )
