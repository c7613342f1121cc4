"""`OnnxEncoder`: a model that `export` wrote as an ONNX graph, on ONNX Runtime and without torch.

The graph reads the route from a text's tokens, so that a batch may mix routes. Beside it, graph.json has
prompts, lengths, and the fingerprint of each route, under which vectors are stored; it is the one of the
exported model, which gives the same vectors.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.errors import InputError, RouteError, UsageError, brief, require
from sentence_experts.models.batching import ParallelCpuEncoder
from sentence_experts.models.pooling import settings_of, warn_of_length
from sentence_experts.models.routes.known_routes import KnownRoutes, start_of
from sentence_experts.models.sources import (
    GRAPH_FILE,
    NAME,
    ModelOrigin,
    file_states,
    files_of,
    minilm_path,
    read_graph,
    source_name,
)
from sentence_experts.storage import RECORD, sha256_file, sha256_settings, sha256_text

if TYPE_CHECKING:
    from sentence_experts.models.loading import LoadConfig

MODEL_FILE, TOKENIZER_FILE, HEADS_FILE = "model.onnx", "tokenizer.json", "heads.npz"
VECTOR, POOLED = "sentence_embedding", "pooled_embedding"  # outputs of the graph; the latter is before heads
_DECISIVE = (MODEL_FILE, TOKENIZER_FILE, HEADS_FILE, GRAPH_FILE)  # and model.onnx.data
HEAD = ("weight", "bias")  # arrays of a head in the file, after the head's number
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
MINILM = Path(__file__).parent / "minilm"  # graph of minilm without weights (`scripts/write_minilm_graph.py`)
# Fusions of ONNX Runtime that take longer than what they replace: 12% and 2% of the time of MiniLM.
SLOWER = ["SkipLayerNormFusion", "BiasGeluFusion"]
_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
_FITTING = frozenset({"max_length", "device", "dtype", "packed", "trust_remote_code"})  # settings of `load`
_FIXED = ("max_seq_length", "truncate_dim")  # attributes that a graph cannot follow


class GraphTokenizer:
    """The tokenizer of a graph, called as one of transformers is; it never changes, so threads may share it.

    `cutting` cuts texts at the model's length; its copy `backend` reads them whole, and is made when needed.
    """

    is_fast = True

    def __init__(self, file: Path, max_length: int | None) -> None:
        require("tokenizers", "run")
        from tokenizers import Tokenizer

        try:
            self.cutting = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises nothing more specific
            raise InputError(f"{file}: no tokenizer ({brief(error)}); export the model again") from error
        self.pad_token_id = (self.cutting.padding or {}).get("pad_id", 0)
        direction = (self.cutting.truncation or {}).get("direction", "right")
        self.cutting.no_padding()
        self.cutting.no_truncation()
        if max_length is not None:
            self.cutting.enable_truncation(max_length, direction=direction)

    @cached_property
    def backend(self) -> Any:
        """The tokenizer without a limit of length."""
        whole = type(self.cutting).from_str(self.cutting.to_str())
        whole.no_truncation()
        return whole

    def __call__(
        self, texts: str | Sequence[str], add_special_tokens: bool = True, **_: Any
    ) -> dict[str, Any]:
        """Tokenize a text, or several, without cutting them: `input_ids` and `offset_mapping`."""
        if isinstance(texts, str):
            row = self.backend.encode(texts, add_special_tokens=add_special_tokens)
            return {"input_ids": row.ids, "offset_mapping": row.offsets}
        rows = self.backend.encode_batch(list(texts), add_special_tokens=add_special_tokens)
        return {"input_ids": [row.ids for row in rows], "offset_mapping": [row.offsets for row in rows]}

    @property
    def added_tokens_decoder(self) -> Mapping[int, Any]:
        """Added tokens by their ids."""
        added: Mapping[int, Any] = self.cutting.get_added_tokens_decoder()
        return added

    def convert_ids_to_tokens(self, number: int) -> str | None:
        """Return the token of an id."""
        token: str | None = self.cutting.id_to_token(number)
        return token

    def num_special_tokens_to_add(self) -> int:
        """Return the number of tokens of an empty text."""
        return int(self.cutting.num_special_tokens_to_add(False))


class _NotInGraphError(UsageError, AttributeError):
    """An error of a function that changes or trains a model and was given a graph."""


class OnnxEncoder:
    """An exported model: `encode` as `ExpertEncoder.encode`, on ONNX Runtime.

    Attributes:
        prompts, default_prompt_name, max_seq_length, tokenizer: attributes as of a `SentenceTransformer`.
        config: facts of the exported model: experts, heads, search_routes, model_type.
        pooling: kind of pooling of the token vectors.
        head_routes: heads, route -> (weight, bias), as in `ExpertEncoder.head_routes`.

    Example:
        >>> from sentence_experts import export, load
        >>> folder = export("model", "graph", format="onnx").out
        >>> load(folder).encode(["One text."], route="genomics").shape
        (1, 32)
    """

    tokens_per_batch = (384, 512)  # larger batches leave the processor's cache
    padded = True
    truncate_dim = None
    dtype = "torch.float32"  # precision of the arithmetic; vectors are stored under it
    device = SimpleNamespace(type="cpu")

    def __init__(self, folder: Path, max_length: int | None = None, weights: Path | None = None) -> None:
        """Open the graph in a folder; its weights and tokenizer may be in another one."""
        self.record = read_graph(folder / GRAPH_FILE)
        read = [each for each in (self.record["max_length"], max_length) if each is not None]
        vars(self)["max_seq_length"] = min(read, default=None)
        self.tokenizer = GraphTokenizer((weights or folder) / TOKENIZER_FILE, self.max_seq_length)
        if max_length is not None and max_length <= (special := self.tokenizer.num_special_tokens_to_add()):
            raise UsageError(
                f"`max_length={max_length}`: no room for text beside the {special} tokens of the model"
            )
        self.prompts = dict(KnownRoutes.of_graph("", self.record).prompts)
        self._own_prompts = dict(self.prompts)
        self.default_prompt_name: str | None = self.record.get("default_prompt_name")
        self.config = SimpleNamespace(**self.record.get("config", {}))
        self.pooling: str | None = self.record.get("pooling")
        self._folder, self._weights, self._output = folder, weights, VECTOR
        self._files = {
            name: state for name, state in file_states(str(folder)).items() if _is_read(Path(name))
        }
        self._changed = ""
        if weights is None and not (folder / RECORD).is_file():  # which says that the files are as exported
            self._changed = sha256_text(*map(sha256_file, filter(_is_read, files_of(folder))))
        self.head_routes = _read_heads(folder / HEADS_FILE, getattr(self.config, "heads", ()))
        self._session = _open_session(folder / MODEL_FILE, weights)
        self._inputs = [each.name for each in self._session.get_inputs()]
        outputs = {each.name for each in self._session.get_outputs()}
        if not set(self._inputs) <= set(INPUTS) or VECTOR not in outputs:
            raise InputError(
                f"{folder / MODEL_FILE}: a graph of {', '.join(self._inputs)} to "
                f"{', '.join(sorted(outputs))}, not of {', '.join(INPUTS)} to {VECTOR}: export it again"
            )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise _NotInGraphError(
            f"{self._folder} is an ONNX graph, which only encodes: give the model that it was exported from"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED:
            raise UsageError(f"`{name}` of an ONNX graph cannot change; `load` cuts texts at `max_length`")
        super().__setattr__(name, value)

    def __getitem__(self, place: int) -> Any:
        return self.modules  # the error above

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the call that opens the graph again: a session can be neither pickled nor copied."""
        state = {name: value for name, value in vars(self).items() if name not in ("_session", "tokenizer")}
        return OnnxEncoder, (self._folder, self.max_seq_length, self._weights), state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state.get("_files", self._files) != self._files:
            raise InputError(f"{self._folder} has changed since the graph was opened: load it again")
        vars(self).update(state)

    def with_settings(self, config: LoadConfig) -> OnnxEncoder:
        """Return this model, or one that reads fewer tokens of a text.

        Raises:
            UsageError: a graph cannot follow another of the settings.
        """
        _check_settings(str(self._folder), config)
        warn_of_length(config.max_length, self.max_seq_length)
        if config.max_length is None or config.max_length >= (self.max_seq_length or math.inf):
            return self
        shorter = OnnxEncoder(self._folder, config.max_length, self._weights)
        kept = ("prompts", "default_prompt_name", "_own_prompts", "_output", "_files")
        shorter.__setstate__({name: copy.copy(vars(self)[name]) for name in kept})
        ModelOrigin.of(self).set(shorter)
        return shorter

    @property
    def cores(self) -> int:
        """Number of batches side by side: the cores that this process may use."""
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    @contextmanager
    def one_core_each(self) -> Iterator[Callable[[], None]]:
        """Yield a function that does nothing: a session computes in the thread that calls it."""
        yield lambda: None

    def get_embedding_dimension(self) -> int:
        """Return the length of a vector."""
        return int(self.record["dimension"])

    def route_fingerprint(self, route: str | None = None) -> str:
        """Return the hash of everything that decides a route's or all vectors: the exported model's.

        It is another one where the prompts have changed since the graph was opened.
        """
        fingerprints = self.record["fingerprints" if self._output == VECTOR else "pooled_fingerprints"]
        known = str(fingerprints.get(route or "", fingerprints[""]))
        known = sha256_text(known, self._changed) if self._changed else known
        prompts, own = (
            each if route is None else {route: each.get(route)} for each in (self.prompts, self._own_prompts)
        )
        return known if prompts == own else sha256_text(known, sha256_settings(prompts))

    @property
    def scales_after_pooling(self) -> bool:
        """Whether nothing comes after the pooling and the heads but a scaling to length 1."""
        return bool(self.record.get("scales_after_pooling"))

    def without_heads(self) -> OnnxEncoder:
        """Return this model as it pools texts, before heads and the modules after the pooling."""
        pooled = object.__new__(OnnxEncoder)
        vars(pooled).update(vars(self), _output=POOLED)
        return pooled

    def with_own_tokenizer(self) -> OnnxEncoder:
        """Return this model: threads may share its tokenizer."""
        return self

    def encode(
        self,
        inputs: str | Sequence[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        *,
        route: str | None = None,
        normalize_embeddings: bool = False,
    ) -> NDArray[np.float32]:
        """Encode texts as `ExpertEncoder.encode` does; a route is a prompt or the beginning of a text.

        Args:
            inputs: text, or several texts.
            prompt_name, route: name of the route.
            prompt: text to put in front of the texts instead.
            batch_size, show_progress_bar: settings without effect; batches are cut by tokens, without a bar.
            normalize_embeddings: whether to scale vectors to length 1.

        Returns:
            (dimensions,) for one text, else (texts, dimensions).

        Raises:
            RouteError: the route is not known, or a text has none.
            UsageError: an input is not a text.
        """
        name = route if route is not None else prompt_name
        if name is not None and name not in self.prompts:
            known = ", ".join(self.prompts) or "none"
            raise RouteError(f"no route is named {name!r}; known routes: {known}")
        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        if wrong := [each for each in texts if not isinstance(each, str)]:
            raise UsageError(f"`inputs`: a graph encodes texts, not {type(wrong[0]).__name__}")
        lead = prompt if prompt is not None else self.prompts.get(name or "", "")
        if prompt is None and name is None and self.default_prompt_name is not None:
            default = self.prompts[self.default_prompt_name]
            texts = [text if self._begins_with_route(text) else default + text for text in texts]
        if not texts:
            return np.zeros((0, self.get_embedding_dimension()), np.float32)
        vectors = ParallelCpuEncoder(self).encode(texts, lead, normalize_embeddings)
        return vectors[0] if isinstance(inputs, str) else vectors

    def _begins_with_route(self, text: str) -> bool:
        """Return whether a text names its route, as `ExpertEncoder` reads it; never for a dense model."""
        routes = self.record.get("route_tokens", ())
        longest = max(map(len, self._own_prompts.values()), default=0)
        ids = self.tokenizer(start_of(text, longest + 1))["input_ids"] if routes else []
        return any(ids[: len(route)] == route for route in routes)

    def tokenize(
        self, texts: Sequence[str], prompt: str
    ) -> tuple[list[NDArray[np.int64]], list[int], list[int] | None]:
        """Return the token ids of each text behind the prompt, and their number; no expert to group by."""
        encoded = self.tokenizer.cutting.encode_batch([prompt + text for text in texts])
        rows = [np.array(each.ids, np.int64) for each in encoded]
        return rows, [len(row) for row in rows], None

    def encode_rows(self, rows: Sequence[NDArray[np.int64]], normalize: bool) -> NDArray[np.float32]:
        """Return vectors of tokenized texts in one batch."""
        width = max(map(len, rows))
        values = {name: np.zeros((len(rows), width), np.int64) for name in INPUTS}
        values["input_ids"] += self.tokenizer.pad_token_id
        for number, row in enumerate(rows):
            values["input_ids"][number, : len(row)] = row
            values["attention_mask"][number, : len(row)] = 1
        vectors: NDArray[np.float32]
        (vectors,) = self._session.run([self._output], {name: values[name] for name in self._inputs})
        if self.record.get("route_tokens") and np.isnan(vectors).any():
            routes = ", ".join(self.prompts)
            raise RouteError(f"a text begins with no known route; known routes: {routes}")
        if normalize:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors

    def batch_key(self, row: NDArray[np.int64]) -> Hashable:
        """Return the same key for all texts, which may share a batch."""
        return None


def _read_heads(file: Path, names: Sequence[str]) -> dict[str, Any]:
    """Read the heads: route -> (weight, bias)."""
    if not names:
        return {}
    try:
        with np.load(file) as heads:
            return {name: (heads[f"{n}.weight"], heads[f"{n}.bias"]) for n, name in enumerate(names)}
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{file}: not the heads of {', '.join(names)}; export the model again") from error


def _is_read(file: Path) -> bool:
    """Return whether a file of a graph's folder decides vectors."""
    return file.name.startswith(_DECISIVE) or file.suffix == ".data"


def _open_session(file: Path, weights: Path | None = None) -> Any:
    """Return a session that computes in the thread which calls it; several may at once."""
    runtime: Any = require("onnxruntime", "run")
    if not file.is_file():
        raise InputError(f"{file}: no such file; export the model again")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # not errors, which are raised
    graph: str | bytes = str(file)
    if weights is not None:
        options.add_session_config_entry(_WEIGHTS_FOLDER, str(weights))
        graph = file.read_bytes()
    try:
        return runtime.InferenceSession(
            graph, options, providers=["CPUExecutionProvider"], disabled_optimizers=SLOWER
        )
    except Exception as error:  # an error of any class of the library
        version = f"onnxruntime {runtime.__version__}"
        raise InputError(f"{file}: {version} does not open it; 1.20 or newer may ({brief(error)})") from error


def open_graph(place: str, config: LoadConfig) -> OnnxEncoder:
    """Open the folder of a graph, as `load` does."""
    _check_settings(place, config)
    return _name_encoder(OnnxEncoder(Path(place), config.max_length), place)


def open_minilm(config: LoadConfig) -> OnnxEncoder:
    """Open the packaged all-MiniLM-L6-v2 on ONNX Runtime, its weights as they are in the package."""
    _check_settings(NAME, config)
    place = minilm_path()
    return _name_encoder(OnnxEncoder(MINILM, config.max_length, Path(place)), place, NAME)


def _check_settings(name: str, config: LoadConfig) -> None:
    """Refuse settings that a graph cannot follow."""
    reason = f"{name} is an ONNX graph here, of float32 on the CPU, as it was exported"
    config.refuse(sorted(config.model_fields_set - _FITTING), reason)
    for setting, only in (("device", "cpu"), ("dtype", "float32")):
        if (value := getattr(config, setting)) not in (None, only):
            raise UsageError(f"`{setting}={value}` has no effect here: {reason}")


def _name_encoder(encoder: OnnxEncoder, place: str, name: str = "") -> OnnxEncoder:
    notes, settings = encoder.record.get("notes", {}), settings_of(encoder)
    settings["max_length"] = encoder.record["max_length"]
    ModelOrigin(name or source_name(place), place, notes=notes, settings=settings).set(encoder)
    return encoder
