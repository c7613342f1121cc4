"""The routes that a model's texts can name; a saved model's are read from its JSON alone, without torch."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sentence_experts.errors import InputError, RouteError
from sentence_experts.models.routes.released import is_released, read_domains
from sentence_experts.models.routes.task_types import DOCUMENT_ROUTES, QUERY_ROUTES, without_task_types
from sentence_experts.models.sources import (
    FORMAT_VERSION,
    GRAPH_FILE,
    OPENERS,
    model_folder,
    read_graph,
    source_name,
)
from sentence_experts.names import ALL_ROUTES
from sentence_experts.storage import check_unchanged, check_version, read_json

logger = logging.getLogger(__name__)

SETTINGS = "config_sentence_transformers.json"


def start_of(text: str, letters: int) -> str:
    """Return the beginning of a text up to a number of letters.

    Spaces and punctuation do not count, since any number of them may be one token or none.
    """
    start = re.match(rf"(?:\W*\w){{0,{letters}}}\W*", text)
    return start[0] if start else text


@dataclass(frozen=True)
class KnownRoutes:
    """The routes of one model.

    Attributes:
        model: name of the model in messages.
        prompts: route name -> prompt text.
        default: route that is taken when none is named.
        experts: names of the experts; without routes, learned routers choose among them.
        search_routes: route of queries -> route of documents, as the model's task file has them.
        idle: routes whose experts were left out when the model was loaded; they are not among the prompts.
        heads: routes that own a head.
    """

    model: str
    prompts: Mapping[str, str]
    default: str | None
    experts: tuple[str, ...]
    search_routes: Mapping[str, str] = field(default_factory=dict)
    idle: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        model: str,
        prompts: Mapping[str, str | None] | None,
        default: str | None,
        config: Any = None,
        idle: Sequence[str] = (),
    ) -> KnownRoutes:
        """Collect routes from a model's prompts (empty ones are none), default prompt and config."""
        fields = config if isinstance(config, Mapping) else getattr(config, "__dict__", {})
        without_types = without_task_types(prompts or {}, default)
        named = {name: prompt for name, prompt in without_types.items() if prompt}
        routes = {name: prompt for name, prompt in named.items() if name not in idle}
        return cls(
            model,
            routes,
            default if default in routes else None,
            tuple(fields.get("experts") or ()),
            dict(fields.get("search_routes") or {}),
            tuple(idle),
            tuple(fields.get("heads") or ()),
        )

    @classmethod
    def read(cls, source: Any) -> KnownRoutes | None:
        """Read the routes of a saved model; None where only loading tells: hub models, embedders, others."""
        if not isinstance(source, str | Path):
            return None
        folder, name = Path(model_folder(str(source))), source_name(str(source))
        if (folder / GRAPH_FILE).is_file():
            return cls.of_graph(name, read_graph(folder / GRAPH_FILE))
        if not folder.is_dir() or any((folder / file).is_file() for file in OPENERS):
            return None
        check_unchanged(folder, only="config*.json")
        content = []
        for file in (folder / SETTINGS, folder / "config.json"):
            content.append(read_json(file) if file.is_file() else {})
            if not isinstance(content[-1], dict):
                raise InputError(f"{file}: not a JSON object")
        settings, config = content
        if is_released(config):
            domains = read_domains(folder)
            return cls(name, domains, None, (*domains,))
        if "format_version" in config:
            check_version(folder / "config.json", config["format_version"], FORMAT_VERSION)
        prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
        if not isinstance(prompts, dict):
            raise InputError(f"{folder / SETTINGS}: `prompts` is {prompts!r}, not names with their texts")
        for prompt, text in {**prompts, "default_prompt_name": default}.items():
            if not isinstance(text, str | None):
                raise InputError(f"{folder / SETTINGS}: {prompt!r} is {text!r}, not a text")
        return cls.of(name, prompts, default, config)

    @classmethod
    def of_graph(cls, model: str, record: Mapping[str, Any]) -> KnownRoutes:
        """Collect the routes of an exported graph from its record."""
        config, prompts = record.get("config") or {}, record.get("prompts") or {}
        ordered = {name: prompts[name] for name in (*config.get("routes", ()), *prompts) if name in prompts}
        return cls.of(model, ordered, record.get("default_prompt_name"), config)

    @property
    def share_vectors(self) -> bool:
        """Whether all routes are heads on one expert, so that one stored vector per text serves them."""
        return bool(self.prompts) and len(self.experts) == 1 and {*self.prompts} <= {*self.heads}

    @property
    def bare_queries(self) -> tuple[str, ...]:
        """Routes of queries in a model, without experts, that has no prompt for documents."""
        if self.experts or any(document in self.prompts for document in DOCUMENT_ROUTES):
            return ()
        paired = {query for query, document in QUERY_ROUTES if document in self.prompts}
        queries = dict.fromkeys(query for query, _ in QUERY_ROUTES if query in self.prompts)
        return tuple(query for query in queries if query not in paired)

    def choose(self, route: str | None) -> str | None:
        """Return the route that `route` means for this model.

        None, which means no prompt, only for a model without routes or, unless it has a default route, one
        without a prompt for documents.
        """
        none = "none, its learned routers choose the experts" if self.experts else "none"
        known = ", ".join(sorted(self.prompts)) or none
        if route is None and self.prompts and self.default is None and not self.bare_queries:
            raise RouteError(f"{self.model} needs a route; its routes: {known}")
        if route in self.idle:
            raise RouteError(f"{self.model} was loaded without the expert of {route!r}; its routes: {known}")
        if route is not None and route not in self.prompts:
            raise RouteError(f"{self.model} has no route {route!r}; its routes: {known}")
        return self.default if route is None else route

    def means_all(self, names: Sequence[str] | None) -> bool:
        """Return whether names of routes are "all" alone, and no route is called so."""
        if names is None or [*names] != [ALL_ROUTES]:
            return False
        if ALL_ROUTES in self.prompts and len(self.prompts) > 1:
            others = ", ".join(name for name in self.prompts if name != ALL_ROUTES)
            logger.warning(f"{self.model}: 'all' is the route of this name, without the others ({others})")
        return ALL_ROUTES not in self.prompts

    def check_loadable(self, names: Sequence[str]) -> None:
        """Check that experts can be found by these names of routes or experts."""
        known = list(dict.fromkeys([*self.prompts, *self.experts]))
        for name in [names] if isinstance(names, str) else names:
            if self.experts and name not in known:
                raise RouteError(f"no route is named {name!r}; routes that can be loaded: {', '.join(known)}")


def check_route(source: Any, route: str | None, or_expert: bool = False) -> None:
    """Check a route before the model is loaded, if `source` is a model's folder.

    Args:
        source: model, in memory or as a folder.
        route: name of a route; None for the default.
        or_expert: whether the name of an expert will do too.
    """
    known = KnownRoutes.read(source)
    if known is not None and not (or_expert and route in known.experts):
        known.choose(route)
