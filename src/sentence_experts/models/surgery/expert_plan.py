"""Which experts a model gets and which routes lead to them, before any weight exists.

Domains and tasks can live in one model, since routing reads nothing but token ids: a text of a domain begins
with the domain's token in [CLS]'s place (Hallee 2025, fig. 1), a text of a task with its instruction (MoTE,
section 4).
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
from sentence_experts.models.surgery.extend_config import ExtendConfig

if TYPE_CHECKING:
    from sentence_experts.models.encoder import ExpertEncoder
    from sentence_experts.tasks.task_file import TaskFile


@dataclass(frozen=True)
class ExpertPlan:
    """The experts and routes of a model.

    Attributes:
        experts: names, in the order of their indices.
        domains: the experts that a domain token leads to.
        instructions: route -> instruction, for all routes that are instructions.
        shared: route -> the expert that it uses, where that is not the one of its own name.
    """

    experts: tuple[str, ...]
    domains: tuple[str, ...] = ()
    instructions: Mapping[str, str] = field(default_factory=dict)
    shared: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, encoder: ExpertEncoder) -> ExpertPlan:
        """Read the plan of a model that has experts."""
        config = encoder.routed_model.config
        names = encoder.experts
        instructions = [route for route in encoder.routes if not is_domain_route(route, config)]
        return cls(
            names,
            tuple(route.name for route in encoder.routes if is_domain_route(route, config)),
            {route.name: route.text for route in instructions},
            {route.name: names[route.expert] for route in instructions if route.name != names[route.expert]},
        )

    @property
    def kind(self) -> RouteKind:
        """The routes."""
        return route_kind_with(bool(self.domains), bool(self.instructions))

    @property
    def routes(self) -> tuple[str, ...]:
        """The names of all routes."""
        return (*self.domains, *self.instructions)

    def prompts(self, base_prompt: str) -> dict[str, str]:
        """Return what stands in front of each route's texts; the base's own prompt follows domain tokens."""
        return {name: domain_token(name) + base_prompt for name in self.domains} | dict(self.instructions)

    def with_expert(self, name: str, prefix: str | None) -> ExpertPlan:
        """Add an expert: with a domain token where the model has them and no instruction is given."""
        if name in self.experts:
            known = ", ".join(self.experts)
            raise UsageError(f"there is an expert {name!r} already; the experts are {known}")
        if name in self.routes:
            raise UsageError(f"there is a route {name!r} already, which shares an expert; use another name")
        if not self.routes and prefix is not None:
            raise UsageError("`prefix`: this model has no routes, its learned routers choose the experts")
        grown = replace(self, experts=(*self.experts, name))
        if not self.routes:
            return grown
        if self.domains and prefix is None:
            return replace(grown, domains=(*self.domains, name))
        return replace(grown, instructions={**self.instructions, name: prefix or f"{name}: "})

    def without_expert(self, name: str) -> ExpertPlan:
        """Drop an expert and all its routes."""
        shared = {route: expert for route, expert in self.shared.items() if expert != name}
        dropped = {name, *(self.shared.keys() - shared.keys())}
        return ExpertPlan(
            tuple(expert for expert in self.experts if expert != name),
            tuple(domain for domain in self.domains if domain != name),
            {route: text for route, text in self.instructions.items() if route not in dropped},
            shared,
        )

    def build_routes(self, tokenizer: PreTrainedTokenizerBase) -> tuple[PreTrainedTokenizerBase, list[Route]]:
        """Make the tokenizer that reads the routes from the base's, and the routes."""
        numbers = {name: number for number, name in enumerate(self.experts)}
        owners = {route: numbers[self.shared.get(route, route)] for route in self.instructions}
        instructed = prefix_routes(tokenizer, self.instructions, owners)
        if not self.domains:
            return tokenizer, instructed
        tokenizer, token_routes = with_domain_tokens(
            tokenizer, self.domains, list(self.instructions.values())
        )
        domains = [replace(route, expert=numbers[route.name]) for route in token_routes]
        return tokenizer, domains + behind_instruction_token(tokenizer, instructed)


def plan_experts(experts: Sequence[str] | None, domains: Any, tasks: Any, config: ExtendConfig) -> ExpertPlan:
    """Plan a model's experts from the arguments and settings of `extend`."""
    kind, prefixes, share = ROUTE_KINDS[config.route], config.prefixes, config.share
    names = [*([experts] if isinstance(experts, str) else experts or ()), *domain_names(domains)]
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
    routes = [*instructions, *task_instructions]
    if not names and not own:
        raise UsageError("name at least one expert (`experts`), or give `domains` or `tasks`")
    if twice := [*_repeated([*names, *own]), *_repeated(routes)]:
        raise UsageError(f"expert named twice: {', '.join(map(repr, dict.fromkeys(twice)))}")
    return ExpertPlan(
        (*names, *own),
        tuple(names) if kind.domain_tokens else (),
        instructions | task_instructions,
        shared | {name: expert for name, expert in task_experts.items() if name != expert},
    )


def _repeated(names: Sequence[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


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
