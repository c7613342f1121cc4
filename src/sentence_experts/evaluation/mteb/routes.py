"""The routes of texts of tasks: by the type of the task, and by whether they are queries or documents.

A key is a task type or the name of a task, alone or with a role: `STS`, `Retrieval.query`, `sts.stsb`. Routes
given by the user come before those of local tasks, and these before the table of types; within each, the
narrower key comes first and "*" last.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import RouteError
from sentence_experts.evaluation.models import ANY_KEY, RouteMap
from sentence_experts.models.routes.task_types import ROLES, ROUTE_OF_TYPE, TWO_SIDED

logger = logging.getLogger(__name__)

NO_ROUTE = "none"
ROUTES: Mapping[str, str] = {
    f"{kind}.{role}" if role else kind: route for (kind, role), route in ROUTE_OF_TYPE.items()
}


@dataclass(frozen=True)
class TaskRoutes:
    """The routes of one model's texts."""

    routes: tuple[str, ...]
    model: str = "the model"
    dense: bool = True  # whether the model can encode without a route
    given: Mapping[str, str] = field(default_factory=dict)  # key -> route, or "none"; from the user
    own: Mapping[str, str] = field(default_factory=dict)  # key -> route, from local tasks

    @classmethod
    def of(cls, encoder: BatchEncoder, *routes: Mapping[str, str], **more: Mapping[str, str]) -> TaskRoutes:
        """Return the routes of an encoder's texts, `given` and `own` among them."""
        return cls(tuple(encoder.routes), encoder.name, not encoder.has_experts, *routes, **more)

    def route(self, name: str, kind: str, role: str | None = None) -> str | None:
        """Return the route of the texts of task `name`, of type `kind`; None if the model has no routes.

        Raises:
            RouteError: no route for this type, or one that the model does not have.
        """
        keys = [each for base in (name, kind) for each in ((f"{base}.{role}", base) if role else (base,))]
        given, own, table = (
            next((routes[key] for key in (*keys, ANY_KEY) if key in routes), None)
            for routes in (self.given, self.own, ROUTES)
        )
        if (given == NO_ROUTE and self.dense) or (given is None and not self.routes):
            return None
        chosen = given or own or table
        if chosen not in self.routes:
            key = f"{kind}.{role}" if role else kind
            known = ", ".join(sorted(self.routes)) or "none"
            why = f"no route {chosen!r} for it" if chosen else "no route for it"
            unrouted = f" ({NO_ROUTE}: texts without a route)" if self.dense else ""
            raise RouteError(
                f"{name} ({key}): {self.model} has {why}; its routes: {known}; "
                f"name one with `route_map` {key}=ROUTE{unrouted}"
            )
        return chosen

    def check(self, name: str, kind: str) -> dict[str, str | None]:
        """Return the routes of a task by role ("text" for types with one side).

        Raises:
            RouteError: one is missing.
        """
        if kind in TWO_SIDED:
            return {role: self.route(name, kind, role) for role in ROLES}
        return {"text": self.route(name, kind)}


def read_route_map(assignments: Mapping[str, str], tasks: Collection[tuple[str, str]]) -> RouteMap:
    """Read the setting `route_map` for tasks, (name, type) each: `KEY` or `MODEL:KEY` -> route.

    Raises:
        UsageError: a key that is neither a task type nor a task.
    """
    types = {key.partition(".")[0] for key in ROUTES}
    two_sided = types.intersection(TWO_SIDED)
    bases = {base for task in tasks for base in task} | types
    sided = {base for name, kind in tasks if kind in TWO_SIDED for base in (name, kind)} | two_sided
    keys = {*bases, *(f"{base}.{role}" for base in sided for role in ROLES)}
    expected = (
        f"neither a task type nor a task measured here; types: {', '.join(sorted(types))}; "
        f"{', '.join(sorted(two_sided))} also with .query or .document; {ANY_KEY} for all"
    )
    found = RouteMap.read(assignments, keys, expected)
    used = {ANY_KEY, *(base for task in tasks for base in task)}
    named = {key for each in (found.for_all_models, *found.for_one_model.values()) for key in each}
    if unused := sorted(
        key for key in named - used if key.removesuffix(f".{key.rpartition('.')[2]}") not in used
    ):
        logger.warning(f"`route_map`: of no task measured here, and without effect: {', '.join(unused)}")
    return found
