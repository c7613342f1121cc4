"""The plan of a model's experts, adapters and heads, and of the routes to them, before any weight exists.

Domains and tasks can live in one model, since routing reads nothing but token ids: a text of a domain begins
with the domain's token in [CLS]'s place (Hallee 2025, fig. 1), a text of a task with its instruction (MoTE,
section 4). A route that owns an adapter or a head has a domain token, and shares the expert that it sits on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedTokenizerBase

from sentence_experts.errors import UsageError
from sentence_experts.models.routes.route_tokens import (
    behind_instruction_token,
    domain_token,
    prefix_routes,
    with_domain_tokens,
)
from sentence_experts.models.routes.routes import Route, is_domain_route
from sentence_experts.models.surgery.extend_config import ADAPTER, BASE, EXPERT, HEAD, ExtendConfig
from sentence_experts.names import check_route_names

if TYPE_CHECKING:
    from sentence_experts.models.encoder import ExpertEncoder
    from sentence_experts.tasks.task_file import TaskFile

DEFAULT_RANK = 8
NO_ROUTES = "name at least one route (`routes`), or give `domains` or `tasks`"


@dataclass(frozen=True)
class PlannedRoute:
    """A route before the tokenizer that reads it is made.

    Attributes:
        name: name of the route.
        expert: name of the expert that it leads to.
        instruction: instruction that its texts begin with; None for a domain token.
        kind: kind of part that the route owns: "expert", or on top of one "adapter" or "head".
        adapter: rank and layers of an adapter.
        rank: rank of a head's difference from the identity; None for any.
        under: route whose adapter a head shares; None for none.
    """

    name: str
    expert: str
    instruction: str | None = None
    kind: str = EXPERT
    adapter: Mapping[str, Any] = field(default_factory=dict)
    rank: int | None = None
    under: str | None = None


@dataclass(frozen=True)
class RoutePlan:
    """A model's experts, in the order of their indices, and its routes: those with domain tokens first."""

    experts: tuple[str, ...]
    routes: tuple[PlannedRoute, ...] = ()

    @classmethod
    def of(cls, encoder: ExpertEncoder) -> RoutePlan:
        """Read the plan of a model of this package."""
        config, experts = encoder.routed_model.config, encoder.experts
        planned = [
            PlannedRoute(
                route.name,
                experts[route.expert],
                None if is_domain_route(route, config) else route.text,
                route.kind,
                config.adapters[route.adapter] if route.kind == ADAPTER else {},
                config.head_ranks.get(route.name),
                None
                if route.head is None or route.adapter is None
                else config.adapters[route.adapter]["route"],
            )
            for route in encoder.routes
        ]
        return cls(experts, tuple(planned))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the routes."""
        return tuple(route.name for route in self.routes)

    @property
    def domains(self) -> tuple[PlannedRoute, ...]:
        """Routes with domain tokens."""
        return tuple(route for route in self.routes if route.instruction is None)

    @property
    def instructions(self) -> dict[str, str]:
        """Instructions of the routes: route -> instruction."""
        return {route.name: route.instruction for route in self.routes if route.instruction is not None}

    @property
    def heads(self) -> list[str]:
        """Routes that own a head, in the order of the heads' indices."""
        return [route.name for route in self.routes if route.kind == HEAD]

    @property
    def adapters(self) -> list[dict[str, Any]]:
        """Settings of the adapters, as in a model's config."""
        return [{**each.adapter, "route": each.name} for each in self.routes if each.kind == ADAPTER]

    def prompts(self, base_prompt: str) -> dict[str, str]:
        """Return the prompt in front of each route's texts; the base's prompt follows domain tokens."""
        return {
            route.name: route.instruction or domain_token(route.name) + base_prompt for route in self.routes
        }

    def with_route(self, route: PlannedRoute) -> RoutePlan:
        """Add a route, and its expert if there is none of that name."""
        if route.name in (*self.names, *self.experts):
            known = ", ".join(dict.fromkeys([*self.experts, *self.names]))
            what = "a route" if route.name in self.names else "an expert"
            raise UsageError(f"there is {what} {route.name!r} already; there are {known}")
        _check_names([route.name], self.names)
        experts = dict.fromkeys([*self.experts, route.expert])
        routes = sorted([*self.routes, route], key=lambda each: each.instruction is not None)
        return RoutePlan(tuple(experts), tuple(routes))

    def without(self, name: str) -> RoutePlan:
        """Drop an expert and all its routes, or a route that shares its expert."""
        if name not in self.experts:
            kept = tuple(route for route in self.routes if name not in (route.name, route.under))
            return replace(self, routes=kept)
        return RoutePlan(
            tuple(expert for expert in self.experts if expert != name),
            tuple(route for route in self.routes if route.expert != name),
        )

    def build_routes(self, tokenizer: PreTrainedTokenizerBase) -> tuple[PreTrainedTokenizerBase, list[Route]]:
        """Make the tokenizer that reads the routes from the base's, and the routes."""
        numbers = {route.name: self.experts.index(route.expert) for route in self.routes}
        instructed = prefix_routes(tokenizer, self.instructions, numbers)
        if not self.domains:
            return tokenizer, instructed
        planned = {route.name: route for route in self.domains}
        cls = tokenizer.cls_token_id
        tokenizer, tokens = with_domain_tokens(tokenizer, list(planned), list(self.instructions.values()))
        owners = [token for token in tokens if planned[token.name].kind == EXPERT]
        leads = {numbers[owner.name]: owner.token_ids[0] for owner in reversed(owners)}
        heads = self.heads
        numbers_of = {each["route"]: number for number, each in enumerate(self.adapters)}
        domains = [
            replace(
                token,
                expert=numbers[token.name],
                head=heads.index(token.name) if token.name in heads else None,
                adapter=numbers_of.get(planned[token.name].under or token.name),
                lead=None if token in owners else leads.get(numbers[token.name], cls),
            )
            for token in tokens
        ]
        return tokenizer, domains + behind_instruction_token(tokenizer, instructed)


def plan_routes(names: Sequence[str], tasks: Any, config: ExtendConfig, layers: Sequence[str]) -> RoutePlan:
    """Plan a model's experts and routes from the arguments and settings of `extend`.

    `layers`: paths of the linear layers in a block of the base, which adapters change.
    """
    instructions, owners = task_routes(tasks)
    with_expert = [name for name, expert in owners.items() if name == expert]
    if not names and not with_expert:
        raise UsageError(NO_ROUTES)
    _check_names([*names, *instructions])
    if config.kind != EXPERT:
        if tasks is not None:
            raise UsageError(
                f"`tasks` makes routes of instructions, and a {config.kind} has a domain token: name `routes`"
            )
        if BASE in names:
            raise UsageError(f"a route cannot be named {BASE!r}, which these routes sit on; rename it")
        adapter = adapter_settings(config.rank, layers) if config.kind == ADAPTER else {}
        rank = config.rank if config.kind == HEAD else None
        routes = [PlannedRoute(name, BASE, kind=config.kind, adapter=adapter, rank=rank) for name in names]
        return RoutePlan((BASE,), tuple(routes))
    if tasks is not None and config.route == "none":
        raise UsageError("`tasks` makes a route of each instruction; leave out `route='none'`")
    routes = [PlannedRoute(name, name) for name in names] if config.route == "token" else []
    if config.route == "prefix":
        if unknown := sorted(set(config.prefixes) - set(names)):
            raise UsageError(f"`prefixes`: {unknown[0]!r} is not an expert; they are {', '.join(names)}")
        instructions = {name: f"{name}: " for name in names} | config.prefixes | instructions
    routes += [PlannedRoute(name, owners.get(name, name), text) for name, text in instructions.items()]
    return RoutePlan((*names, *with_expert), tuple(routes))


def adapter_settings(rank: int | None, layers: Sequence[str]) -> dict[str, Any]:
    """Return the settings of an adapter of these layers."""
    return {"rank": rank or DEFAULT_RANK, "layers": list(layers)}


def _check_names(names: Sequence[str], beside: Sequence[str] = ()) -> None:
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise UsageError(f"named twice: {', '.join(map(repr, twice))}")
    try:
        check_route_names(names, beside)
    except ValueError as error:
        raise UsageError(f"{error}; choose another one") from error


def domain_names(domains: Any) -> list[str]:
    """Return names, or the domains of pairs of any form."""
    if domains is None:
        return []
    if hasattr(domains, "tolist"):  # `frame["domain"].unique()`
        domains = domains.tolist()
    if isinstance(domains, Sequence | Set) and not isinstance(domains, str):
        domains = list(domains)
    if isinstance(domains, list) and all(isinstance(name, str) for name in domains):
        return domains
    from sentence_experts.pairs.dataset import Pairs

    return Pairs.of(domains).domains


def task_routes(tasks: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Read route -> instruction and route -> expert from tasks: a file, a folder, or either one opened."""
    opened = open_tasks(tasks)
    return ({}, {}) if opened is None else (opened.instructions(), opened.experts())


def open_tasks(tasks: Any) -> TaskFile | None:
    """Return the task file of tasks in any form; None without tasks."""
    if isinstance(tasks, str | Path):
        from sentence_experts.tasks.task_file import TaskFile

        tasks = TaskFile.read(tasks)
    opened: TaskFile | None = getattr(tasks, "task_file", tasks)
    return opened
