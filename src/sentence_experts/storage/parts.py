"""A folder of parts, from which an interrupted run continues."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentence_experts.errors import InputError
from sentence_experts.storage.files import (
    check_version,
    read_json,
    replacing,
    sha256_file,
    sha256_settings,
    write_json,
)

SETTINGS = "settings.json"
_FORMAT_VERSION = 1
_HASHES = ".sha256.json"


@dataclass(frozen=True)
class PartStore:
    """Parts of one result, each written whole or not at all and used only under the same settings.

    `settings.json` in the folder holds all settings; every part's file name ends in their hash. So a part is
    never taken for one of other settings, however it came into the folder. The hashes of its files stand
    beside it, so that a damaged part is made again. The store is a plain value that can be sent to worker
    processes. It takes no lock: lock the result while it is made.

    Attributes:
        folder: contains nothing but the parts.
        settings_hash: eight hex digits.
        suffix: the ending of a part's main file, with its dot.
        others: the endings of files that may belong to it, written before the main one.
    """

    folder: Path
    settings_hash: str
    suffix: str
    others: tuple[str, ...] = ()

    @classmethod
    def open(
        cls, folder: Path, settings: Mapping[str, Any], suffix: str, others: tuple[str, ...] = ()
    ) -> PartStore:
        """Reuse the parts in `folder`, or empty it if they were made with other settings.

        `settings` are everything that decides what is in the parts, as plain JSON values.

        Raises:
            InputError: a newer version of this package wrote the parts.
        """
        content = {"format_version": _FORMAT_VERSION, "settings": dict(settings)}
        digest = sha256_settings(content)[:8]
        noted = folder / SETTINGS
        if folder.is_dir() and any(folder.iterdir()) and _read_hash(noted) != digest:
            noted.unlink(missing_ok=True)
            shutil.rmtree(folder)
        if not noted.exists():
            write_json(noted, content)
        return cls(folder, digest, suffix, others)

    def path(self, key: str | int, suffix: str | None = None) -> Path:
        """Return the main file of a part, or another one by its `suffix`, which is written before."""
        name = f"{key:06d}" if isinstance(key, int) else key
        return self.folder / f"{name}.{self.settings_hash}{self.suffix if suffix is None else suffix}"

    def is_done(self, key: str | int) -> bool:
        """Whether the part is there, with the bytes that were written."""
        try:
            hashes = read_json(self.path(key, _HASHES))
            return self.suffix in hashes and all(
                sha256_file(self.path(key, suffix)) == digest for suffix, digest in hashes.items()
            )
        except (InputError, OSError, TypeError, AttributeError):
            return False

    @contextmanager
    def writing(self, key: str | int, suffix: str | None = None) -> Iterator[Path]:
        """Yield a temporary path; it becomes the part (or its file with `suffix`) when the block succeeds."""
        with replacing(self.path(key, suffix)) as temporary:
            yield temporary
            if suffix in (None, self.suffix):
                files = {each: self.path(key, each) for each in self.others} | {self.suffix: temporary}
                hashes = {each: sha256_file(file) for each, file in files.items() if file.exists()}
                self.path(key, _HASHES).write_text(json.dumps(hashes), encoding="utf-8")

    def keys(self, suffix: str | None = None) -> list[str]:
        """Return the keys of all parts, or of all files with `suffix`, sorted."""
        ending = f".{self.settings_hash}{self.suffix if suffix is None else suffix}"
        return sorted(file.name.removesuffix(ending) for file in self.folder.glob(f"[!.]*{ending}"))

    def paths(self, suffix: str | None = None) -> list[Path]:
        """Return the files of all parts in the order of their keys."""
        return [self.path(key, suffix) for key in self.keys(suffix)]

    def remove(self) -> None:
        """Remove the folder, once the result that the parts were made for is whole."""
        shutil.rmtree(self.folder, ignore_errors=True)  # what is left does no harm


def _read_hash(noted: Path) -> str:
    try:
        content = read_json(noted)
    except InputError:
        return ""
    if isinstance(content, dict) and isinstance(version := content.get("format_version"), int):
        check_version(noted, version, _FORMAT_VERSION)
    return sha256_settings(content)[:8]


def settings_of_parts(folder: Path) -> dict[str, Any] | None:
    """Return the settings of the parts in a folder; None if there are none."""
    try:
        settings: dict[str, Any] = read_json(folder / SETTINGS)["settings"]
    except (InputError, OSError, KeyError, TypeError):
        return None
    return settings
