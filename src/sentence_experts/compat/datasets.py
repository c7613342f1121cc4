"""Uses of datasets that its documentation does not promise, or that raise errors of any class."""

from __future__ import annotations

import logging
import os
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from datasets import Dataset, DatasetBuilder, DatasetDict, DatasetInfo, load_dataset_builder, load_from_disk
from datasets.load import dataset_module_factory

from sentence_experts.errors import InputError
from sentence_experts.storage import temporary_folder
from sentence_experts.table_files import format_of
from sentence_experts.tables import read_columns, read_table

_SAVED = ("dataset_dict.json", "state.json")  # in folders that `save_to_disk` wrote
_NO_TABLES = {*_SAVED, "dataset_info.json", "dataset_infos.json", "config.json"}
# Words in names of files, folders and splits, and the splits that they may mean.
_WORDS = {
    **{word: {"train"} for word in ("train", "training")},
    **{word: {"validation"} for word in ("validation", "valid", "val", "dev", "devel", "validate")},
    **{word: {"test"} for word in ("test", "tests", "testing")},
    **{word: {"validation", "test"} for word in ("eval", "evals", "evaluation", "heldout", "holdout")},
}

# Settings of a `CsvConfig` that tell its files, and in what they end.
_OF_FILES = {"name", "version", "data_dir", "data_files", "description", "sep", "delimiter"}

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
        if folder.is_dir():
            return _load_folder(folder, name, config)
        builder = load_dataset_builder(name, config)
        builder.download_and_prepare()
        return builder.as_dataset()
    except InputError:
        raise
    except Exception as error:  # any error of the loaders and the network
        reason = f"{type(error).__name__}: {str(error).strip().split(chr(10))[0]}"
        if folder.is_dir():
            raise InputError(f"{name}: cannot be loaded as a dataset ({reason})") from error
        raise InputError(
            f"hub dataset {name!r} cannot be loaded ({reason}); check its name and config and the connection "
            "to the hub, or give a folder or file that was downloaded before"
        ) from error


def _load_folder(folder: Path, name: str, config: str | None) -> DatasetDict:
    # Its cache may have other rows: it knows files by their names and times alone.
    with temporary_folder() as cache:
        builder = load_dataset_builder(name, config, cache_dir=cache)
        if files := builder.config.data_files:
            inside = folder.resolve()  # as the library names files
            read = {
                str(split): [os.path.relpath(file, inside) for file in own] for split, own in files.items()
            }
            _check_files(name, read, is_named=_names_files(name, builder.config.name))
            if config is None:
                _name_unread(name, inside, set().union(*read.values()))
            if _is_plain(builder):
                return DatasetDict({str(split): Dataset(_read_files(own)) for split, own in files.items()})
        builder.download_and_prepare()
        loaded = builder.as_dataset(in_memory=True)
        # Each with a fingerprint by its content, not by the times of files.
        return DatasetDict({name: Dataset(each.data, DatasetInfo(features=each.features))
                            for name, each in loaded.items()})  # fmt: skip


def _is_plain(builder: DatasetBuilder) -> bool:
    """Return whether a dataset is files of CSV or TSV, with no settings in its card on how to read them."""
    config, files = builder.config, [file for own in builder.config.data_files.values() for file in own]
    usual = {name: each for name, each in vars(type(config)()).items() if name not in _OF_FILES}
    return (
        type(config).__name__ == "CsvConfig"
        and builder.info.features is None
        and config.sep in (",", "\t")
        and all(getattr(config, name) == each for name, each in usual.items())
        and all(format_of(file) in ("csv", "tsv") and os.path.isfile(file) for file in files)
    )


def _read_files(files: Sequence[str]) -> pa.Table:
    """Read CSV or TSV as single files are read: the library takes "007" for 7, and a quote swallows rows."""
    tables = [read_table(file, read_columns(file)) for file in files]
    return pa.concat_tables(tables, promote_options="default")


def _names_files(folder: str, config: str) -> bool:
    """Return whether the card of a folder names the files of a subset (`data_files`)."""
    parameters = dataset_module_factory(folder).builder_configs_parameters
    return "data_files" in (parameters.metadata_configs or {}).get(config, {})


def _check_files(where: str, files: Mapping[str, Sequence[str]], is_named: bool) -> None:
    """Log which files each split of a folder has.

    Raises:
        InputError: a file is for training and for evaluation; or it is read twice or its name says that it is
            of another split, and no card names it.
    """
    if sum(map(len, files.values())) > 1:
        listed = (f"{split} ({len(names):,}): {_join(names)}" for split, names in files.items())
        logger.info(f"{where}: the files of each split: {'; '.join(listed)}")
    advice = (
        "call the files train.csv, validation.csv and test.csv, name them in README.md (data_files), or give "
        "them one by one"
    )
    splits_of = defaultdict[str, list[str]](list)
    for split, names in files.items():
        for name in names:
            splits_of[name].append(split)
    for name, splits in splits_of.items():
        meant, every = [_find_splits(split) for split in splits], " and ".join(dict.fromkeys(splits))
        is_twice = len(splits) > 1
        of_train = any("train" in each for each in meant)
        if is_named and len(set(splits)) > 1 and of_train and any(each - {"train"} for each in meant):
            raise InputError(f"{where}: README.md names {name} for {every}, which would share its rows")
        if is_named and is_twice:
            logger.warning(f"{where}: README.md names {name} {len(splits)} times, for {every}")
        if is_twice and not is_named:
            raise InputError(f"{where}: {name} would be read twice, for {every}: {advice}")
        said = _read_split(name)
        if not is_named and said and meant[0] and not said & meant[0]:
            raise InputError(f"{where}: {name} would be a part of the split {every}: {advice}")


def _read_split(name: str) -> set[str]:
    """Return the splits of which a file may be, by its own name, or else by its folders' names."""
    parts = (_find_splits(part) for part in reversed(Path(name).parts))
    return next(filter(None, parts), set())


def _find_splits(name: str) -> set[str]:
    """Return the splits that the words of a name may mean, such as "test" of "TestSet"."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    words = re.split(r"[\W\d_]+", apart.lower())
    stems = [re.sub(r"(?<=.)(set|data|split)$", "", word) for word in words]
    return set().union(*(_WORDS[stem] for stem in stems if stem in _WORDS))


def _name_unread(where: str, folder: Path, read: Collection[str]) -> None:
    """Log which tables of a folder are in no split."""
    kinds = {Path(name).suffix for name in read}
    unread = []
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__"))]
        for name in files:
            path = os.path.relpath(Path(parent, name), folder)
            # A .txt is a licence, or a note, where no others are read.
            is_table = Path(name).suffix in kinds or format_of(name) not in (None, "lines")
            if is_table and not (name in _NO_TABLES or name.startswith(".") or path in read):
                unread.append(path)
    if unread:
        logger.warning(f"{where}: not read: {_join(sorted(unread))}")


def _join(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + " ..." * (len(names) > 5)
