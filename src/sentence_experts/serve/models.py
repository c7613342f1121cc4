"""The served models: their routes, their encoders, and their replacement while requests run."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sentence_experts.encoding.encoder import BatchEncoder, check_own_vectors, runtime_of
from sentence_experts.errors import InputError, RouteError, SentenceExpertsError, UsageError, brief
from sentence_experts.models.loading import LIMITS, LoadConfig
from sentence_experts.models.onnx_encoder import OnnxEncoder
from sentence_experts.models.routes.known_routes import KnownRoutes
from sentence_experts.models.routes.task_types import DOCUMENT, QUERY, fold_name
from sentence_experts.models.sources import name_of, source_name
from sentence_experts.retrieval.search_routes import parse_weights
from sentence_experts.serve.errors import RequestError
from sentence_experts.serve.text_encoders import MixedEncoder, RouteEncoder
from sentence_experts.storage import file_state, have_writers_wait

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.getLogger(__name__)

# The same purpose under the names of several protocols, in lower case with underscores.
ALIASES = {
    "search_query": "query",
    "retrieval_query": "query",
    "search_document": "document",
    "retrieval_document": "document",
    "retrieval_passage": "document",
    "passage": "document",
}
# Purposes that protocols must name for every text; a model without routes has no use for them.
PURPOSES = {*ALIASES, *ALIASES.values(), "classification", "clustering"}
_ATTEMPTS, _PAUSE = 10, 0.3  # at a folder that changes meanwhile; seconds between them
WATCH_SECONDS = 2.0  # time between checks of the folders; a changed one must be the same in two checks


class ServedModel:
    """A model in memory that answers requests.

    Attributes:
        name: name in requests.
        model: model in memory.
        encoder: wrapper that names the model's parts, and its routes.
        tokenizer: tokenizer that counts and shows tokens; the text encoder's cuts and pads.
        created: time of loading, in seconds since 1970.
        normalizes: whether a model with shorter vectors gives whole ones of length 1.
    """

    def __init__(self, name: str, model: SentenceTransformer | OnnxEncoder) -> None:
        self.name, self.model, self.created = name, model, int(time.time())
        self.encoder = BatchEncoder(model, name=name)
        check_own_vectors(self.encoder)
        self.tokenizer = getattr(model, "tokenizer", None)
        if not isinstance(model, OnnxEncoder):
            from sentence_experts.compat.tokenizers import copy_untruncated

            self.tokenizer = copy_untruncated(self.tokenizer)
        self.runtime = runtime_of(model, model.device.type)
        self.text_encoder: MixedEncoder | RouteEncoder
        if self.runtime is not None:
            cuts_end = getattr(self.tokenizer, "truncation_side", "right") == "right"
            self.text_encoder = MixedEncoder(self.runtime, self.max_length if cuts_end else None)
        else:  # with a tokenizer that the search, which cuts passages by the model's, does not change
            self.text_encoder = RouteEncoder(BatchEncoder(self.beside(), name=name))
        self.dimension = self.encoder.dimension
        self.known = self.encoder.known_routes
        for prompt in self.known.prompts.values():
            self.encoder.check_room(prompt)
        self.normalizes = self.shorter != frozenset() and self._gives_unit_vectors()

    @cached_property
    def shorter(self) -> frozenset[int] | None:
        """Lengths of the shorter vectors that the model was trained for (Matryoshka); None for any length."""
        config = self.encoder.config
        if lengths := getattr(config, "matryoshka_dimensions", None):
            return frozenset(int(each) for each in lengths)
        return None if getattr(config, "is_matryoshka", False) else frozenset()

    def _gives_unit_vectors(self) -> bool:
        texts, route = ["a text", "other words than those"], next(iter(self.known.prompts), None)
        lengths = np.linalg.norm(self.encoder.encode(texts, route), axis=1)
        return bool(np.isclose(lengths, 1, atol=0.01).all())  # as exact as bfloat16 is

    def beside(self) -> Any:
        """Return the model with another tokenizer, for use beside the server's batches."""
        if isinstance(self.model, OnnxEncoder):
            return self.model
        from sentence_experts.compat.sentence_transformers import share_all_but_tokenizer

        return share_all_but_tokenizer(self.model)

    @property
    def max_length(self) -> int | None:
        """Number of tokens that the model reads of a text."""
        return self.model.max_seq_length

    def find_route(self, requested: str, field: str) -> str | None:
        """Return the model's name of a route; None where it has no prompt, or the model no use for it."""
        known = self.known.prompts
        if requested in known:
            return requested
        if "=" in requested and known:
            return self._check_blend(requested, field)
        # "geno-" may be a taught route of another profile: only words for a purpose mean other names.
        meant = purpose_of(requested) if is_purpose(requested) else ""
        same = [
            name
            for name in known
            if (meant and purpose_of(name) == meant) or name.casefold() == requested.casefold()
        ]
        if len(same) == 1:
            return same[0]
        if self.known.bare_queries and meant == DOCUMENT:
            return None
        if len(self.known.bare_queries) == 1 and meant == QUERY and not same:
            return self.known.bare_queries[0]
        if not known and field.startswith("input_type") and is_purpose(requested):
            return None
        try:
            return self.known.choose(requested)
        except RouteError as error:
            raise RequestError(422, str(error), field) from None

    def _check_blend(self, requested: str, field: str) -> str:
        """Return a blend of routes, such as "use=0.7,works-with=0.3", if the model has all of them."""
        try:
            for name in parse_weights(requested):
                self.known.choose(name)
        except (UsageError, RouteError) as error:
            raise RequestError(422, str(error).removeprefix("`route`: "), field) from None
        return requested

    def default_route(self, field: str) -> str | None:
        """Return the route of texts for which the request names none."""
        known = self.known
        try:
            return known.choose(None)
        except RouteError as error:
            first = next(iter(known.prompts))
            how = f'{error}; send "route": "{first}" or "model": "{self.name}:{first}"'
            raise RequestError(422, how, field) from None

    def prompt(self, route: str | None) -> str | None:
        """Return the prompt in front of the texts of a route."""
        if isinstance(self.text_encoder, RouteEncoder):
            return route
        return self.known.prompts[route] if route else ""


def is_purpose(name: str) -> bool:
    """Return whether a name is a purpose that protocols have for texts."""
    return fold_name(name) in PURPOSES


def purpose_of(name: str) -> str:
    """Return the purpose that a name means, such as "query"; the name itself for any other."""
    return ALIASES.get(fold_name(name), fold_name(name))


@dataclass
class _Source:
    """The source of a model, and the state of its files when it was loaded and last looked at."""

    place: str | SentenceTransformer
    loaded: Any = None
    seen: Any = None


class Models:
    """The served models by name; each can be replaced at any time.

    A request keeps the model that it began with, so nothing fails while another one takes the name.
    """

    def __init__(self, sources: Mapping[str, str | SentenceTransformer], config: LoadConfig) -> None:
        """Load all models."""
        self._config = config
        self._sources = {name: _Source(place) for name, place in sources.items()}
        self._locks = {name: asyncio.Lock() for name in sources}
        self._by_name = {name: self._load(source, name) for name, source in self._sources.items()}

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all models."""
        return tuple(self._by_name)

    def get(self, name: str) -> ServedModel | None:
        """Return the model of this name now."""
        return self._by_name.get(name)

    def source(self, name: str) -> str | None:
        """Return the name that a model was opened by; None for a folder, which is not told."""
        place = self._sources[name].place
        return place if isinstance(place, str) and not Path(place).exists() else None

    @property
    def first(self) -> ServedModel:
        """The model that answers where a request names none."""
        return next(iter(self))

    async def reload(self, names: Sequence[str] | None = None) -> None:
        """Load models again from their folders; one that cannot be loaded stays as it is."""
        for name in self.names if names is None else names:
            if not isinstance((source := self._sources[name]).place, str):
                continue
            async with self._locks[name]:
                try:
                    self._by_name[name] = await asyncio.to_thread(self._load, source, name)
                    logger.info(f"{name}: loaded again")
                except Exception as error:
                    text = str(error) if isinstance(error, SentenceExpertsError) else brief(error)
                    logger.warning(f"{name}: not loaded again, the model before it stays: {text}")

    async def replaced(self, served: ServedModel) -> ServedModel | None:
        """Return the successor of a model, loaded now if the folder has changed; None if there is none."""
        source = self._sources[served.name]
        async with self._locks[served.name]:
            pass  # the folder may be on its way
        if self.get(served.name) is served and await _wait_for_rest(source.place) != source.loaded:
            await self.reload([served.name])
        newer = self.get(served.name)
        return None if newer is served else newer

    async def watch(self) -> None:
        """Load each model again whose folder is replaced, for as long as the server runs."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            for name, source in self._sources.items():
                state = await asyncio.to_thread(_state_of, source.place)
                if state is not None and state != source.loaded and state == source.seen:
                    await self.reload([name])
                source.seen = state

    def _load(self, source: _Source, name: str) -> ServedModel:
        for _ in range(_ATTEMPTS):
            source.loaded = _state_of(source.place)
            try:
                model = self._load_once(source.place, name)
                if _state_of(source.place) == source.loaded:
                    return model
                del model  # its weights may be those of two models
            except InputError:
                if _state_of(source.place) == source.loaded:
                    raise
            gc.collect()  # its parts refer to each other
            logger.warning(f"{name}: {source.place} changed while it was loaded")
            time.sleep(_PAUSE)
        raise InputError(f"{source.place}: changed whenever it was loaded; wait until it is written")

    def _load_once(self, place: str | SentenceTransformer, name: str) -> ServedModel:
        config = self._config
        if not isinstance(place, str):
            return ServedModel(name, BatchEncoder.open(place, config).model)
        if Path(place).is_dir():
            # A link may lead elsewhere and back meanwhile; experts that are read later are here too.
            place = os.path.realpath(place)
        if config.partial and (known := KnownRoutes.read(place)) is not None and not known.experts:
            given = config.model_dump(exclude_unset=True)
            config = LoadConfig.of({name: value for name, value in given.items() if name not in LIMITS})
        # The weights must not stay a mapping of the file, which may be overwritten in place.
        with have_writers_wait(_weights_in(Path(place))):
            model = BatchEncoder.open(place, config).model
            if Path(place).is_dir() and not isinstance(model, OnnxEncoder):
                for weight in (*model.parameters(), *model.buffers()):
                    weight.data = weight.data.clone()
        return ServedModel(name, model)


def _weights_in(folder: Path) -> list[Path]:
    try:
        return [*folder.glob("*.safetensors"), *folder.glob("*/*.safetensors")]
    except OSError:
        return []


async def _wait_for_rest(place: Any) -> Any:
    """Return the state of a folder that is not written to just now; of one that is for long, the last."""
    state, newer = None, _state_of(place)
    for _ in range(_ATTEMPTS):
        if state == newer:
            break
        await asyncio.sleep(_PAUSE)
        state, newer = newer, await asyncio.to_thread(_state_of, place)
    return newer


def _state_of(place: Any) -> Any:
    """Return a value that changes when a model's folder is replaced or written to; None without a folder."""
    if not isinstance(place, str):
        return None
    folder = Path(place)
    try:
        files = sorted([*folder.iterdir(), *folder.glob("*/*")])
        # Renaming a folder away and back changes its own state alone.
        return folder.resolve(), file_state(folder), [(str(file), file_state(file)) for file in files]
    except OSError:
        return None


def named_sources(models: Any) -> dict[str, str | SentenceTransformer]:
    """Name models: a mapping's, or paths, hub ids, `NAME=PATH`, and models in memory."""
    if isinstance(models, Mapping):
        pairs = list(models.items())
    else:
        several = isinstance(models, Sequence) and not isinstance(models, str)
        pairs = [_named(one) for one in (models if several else [models])]
    if not pairs:
        raise UsageError("give at least one model to serve")
    sources: dict[str, str | SentenceTransformer] = {}
    for name, place in pairs:
        if not name or ":" in name:
            raise UsageError(
                f"{name!r}: requests could not name this model; give it as NAME=PATH, without ':'"
            )
        if name in sources:
            raise UsageError(f"two models are called {name!r}; give one as NAME=PATH")
        sources[name] = str(place) if isinstance(place, Path) else place
    return sources


def _named(model: Any) -> tuple[str, Any]:
    """Return the name of a model, and its place."""
    if not isinstance(model, str | Path):
        return name_of(model), model
    label, equals, path = str(model).partition("=")
    if equals and not Path(model).exists():
        return label, path
    return source_name(str(model)), str(model)
