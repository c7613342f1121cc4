"""Tables and a manifest about them, in memory or in a folder: the base of pairs and task datasets."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import pyarrow as pa
import pyarrow.parquet as pq

from sentence_experts import __version__
from sentence_experts.errors import InputError, brief
from sentence_experts.storage import (
    Output,
    check_unchanged,
    check_version,
    output,
    read_json,
    sha256_file,
    sha256_text,
    write_parquet,
    write_text,
)
from sentence_experts.tables import is_path

MANIFEST = "manifest.json"
FORMAT = 1


@dataclass(frozen=True, repr=False, eq=False)
class TableFolder(ABC):
    """Tables by file name, in memory or in a folder.

    Attributes:
        path: path of the folder; None if the tables are in memory.
        manifest: settings, counts and, in a folder, hashes.
        tables: file name -> table, if they are in memory.
    """

    path: Path | None
    manifest: dict[str, Any]
    tables: Mapping[str, pa.Table] = field(default_factory=dict)

    kind: ClassVar[str]
    names: ClassVar[tuple[str, ...]] = ()  # names of the files that every folder of the kind has
    sections: ClassVar[tuple[str, ...]] = ()  # sections of the manifest, besides `files`

    @classmethod
    def read_manifest(cls, path: Path) -> dict[str, Any]:
        """Read the manifest of a folder.

        Raises:
            InputError: the folder has no manifest, a changed one, or one of another kind; or a file is
                missing.
        """
        if kind_of(path) != cls.kind:
            missing = "" if (path / MANIFEST).is_file() else f" ({MANIFEST} missing)"
            raise InputError(f"{path}: no {cls.kind} here{missing}; make them with `compile_{cls.kind}`")
        check_unchanged(path, only=MANIFEST)
        manifest: dict[str, Any] = read_json(path / MANIFEST)
        check_version(path / MANIFEST, manifest.get("format", 1), FORMAT)
        for name in ("files", *cls.sections):
            if not isinstance(manifest.get(name), dict):
                raise InputError(f"{path / MANIFEST}: damaged: {name!r} is missing; make it again")
        if gone := [name for name in manifest["files"] if not (path / name).is_file()]:
            raise InputError(f"{path}: {gone[0]} is missing; write the folder again")
        return manifest

    @classmethod
    def new_manifest(cls, **content: Any) -> dict[str, Any]:
        """Make a manifest of this kind."""
        return {"kind": cls.kind, "format": FORMAT, "version": __version__, **content}

    @property
    def name(self) -> str:
        """The name of the folder or of the files that were read, or "pairs in memory"."""
        if self.path is not None:
            return self.path.resolve().name
        return str(self.manifest.get("source", f"{self.kind} in memory"))

    def table(self, file: str) -> pa.Table | None:
        """Return a table by its file name; None if there is none.

        Raises:
            InputError: the file is not the one that the manifest lists.
        """
        if self.path is None:
            return self.tables.get(file)
        if not (path := self.path / file).is_file():
            return None
        if (digest := self.manifest["files"].get(file)) and sha256_file(path) != digest:
            raise InputError(
                f"{path}: changed since {MANIFEST} was written beside it; make the folder again with "
                f"`compile_{self.kind}`, or give the file itself as a table"
            )
        return _read(path, pq.read_table)

    def required(self, file: str) -> pa.Table:
        """Return a table by its file name.

        Raises:
            InputError: as `table`, or there is no such table.
        """
        table = self.table(file)
        if table is None:
            raise InputError(f"{self.path or self.name}: {file} is missing")
        return table

    def number_of_rows(self, file: str) -> int:
        """Return the number of rows of a table, without reading it."""
        if self.path is None:
            return int(self.tables[file].num_rows)
        return int(_read(self.path / file, pq.read_metadata).num_rows)

    def other_files(self) -> dict[str, str]:
        """Return other files of data, by name."""
        return {}

    def about(self, manifest: dict[str, Any]) -> dict[str, str]:
        """Return files that describe the folder, by name; no hash is kept of them."""
        return {}

    def hashes(self) -> dict[str, str]:
        """Hash the files: name -> SHA-256, in the order of the names; the same before and after saving."""
        files: dict[str, str] = self.manifest.get("files") or {
            **{name: parquet_hash(table) for name, table in self.tables.items()},
            **{name: hashlib.sha256(text.encode()).hexdigest() for name, text in self.other_files().items()},
        }
        return dict(sorted(files.items()))

    def save_to(self, place: Output) -> None:
        """Write everything to a folder, completely or not at all."""
        others = self.other_files()
        names = [name for name in (self.tables or self.manifest["files"]) if name not in others]
        with place.replacing() as folder:
            for name in names:
                write_parquet(folder / name, self.table(name))
            for name, text in others.items():
                write_text(folder / name, text)
            manifest = {**self.manifest, "files": {name: sha256_file(folder / name)
                                                   for name in (*names, *others)}}  # fmt: skip
            content = json.dumps(manifest, indent=1, ensure_ascii=False)
            for name, text in {MANIFEST: f"{content}\n", **self.about(manifest)}.items():
                write_text(folder / name, text)

    @classmethod
    def output(cls, out: Path | str, overwrite: bool = False) -> AbstractContextManager[Output]:
        """Lock a folder of this kind while it is written (`storage.output`)."""
        return output(out, f"folder of {cls.kind}", names=[MANIFEST, *cls.names], overwrite=overwrite)

    def save(self, out: Path | str, overwrite: bool = False) -> Self:
        """Write everything to a folder, completely or not at all, and return it as opened from there.

        Raises:
            UsageError: `out` exists and holds something else, or others of this kind without `overwrite`.
        """
        content = sha256_text(*(f"{name}={each}" for name, each in self.hashes().items()))
        with self.output(out, overwrite) as place:
            if place.begin({"content": content}) != "finished":
                self.save_to(place)
        return self.open(out)

    @classmethod
    @abstractmethod
    def open(cls, path: Path | str) -> Self:
        """Open a folder of this kind."""


def _read(path: Path, read: Callable[[Path], Any]) -> Any:
    try:
        return read(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is damaged ({brief(error)}): make the folder again") from error


def kind_of(source: Any) -> str | None:
    """Return the kind of the folder `source`, "pairs" or "tasks"; None if it is neither."""
    if not is_path(source) or not (Path(source) / MANIFEST).is_file():
        return None
    manifest = read_json(Path(source) / MANIFEST)
    return manifest.get("kind") if isinstance(manifest, dict) else None


def parquet_hash(table: pa.Table) -> str:
    """Return the SHA-256 of the file that `write_parquet` writes."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return hashlib.sha256(sink.getvalue()).hexdigest()
