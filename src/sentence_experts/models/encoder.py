"""The encoder with experts: a `SentenceTransformer` that knows its experts and routes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import nn

from sentence_experts.compat.sentence_transformers import takes_sentences, transformer_of
from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.models.architectures.families import MODEL_TYPES
from sentence_experts.models.architectures.registration import register
from sentence_experts.models.architectures.routed_model import RoutedModel
from sentence_experts.models.card import make_usage_card
from sentence_experts.models.layers.heads import LowRankHead
from sentence_experts.models.layers.residency import CPU, DISK
from sentence_experts.models.layers.weight_names import owner_of
from sentence_experts.models.pooling import make_pooled_model, place_of_pooling, scales_after_pooling
from sentence_experts.models.routes.kinds import router_kind
from sentence_experts.models.routes.known_routes import start_of
from sentence_experts.models.routes.routes import Route, describe
from sentence_experts.models.routes.sequence_router import RouterChoices, router_choices
from sentence_experts.models.routes.task_types import with_task_types, without_task_types
from sentence_experts.models.sources import name_of, origin_of
from sentence_experts.storage import RECORD, open_to_readers, update_json, write_text

register()  # the class opens folders with our model types


class ExpertEncoder(SentenceTransformer):
    """A `SentenceTransformer` that knows its experts and routes; a stock one encodes the same files."""

    def __init__(self, model_name_or_path: str | None = None, *args: Any, **kwargs: Any) -> None:
        """Load a model as `SentenceTransformer` does."""
        super().__init__(model_name_or_path, *args, **kwargs)
        self.prompts = without_task_types(self.prompts, self.default_prompt_name)

    def save(
        self,
        path: str,
        model_name: str | None = None,
        create_model_card: bool = True,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Save as `SentenceTransformer.save` does, with prompts for mteb's task types (`task_types`).

        The model card is this package's, since the stock one encodes its examples without a route.
        """
        (Path(path) / RECORD).unlink(missing_ok=True)  # the record of another model that was saved there
        super().save(path, model_name, False, *args, **kwargs)
        if create_model_card:
            write_text(Path(path) / "README.md", make_usage_card(self))
        open_to_readers(Path(path))
        prompts = with_task_types(self.prompts, self.default_prompt_name)
        update_json(Path(path) / "config_sentence_transformers.json", {"prompts": prompts})

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
    def experts(self) -> tuple[str, ...]:
        """Names of the experts, in the order of their indices."""
        return tuple(self.routed_model.config.experts)

    @property
    def routes(self) -> tuple[Route, ...]:
        """Routes to the experts."""
        return self.routed_model.routes

    @property
    def head_routes(self) -> dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """The heads of routes: route -> (weight, bias), for all routes that own one; see `without_heads`.

        A head maps the pooled vector x to weight @ x + bias: weight is (width, width), bias (width,).
        """
        return {
            name: (_array(head.weight), _array(head.bias))
            for name in self.routed_model.config.heads
            for head in [self.head(name)]
        }

    def head(self, route: str) -> nn.Linear | LowRankHead:
        """Return the head that a route owns.

        Raises:
            UsageError: the route owns no head.
        """
        names = self.routed_model.config.heads
        if route not in names:
            known = ", ".join(names) or "none do"
            raise UsageError(f"route {route!r} owns no head; those that do: {known}")
        head: nn.Linear | LowRankHead = self.routed_model.heads[names.index(route)]
        return head

    def without_heads(self) -> ExpertEncoder:
        """Return this model as it pools texts, before heads and all modules after the pooling.

        It shares the weights. `without_heads().encode(texts, prompt_name=route)` gives the vectors that the
        route's head maps: the same for all heads that sit on the same expert or on the base, since the model
        reads their tokens as one. `finish(x @ weight.T + bias)` gives the route's vectors from them.
        """
        return make_pooled_model(self)

    @property
    def scales_after_pooling(self) -> bool:
        """Whether nothing comes after the pooling and the heads but a scaling to length 1."""
        return scales_after_pooling(self)

    def finish(self, pooled: NDArray[Any]) -> NDArray[np.float32]:
        """Apply the modules after the pooling (`Normalize`, say) to vectors, (texts, width)."""
        with torch.inference_mode():
            vectors = torch.as_tensor(pooled, device=self.device, dtype=self.dtype)
            features: dict[str, Any] = {"sentence_embedding": vectors}
            for module in list(self)[place_of_pooling(self) + 1 :]:
                features = module(features)
            return _array(features["sentence_embedding"])

    def extra_repr(self) -> str:
        """Return the experts and routes, shown above the modules."""
        if not isinstance(transformer_of(self), RoutedModel):
            return ""
        names = {"experts": self.experts, "routes": tuple(route.name for route in self.routes)}
        return "; ".join(f"{title}: {', '.join(each) or 'none'}" for title, each in names.items())

    def parameter_counts(self) -> tuple[int, int]:
        """Count all parameters, and those that one text (or token) passes through."""
        sizes = {name: parameter.numel() for name, parameter in self.named_parameters()}
        total = sum(sizes.values())
        config = self.routed_model.config
        # Only the experts in memory count; a text meets at most one adapter or one head.
        counts = {"expert": len(self.experts) - len(self.routed_model.residency.idle)}
        counts |= {"adapter": len(config.adapters), "head": len(config.heads)}
        owned = dict.fromkeys(counts, 0)
        for name, size in sizes.items():
            if (owner := owner_of(name)) is not None:
                owned[owner[0]] += size
        met = {kind: owned[kind] // max(count, 1) for kind, count in counts.items()}
        met["expert"] *= router_kind(config).experts_per_token(config)
        return total, total - sum(owned.values()) + met["expert"] + max(met["adapter"], met["head"])

    @property
    def loaded_routes(self) -> tuple[str, ...]:
        """Routes whose experts are in memory."""
        idle = self.routed_model.residency.idle
        return tuple(route.name for route in self.routes if route.expert not in idle)

    @property
    def idle_routes(self) -> tuple[str, ...]:
        """Prompts that texts cannot use, since their experts are not in memory (`use_routes`).

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
            idle: place of the other experts: "disk" (dropped, and read again from the folder that `load`
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

    def limit_experts(self, number: int) -> None:
        """Keep at most `number` experts in memory: the least recently used one makes room for another.

        Raises:
            UsageError: learned routers choose the experts, or the model was not loaded from files.
        """
        self._check_routed()
        residency = self.routed_model.residency
        if residency.files is None:
            raise UsageError("save the model and load it again first: its idle experts are in no file")
        residency.limit = min(len(self.experts), max(number, 1))

    def _check_routed(self) -> None:
        config = self.routed_model.config
        if router_kind(config).is_learned and config.expert_layers:
            raise UsageError(
                "in this model learned routers choose the experts, so all experts must be loaded"
            )

    def _experts_of_names(self, names: Sequence[str]) -> set[int]:
        """Return the experts behind names of routes, experts, or prompts that begin with a route."""
        known = {name: number for number, name in enumerate(self.experts)}
        known |= {route.name: route.expert for route in self.routes}
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
        prompt = self.prompts.get(name) or ""
        return next((route.expert for route in self.routes if prompt.startswith(route.text)), None)

    @takes_sentences
    def encode(self, inputs: Any, *args: Any, expert_ids: Any = None, **kwargs: Any) -> Any:
        """Encode texts as `SentenceTransformer.encode` does; a route is a prompt or a text's first token.

        The model's default route is only used for texts without one. (A stock `SentenceTransformer` puts its
        default prompt in front of every text.)

        Args:
            inputs: text or pair of texts, or a list of them.
            *args: arguments of `SentenceTransformer.encode`.
            expert_ids: index of each text's expert, (texts,), or one index for all, in place of a route or
                of learned routers. The expert's route is put in front of the text, where a route is then
                ordinary text.
            **kwargs: arguments of `SentenceTransformer.encode`.

        Raises:
            UsageError: `expert_ids` does not fit the inputs, names no expert, or comes with a prompt.
            RouteError: a text, or `prompt_name`, has no known route.
        """
        if args in ((None,), (None, None)):  # as if neither prompt were given
            args = ()
        name = args[0] if args else kwargs.get("prompt_name")
        self._check_prompt_name(name)
        if self._stands_for_default(name) and len(args) < 2:
            args, kwargs = (), {**kwargs, "prompt_name": None}
        prompts = [kwargs.get(name) for name in ("prompt", "prompt_name")]
        is_one = self.is_singular_input(inputs)
        texts = [inputs] if is_one else list(inputs)
        if expert_ids is not None:
            if self.routes and (args or any(prompts)):
                raise UsageError("expert_ids and a prompt both choose the expert; give one of them")
            texts = self._with_experts(texts, expert_ids)
        elif self.routes and self.default_prompt_name and not args and prompts == [None, None]:
            lead = self.prompts[self.default_prompt_name] or ""
            texts = [text if self._begins_with_route(text) else prepend(lead, text) for text in texts]
        else:
            return super().encode(inputs, *args, **kwargs)
        # Where learned routers are overridden, a prompt stays as it is.
        no_prompt = {"prompt": "", "prompt_name": None} if self.routes else {}
        return super().encode(texts[0] if is_one else texts, *args, **kwargs | no_prompt)

    def add_adapter(self, *args: Any, **kwargs: Any) -> None:
        """Add an adapter of peft as `SentenceTransformer` does; its folder will name that of this model.

        Raises:
            UsageError: this model is in no folder, or not all of its experts are in memory.
        """
        self.routed_model.check_whole("given adapters")
        if not getattr(self.routed_model, "peft_config", None) and origin_of(self) is None:
            raise UsageError(
                "peft would name a base that is not this model, which is saved nowhere as it is: save the "
                "model, `load` it, and add the adapter then"
            )
        super().add_adapter(*args, **kwargs)

    def router_choices(
        self, texts: Sequence[str], prompt_name: str | None = None, batch_size: int = 32
    ) -> RouterChoices:
        """Return the experts that the learned routers choose in each block, and their probabilities.

        `prompt_name` is the texts' route, if the model has routes too and the texts lack theirs; without, the
        default prompt counts, as in `encode`.

        Raises:
            UsageError: the model has no learned routers.
            RouteError: `prompt_name`, or a text of a model with routes, has no known route.
        """
        self._check_prompt_name(prompt_name)
        texts = [texts] if isinstance(texts, str) else texts
        name = self.default_prompt_name if prompt_name is None else prompt_name
        prompt = "" if name is None else self.prompts[name] or ""
        if prompt_name is None and self.routes:
            texts = [text if self._begins_with_route(text) else prepend(prompt, text) for text in texts]
            prompt = ""
        return router_choices(self, texts, prompt, batch_size)

    def _stands_for_default(self, name: str | None) -> bool:
        """Return whether a prompt is the default route's without being a route, as "query" may be."""
        default = self.default_prompt_name
        if name is None or default is None or name in {route.name for route in self.routes}:
            return False
        return self.prompts[name] == self.prompts[default]

    def _check_prompt_name(self, name: str | None) -> None:
        if name is not None and name not in self.prompts:
            raise RouteError(f"no route is named {name!r}; {describe(self.routes)}")

    def preprocess(self, inputs: Any, prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Preprocess as `SentenceTransformer.preprocess` does, with the experts of texts by `expert_ids`."""
        features: dict[str, Any] = super().preprocess(inputs, prompt=prompt, **kwargs)
        firsts = [text[0] if isinstance(text, tuple) else text for text in inputs]
        experts = [text.expert for text in firsts if isinstance(text, RoutedText)]
        if experts:
            features["expert_ids"] = torch.tensor(experts)
        return features

    def _with_experts(self, texts: list[Any], expert_ids: Any) -> list[Any]:
        """Put the routes of the experts in front; for learned routers, texts carry the expert's number."""
        try:
            given = torch.as_tensor(expert_ids)
            numbers = given.expand(len(texts)).tolist() if given.dim() == 0 else given.tolist()
        except (TypeError, ValueError, RuntimeError):  # no numbers, or of another shape
            numbers = None
        if (
            numbers is None
            or len(numbers) != len(texts)
            or any(type(one) is not int or one not in range(len(self.experts)) for one in numbers)
        ):
            known = ", ".join(f"{index} ({name})" for index, name in enumerate(self.experts))
            raise UsageError(
                f"expert_ids {expert_ids!r}: give the number of an expert for each of {len(texts)} texts; "
                f"the experts are {known}"
            )
        is_learned = router_kind(self.routed_model.config).is_learned
        own = [route for route in reversed(self.routes) if route.kind == "expert"]  # no head or adapter on it
        leads = {route.expert: self.prompts.get(route.name) or route.text for route in own}
        return [
            prepend(leads.get(number, ""), text, number if is_learned else None)
            for number, text in zip(numbers, texts, strict=True)
        ]

    def _begins_with_route(self, text: Any) -> bool:
        start = text if isinstance(text, str) else text[0]
        longest = max(len(route.text) for route in self.routes)
        ids = tuple(self.tokenizer(start_of(start, longest + 1))["input_ids"])
        return any(ids[: len(route.token_ids)] == route.token_ids for route in self.routes)


def check_experts(model: SentenceTransformer) -> ExpertEncoder:
    """Return the model itself; raise an InputError if it has no experts."""
    if isinstance(model, ExpertEncoder):
        return model
    model_type = getattr(getattr(model[0], "config", None), "model_type", None)
    if model_type in MODEL_TYPES:
        raise InputError(f"{name_of(model)}: opened by a stock SentenceTransformer; open it with `load`")
    raise InputError(
        f"{name_of(model)}: a model of type {model_type!r} has no experts; `extend` gives it some"
    )


def _array(weight: torch.Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = weight.detach().float().cpu().numpy()
    return array


class RoutedText(str):
    """A text that carries its expert through sorting, batching and other processes."""

    expert: int

    def __new__(cls, text: str, expert: int) -> RoutedText:
        """Make a copy of the text, with the expert's index."""
        sent = super().__new__(cls, text)
        sent.expert = expert
        return sent

    def __getnewargs__(self) -> tuple[str, int]:  # type: ignore[override]
        """Return the arguments for a copy in another process."""
        return str(self), self.expert


def prepend(prefix: str, text: Any, expert: int | None = None) -> Any:
    """Put `prefix` in front of a text, or of a pair's first text; with an expert it is a `RoutedText`."""
    if isinstance(text, str):
        return prefix + text if expert is None else RoutedText(prefix + text, expert)
    if isinstance(text, tuple | list) and text and isinstance(text[0], str):
        return (prepend(prefix, text[0], expert), *text[1:])
    raise UsageError(f"a route goes in front of texts and pairs of texts, not {type(text).__name__}")
