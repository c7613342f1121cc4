"""Uses of datasets that its documentation does not promise, or that raise errors of any class."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from datasets import Dataset, DatasetDict, load_dataset, load_dataset_builder, load_from_disk

from sentence_experts.errors import InputError
from sentence_experts.table_files import format_of

_SAVED = ("dataset_dict.json", "state.json")  # in folders that `save_to_disk` wrote
# Words in names of files and folders, and the splits that they mean.
_WORDS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
_WORDS |= dict.fromkeys(("validation", "valid", "val", "dev"), "validation")

logger = logging.getLogger(__name__)


def dataset_fingerprint(dataset: Dataset) -> str:
    """Return the hash of a dataset's content and history, under which the library caches its results."""
    return str(dataset._fingerprint)


def load_splits(name: str, config: str | None) -> DatasetDict:
    """Return all splits of a hub dataset, or of a local folder of one, also of one that was saved to disk.

    Raises:
        InputError: it cannot be loaded, or files of two splits would be one.
    """
    folder = Path(name)
    is_saved = any((folder / file).is_file() for file in _SAVED)
    if is_saved and config is not None:
        raise InputError(f"{name} was written by `save_to_disk`, and has no subset {config!r}")
    try:
        if is_saved:  # `load_dataset` would guess the splits from names of files
            saved = load_from_disk(name)
            return saved if isinstance(saved, DatasetDict) else DatasetDict({"train": saved})
        loaded = load_dataset(name, config)
        files = load_dataset_builder(name, config).config.data_files if folder.is_dir() else None
    except Exception as error:  # any error of the loaders and the network
        reason = str(error).strip().split("\n")[0]
        raise InputError(
            f"hub dataset {name!r} cannot be loaded ({type(error).__name__}: {reason}); check its name "
            "and config and the connection to the hub, or give a folder or file that was downloaded before"
        ) from error
    if files:
        _check_files(folder, {str(split): own for split, own in files.items()}, config is None)
    return loaded


def _check_files(folder: Path, files: Mapping[str, Sequence[str]], has_all: bool) -> None:
    """Log which files of a folder are one split, and which are not read, if the splits should have all.

    Raises:
        InputError: the name of a file says that it is of another split.
    """
    inside = folder.resolve()  # as the library names files
    read = {split: [os.path.relpath(file, inside) for file in own] for split, own in files.items()}
    for split, names in read.items():
        for name in names if len(names) > 1 else ():
            said = {_WORDS[word] for word in re.split(r"[\W\d_]+", name.lower()) if word in _WORDS}
            if said and split not in said:
                raise InputError(
                    f"{folder}: {name} would be read as a part of the split {split}: call the files "
                    "train.csv, validation.csv and test.csv, or give them one by one"
                )
        if len(names) > 1:
            logger.info(f"{folder}: the split {split} has {len(names):,} files: {_join(names)}")
    tables = {
        name
        for file in inside.rglob("*")
        if format_of(name := os.path.relpath(file, inside)) and not re.search(r"(^|/)(\.|dataset_info)", name)
    }
    if has_all and (unread := sorted(tables.difference(*read.values()))):
        logger.warning(f"{folder}: not read: {_join(unread)}")


def _join(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + " ..." * (len(names) > 5)
