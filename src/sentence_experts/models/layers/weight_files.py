"""A model's weights on disk: one safetensors file per expert, adapter and head, and one for the rest.

So an expert can be read, downloaded and freed alone. With transformers' own index file it is an ordinary
sharded checkpoint for stock transformers and sentence-transformers.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_experts.errors import InputError, brief
from sentence_experts.models.layers.weight_names import expert_of, owner_of
from sentence_experts.storage import (
    RECORD,
    FileState,
    check_unchanged,
    file_state,
    read_json,
    replacing,
    sha256_file,
    temporary_folder,
    write_json,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARED, PART = "model-shared.safetensors", "model-{}-{:03d}.safetensors"
EXPERT_FILES, PART_FILES = "model-expert-*.safetensors", "model-*-[0-9][0-9][0-9].safetensors"
REMEDY = "copy or download the model again, or save it once more"
MAX_NAMED = 3


def name_some(names: Iterable[str]) -> str:
    """Return the first few names, and how many more there are."""
    names = sorted(names)
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return f"{', '.join(names[:MAX_NAMED])}{more}"


def check_names(source: str | Path, missing: Iterable[str], unexpected: Iterable[str] = ()) -> None:
    """Refuse weights that are missing or unexpected."""
    faults = (("weights are missing", set(missing)), ("weights are not of this model", set(unexpected)))
    if messages := [f"{fault}: {name_some(names)}" for fault, names in faults if names]:
        raise InputError(f"{source}: {'; '.join(messages)}; {REMEDY}")


def weights_file(source: str) -> str:
    """Return the file in a folder that holds its weights, or lists their files; the id of a hub model."""
    files = [Path(source) / name for name in (WEIGHTS, INDEX)]
    return str(next((file for file in files if file.is_file()), source))


def split_by_expert(folder: Path) -> None:
    """Split a saved model's weights into one file per expert and one for the rest.

    The original file is removed last, so that the folder holds a model at any moment.
    """
    from safetensors import safe_open
    from safetensors.torch import save_file

    whole = folder / WEIGHTS
    with safe_open(whole, framework="pt") as file:
        names = defaultdict(list)
        for key in sorted(file.keys()):
            owner = owner_of(key)
            names[SHARED if owner is None else PART.format(*owner)].append(key)
        size = 0
        for name, keys in names.items():
            tensors = {key: file.get_tensor(key) for key in keys}
            size += sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
            with replacing(folder / name) as temporary:
                save_file(tensors, temporary, metadata={"format": "pt"})
    for old in folder.glob(PART_FILES):
        if old.name not in names:
            old.unlink()
    weight_map = {key: name for name, keys in names.items() for key in keys}
    write_json(folder / INDEX, {"metadata": {"total_size": size}, "weight_map": weight_map})
    whole.unlink()


@dataclass
class WeightFiles:
    """The safetensors files of a saved model.

    Attributes:
        source: folder or hub id of the model.
        options: options of a hub model (`LoadConfig.hub`).
        of_key: name of a weight -> name of its file.
        states: path -> state when the model was loaded, or the file first read.
        checked: files of experts whose hash was compared with that of the folder's record.
    """

    source: str
    options: dict[str, Any] = field(default_factory=dict)
    of_key: Mapping[str, str] = field(default_factory=dict)
    states: dict[str, FileState] = field(default_factory=dict)
    checked: set[str] = field(default_factory=set)
    record: str | None = None
    """The hash of the folder's record when the model was loaded; None without one."""

    @classmethod
    def find(cls, source: str, **options: Any) -> WeightFiles:
        """Return the files of a folder or hub id; only the index of a hub model is fetched."""
        files = cls(source, options)
        if files._find(WEIGHTS) is not None:  # transformers prefers it too, where both are there
            with files._open(WEIGHTS) as file:
                files.of_key = dict.fromkeys(file.keys(), WEIGHTS)
            return files
        index = files._find(INDEX)
        if index is None:
            raise InputError(f"{source}: no {WEIGHTS}, and only from safetensors can single experts be read")
        files.of_key = read_json(Path(index))["weight_map"]
        if Path(source).is_dir():
            found = [files._find(name) for name in set(files.of_key.values())]
            files.states = {path: file_state(path) for path in found if path}
            files.record = hash_record(source)
        return files

    @property
    def expert_names(self) -> set[str]:
        """Names of all experts' weights."""
        return {name for name in self.of_key if expert_of(name) is not None}

    def read(self, keys: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights with these names, one at a time; of a file of all weights, no others are read."""
        by_file = defaultdict(list)
        for key in keys:
            if key not in self.of_key:
                raise InputError(f"{self.source}: an expert cannot be read: no weight {key}; {REMEDY}")
            by_file[self.of_key[key]].append(key)
        for name, wanted in by_file.items():
            if fnmatch(name, PART_FILES):
                part = self._read_part(name)
                self._check_part(name, wanted, part)
                yield from ((key, part[key]) for key in wanted)
                continue
            with self._open(name) as file:
                self._check_part(name, wanted, file.keys())
                for key in wanted:
                    yield key, file.get_tensor(key).clone()  # which may not stay a mapping of the file

    def _check_part(self, name: str, wanted: Sequence[str], stored: Iterable[str]) -> None:
        """Check that a file holds what is wanted, and nothing that is not listed."""
        listed = {key for key, place in self.of_key.items() if place == name}
        check_names(f"{self.source}/{name}", set(wanted) - set(stored), set(stored) - listed)

    def _read_part(self, name: str) -> dict[str, Tensor]:
        """Read a file whole, and not through a mapping, under which it could be written to or cut."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        path = self._unchanged(name)
        try:
            with open(path, "rb") as file:
                content = file.read()
                if file_state(file.fileno()) != self.states[path]:
                    raise _make_change_error(path)
            return load(content)
        except SafetensorError as error:
            raise InputError(f"{path}: an expert cannot be read ({brief(error)}); {REMEDY}") from error
        except OSError as error:  # it went since it was looked at
            raise _make_change_error(path) from error

    def _find(self, name: str) -> str | None:
        """Return the path of a file, which is fetched from the hub if it must be; None if there is none."""
        from sentence_transformers.util import load_file_path

        path: str | None = load_file_path(self.source, name, **self.options)
        return path

    @contextmanager
    def _open(self, name: str) -> Iterator[Any]:
        from safetensors import SafetensorError, safe_open

        path = self._unchanged(name)
        try:
            with safe_open(path, framework="pt") as file:
                if file_state(path) != self.states[path]:  # another file took its place meanwhile
                    raise _make_change_error(path)
                yield file
        except SafetensorError as error:
            raise InputError(f"{path}: an expert cannot be read ({brief(error)}); {REMEDY}") from error
        except OSError as error:  # it went since it was looked at
            raise _make_change_error(path) from error
        except RuntimeError as error:  # of torch, which opens the file by its path once more
            with suppress(OSError):
                if file_state(path) == self.states[path]:
                    raise
            raise _make_change_error(path) from error

    def _unchanged(self, name: str) -> str:
        path = self._find(name)
        try:
            state = None if path is None else file_state(path)
        except OSError:
            state = None
        if path is None or state is None or self.states.setdefault(path, state) != state:
            raise _make_change_error(path or name)
        # Loading leaves the experts' files alone, so each is checked when it is read first.
        if (
            name not in self.checked
            and fnmatch(name, EXPERT_FILES)
            and (folder := Path(self.source)).is_dir()
        ):
            check_unchanged(folder, only=name)
            if hash_record(self.source) != self.record:  # of another model, half of which may be here
                raise _make_change_error(str(folder / RECORD))
            self.checked.add(name)
        return path


def hash_record(folder: str) -> str | None:
    """Return the hash of a folder's record; None without one."""
    record = Path(folder, RECORD)
    return sha256_file(record) if record.is_file() else None


def _make_change_error(path: str) -> InputError:
    return InputError(f"{path}: changed since the model was loaded; load it again")


@contextmanager
def shared_part(source: str, **options: Any) -> Iterator[str]:
    """Yield a folder with everything of a model but its experts' weights, to load it without them.

    A hub model's expert files are not downloaded; a local model may lack them.

    Yields:
        The folder itself if it has all files, or all weights in one file.
    """
    folder = Path(source) if Path(source).is_dir() else _fetch(source, **options)
    index = folder / INDEX
    of_key = read_json(index)["weight_map"] if index.is_file() else {}
    if all((folder / name).is_file() for name in set(of_key.values())):
        yield str(folder)
        return
    needed = {key: name for key, name in of_key.items() if expert_of(key) is None}
    for name in sorted(set(needed.values())):
        if not (folder / name).is_file():
            raise InputError(f"{source}: {name} is missing")
    with temporary_folder() as temporary:
        for entry in folder.iterdir():
            if entry.name not in (*(set(of_key.values()) - set(needed.values())), INDEX):
                _link(entry, Path(temporary) / entry.name)
        write_json(Path(temporary) / INDEX, {"metadata": {}, "weight_map": needed})
        yield temporary


def _fetch(source: str, **options: Any) -> Path:
    """Return a hub model's files without its experts' files."""
    from huggingface_hub import snapshot_download

    patterns = [EXPERT_FILES, "*.bin", "onnx/*", "openvino/*"]
    return Path(snapshot_download(source, ignore_patterns=patterns, **options))


def _link(entry: Path, place: Path) -> None:
    try:
        place.symlink_to(entry.resolve(), target_is_directory=entry.is_dir())
    except OSError:  # a system without links
        (shutil.copytree if entry.is_dir() else shutil.copy2)(entry, place)


def read_arrays(file: Path, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a small safetensors file of this package."""
    import numpy as np
    from safetensors.numpy import load_file

    try:
        arrays: dict[str, NDArray[Any]] = load_file(file)
    except Exception as error:  # a broken file can make the library raise any error
        raise InputError(f"{file}: cannot be read ({brief(error)}); {REMEDY}") from error
    check_names(file, set(names) - set(arrays), set(arrays) - set(names))
    if broken := {name for name, array in arrays.items() if not np.isfinite(array).all()}:
        raise InputError(f"{file}: {name_some(broken)} holds numbers that are not finite; {REMEDY}")
    return arrays
