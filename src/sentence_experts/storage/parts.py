"""A folder of parts, from which an interrupted run continues."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentence_experts.errors import InputError
from sentence_experts.storage.files import read_json, remove, replacing, write_json
from sentence_experts.storage.hashes import sha256_file, sha256_text

SETTINGS = "settings.json"
ANEW = "overwrite"  # key of what a command with `overwrite` has begun
_HASHES, _PLACE = ".sha256.json", "place"


@dataclass(frozen=True)
class PartStore:
    """Parts of one result, each written whole or not at all and used only under the same settings.

    `settings.json` in the folder holds all settings. A hash of them and of the part's name, and those of its
    files, stand beside the part: one that is damaged, or was copied from elsewhere, is made again. The store
    is a plain value that can be sent to worker processes. It takes no lock: lock the result while it is made.

    Attributes:
        folder: the folder, which contains nothing but the parts.
        suffix: the ending of a part's main file, with its dot.
        others: the endings of files that may belong to it, written before the main one.
    """

    folder: Path
    suffix: str
    others: tuple[str, ...] = ()

    @classmethod
    def open(
        cls,
        folder: Path,
        settings: Mapping[str, Any],
        suffix: str,
        others: tuple[str, ...] = (),
        anew: bool = False,
    ) -> PartStore:
        """Reuse the parts in `folder`, or empty it if they were made with other settings.

        `settings` are everything that decides what is in the parts, as plain JSON values. `anew` is noted.
        """
        if settings_of_parts(folder) != json.loads(json.dumps(settings)):
            remove(folder)
            write_json(folder / SETTINGS, {"parts_of": settings, **({ANEW: True} if anew else {})})
        return cls(folder, suffix, others)

    def path(self, key: str | int, suffix: str | None = None) -> Path:
        """Return the main file of a part, or another one by its `suffix`, which is written before."""
        name = f"{key:06d}" if isinstance(key, int) else key
        return self.folder / f"{name}{self.suffix if suffix is None else suffix}"

    def is_done(self, key: str | int) -> bool:
        """Return whether the part is there, with the bytes that were written."""
        try:
            hashes = read_json(self.path(key, _HASHES))
            place = self._hash_place(key)
            if hashes.pop(_PLACE, place) != place:  # parts of earlier versions lack it
                return False
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
                content = json.dumps({_PLACE: self._hash_place(key), **hashes})
                self.path(key, _HASHES).write_text(content, encoding="utf-8")

    def _hash_place(self, key: str | int) -> str:
        """Return a hash of the settings and of the part's name: its files belong to no other part."""
        return sha256_text(sha256_file(self.folder / SETTINGS), self.path(key).name)

    def keys(self, suffix: str | None = None) -> list[str]:
        """Return the keys of all parts, or of all files with `suffix`, sorted; numbers as numbers."""
        ending = self.suffix if suffix is None else suffix
        keys = (file.name.removesuffix(ending) for file in self.folder.glob(f"[!.]*{ending}"))
        return sorted(keys, key=lambda key: (len(key) if key.isdecimal() else 0, key))

    def paths(self, suffix: str | None = None) -> list[Path]:
        """Return the files of all parts in the order of their keys."""
        return [self.path(key, suffix) for key in self.keys(suffix)]

    def remove(self) -> None:
        """Remove the folder, once the result that the parts were made for is whole."""
        remove(self.folder)  # what is left does no harm


def settings_of_parts(folder: Path, anew: bool = False) -> dict[str, Any] | None:
    """Return the settings of the parts in a folder; None if there are none, or, with `anew`, none that were
    begun so."""
    try:
        content = read_json(folder / SETTINGS)
        settings: dict[str, Any] = content["parts_of"]
        return None if anew and not content.get(ANEW) else settings
    except (InputError, KeyError, TypeError, AttributeError):
        return None
