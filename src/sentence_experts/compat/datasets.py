"""Uses of datasets that its documentation does not promise, or that raise errors of any class."""

from __future__ import annotations

from datasets import Dataset, DatasetDict, load_dataset

from sentence_experts.errors import InputError


def dataset_fingerprint(dataset: Dataset) -> str:
    """Return the hash of a dataset's content and history, under which the library caches its results."""
    return str(dataset._fingerprint)


def load_splits(name: str, config: str | None) -> DatasetDict:
    """Return all splits of a hub dataset, or of a local folder of one."""
    try:
        return load_dataset(name, config)
    except Exception as error:  # any error of the loaders and the network
        reason = str(error).strip().split("\n")[0]
        raise InputError(
            f"hub dataset {name!r} cannot be loaded ({type(error).__name__}: {reason}); check its name "
            "and config and the connection to the hub, or give a folder or file that was downloaded before"
        ) from error
