"""Save and load encoders with experts: ordinary sentence-transformers directories."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.util.decorators import deprecated_kwargs

from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.models.architectures.families import MODEL_TYPES
from sentence_experts.models.encoder import RoutedEncoder
from sentence_experts.models.routing.automatic import AutoRoutes
from sentence_experts.models.routing.route_classifier import AUTO, RouteClassifier, has_auto_route
from sentence_experts.models.routing.routes import describe
from sentence_experts.models.routing.sequence_router import CHOOSING
from sentence_experts.models.storage.offload import CPU, DISK, experts_of_names, use_routes
from sentence_experts.models.storage.paging import ExpertPager, bytes_of_an_expert
from sentence_experts.models.storage.shards import HUB_OPTIONS, INDEX, WEIGHTS, WeightFiles, shared_part
from sentence_experts.storage import replacing_folder

logger = logging.getLogger(__name__)


class ExpertEncoder(RoutedEncoder):
    """What `extend` and `load` give: an encoder with experts, and automatic routes once they are trained.

    Attributes:
        auto_routes: what chooses the routes for `prompt_name="auto"`; None until it is trained.
        weight_files: where `load` found the weights; None for a model that was made.
    """

    auto_routes: AutoRoutes | None = None
    weight_files: WeightFiles | None = None

    def __init__(self, model_name_or_path: str | None = None, *args: Any, **kwargs: Any) -> None:
        """As `SentenceTransformer`; automatic routes are read from a folder that has them."""
        super().__init__(model_name_or_path, *args, **kwargs)
        if model_name_or_path is not None and has_auto_route(model_name_or_path):
            self.auto_routes = AutoRoutes(RouteClassifier.read(Path(model_name_or_path)))

    def save(self, path: str, *args: Any, **kwargs: Any) -> None:
        """As `SentenceTransformer.save`, with the automatic routes if there are any.

        Raises:
            UsageError: some experts are not in memory.
        """
        self.routed_model.check_whole("saved")
        super().save(path, *args, **kwargs)
        if self.auto_routes is not None:
            self.auto_routes.classifier.write(Path(path))

    @property
    def loaded_routes(self) -> tuple[str, ...]:
        """The routes whose experts are in memory."""
        idle = self.routed_model.idle_experts
        return tuple(route.name for route in self.routes if route.expert not in idle)

    def use_routes(self, routes: Sequence[str], idle: str | None = None) -> None:
        """Keep the experts of these routes in memory, bring those that are not, and send all others away.

        Texts with another route are then an error. The vectors stay the same, to the bit.

        Args:
            routes: names of routes or experts; those that share an expert come together.
            idle: where the other experts wait: "disk" (dropped, and read again from the folder that `load`
                read) or "cpu" (moved there; it frees a GPU's memory). By default "cpu" for a model on another
                device, "disk" for one on the CPU.

        Raises:
            RouteError: no such route.
            UsageError: learned routers choose the experts, or a dropped expert's changes would be lost.
            InputError: an expert cannot be read, or the folder has changed since.
        """
        waiting = idle or (DISK if self.device.type == "cpu" else CPU)
        use_routes(self, routes, waiting, self.weight_files)

    def page_experts(self, most: int | None = None, most_bytes: int | None = None) -> None:
        """Have at most so many experts in memory from now on, each from when a text calls it.

        Args:
            most: experts.
            most_bytes: bytes of experts; at least one expert stays.

        Raises:
            UsageError: learned routers choose the experts, the model was not loaded from files, or no expert
                would be left.
        """
        model: Any = self.routed_model
        if model.config.router in CHOOSING:
            raise UsageError("in this model what a text says chooses its experts, so all must be loaded")
        if self.weight_files is None:
            raise UsageError("save the model and load it again first: its idle experts are in no file")
        if not model.config.expert_layers:
            return  # a dense control
        limits = [most] if most is not None else []
        if most_bytes is not None:
            limits.append(max(most_bytes // bytes_of_an_expert(model), 1))
        model.pager = ExpertPager(model, self.weight_files, min(limits))

    def prefetch(self, routes: Sequence[str]) -> Thread:
        """Bring the experts of these routes into memory while the model works on other texts.

        Args:
            routes: names of routes or experts.

        Returns:
            What brings them; `join` waits for it.

        Raises:
            RouteError: no such route.
            UsageError: experts do not come and go in this model: load it with `max_resident_experts`.
        """
        pager: ExpertPager | None = self.routed_model.pager
        if pager is None:
            raise UsageError("every expert is where it stays; load the model with max_resident_experts")
        return pager.prefetch(sorted(experts_of_names(self, routes)))

    @deprecated_kwargs(sentences="inputs")
    def encode(self, inputs: Any, *args: Any, expert_ids: Any = None, **kwargs: Any) -> Any:
        """As `RoutedEncoder.encode`.

        With `prompt_name="auto"`, each text takes the route that `choose_route` finds for it. How many were
        below the stored confidence, and took the averaged model instead, is said.

        Raises:
            UsageError: as there, or automatic routes come with another choice.
            RouteError: as there, or no automatic routes have been trained.
        """
        prompt_name = args[0] if args else kwargs.get("prompt_name")
        if prompt_name == AUTO and AUTO not in self.prompts:
            return self._encode_by_choice(inputs, expert_ids, *args[1:], **kwargs)
        return super().encode(inputs, *args, expert_ids=expert_ids, **kwargs)

    def choose_route(self, texts: str | Sequence[str]) -> tuple[list[str], NDArray[np.float64]]:
        """The most probable route of each text, and the probabilities, (texts, routes of the classifier).

        Raises:
            RouteError: no automatic routes have been trained.
        """
        given = [texts] if isinstance(texts, str) else list(texts)
        return self._trained_auto_routes().choose(self, given)

    def _trained_auto_routes(self) -> AutoRoutes:
        if self.auto_routes is None:
            raise RouteError(
                f"this model has no automatic routes: train them with sentence-experts auto-route, or give a "
                f"route; {describe(self.routes) if self.routes else 'it has none'}"
            )
        return self.auto_routes

    def _encode_by_choice(self, inputs: Any, expert_ids: Any, *args: Any, **kwargs: Any) -> Any:
        if expert_ids is not None or args or kwargs.get("prompt"):
            raise UsageError(f"prompt_name={AUTO!r} goes with neither expert_ids nor a prompt")
        auto_routes = self._trained_auto_routes()
        single = self.is_singular_input(inputs)
        texts = [inputs] if single else list(inputs)
        options = {name: value for name, value in kwargs.items() if name not in ("prompt", "prompt_name")}
        vectors, unsure = auto_routes.encode(self, texts, **options)
        if unsure:
            logger.info(auto_routes.said_of(unsure, len(texts)))
        return vectors[0] if single else vectors


def is_replaceable(folder: Path) -> bool:
    """Whether a new model may take this folder's place: it is empty or holds a model."""
    return folder.is_dir() and ((folder / "modules.json").is_file() or not any(folder.iterdir()))


def save(encoder: SentenceTransformer, path: str | Path) -> None:
    """Write the encoder as a sentence-transformers directory (safetensors), whole or not at all.

    Raises:
        UsageError: the folder is there and holds something else than a model, which would be lost.
    """
    folder = Path(path)
    if folder.exists() and not is_replaceable(folder):
        raise UsageError(f"{path} is there and is not a model's folder; choose another, or remove it")
    with replacing_folder(folder) as temporary:
        encoder.save(str(temporary), create_model_card=False)


def load(
    path: str | Path,
    device: str | None = None,
    routes: Sequence[str] | None = None,
    max_resident_experts: int | None = None,
    max_resident_bytes: int | None = None,
    **kwargs: Any,
) -> ExpertEncoder:
    """Load an encoder with experts from a directory or hub id.

    Args:
        path: what `extend`, `save` or training wrote.
        device: "cpu", "cuda", ...; by default the best there is.
        routes: load the experts of these routes alone (`ExpertEncoder.use_routes` brings others later); None
            for all. The other experts' files are not read, nor fetched from the hub.
        max_resident_experts: have at most so many experts in memory: each comes when a text first calls it,
            and the least recently used leaves.
        max_resident_bytes: the same in bytes of experts; at least one stays.
        **kwargs: as `SentenceTransformer`.

    Raises:
        RouteError: a route that the model does not have.
        UsageError: a part of the experts for a model whose learned routers choose them.
        InputError: there is no model, or it has no experts.
    """
    folder = Path(path)
    if folder.exists() and not (folder / "modules.json").is_file():
        raise InputError(f"{path}: not a sentence-transformers directory (no modules.json)")
    limited = max_resident_experts is not None or max_resident_bytes is not None
    hub = {name: kwargs[name] for name in HUB_OPTIONS if name in kwargs}
    if routes is None and not limited:
        encoder = _opened(str(path), str(path), device, kwargs)
        if (folder / WEIGHTS).is_file() or (folder / INDEX).is_file():
            encoder.weight_files = WeightFiles.find(str(path))
        return encoder
    kwargs["config_kwargs"] = {**(kwargs.get("config_kwargs") or {}), "experts_on_disk": True}
    try:
        with shared_part(str(path), **hub) as part:
            encoder = _opened(part, str(path), device, kwargs)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: no model could be loaded: {error}") from error
    encoder.weight_files = WeightFiles.find(str(path), **hub)
    if routes is not None:
        encoder.use_routes(routes, DISK)
    if limited:
        encoder.page_experts(max_resident_experts, max_resident_bytes)
    return encoder


def _opened(source: str, name: str, device: str | None, kwargs: dict[str, Any]) -> ExpertEncoder:
    """The encoder that lies in a folder or on the hub, called `name` in what goes wrong."""
    try:
        encoder = ExpertEncoder(source, device=device, **kwargs)
    except (OSError, ValueError) as error:
        raise InputError(f"{name}: no model could be loaded: {error}") from error
    model_type = getattr(getattr(encoder[0], "config", None), "model_type", None)
    if model_type not in MODEL_TYPES:
        raise InputError(
            f"{name}: a model of type {model_type!r} has no experts; sentence-experts extend makes one of it"
        )
    return encoder
