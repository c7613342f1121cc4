"""Uses of datasets that its documentation does not promise, or that raise errors of any class."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from datasets import Dataset, DatasetDict, load_dataset_builder, load_from_disk

from sentence_experts.errors import InputError

_SAVED = ("dataset_dict.json", "state.json")  # in folders that `save_to_disk` wrote
# Words in names of files, folders and splits, and the splits that they may mean.
_WORDS = {
    **{word: {"train"} for word in ("train", "training")},
    **{word: {"validation"} for word in ("validation", "valid", "val", "dev", "devel", "development")},
    **{word: {"test"} for word in ("test", "testing")},
    **{word: {"validation", "test"} for word in ("eval", "evaluation")},
}

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
    is_saved = (folder / _SAVED[0]).is_file() or all(
        (folder / file).is_file() for file in (_SAVED[1], "dataset_info.json")
    )
    if is_saved and config is not None:
        raise InputError(f"{name} was written by `save_to_disk`, and has no subset {config!r}")
    try:
        if is_saved:  # `load_dataset` would guess the splits from names of files
            saved = load_from_disk(name)
            return saved if isinstance(saved, DatasetDict) else DatasetDict({"train": saved})
        builder = load_dataset_builder(name, config)
        if folder.is_dir() and (files := builder.config.data_files):
            inside = folder.resolve()  # as the library names files
            read = {
                str(split): [os.path.relpath(file, inside) for file in own] for split, own in files.items()
            }
            _check_files(name, read)
            if config is None:
                _name_unread(name, inside, set().union(*read.values()))
        builder.download_and_prepare()
        return builder.as_dataset()
    except InputError:
        raise
    except Exception as error:  # any error of the loaders and the network
        reason = str(error).strip().split("\n")[0]
        raise InputError(
            f"hub dataset {name!r} cannot be loaded ({type(error).__name__}: {reason}); check its name "
            "and config and the connection to the hub, or give a folder or file that was downloaded before"
        ) from error


def _check_files(where: str, files: Mapping[str, Sequence[str]]) -> None:
    """Log of which files each split of a folder is; the library chooses them by their names.

    Raises:
        InputError: a file is in two splits, or its name says that it is of another split.
    """
    advice = "call the files train.csv, validation.csv and test.csv, or give them one by one"
    split_of: dict[str, str] = {}
    for split, names in files.items():
        for name in names:
            if name in split_of:
                raise InputError(
                    f"{where}: {name} would be in the splits {split_of[name]} and {split}: {advice}"
                )
            split_of[name] = split
            said, meant = _read_split(Path(name)), _find_splits(split)
            if said and meant and not said & meant:
                raise InputError(f"{where}: {name} would be a part of the split {split}: {advice}")
        if len(names) > 1:
            logger.info(f"{where}: the split {split} has {len(names):,} files: {_join(names)}")


def _read_split(path: Path) -> set[str]:
    """Return the splits of which a file may be, by its own name if that is one, or by its folders' too."""
    stem = path.name.split(".")[0]
    own = _WORDS.get(re.sub(r"[\W\d_]+(of[\W\d_]+)?$", "", stem).lower())
    return own or _find_splits(str(path))


def _find_splits(name: str) -> set[str]:
    """Return the splits that the words of a name may mean, such as "test" of "TestSet"."""
    words = re.split(r"[\W\d_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())
    stems = [re.sub(r"(?<=.)(set|data|split)$", "", word) for word in words]
    return set().union(*(_WORDS[stem] for stem in stems if stem in _WORDS))


def _name_unread(where: str, folder: Path, read: Collection[str]) -> None:
    """Log which files of a folder, of the kinds that are read, are in no split."""
    kinds = {Path(name).suffix for name in read}
    unread = []
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = (os.path.relpath(Path(parent, name), folder) for name in files if name not in _SAVED)
        unread += [path for path in paths if Path(path).suffix in kinds and path not in read]
    if unread:
        logger.warning(f"{where}: not read: {_join(sorted(unread))}")


def _join(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + " ..." * (len(names) > 5)
