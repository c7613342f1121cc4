"""The pairs dataset on disk: one Parquet file a split, a manifest, a dataset card."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sentence_experts import __version__
from sentence_experts.errors import InputError, UsageError
from sentence_experts.pairs.card import dataset_card
from sentence_experts.pairs.splits import SPLITS
from sentence_experts.storage import (
    read_json,
    replacing_folder,
    sha256_file,
    sha256_text,
    write_json,
    write_parquet,
)

FORMAT = 1
# The sentence-transformers trainer reads anchor, positive and label (1 co-cited, 0 not); the card's default
# configuration shows it these alone. The rest says where the pair comes from.
TRAINER_COLUMNS = ("anchor", "positive", "label")
KNOWN_LINKS = "known_links.parquet"
PAIR_COLUMNS = (*TRAINER_COLUMNS, "domain", "count", "anchor_id", "positive_id")


@dataclass(frozen=True)
class PairsFolder:
    """A pairs dataset that has been written.

    Each split is a table of `PAIR_COLUMNS`: two texts, label (int), domain, count (how often the pair was
    linked, 0 for a negative) and the ids of the two papers.
    """

    path: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, path: Path | str) -> PairsFolder:
        """Open a folder written by `sentence-experts pairs`.

        Raises:
            InputError: the folder holds no pairs dataset.
        """
        path = Path(path)
        files = [path / "manifest.json", *(path / f"{name}.parquet" for name in SPLITS)]
        missing = [file.name for file in files if not file.is_file()]
        if missing:
            raise InputError(
                f"{path}: no pairs here ({', '.join(missing)} missing); write one with sentence-experts pairs"
            )
        manifest = read_json(files[0])
        if manifest.get("kind") != "pairs":
            raise InputError(f"{path}: its manifest.json is not that of a pairs dataset")
        return cls(path, manifest)

    def split(self, name: str) -> pa.Table:
        """The pairs of `train`, `validation` or `test`.

        Raises:
            UsageError: no such split.
            InputError: a column is missing.
        """
        if name not in SPLITS:
            raise UsageError(f"no split {name!r}; there are {', '.join(SPLITS)}")
        file = self.path / f"{name}.parquet"
        table = pq.read_table(file)
        missing = [column for column in PAIR_COLUMNS if column not in table.column_names]
        if missing:
            raise InputError(
                f"{file}: column {missing[0]!r} is missing, found {', '.join(table.column_names)}"
            )
        return table

    def known_links(self) -> pa.Table:
        """Every linked pair of the training works, drawn or not: string columns `left_id` < `right_id`.

        Such works are no negatives of each other, wherever they meet.

        Raises:
            InputError: the dataset was written before there was such a table.
        """
        file = self.path / KNOWN_LINKS
        if not file.is_file():
            raise InputError(f"{self.path}: no {KNOWN_LINKS} here; write the pairs again")
        return pq.read_table(file)

    @property
    def domains(self) -> list[str]:
        """The names of the domains, sorted."""
        return sorted(self.manifest["domains"])

    def fingerprint(self) -> str:
        """A hash that changes when the bytes of a split or of the known links do."""
        return sha256_text(*(digest for _, digest in sorted(self.manifest["files"].items())))


def check_replaceable(out: Path) -> None:
    """Whether a pairs dataset may be written to `out`.

    Raises:
        UsageError: `out` is there and holds something else, which would be lost.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    manifest = out / "manifest.json"
    if not manifest.is_file() or read_json(manifest).get("kind") != "pairs":
        raise UsageError(f"{out} is there and holds no pairs dataset; choose another --out")


def write_pairs_folder(
    out: Path, splits: dict[str, pa.Table], known_links: pa.Table, manifest: dict[str, Any]
) -> PairsFolder:
    """Write the splits, the known links, the manifest and the card to `out`, whole or not at all.

    Raises:
        UsageError: as `check_replaceable`.
    """
    check_replaceable(out)
    tables = {f"{name}.parquet": splits[name] for name in SPLITS} | {KNOWN_LINKS: known_links}
    with replacing_folder(out) as folder:
        for name, table in tables.items():
            write_parquet(folder / name, table)
        files = {name: sha256_file(folder / name) for name in tables}
        manifest = {"kind": "pairs", "format": FORMAT, "version": __version__, "files": files, **manifest}
        write_json(folder / "manifest.json", manifest)
        (folder / "README.md").write_text(dataset_card(manifest, TRAINER_COLUMNS), encoding="utf-8")
    return PairsFolder.open(out)
