"""The mixin in front of a transformers encoder that sends each sequence through one expert per block.

Where routes choose the expert, the batch is sorted by expert once, at the model's entry: all blocks then
work on contiguous slices, and the original order is restored at the exit. Where each block chooses
(`sequence_router`, `token_router`), each block sorts the batch for its own experts and restores the order.

A route may own an adapter, which changes linear layers of the blocks on its slice (`adapters`), or a head, a
linear map of the last hidden states that is applied to its slice before the exit.
Mean, first and last token pooling commute with it: it maps the pooled vector, with stock modules after it.

Batches on the CPU are packed (`packing`): padding is removed at the entry and restored at the exit.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils.generic import ModelOutput

from sentence_experts.compat.transformers import attention_of, ignore_on_load, set_attention
from sentence_experts.errors import RouteError, UsageError
from sentence_experts.models.architectures.families import family_of
from sentence_experts.models.architectures.lora import insert_lora
from sentence_experts.models.architectures.registration import write_modeling_file
from sentence_experts.models.layers.dispatch import (
    Dispatch,
    ExpertSlices,
    RecordedDispatch,
    dispatch,
    put_back,
    relabel,
    reorder_packed,
    take,
)
from sentence_experts.models.layers.heads import make_head
from sentence_experts.models.layers.packing import PACKED, PADDED, Packing, packs
from sentence_experts.models.layers.residency import Residency
from sentence_experts.models.layers.weight_files import WEIGHTS, split_by_expert
from sentence_experts.models.layers.weight_names import EXPERT_PATTERN
from sentence_experts.models.routes.kinds import router_kind
from sentence_experts.models.routes.routes import (
    UNKNOWN,
    Route,
    describe,
    look_up,
    owners_of,
    routes_of,
    sort_keys,
    with_leads,
    without_inner_route_tokens,
)
from sentence_experts.models.routes.sequence_router import SequencePass
from sentence_experts.models.routes.token_router import TokenPass, Tokens


class RoutedModel:
    """A mixin in front of a transformers encoder: reads routes, groups the batch, puts the outputs back.

    A subclass sets `block_class`, the block that takes a `plan`.
    """

    block_class: Any
    config: Any
    # The experts that are in memory.
    residency: Residency
    # Whether routes' heads map their states; without, heads do nothing.
    uses_heads: bool
    # Whether a graph of fixed steps is recorded of the model: texts without a known route get NaN, and heads
    # come after the pooling (`map_pooled`).
    is_recorded: bool

    def __init__(self, config: Any, **options: Any) -> None:
        """Build the base model, with blocks that hold experts."""
        super().__init__(config, **options)  # type: ignore[call-arg]
        layers = range(self.config.num_hidden_layers)
        blocks = nn.ModuleList(self.block_class(self.config, layer) for layer in layers)
        self.set_submodule(family_of(self.config.model_type).blocks, blocks)  # type: ignore[attr-defined]
        width = self.config.hidden_size
        ranks = self.config.head_ranks
        self.heads = nn.ModuleList(make_head(width, ranks.get(route)) for route in self.config.heads)
        self.uses_heads, self.is_recorded = True, False
        self.post_init()  # type: ignore[attr-defined]
        if attention_of(self.config) == PADDED:
            set_attention(self.config, PACKED)
        on_disk = self.config.experts_on_disk and bool(self.config.expert_layers)
        self.config.experts_on_disk = False
        self.residency = Residency(self, in_memory=not on_disk)
        if on_disk:
            ignore_on_load(self, EXPERT_PATTERN)
        if self.config.lora_rank is not None:
            insert_lora(self, self.config.lora_rank)

    @property
    def routes(self) -> tuple[Route, ...]:
        """Known routes."""
        return tuple(Route.from_json(fields) for fields in self.config.routes)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        *,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        expert_ids: Tensor | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run the base model's forward, each sequence through the expert that its route or a router names.

        Inputs are (batch, length), or (1, tokens) with `cu_seq_lens_q`; padding is on either side.
        `expert_ids`, (sequences,) integers, are used instead of the routes in the sequences and of the
        routers' choices, without heads.

        With learned routers the output has `router_logits` too: a tuple with (sequences, experts) for each
        block with experts, or (tokens, experts), padding left out, where each token chooses. Heads map the
        last hidden state, and the pooler's output from it; `hidden_states` are the states before the heads.
        """
        optional = {
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
        }
        inputs = {name: value for name, value in optional.items() if value is not None}
        packed, packing = kwargs.get("cu_seq_lens_q"), None
        inputs["input_ids"], keys = self._read_routes(input_ids, attention_mask, expert_ids, packed)
        if packed is None and packs(self.config, input_ids, attention_mask):
            mask = inputs.pop("attention_mask", None)
            packing = Packing.of(input_ids, mask, keys, in_order=router_kind(self.config).is_learned)
            inputs, kwargs = packing.pack(inputs), kwargs | packing.keywords(self.config)
            if keys is not None and packing.order is not None:
                keys = keys[packing.order]
        if self.is_recorded and keys is not None:
            return self._run_recorded(inputs, kwargs, keys)
        outputs = self._run_by_owner(inputs, kwargs, keys, given=expert_ids)
        if packing is not None:
            outputs = packing.unpack_outputs(outputs, getattr(self, "pooler", None))
        wants_tuple = return_dict is False or (return_dict is None and not self.config.return_dict)
        return outputs.to_tuple() if wants_tuple else outputs

    def _read_routes(
        self, input_ids: Tensor, mask: Tensor | None, expert_ids: Tensor | None, packed: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the ids that the base reads, and the key by which each sequence is sorted (`sort_keys`).

        The key is UNKNOWN for a sequence without a known route or expert; there are none where nothing but
        the routers chooses. Route tokens inside a text, and tokens of routes with a `lead`, are replaced.
        """
        routes, experts, ids = self.routes, len(self.config.experts), input_ids
        # A mask of another shape is an attention pattern of the caller and says nothing about padding.
        is_own = mask is not None and mask.dim() != 2
        if (unknown := self.config.inner_route_token_id) is not None:
            ids = without_inner_route_tokens(routes, unknown, ids, None if is_own else mask, packed)
            ids = with_leads(routes, ids)
        if expert_ids is not None:
            sequences = len(ids) if packed is None else len(packed) - 1
            given = torch.as_tensor(expert_ids, device=ids.device)
            if given.shape != (sequences,) or given.is_floating_point():
                raise UsageError(f"expert_ids must be {sequences} integers, one per sequence; got {given!r}")
            return ids, sort_keys(routes, experts, given, are_experts=True)
        # With learned routers too, a text that lacks the route its model was made for is a mistake.
        if not routes and router_kind(self.config).is_learned:
            return ids, None
        if is_own:
            raise UsageError("routes need a mask of the shape of input_ids; or pass `expert_ids`")
        if not routes:
            raise RouteError("this model has no routes in its config; pass expert_ids")
        return ids, sort_keys(routes, experts, routes_of(routes, input_ids, mask, packed))

    def _run_by_owner(
        self, inputs: dict[str, Tensor], kwargs: dict[str, Any], keys: Tensor | None, given: Tensor | None
    ) -> ModelOutput:
        """Run the base's forward, each owner's sequences side by side; outputs are in the inputs' order."""
        base_forward: Callable[..., ModelOutput] = super().forward  # type: ignore[misc]
        packed, mask = kwargs.get("cu_seq_lens_q"), inputs.get("attention_mask")
        rows, length = inputs["input_ids"].shape
        device = inputs["input_ids"].device
        lengths = torch.full((rows,), length, device=device) if packed is None else packed.diff()
        _, owners = owners_of(self.routes, len(self.config.experts))
        plan = None if keys is None else dispatch(keys, lengths, len(owners))
        if keys is not None and plan is None:
            raise self._stray_error(keys, given)
        kind = router_kind(self.config)
        choices: SequencePass | TokenPass | None = None
        if kind.reads_texts:
            chosen = None if given is None else keys
            choices = SequencePass(lengths, mask, packed, chosen, kind.scales(self.config))
        elif kind.per_token and given is None:
            choices = TokenPass(Tokens(lengths, mask), self.config.top_k, kind.scales(self.config))
        if choices is not None:  # every block puts the batch in the order of its experts
            outputs = base_forward(**inputs, **{**kwargs, "plan": choices, "return_dict": True})
            outputs["router_logits"] = tuple(choices.logits)
            return outputs
        assert plan is not None
        experts, adapters, heads = (relabel(plan.slices, numbers) for numbers in zip(*owners, strict=True))
        if not self.config.adapters:
            adapters = ()
        kwargs = {**kwargs, "plan": Dispatch(None, experts, adapters=adapters), "return_dict": True}
        dim, order = 0, plan.order
        if order is not None and packed is not None:
            dim = 1
            order, packing = reorder_packed(packed, order, length)
            kwargs |= packing
        if order is not None:
            inputs = take(inputs, order, dim)
        with self.residency.using([number for number, *_ in experts]):
            outputs = base_forward(**inputs, **kwargs)
        self._map(outputs, heads)
        return outputs if order is None else put_back(outputs, order, dim)

    def _run_recorded(self, inputs: dict[str, Tensor], kwargs: dict[str, Any], keys: Tensor) -> ModelOutput:
        """Run the base's forward with steps that do not depend on the batch."""
        base_forward: Callable[..., ModelOutput] = super().forward  # type: ignore[misc]
        experts, adapters, _ = self._look_up_owners(keys)
        used = adapters if self.config.adapters else None
        plan = RecordedDispatch(experts, len(self.config.experts), used)
        outputs = base_forward(**inputs, **{**kwargs, "plan": plan, "return_dict": True})
        unknown = (keys == UNKNOWN)[:, None, None]
        outputs["last_hidden_state"] = outputs["last_hidden_state"].masked_fill(unknown, float("nan"))
        return outputs

    def _look_up_owners(self, keys: Tensor) -> list[Tensor]:
        """Return the expert, the adapter and the head of each sequence, by steps that can be recorded."""
        _, owners = owners_of(self.routes, len(self.config.experts))
        numbers = zip(*owners, strict=True)
        return [look_up(torch.tensor(each, device=keys.device), keys) for each in numbers]

    def map_pooled(self, pooled: Tensor, input_ids: Tensor, mask: Tensor) -> Tensor:
        """Apply the heads to pooled vectors, (sequences, width), by steps that can be recorded."""
        _, keys = self._read_routes(input_ids, mask, None, None)
        assert keys is not None
        dispatch = RecordedDispatch(self._look_up_owners(keys)[2], len(self.heads))
        return dispatch.apply(pooled, lambda number, rows, _: self.heads[number](rows))

    def _map(self, outputs: ModelOutput, slices: ExpertSlices) -> None:
        """Replace the last hidden state by the heads' outputs: each head on its slice, none for -1."""
        if not self.uses_heads or all(head < 0 for head, *_ in slices):
            return
        hidden = outputs["last_hidden_state"]
        tokens = hidden.reshape(-1, hidden.shape[-1])
        parts = [
            tokens[start:end] if head < 0 else self.heads[head](tokens[start:end])
            for head, start, end in slices
        ]
        outputs["last_hidden_state"] = (parts[0] if len(parts) == 1 else torch.cat(parts)).view(hidden.shape)
        if (pooler := getattr(self, "pooler", None)) is not None:
            outputs["pooler_output"] = pooler(outputs["last_hidden_state"])

    def _stray_error(self, keys: Tensor, expert_ids: Tensor | None) -> Exception:
        if expert_ids is None:
            texts = f"{int((keys == UNKNOWN).sum())} of the {len(keys)} texts in a batch"
            return RouteError(f"{texts} begin with no known route; {describe(self.routes)}")
        names = ", ".join(f"{index} ({name})" for index, name in enumerate(self.config.experts))
        return UsageError(f"expert_ids {torch.as_tensor(expert_ids).tolist()} go beyond the experts: {names}")

    def check_whole(self, what: str) -> None:
        """Refuse a step that needs the weights of every expert."""
        if self.residency.idle:
            raise UsageError(
                f"only some experts of this model are loaded, so it cannot be {what}; load it without routes"
            )
        if self.config.lora_rank is not None:
            raise UsageError(f"a checkpoint with `lora_rank` cannot be {what}: give the model of the run")

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        """Save as transformers does, with a file per part that a route owns; copy idle experts' files."""
        if self.residency.idle and "state_dict" not in kwargs:
            model: Any = self
            kwargs["state_dict"] = {**model.state_dict(), **self.residency.idle_weights()}
        super().save_pretrained(save_directory, *args, **kwargs)  # type: ignore[misc]
        folder = Path(save_directory)
        write_modeling_file(folder, self.config.model_type)
        owned = self.config.expert_layers or self.config.adapters or self.config.heads
        if owned and (folder / WEIGHTS).is_file():
            split_by_expert(folder)

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "AutoModel") -> None:
        """Do nothing: saved folders import this class from the package, and need no copy of its file."""
