"""Which route a task's texts take: by the task's type, and by whether they are queries or documents.

A key is a task type or a task's name, alone or with a role: `STS`, `Retrieval.query`, `sts.stsb`. What the
user gives goes before a local task's own routes, and those before the table of types; of one origin the
narrower key goes first, and "*" last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import RouteError, UsageError
from sentence_experts.models.routing.task_types import ROLES, ROUTE_OF_TYPE, TWO_SIDED

ANY = "*"
NO_ROUTE = "none"
ROUTES: Mapping[str, str] = {
    f"{kind}.{role}" if role else kind: route for (kind, role), route in ROUTE_OF_TYPE.items()
}


@dataclass(frozen=True)
class TaskRoutes:
    """The routes of one model's texts.

    Attributes:
        routes: those that the model has; none for a model that takes texts as they are.
        model: its name, for messages.
        dense: whether it can encode without a route.
        given: key -> route, by the user; "none" for texts as they are.
        own: key -> route, of local tasks.
    """

    routes: tuple[str, ...]
    model: str = "the model"
    dense: bool = True
    given: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        encoder: BatchEncoder,
        given: Mapping[str, str] | None = None,
        own: Mapping[str, str] | None = None,
    ) -> TaskRoutes:
        """The routes of an encoder's texts."""
        return cls(tuple(encoder.routes), encoder.name, not encoder.has_experts, given or {}, own or {})

    def route(self, name: str, kind: str, role: str | None = None) -> str | None:
        """The route of the texts of task `name`, of type `kind`; None where the model has no routes.

        Raises:
            RouteError: no route for this type, or one that the model does not have.
        """
        keys = list(_keys(name, kind, role))
        chosen = _first(self.given, keys)
        if chosen == NO_ROUTE and self.dense:
            return None
        if chosen is None and not self.routes:
            return None
        chosen = chosen or _first(self.own, keys) or _first(ROUTES, keys)
        if chosen not in self.routes:
            raise RouteError(self._no_route(name, kind, role, chosen))
        return chosen

    def check(self, name: str, kind: str) -> dict[str, str | None]:
        """Role (or "text" for types of one side) -> route of a task.

        Raises:
            RouteError: one is missing.
        """
        if kind in TWO_SIDED:
            return {role: self.route(name, kind, role) for role in ROLES}
        return {"text": self.route(name, kind)}

    def _no_route(self, name: str, kind: str, role: str | None, chosen: str | None) -> str:
        key = f"{kind}.{role}" if role else kind
        known = ", ".join(sorted(self.routes)) or "none"
        why = f"no route {chosen!r} for it" if chosen else "no route for it"
        unrouted = f" ({NO_ROUTE}: texts as they are)" if self.dense else ""
        return (
            f"{name} ({key}): {self.model} has {why}; its routes: {known}; "
            f"name one with `route_map` {key}=ROUTE{unrouted}"
        )


def known_keys(tasks: Iterable[tuple[str, str]]) -> set[str]:
    """The keys that mean something for tasks of these names and types."""
    bases = {base for task in tasks for base in task} | {key.partition(".")[0] for key in ROUTES}
    return {ANY, *bases, *(f"{base}.{role}" for base in bases for role in ROLES)}


def read_route_map(
    assignments: Mapping[str, str], tasks: Iterable[tuple[str, str]]
) -> dict[str | None, dict[str, str]]:
    """`KEY` or `MODEL:KEY` -> route, as model -> key -> route; model None is for all that have routes.

    Args:
        assignments: as in `EvaluateConfig.route_map`.
        tasks: (name, type) of each task that is measured.

    Raises:
        UsageError: a key that is no task type and no task.
    """
    known = known_keys(tasks)
    maps: dict[str | None, dict[str, str]] = {}
    for written, route in assignments.items():
        model, colon, key = written.rpartition(":")  # a model's name may hold colons, a key does not
        if key not in known:
            types = ", ".join(sorted({base.partition(".")[0] for base in ROUTES}))
            raise UsageError(
                f"`route_map` {written}={route}: {key!r} is neither a task type nor a task measured here; "
                f"types: {types}; alone or with .query or .document; {ANY} for all"
            )
        maps.setdefault(model if colon else None, {})[key] = route
    return maps


def _keys(name: str, kind: str, role: str | None) -> Iterator[str]:
    for base in (name, kind):
        if role:
            yield f"{base}.{role}"
        yield base
    yield ANY


def _first(table: Mapping[str, str], keys: Iterable[str]) -> str | None:
    return next((table[key] for key in keys if key in table), None)
