"""A folder of parts that an interrupted run goes on from."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentence_experts.errors import InputError
from sentence_experts.storage.files import read_json, replacing, sha256_settings, write_json

SETTINGS = "settings.json"
_FORMAT_VERSION = 1


@dataclass(frozen=True)
class PartStore:
    """Parts of one result, each written whole or not at all and used only under the same settings.

    `settings.json` in the folder holds all settings; every part's file name ends in their hash. So a part is
    never taken for one of other settings, however it came into the folder. The store is a plain value that
    can be sent to worker processes. It takes no lock: lock the result (`locked`) while it is made.

    Attributes:
        folder: contains nothing but the parts.
        settings_hash: eight hex digits.
        suffix: the ending of a part's main file, with its dot.
    """

    folder: Path
    settings_hash: str
    suffix: str

    @classmethod
    def open(cls, folder: Path, settings: Mapping[str, Any], suffix: str) -> PartStore:
        """Go on with the parts in `folder`, or empty it if they were made with other settings.

        `settings` are everything that decides what is in the parts, as plain JSON values.
        """
        content = {"format_version": _FORMAT_VERSION, "settings": dict(settings)}
        digest = sha256_settings(content)[:8]
        noted = folder / SETTINGS
        if folder.is_dir() and any(folder.iterdir()) and _read_hash(noted) != digest:
            noted.unlink(missing_ok=True)
            shutil.rmtree(folder)
        if not noted.exists():
            write_json(noted, content)
        return cls(folder, digest, suffix)

    def path(self, key: str | int, suffix: str | None = None) -> Path:
        """The file of a part; with `suffix`, another file that belongs to it, written before the main one."""
        name = f"{key:06d}" if isinstance(key, int) else key
        return self.folder / f"{name}.{self.settings_hash}{self.suffix if suffix is None else suffix}"

    def is_done(self, key: str | int) -> bool:
        """Whether the part is there, and therefore whole."""
        return self.path(key).is_file()

    @contextmanager
    def writing(self, key: str | int, suffix: str | None = None) -> Iterator[Path]:
        """Yield a temporary path; it becomes the part (or its file with `suffix`) when the block succeeds."""
        with replacing(self.path(key, suffix)) as temporary:
            yield temporary

    def keys(self, suffix: str | None = None) -> list[str]:
        """The keys of all parts, or of all files with `suffix`, sorted."""
        ending = f".{self.settings_hash}{self.suffix if suffix is None else suffix}"
        return sorted(file.name.removesuffix(ending) for file in self.folder.glob(f"[!.]*{ending}"))

    def paths(self, suffix: str | None = None) -> list[Path]:
        """The files of all parts in the order of their keys."""
        return [self.path(key, suffix) for key in self.keys(suffix)]

    def remove(self) -> None:
        """Remove the folder, once the result that the parts were made for is whole."""
        shutil.rmtree(self.folder, ignore_errors=True)  # what is left does no harm


def _read_hash(noted: Path) -> str:
    try:
        return sha256_settings(read_json(noted))[:8]
    except InputError:
        return ""
