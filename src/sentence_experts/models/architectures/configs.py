"""The configs of encoders with experts: the base family's config, the experts and the routes to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from transformers import BertConfig, ModernBertConfig, NomicBertConfig

from sentence_experts.models.architectures.families import MODELING, family_of
from sentence_experts.models.sources import FORMAT_VERSION
from sentence_experts.storage import check_version


@dataclass(kw_only=True)
class ExpertsFields:
    """The fields of every config with experts, as plain JSON.

    Attributes:
        experts: names of the experts; their order gives the expert indices.
        router: "route" (the route chooses the expert), "learned" (each block's `SequenceRouter`, for a
            whole text), "switch" (the same, its probability scaling the expert's output) or "token" (each
            block's `TokenRouter`, for each token).
        top_k: number of experts per token with router "token".
        adapters: dict of each route's adapter: `route`, `rank`, and `layers`, their paths in a block.
        heads: names of the routes that own a head; their order gives the heads' indices.
        head_ranks: route -> rank of its head's difference from the identity, where it is limited.
        routes: dict of each route, with the fields of `routes.Route`.
        expert_layers: numbers of the blocks that hold experts, ascending.
        inner_route_token_id: token that replaces a domain token inside a text; None if there are none.
        expert_norms: whether experts also own their block's norms (MoTE, fig. 2b).
        base_vocab_size: number of rows of the base's embeddings, before the rows of domain tokens.
        experts_on_disk: whether to build the model without experts, which are read later; false once built.
        search_routes: route of queries -> route of documents, where a task tells them apart.
        lora_rank: rank of the matrices beside the attention of a checkpoint (`lora.add_lora`).
        format_version: version of the saved folder's format.
    """

    experts: list[str] = field(default_factory=list)
    router: str = "route"
    top_k: int = 2
    adapters: list[dict[str, Any]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    head_ranks: dict[str, int] = field(default_factory=dict)
    routes: list[dict[str, Any]] = field(default_factory=list)
    expert_layers: list[int] = field(default_factory=list)
    expert_norms: bool = False
    inner_route_token_id: int | None = None
    base_vocab_size: int | None = None
    experts_on_disk: bool = False
    search_routes: dict[str, str] = field(default_factory=dict)
    lora_rank: int | None = None
    format_version: int = FORMAT_VERSION

    @property
    def has_domain_tokens(self) -> bool:
        """Whether the tokenizer has domain tokens, which stand where the base's has [CLS]."""
        return self.inner_route_token_id is not None

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)  # type: ignore[misc]
        folder = getattr(self, "name_or_path", "") or self.model_type  # type: ignore[attr-defined]
        check_version(f"{folder}/config.json", self.format_version, FORMAT_VERSION)
        # The mapping is always ours: from the hub it would name the repository that the model came from.
        family = family_of(self.model_type)  # type: ignore[attr-defined]
        classes = {"AutoConfig": family.config_class, "AutoModel": family.model_class}
        self.auto_map = {auto: f"{MODELING}.{name}" for auto, name in classes.items()}

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "AutoConfig") -> None:
        """Do nothing: saved folders import this class from the package, and need no copy of its file."""


class BertExpertsConfig(ExpertsFields, BertConfig):
    """`BertConfig` with experts."""

    model_type = "bert_experts"


class ModernBertExpertsConfig(ExpertsFields, ModernBertConfig):
    """`ModernBertConfig` with experts."""

    model_type = "modernbert_experts"


class NomicBertExpertsConfig(ExpertsFields, NomicBertConfig):
    """`NomicBertConfig` with experts."""

    model_type = "nomic_bert_experts"
