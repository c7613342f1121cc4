"""The encoder with experts: a `SentenceTransformer` that takes experts by name and knows its routes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Thread
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

from sentence_experts.compat.sentence_transformers import takes_sentences, transformer_of
from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.models.architectures.registration import register
from sentence_experts.models.architectures.routed_model import RoutedModel
from sentence_experts.models.card import usage_card
from sentence_experts.models.routing.router_choices import RouterChoices, router_choices
from sentence_experts.models.routing.router_kinds import router_kind
from sentence_experts.models.routing.routes import Route, describe
from sentence_experts.models.routing.task_types import with_task_types, without_task_types
from sentence_experts.models.storage.fingerprint import name_of, weights_fingerprint
from sentence_experts.models.storage.residency import CPU, DISK
from sentence_experts.models.storage.weight_names import is_expert
from sentence_experts.storage import RECORD, Output, open_to_readers, output, update_json, write_text

logger = logging.getLogger(__name__)

# The first of a model's files, by which folders of the user's own are known before the work.
MODEL_FILES = ("modules.json", "config.json", "README.md")

register()  # the class opens folders with our model types


class ExpertEncoder(SentenceTransformer):
    """A `SentenceTransformer` that knows its experts and routes; a stock one encodes the same files."""

    def __init__(self, model_name_or_path: str | None = None, *args: Any, **kwargs: Any) -> None:
        """As `SentenceTransformer`."""
        super().__init__(model_name_or_path, *args, **kwargs)
        self.prompts = without_task_types(self.prompts)

    def save(
        self,
        path: str,
        model_name: str | None = None,
        create_model_card: bool = True,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """As `SentenceTransformer.save`; prompts for mteb's task types are added (`task_types`).

        The model card is this package's, since the stock one encodes its examples without a route.
        """
        (Path(path) / RECORD).unlink(missing_ok=True)  # of another model that was saved there
        super().save(path, model_name, False, *args, **kwargs)
        if create_model_card:
            write_text(Path(path) / "README.md", usage_card(self))
        open_to_readers(Path(path))
        prompts = with_task_types(self.prompts, self.default_prompt_name)
        update_json(Path(path) / "config_sentence_transformers.json", {"prompts": prompts})

    @property
    def experts(self) -> tuple[str, ...]:
        """The experts' names, in the order of their indices."""
        return tuple(self.routed_model.config.experts)

    @property
    def routes(self) -> tuple[Route, ...]:
        """The routes to the experts."""
        return self.routed_model.routes

    def extra_repr(self) -> str:
        """The experts and routes, above the modules."""
        if not isinstance(transformer_of(self), RoutedModel):
            return ""
        names = {"experts": self.experts, "routes": tuple(route.name for route in self.routes)}
        return "; ".join(f"{title}: {', '.join(each) or 'none'}" for title, each in names.items())

    def parameter_counts(self) -> tuple[int, int]:
        """The number of all parameters, and of those that one text (or token) passes through."""
        sizes = {name: parameter.numel() for name, parameter in self.named_parameters()}
        total = sum(sizes.values())
        in_experts = sum(size for name, size in sizes.items() if is_expert(name))
        config = self.routed_model.config
        per_text = router_kind(config).experts_per_token(config)
        loaded = len(self.experts) - len(self.routed_model.residency.idle)
        return total, total - in_experts + per_text * in_experts // max(loaded, 1)

    @property
    def routed_model(self) -> RoutedModel:
        """The transformer that holds the experts.

        Raises:
            InputError: the first module has no experts.
        """
        model = transformer_of(self)
        if not isinstance(model, RoutedModel):
            raise InputError(f"a model of type {type(model).__name__} has no experts; `extend` gives it some")
        return model

    @property
    def loaded_routes(self) -> tuple[str, ...]:
        """The routes whose experts are in memory."""
        idle = self.routed_model.residency.idle
        return tuple(route.name for route in self.routes if route.expert not in idle)

    @property
    def idle_routes(self) -> tuple[str, ...]:
        """The prompts that texts cannot use, since their experts are not in memory (`use_routes`).

        There are none where experts come and go (`limit_experts`).
        """
        residency = self.routed_model.residency
        idle = frozenset() if residency.limit is not None else residency.idle
        return tuple(name for name in self.prompts if idle and self._expert_of_prompt(name) in idle)

    def use_routes(self, routes: Sequence[str], idle: str | None = None) -> None:
        """Keep only the experts of these routes in memory; texts with another route are then an error.

        The vectors stay the same, to the bit.

        Args:
            routes: names of routes or experts; those that share an expert come together.
            idle: where the other experts wait: "disk" (dropped, and read again from the folder that `load`
                read) or "cpu" (moved there; it frees a GPU's memory). By default "cpu" for a model on another
                device, "disk" for one on the CPU.

        Raises:
            RouteError: no such route.
            UsageError: learned routers choose the experts, or a dropped expert's changes would be lost.
            InputError: an expert cannot be read, or its file has changed since the model was loaded.
        """
        self._check_routed()
        waiting = idle or (DISK if self.device.type == "cpu" else CPU)
        self.routed_model.residency.keep(self._experts_of_names(routes), waiting)

    def limit_experts(self, number: int | None = None, in_bytes: int | None = None) -> None:
        """Limit the experts in memory: the least recently used one makes room for one that a text needs.

        Args:
            number: maximum number of experts.
            in_bytes: maximum number of bytes of experts; at least one expert stays.

        Raises:
            UsageError: learned routers choose the experts, the model was not loaded from files, or no expert
                would be left.
        """
        self._check_routed()
        residency = self.routed_model.residency
        if residency.files is None:
            raise UsageError("save the model and load it again first: its idle experts are in no file")
        if number is not None and number < 1:
            raise UsageError(f"`max_resident_experts` is {number}; at least one expert must be in memory")
        limits = [len(self.experts) if number is None else number]
        if in_bytes is not None and self.routed_model.config.expert_layers:
            limits.append(max(in_bytes // residency.bytes_per_expert(), 1))
        residency.limit = min(limits)

    def prefetch(self, routes: Sequence[str]) -> Thread:
        """Bring the experts of these routes (or with these names) into memory, in a thread that is returned.

        Raises:
            RouteError: no such route.
            UsageError: no limit lets experts come and go in this model.
        """
        residency = self.routed_model.residency
        if residency.limit is None:
            raise UsageError(
                "this model has all its experts in memory; to limit them, load it with `max_resident_experts`"
            )
        return residency.prefetch(sorted(self._experts_of_names(routes)))

    def _check_routed(self) -> None:
        config = self.routed_model.config
        if router_kind(config).is_learned and config.expert_layers:
            raise UsageError(
                "in this model learned routers choose the experts, so all experts must be loaded"
            )

    def _experts_of_names(self, names: Sequence[str]) -> set[int]:
        """The experts behind names of routes, experts, or prompts that begin with a route."""
        known = {route.name: route.expert for route in self.routes}
        known |= {name: number for number, name in enumerate(self.experts) if name not in known}
        experts = set()
        for name in [names] if isinstance(names, str) else names:
            expert = known.get(name, self._expert_of_prompt(name))
            if expert is None:
                raise RouteError(f"no route is named {name!r}; routes that can be loaded: {', '.join(known)}")
            experts.add(expert)
        if not experts:
            raise RouteError("name at least one route to load")
        return experts

    def _expert_of_prompt(self, name: str) -> int | None:
        """The expert of the route that a prompt begins with."""
        prompt = self.prompts.get(name) or ""
        return next((route.expert for route in self.routes if prompt.startswith(route.text)), None)

    @takes_sentences
    def encode(self, inputs: Any, *args: Any, expert_ids: Any = None, **kwargs: Any) -> Any:
        """`SentenceTransformer.encode`, which also takes the experts by index or name.

        Args:
            inputs: a text or pair of texts, or a list of them.
            *args: as `SentenceTransformer.encode`.
            expert_ids: one index or name for all inputs, or one per input (list, array or tensor). Each text
                gets that expert's route in front, which survives sorting, batching and other processes. A
                route in the text itself is then ordinary text. Learned routers are overridden too.
            **kwargs: as `SentenceTransformer.encode`.

        The model's default route is only used for texts without one. (A stock `SentenceTransformer` puts its
        default prompt in front of every text.)

        Raises:
            UsageError: `expert_ids` does not fit the inputs, names no expert, or comes with a prompt.
            RouteError: a text, or `prompt_name`, has no known route.
        """
        self._check_prompt_name(args[0] if args else kwargs.get("prompt_name"))
        if expert_ids is None:
            named = args or kwargs.keys() & {"prompt", "prompt_name"}
            if self.routes and self.default_prompt_name and not named:
                inputs, kwargs = self._with_default_route(inputs), kwargs | {"prompt": ""}
            return super().encode(inputs, *args, **kwargs)
        if self.routes:
            if args or kwargs.get("prompt") or kwargs.get("prompt_name"):
                raise UsageError(
                    "expert_ids and a prompt both choose the expert; give one of them, as a keyword"
                )
            kwargs |= {"prompt": "", "prompt_name": None}  # no default prompt on top
        single = self.is_singular_input(inputs)
        texts = [inputs] if single else list(inputs)
        numbers = self._expert_numbers(expert_ids, len(texts))
        routed = [self._with_expert(number, text) for number, text in zip(numbers, texts, strict=True)]
        return super().encode(routed[0] if single else routed, *args, **kwargs)

    def without_auto_routes(self) -> ExpertEncoder:
        """The model itself; of an `AutoRoutedEncoder`, the model that it wraps."""
        return self

    def router_choices(
        self, texts: Sequence[str], prompt_name: str | None = None, batch_size: int = 32
    ) -> RouterChoices:
        """The experts that the learned routers choose for texts in each block, and their probabilities.

        Args:
            texts: the texts.
            prompt_name: the texts' route, if the model has routes too and the texts lack theirs.
            batch_size: number of texts per batch.

        Raises:
            UsageError: the model has no learned routers.
            RouteError: `prompt_name`, or a text of a model with routes, has no known route.
        """
        self._check_prompt_name(prompt_name)
        prompt = "" if prompt_name is None else self.prompts[prompt_name] or ""
        return router_choices(self, texts, prompt, batch_size)

    def _check_prompt_name(self, name: str | None) -> None:
        if name is not None and name not in self.prompts:
            auto = "" if name != "auto" else " (`auto_route` teaches a model to choose routes)"
            raise RouteError(f"no route is named {name!r}{auto}; {describe(self.routes)}")

    def preprocess(self, inputs: Any, prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """`SentenceTransformer.preprocess`, with the experts of texts that `expert_ids` were given for."""
        features: dict[str, Any] = super().preprocess(inputs, prompt=prompt, **kwargs)
        firsts = [text[0] if isinstance(text, tuple) else text for text in inputs]
        experts = [text.expert for text in firsts if isinstance(text, RoutedText)]
        if experts:
            features["expert_ids"] = torch.tensor(experts)
        return features

    def _with_expert(self, expert: int, text: Any) -> Any:
        """The text with the expert's route in front; learned routers also get the expert's number."""
        route = next((route for route in self.routes if route.expert == expert), None)
        lead = "" if route is None else self.prompts.get(route.name) or route.text
        return prepend(lead, text, expert if router_kind(self.routed_model.config).is_learned else None)

    def _with_default_route(self, inputs: Any) -> Any:
        """The inputs, with the default route in front of each text that has no route."""
        lead = self.prompts[self.default_prompt_name or ""] or ""
        if self.is_singular_input(inputs):
            return inputs if self._begins_with_route(inputs) else prepend(lead, inputs)
        return [text if self._begins_with_route(text) else prepend(lead, text) for text in inputs]

    def _begins_with_route(self, text: Any) -> bool:
        start = text if isinstance(text, str) else text[0]
        longest = max(len(route.text) for route in self.routes)
        ids = tuple(self.tokenizer(start[: longest + 1])["input_ids"])
        return any(ids[: len(route.token_ids)] == route.token_ids for route in self.routes)

    def _expert_numbers(self, expert_ids: Any, count: int) -> list[int]:
        """The expert of each of `count` texts."""
        chosen = expert_ids.tolist() if hasattr(expert_ids, "tolist") else expert_ids
        chosen = [chosen] * count if isinstance(chosen, str | int) else list(chosen)
        if len(chosen) != count:
            raise UsageError(f"expert_ids has {len(chosen)} entries for {count} texts")
        numbers: dict[Any, int] = {}
        for number, name in enumerate(self.experts):
            numbers |= {number: number, name: number}
        unknown = sorted({repr(one) for one in chosen if isinstance(one, bool | float) or one not in numbers})
        if unknown:
            names = ", ".join(f"{index} or {name!r}" for index, name in enumerate(self.experts))
            raise UsageError(f"expert_ids {', '.join(unknown)}: no such expert; choose {names}")
        return [numbers[one] for one in chosen]


def check_experts(model: SentenceTransformer) -> ExpertEncoder:
    """The model itself, without automatic routes; an InputError if it has no experts."""
    if isinstance(model, ExpertEncoder):
        return model.without_auto_routes()
    model_type = getattr(getattr(model[0], "config", None), "model_type", None)
    raise InputError(
        f"{name_of(model)}: a model of type {model_type!r} has no experts; `extend` gives it some"
    )


def model_output(out: Path | str, overwrite: bool = False) -> AbstractContextManager[Output]:
    """Lock the folder of a model while it is written (`storage.output`)."""
    return output(out, "model", names=MODEL_FILES, overwrite=overwrite)


def save_to(place: Output, encoder: SentenceTransformer) -> None:
    """Write a model as a sentence-transformers folder (safetensors), whole or not at all."""
    with place.replacing() as temporary:
        write_model(encoder, temporary)


def write_model(encoder: SentenceTransformer, folder: Path) -> None:
    """Write a model, with or without experts, and its card."""
    encoder.save(str(folder), create_model_card=isinstance(encoder, ExpertEncoder))
    if not isinstance(encoder, ExpertEncoder):
        write_text(folder / "README.md", usage_card(encoder))


def save(encoder: SentenceTransformer, path: str | Path, overwrite: bool = False) -> None:
    """Write a model as a sentence-transformers folder (safetensors), whole or not at all.

    Raises:
        UsageError: the folder holds something else, or another model without `overwrite`.
    """
    with model_output(path, overwrite) as place:
        if place.begin({"weights": weights_fingerprint(encoder)}) != "finished":
            save_to(place, encoder)


class RoutedText(str):
    """A text that carries its expert through sorting, batching and other processes."""

    expert: int

    def __new__(cls, text: str, expert: int) -> RoutedText:
        """The text as it is, with the expert's index."""
        sent = super().__new__(cls, text)
        sent.expert = expert
        return sent

    def __getnewargs__(self) -> tuple[str, int]:  # type: ignore[override]
        """The arguments for a copy in another process."""
        return str(self), self.expert


def prepend(prefix: str, text: Any, expert: int | None = None) -> Any:
    """Put `prefix` in front of a text, or of a pair's first text; with an expert it is a `RoutedText`."""
    if isinstance(text, str):
        return prefix + text if expert is None else RoutedText(prefix + text, expert)
    if isinstance(text, tuple | list) and text and isinstance(text[0], str):
        return (prepend(prefix, text[0], expert), *text[1:])
    raise UsageError(f"expert_ids work for texts and pairs of texts, not for {type(text).__name__}")
