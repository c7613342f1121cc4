"""Save and load encoders with experts: ordinary sentence-transformers directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.util.decorators import deprecated_kwargs

from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.models.experts import RoutedModel
from sentence_experts.models.families import MODEL_TYPES
from sentence_experts.models.routing import Route, describe
from sentence_experts.storage import replacing_folder


class ExpertEncoder(SentenceTransformer):
    """A `SentenceTransformer` that knows its experts; a stock one loads and encodes the same files."""

    @property
    def experts(self) -> tuple[str, ...]:
        """The experts' names, in the order of their indices."""
        return tuple(self._routed_model.config.experts)

    @property
    def routes(self) -> tuple[Route, ...]:
        """The routes to the experts."""
        return self._routed_model.routes

    def parameter_counts(self) -> tuple[int, int]:
        """All parameters, and those that one text meets: its expert's and the shared ones."""
        sizes = {name: parameter.numel() for name, parameter in self.named_parameters()}
        total = sum(sizes.values())
        in_experts = sum(size for name, size in sizes.items() if ".experts." in name)
        return total, total - in_experts + in_experts // len(self.experts)

    @property
    def _routed_model(self) -> RoutedModel:
        model = getattr(self[0], "auto_model", None)
        if not isinstance(model, RoutedModel):
            raise InputError(f"a model of type {type(model).__name__} has no experts; make one with `extend`")
        return model

    @deprecated_kwargs(sentences="inputs")
    def encode(self, inputs: Any, *args: Any, expert_ids: Any = None, **kwargs: Any) -> Any:
        """`SentenceTransformer.encode`, which also takes the experts by index or name.

        Args:
            inputs: a text or pair of texts, or a list of them.
            *args: as `SentenceTransformer.encode`.
            expert_ids: one index or name for all inputs, or one for each (list, array or tensor). It is put
                in front of each text as that expert's route, and so survives sorting, batching and other
                processes. A text that begins with a route is then ordinary text: `expert_ids` decides.
            **kwargs: as `SentenceTransformer.encode`.

        The model's default route is for texts that begin with none. (A stock `SentenceTransformer` puts its
        default prompt in front of every text, also of one that names its route.)

        Raises:
            UsageError: `expert_ids` does not fit the inputs, names no expert, or comes with a prompt.
            RouteError: a text, or `prompt_name`, has no known route.
        """
        prompt_name = args[0] if args else kwargs.get("prompt_name")
        if prompt_name is not None and prompt_name not in self.prompts:
            raise RouteError(f"no route is named {prompt_name!r}; {describe(self.routes)}")
        if expert_ids is None:
            if self.default_prompt_name and not args and not (kwargs.keys() & {"prompt", "prompt_name"}):
                inputs, kwargs = self._with_default_route(inputs), kwargs | {"prompt": ""}
            return super().encode(inputs, *args, **kwargs)
        if args or kwargs.get("prompt") or kwargs.get("prompt_name"):
            raise UsageError("expert_ids and a prompt both choose the expert; give one of them, as a keyword")
        single = self.is_singular_input(inputs)
        texts = [inputs] if single else list(inputs)
        leads = self._route_texts(expert_ids, len(texts))
        routed = [_prepend(lead, text) for lead, text in zip(leads, texts, strict=True)]
        kwargs |= {"prompt": "", "prompt_name": None}  # no default prompt on top
        return super().encode(routed[0] if single else routed, **kwargs)

    def _with_default_route(self, inputs: Any) -> Any:
        """The default route in front of every text that does not begin with a route of its own."""
        lead = self.prompts[self.default_prompt_name or ""] or ""
        if self.is_singular_input(inputs):
            return inputs if self._begins_with_route(inputs) else _prepend(lead, inputs)
        return [text if self._begins_with_route(text) else _prepend(lead, text) for text in inputs]

    def _begins_with_route(self, text: Any) -> bool:
        start = text if isinstance(text, str) else text[0]
        longest = max(len(route.text) for route in self.routes)
        ids = tuple(self.tokenizer(start[: longest + 1])["input_ids"])
        return any(ids[: len(route.token_ids)] == route.token_ids for route in self.routes)

    def _route_texts(self, expert_ids: Any, count: int) -> list[str]:
        """What stands in front of each of `count` texts."""
        chosen = expert_ids.tolist() if hasattr(expert_ids, "tolist") else expert_ids
        if isinstance(chosen, str | int):
            chosen = [chosen] * count
        chosen = list(chosen)
        if len(chosen) != count:
            raise UsageError(f"expert_ids has {len(chosen)} entries for {count} texts")
        texts: dict[Any, str] = {}
        for route in self.routes:
            text = self.prompts.get(route.name) or route.text
            texts.setdefault(route.expert, text)
            texts.setdefault(self.experts[route.expert], text)
        unknown = sorted({repr(one) for one in chosen if isinstance(one, bool | float) or one not in texts})
        if unknown:
            names = ", ".join(f"{index} or {name!r}" for index, name in enumerate(self.experts))
            raise UsageError(f"expert_ids {', '.join(unknown)}: no such expert; choose {names}")
        return [texts[one] for one in chosen]


def _prepend(prefix: str, text: Any) -> Any:
    if isinstance(text, str):
        return prefix + text
    if isinstance(text, tuple | list) and text and isinstance(text[0], str):
        return (prefix + text[0], *text[1:])
    raise UsageError(f"expert_ids work for texts and pairs of texts, not for {type(text).__name__}")


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


def load(path: str | Path, device: str | None = None, **kwargs: Any) -> ExpertEncoder:
    """Load an encoder with experts from a directory or hub id.

    Args:
        path: what `extend`, `save` or training wrote.
        device: "cpu", "cuda", ...; by default the best there is.
        **kwargs: as `SentenceTransformer`.

    Raises:
        InputError: there is no model, or it has no experts.
    """
    folder = Path(path)
    if folder.exists() and not (folder / "modules.json").is_file():
        raise InputError(f"{path}: not a sentence-transformers directory (no modules.json)")
    try:
        encoder = ExpertEncoder(str(path), device=device, **kwargs)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: no model could be loaded: {error}") from error
    model_type = getattr(getattr(encoder[0], "config", None), "model_type", None)
    if model_type not in MODEL_TYPES:
        raise InputError(
            f"{path}: a model of type {model_type!r} has no experts; sentence-experts extend makes one of it"
        )
    return encoder
