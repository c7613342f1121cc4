"""Which experts and heads a model gets and which routes lead to them, before any weight exists.

Domains and tasks can live in one model, since routing reads nothing but token ids: a text of a domain begins
with the domain's token in [CLS]'s place (Hallee 2025, fig. 1), a text of a task with its instruction (MoTE,
section 4). A route that owns a head has a domain token, and shares the expert that it sits on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedTokenizerBase

from sentence_experts.errors import UsageError
from sentence_experts.models.routes.kinds import ROUTE_KINDS, RouteKind, route_kind_with
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


@dataclass(frozen=True)
class PlannedRoute:
    """A route before the tokenizer that reads it is made.

    Attributes:
        name: the route's.
        expert: the name of the expert that it leads to.
        instruction: that its texts begin with; None for a domain token.
        kind: "expert", or what else the route owns on top of it: "adapter" or "head".
        adapter: the rank and the layers of an adapter.
    """

    name: str
    expert: str
    instruction: str | None = None
    kind: str = EXPERT
    adapter: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RoutePlan:
    """The experts and routes of a model.

    Attributes:
        experts: names, in the order of their indices.
        routes: those with domain tokens first.
    """

    experts: tuple[str, ...]
    routes: tuple[PlannedRoute, ...] = ()

    @classmethod
    def of(cls, encoder: ExpertEncoder) -> RoutePlan:
        """Read the plan of a model of this package."""
        config, experts = encoder.routed_model.config, encoder.experts
        return cls(
            experts,
            tuple(
                PlannedRoute(
                    route.name,
                    experts[route.expert],
                    None if is_domain_route(route, config) else route.text,
                    route.kind,
                    {} if route.adapter is None else config.adapters[route.adapter],
                )
                for route in encoder.routes
            ),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the routes."""
        return tuple(route.name for route in self.routes)

    @property
    def domains(self) -> tuple[PlannedRoute, ...]:
        """The routes with domain tokens."""
        return tuple(route for route in self.routes if route.instruction is None)

    @property
    def instructions(self) -> dict[str, str]:
        """Route -> instruction."""
        return {route.name: route.instruction for route in self.routes if route.instruction is not None}

    @property
    def heads(self) -> tuple[str, ...]:
        """The routes that own a head, in the order of the heads' indices."""
        return tuple(route.name for route in self.routes if route.kind == HEAD)

    @property
    def adapters(self) -> list[dict[str, Any]]:
        """The adapters' settings, as in a model's config."""
        return [{**each.adapter, "route": each.name} for each in self.routes if each.kind == ADAPTER]

    @property
    def kind(self) -> RouteKind:
        """The kind of the routes."""
        return route_kind_with(bool(self.domains), bool(self.instructions))

    def prompts(self, base_prompt: str) -> dict[str, str]:
        """Return what stands in front of each route's texts; the base's own prompt follows domain tokens."""
        return {
            route.name: route.instruction or domain_token(route.name) + base_prompt for route in self.routes
        }

    def with_route(self, route: PlannedRoute) -> RoutePlan:
        """Add a route, and its expert if there is none of that name."""
        if route.name in (*self.names, *self.experts):
            known = ", ".join(dict.fromkeys([*self.experts, *self.names]))
            what = "a route" if route.name in self.names else "an expert"
            raise UsageError(f"there is {what} {route.name!r} already; there are {known}")
        _refuse_reserved([route.name], self.names)
        experts = self.experts if route.expert in self.experts else (*self.experts, route.expert)
        instructed = [each for each in self.routes if each.instruction is not None]
        if route.instruction is None:
            return RoutePlan(experts, (*self.domains, route, *instructed))
        return RoutePlan(experts, (*self.routes, route))

    def without(self, name: str) -> RoutePlan:
        """Drop an expert and all its routes, or a route that shares its expert."""
        if name not in self.experts:
            return replace(self, routes=tuple(route for route in self.routes if route.name != name))
        return RoutePlan(
            tuple(expert for expert in self.experts if expert != name),
            tuple(route for route in self.routes if route.expert != name),
        )

    def build_routes(self, tokenizer: PreTrainedTokenizerBase) -> tuple[PreTrainedTokenizerBase, list[Route]]:
        """Make the tokenizer that reads the routes from the base's, and the routes."""
        planned = {route.name: route for route in self.routes}
        numbers = {route.name: self.experts.index(route.expert) for route in self.routes}
        instructed = prefix_routes(tokenizer, self.instructions, numbers)
        if not self.domains:
            return tokenizer, instructed
        cls = tokenizer.cls_token_id
        names = [route.name for route in self.domains]
        tokenizer, domains = with_domain_tokens(tokenizer, names, list(self.instructions.values()))
        owners = [route for route in domains if planned[route.name].kind == EXPERT]
        leads = {numbers[route.name]: route.token_ids[0] for route in reversed(owners)}
        heads, adapters = self.heads, [each["route"] for each in self.adapters]
        domains = [
            replace(
                route,
                expert=numbers[route.name],
                head=heads.index(route.name) if route.name in heads else None,
                adapter=adapters.index(route.name) if route.name in adapters else None,
                lead=None if route in owners else leads.get(numbers[route.name], cls),
            )
            for route in domains
        ]
        return tokenizer, domains + behind_instruction_token(tokenizer, instructed)


def plan_routes(names: Sequence[str], tasks: Any, config: ExtendConfig, layers: Sequence[str]) -> RoutePlan:
    """Plan a model's experts and routes from the arguments and settings of `extend`.

    `layers`: the paths of the linear layers in a block of the base, which adapters change.
    """
    on_base = config.kind != EXPERT
    plan = _plan_on_base(names, tasks, config, layers) if on_base else _plan_experts(names, tasks, config)
    _refuse_reserved(plan.names)
    return plan


def _plan_experts(names: Sequence[str], tasks: Any, config: ExtendConfig) -> RoutePlan:
    """Plan a model whose routes own experts, or share them."""
    kind, prefixes, share = ROUTE_KINDS[config.route], config.prefixes, config.share
    if tasks is not None and not kind.has_routes:
        raise UsageError("`tasks` makes a route of each instruction; leave out `route='none'`")
    for name, given, in_file in (("prefixes", prefixes, "instructions"), ("share", share, "experts")):
        if given and not kind.instructions:
            raise UsageError(f"`{name}` goes with `route='prefix'`; a task file has its own under {in_file}:")
    instructions: dict[str, str] = {}
    shared: dict[str, str] = {}
    if kind.instructions:
        shared = _checked_share(names, share)
        instructions = {name: f"{name}: " for name in (*names, *share)}
        if unknown := sorted(set(prefixes) - set(instructions)):
            raise UsageError(f"`prefixes`: {unknown[0]!r} is not an expert, nor a route that shares one")
        instructions |= prefixes
    task_instructions, task_experts = task_routes(tasks)
    own = [name for name, expert in task_experts.items() if name == expert]
    if not names and not own:
        raise UsageError("name at least one route (`routes`), or give `domains` or `tasks`")
    _refuse_twice([*names, *own])
    _refuse_twice([*instructions, *task_instructions])
    domains = names if kind.domain_tokens else ()
    owners = shared | task_experts
    instructions |= task_instructions
    return RoutePlan(
        (*names, *own),
        (
            *(PlannedRoute(name, name) for name in domains),
            *(PlannedRoute(name, owners.get(name, name), text) for name, text in instructions.items()),
        ),
    )


def _plan_on_base(names: Sequence[str], tasks: Any, config: ExtendConfig, layers: Sequence[str]) -> RoutePlan:
    """Plan a model whose routes own heads or adapters on the base, which counts as one expert."""
    if tasks is not None:
        raise UsageError(
            f"`tasks` makes routes of instructions, and each {config.kind} has a domain token: name `routes`"
        )
    if not names:
        raise UsageError("name at least one route (`routes`), or give `domains`")
    if BASE in names:
        raise UsageError(f"a route cannot be named {BASE!r}, which these routes sit on; rename it")
    _refuse_twice(names)
    adapter = adapter_settings(config.rank, layers) if config.kind == ADAPTER else {}
    return RoutePlan(
        (BASE,), tuple(PlannedRoute(name, BASE, kind=config.kind, adapter=adapter) for name in names)
    )


def adapter_settings(rank: int | None, layers: Sequence[str]) -> dict[str, Any]:
    """Return the settings of an adapter of these layers."""
    return {"rank": rank or DEFAULT_RANK, "layers": list(layers)}


def _refuse_reserved(names: Sequence[str], beside: Sequence[str] = ()) -> None:
    try:
        check_route_names(names, beside)
    except ValueError as error:
        raise UsageError(f"{error}; choose another one") from error


def _refuse_twice(names: Sequence[str]) -> None:
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise UsageError(f"named twice: {', '.join(map(repr, twice))}")


def _checked_share(names: Sequence[str], share: Mapping[str, str]) -> dict[str, str]:
    for name, expert in share.items():
        if name in names:
            raise UsageError(f"route {name!r} has its own expert, so it cannot share {expert!r}'s")
        if expert not in names:
            known = ", ".join(names)
            raise UsageError(f"route {name!r} shares {expert!r}, which is not an expert; they are {known}")
    return dict(share)


def domain_names(domains: Any) -> list[str]:
    """Return names, or the domains of pairs of any form."""
    if domains is None:
        return []
    if isinstance(domains, Sequence | Set) and not isinstance(domains, str):
        domains = list(domains)
    if isinstance(domains, list) and all(isinstance(name, str) for name in domains):
        return domains
    from sentence_experts.pairs.dataset import Pairs

    return Pairs.of(domains).domains


def task_routes(tasks: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Read route -> instruction and route -> expert from tasks: a file, a folder, or either one opened."""
    task_file = _task_file(tasks)
    return ({}, {}) if task_file is None else (task_file.instructions(), task_file.experts())


def search_routes(tasks: Any) -> dict[str, str]:
    """Return route of queries -> route of documents, of the same."""
    task_file = _task_file(tasks)
    return {} if task_file is None else task_file.search_routes()


def _task_file(tasks: Any) -> TaskFile | None:
    if isinstance(tasks, str | Path):
        from sentence_experts.tasks.task_file import TaskFile

        tasks = TaskFile.read(tasks)
    opened: TaskFile | None = getattr(tasks, "task_file", tasks)
    return opened
