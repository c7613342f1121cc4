"""Experts inside a block, and the model that sends each sequence through one of them.

Each sequence meets exactly one expert in every block (Hallee 2025, "Mixture of Experts"; MoTE, section 3.1).
Where routes choose it, it is the same in all blocks, so the batch is put in the order of its experts once, at
the model's entry. All blocks then work on contiguous slices, one an expert, and the outputs are put back in
the batch's order once, at the exit. Where each block chooses (`learned_router`), each puts the batch in order
for its experts and back. Only with `token_router` does a text meet several experts in a block.

An expert that no sequence of a batch is routed to takes no part in that batch and gets no gradient (`grad`
stays None). DistributedDataParallel therefore needs `find_unused_parameters=True`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils.generic import ModelOutput

from sentence_experts.errors import RouteError, UsageError
from sentence_experts.models.dispatch import (
    Dispatch,
    TokenDispatch,
    dispatch,
    put_back,
    reorder_packed,
    take,
)
from sentence_experts.models.families import family_of
from sentence_experts.models.learned_router import CHOOSING, LEARNED, RouterPass
from sentence_experts.models.lora import insert_adapter
from sentence_experts.models.routing import (
    Route,
    experts_of,
    no_route_error,
    without_inner_route_tokens,
)
from sentence_experts.models.token_router import TOKEN, TokenPass, Tokens


class Experts(nn.ModuleList):
    """One `nn.ModuleDict` an expert, each holding the modules that the expert owns in one block."""

    def run(
        self,
        hidden: Tensor,
        plan: Dispatch | TokenDispatch,
        function: Callable[[nn.ModuleDict, Tensor], Tensor],
    ) -> Tensor:
        """Apply `function(expert, tokens)` to each expert's tokens; where tokens call several, mix these.

        Args:
            hidden: (..., width).
            plan: which tokens each expert takes, and in what order they come to be grouped so.
            function: (..., width) -> (..., width), treating every token by itself.
        """
        if isinstance(plan, TokenDispatch):
            return self._mixed(hidden, plan, function)
        if plan.order is not None:
            grouped = hidden.index_select(plan.dim, plan.order)
            done = self.run(grouped, Dispatch(None, plan.slices), function)
            return done.index_select(plan.dim, torch.argsort(plan.order))
        slices = plan.slices
        if len(slices) == 1:
            return function(self.expert(slices[0][0]), hidden)
        tokens = hidden.reshape(-1, hidden.shape[-1])
        parts = [function(self.expert(number), tokens[start:end]) for number, start, end in slices]
        return torch.cat(parts).view(*hidden.shape[:-1], -1)

    def _mixed(
        self, hidden: Tensor, plan: TokenDispatch, function: Callable[[nn.ModuleDict, Tensor], Tensor]
    ) -> Tensor:
        """The weighted sum of the outputs of each token's experts; 0 at padding.

        Outputs are gathered, not scattered: sums have one order on every device, and padding is left alone.
        """
        tokens = hidden.reshape(-1, hidden.shape[-1])
        calls = self.run(tokens.index_select(0, plan.order), Dispatch(None, plan.slices), function)
        each = calls.index_select(0, plan.back.flatten()).view(*plan.back.shape, -1)
        mixed = (each * plan.weights[:, :, None]).sum(dim=1).to(calls.dtype)
        if plan.positions is not None:
            whole = mixed.new_zeros(len(tokens), mixed.shape[-1])
            mixed = whole.index_copy(0, plan.positions, mixed)
        return mixed.view(*hidden.shape[:-1], -1)

    def expert(self, number: int) -> nn.ModuleDict:
        """The modules of one expert."""
        modules = self[number]
        assert isinstance(modules, nn.ModuleDict)
        return modules


class IdleExpert(nn.ModuleDict):
    """Holds the place of an expert that is not in use (`offload`), and none of its weights.

    Attributes:
        blueprint: the expert's modules, on no device (meta) where their weights wait on disk.
        kept: the expert, where it waits on the CPU.
    """

    def __init__(self, blueprint: nn.ModuleDict, kept: nn.ModuleDict | None = None) -> None:
        super().__init__()
        # In a tuple, so that the model does not count them among its modules.
        self._waiting = (blueprint, kept)

    @property
    def blueprint(self) -> nn.ModuleDict:
        """What the expert is made of."""
        return self._waiting[0]

    @property
    def kept(self) -> nn.ModuleDict | None:
        """The expert itself, if it waits in memory."""
        return self._waiting[1]


def take_experts(block: nn.Module, config: Any, layer: int) -> Experts | None:
    """Move the modules that experts own out of a base block and into one copy an expert.

    Returns None, and leaves the block as it is, where `config.expert_layers` lacks this layer.
    """
    if layer not in config.expert_layers:
        return None
    owned = {}
    for name, path in family_of(config.model_type).owned(config.expert_norms).items():
        owned[name] = block.get_submodule(path)
        parent, _, leaf = path.rpartition(".")
        delattr(block.get_submodule(parent), leaf)
    if config.experts_on_disk:
        blueprint = nn.ModuleDict(owned).to("meta")
        return Experts(IdleExpert(blueprint) for _ in config.experts)
    return Experts(nn.ModuleDict(copy.deepcopy(owned)) for _ in config.experts)


class RoutedModel:
    """Mixed in before a transformers encoder: reads the routes, groups the batch, puts the outputs back.

    A subclass sets `block_class`, the block that takes a `plan`.
    """

    block_class: Any
    config: Any
    # The experts that are not in memory; none, but for `offload`.
    idle_experts: frozenset[int] = frozenset()

    def replace_blocks(self) -> None:
        """Put blocks with experts in the place of the base model's; call it at the end of `__init__`."""
        layers = range(self.config.num_hidden_layers)
        blocks = nn.ModuleList(self.block_class(self.config, layer) for layer in layers)
        self.set_submodule(family_of(self.config.model_type).blocks, blocks)  # type: ignore[attr-defined]
        self.post_init()  # type: ignore[attr-defined]
        if self.config.experts_on_disk:
            self.config.experts_on_disk = False  # said and done
            if self.config.expert_layers:
                self.idle_experts = frozenset(range(len(self.config.experts)))
                loading: Any = self
                ignored = set(loading._keys_to_ignore_on_load_unexpected or ())
                loading._keys_to_ignore_on_load_unexpected = ignored | {r"\.experts\.\d+\."}
        if self.config.lora is not None:
            # After post_init, which would start an adapter's second factor at random instead of at zero.
            insert_adapter(self, self.config.lora)  # type: ignore[arg-type]

    @property
    def routes(self) -> tuple[Route, ...]:
        """The known routes."""
        return tuple(Route.from_json(fields) for fields in self.config.routes)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        *,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        expert_ids: Tensor | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """As the base model's forward, each sequence through the expert that its route or each router names.

        With learned routers the output has `router_logits` too: a tuple with (sequences, experts) for each
        block with experts, or (tokens, experts), padding left out, where each token chooses.

        Args:
            input_ids: (batch, length), or (1, tokens) with `cu_seq_lens_q`.
            attention_mask: (batch, length), padding on either side.
            token_type_ids: (batch, length), for families that have them.
            position_ids: (batch, length) or (1, length).
            inputs_embeds: (batch, length, width) in place of `input_ids`; a model with routes then needs
                `expert_ids`.
            expert_ids: (sequences,) integers, used instead of the routes in the sequences and of the routers'
                choices.
            return_dict: False for a tuple.
            **kwargs: passed to the base model.

        Raises:
            RouteError: a sequence begins with no known route.
            UsageError: `expert_ids` has the wrong shape or names an expert that is not there, or a mask of
                another shape hides from routes or routers where a sequence begins and ends.
        """
        packed = kwargs.get("cu_seq_lens_q")
        if input_ids is not None and self.config.inner_route_token_id is not None:
            input_ids = self._without_inner_routes(input_ids, attention_mask, packed)
        given = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
        }
        inputs = {name: value for name, value in given.items() if value is not None}
        lengths, plan = self._lengths_and_plan(inputs, expert_ids, packed)
        if self.config.router == LEARNED:
            chosen = plan if expert_ids is not None else None
            passing = RouterPass(lengths, attention_mask, packed, given=chosen)
            outputs = self._choosing_forward(inputs, {**kwargs, "routers": passing}, passing)
        elif self.config.router == TOKEN and expert_ids is None:
            by_token = TokenPass(Tokens.of(lengths, attention_mask), self.config.top_k)
            outputs = self._choosing_forward(inputs, {**kwargs, "plan": by_token}, by_token)
        else:
            assert plan is not None
            outputs = self._grouped_forward(inputs, kwargs, plan, packed)
        wants_tuple = return_dict is False or (return_dict is None and not self.config.return_dict)
        return outputs.to_tuple() if wants_tuple else outputs

    def _without_inner_routes(
        self, input_ids: Tensor, attention_mask: Tensor | None, packed: Tensor | None
    ) -> Tensor:
        # A mask of another shape is the caller's own attention pattern and says nothing about padding.
        padding = attention_mask if attention_mask is not None and attention_mask.dim() == 2 else None
        unknown = self.config.inner_route_token_id
        return without_inner_route_tokens(self.routes, unknown, input_ids, padding, packed)

    def _lengths_and_plan(
        self, inputs: dict[str, Tensor], expert_ids: Tensor | None, packed: Tensor | None
    ) -> tuple[Tensor, Dispatch | None]:
        """The tokens of each sequence, and its expert; no plan where nothing but the routers chooses."""
        input_ids, explicit = inputs.get("input_ids"), expert_ids is not None
        if not explicit and (self.config.routes or self.config.router not in CHOOSING):
            # With learned routers too, a text that lacks the route its model was made for is a mistake.
            expert_ids = self._read_routes(input_ids, inputs.get("attention_mask"), packed)
        first = input_ids if input_ids is not None else inputs.get("inputs_embeds")
        if first is None:
            raise UsageError("give input_ids or inputs_embeds")
        lengths = _lengths(first, packed)
        return lengths, None if expert_ids is None else self._plan(expert_ids, lengths, explicit)

    def _read_routes(
        self, input_ids: Tensor | None, attention_mask: Tensor | None, packed: Tensor | None
    ) -> Tensor:
        if input_ids is None or (attention_mask is not None and attention_mask.dim() != 2):
            raise UsageError("routes need input_ids and a mask of the same shape; otherwise pass expert_ids")
        if not self.config.routes:
            raise RouteError("this model has no routes in its config; pass expert_ids")
        return experts_of(self.routes, input_ids, attention_mask, packed)

    def _plan(self, expert_ids: Tensor, lengths: Tensor, explicit: bool) -> Dispatch:
        expert_ids = torch.as_tensor(expert_ids, device=lengths.device)
        if expert_ids.shape != lengths.shape or expert_ids.is_floating_point():
            raise UsageError(
                f"expert_ids must be {len(lengths)} integers, one a sequence; got {expert_ids!r}"
            )
        plan = dispatch(expert_ids, lengths, len(self.config.experts))
        if plan is None:
            raise self._stray_error(expert_ids, explicit)
        if self.idle_experts and (idle := sorted(self.idle_experts & {number for number, *_ in plan.slices})):
            raise self._idle_error(idle)
        return plan

    def _idle_error(self, idle: list[int]) -> RouteError:
        names = ", ".join(repr(self.config.experts[number]) for number in idle)
        return RouteError(
            f"the expert of {names} is not loaded: load(path, routes=[...]) or encoder.use_routes([...]) "
            "loads those that are named"
        )

    def check_whole(self, what: str) -> None:
        """Refuse what needs every expert.

        Raises:
            UsageError: some are not in memory.
        """
        if self.idle_experts:
            raise UsageError(
                f"only some experts of this model are loaded, so it cannot be {what}; load it without routes"
            )

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """As transformers' own; a part of a model is not saved for the whole.

        Raises:
            UsageError: some experts are not in memory.
        """
        self.check_whole("saved")
        super().save_pretrained(*args, **kwargs)  # type: ignore[misc]

    def _stray_error(self, expert_ids: Tensor, explicit: bool) -> Exception:
        if not explicit:
            return no_route_error(self.routes, expert_ids)
        names = ", ".join(f"{index} ({name})" for index, name in enumerate(self.config.experts))
        return UsageError(f"expert_ids {expert_ids.tolist()} go beyond the experts: {names}")

    def _grouped_forward(
        self,
        inputs: dict[str, Tensor],
        kwargs: dict[str, Any],
        plan: Dispatch,
        packed: Tensor | None,
    ) -> ModelOutput:
        """The base model's forward in the plan's order, its outputs in the inputs' order."""
        kwargs = {**kwargs, "plan": Dispatch(None, plan.slices), "return_dict": True}
        base_forward: Callable[..., ModelOutput] = super().forward  # type: ignore[misc]
        if plan.order is None:
            return base_forward(**inputs, **kwargs)
        if packed is None:
            return put_back(base_forward(**take(inputs, plan.order), **kwargs), plan.order)
        tokens = next(iter(inputs.values())).shape[1]
        order, packing = reorder_packed(packed, plan.order, tokens)
        outputs = base_forward(**take(inputs, order, dim=1), **{**kwargs, **packing})
        return put_back(outputs, order, dim=1)

    def _choosing_forward(
        self, inputs: dict[str, Tensor], kwargs: dict[str, Any], passing: RouterPass | TokenPass
    ) -> ModelOutput:
        """The base model's forward in which each block puts the batch in order for its own experts."""
        base_forward: Callable[..., ModelOutput] = super().forward  # type: ignore[misc]
        outputs = base_forward(**inputs, **{**kwargs, "return_dict": True})
        outputs["router_logits"] = tuple(passing.logits)
        return outputs


def _lengths(inputs: Tensor, packed: Tensor | None) -> Tensor:
    """How many tokens each sequence takes in the batch, (sequences,); arguments as `RoutedModel.forward`."""
    if packed is not None:
        return packed.diff()
    return torch.full((inputs.shape[0],), inputs.shape[1], device=inputs.device)
