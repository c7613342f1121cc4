"""The corpus of the search page: a searcher per served model, also after a model was replaced."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from fastapi import Request, Response
from fastapi.routing import APIRoute

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import InputError, RouteError, SentenceExpertsError, UsageError, brief
from sentence_experts.models.sources import base_at_hand, source_name
from sentence_experts.retrieval.papers import VALUES, Papers
from sentence_experts.retrieval.search_routes import Blend
from sentence_experts.retrieval.searcher import Searcher
from sentence_experts.retrieval.taught import DEFAULT, Profile, ProfileState, TaughtEntry
from sentence_experts.retrieval.taught_routes import TaughtRoutes, describe_change
from sentence_experts.retrieval.texts import PASSAGES
from sentence_experts.serve.errors import RequestError
from sentence_experts.serve.models import Models, ServedModel
from sentence_experts.storage import NoSpaceError

if TYPE_CHECKING:
    from sentence_experts.corpus.corpus_folder import CorpusFolder

logger = logging.getLogger(__name__)

LARGE = 20_000  # number of papers from which their encoding is announced
# Setting of `search` -> field of a request.
FIELDS = {"type": "types", "journal": "journals", "domain": "domains", "keyword": "keywords"}
_NAMED = re.compile(r"`(\w+)`: ")
LAST = 3  # number of taught routes that are searched by default
MAX_PROFILES, MAX_FITTED = 100, 10  # profiles beside the corpus, and those whose routes stay fitted
MAX_VALUES = 2_000  # maximum number of values of a filter that the page lists, frequent ones first


@dataclass(frozen=True)
class CorpusView:
    """The corpus under one route of one model.

    Attributes:
        name: name in requests: NAME:ROUTE, or NAME for a model without routes.
        label: name on the page.
        blend: route, or several routes with their weights.
        served: model that encodes queries, and has encoded the papers.
        searcher: searcher of papers.
    """

    name: str
    label: str
    blend: Blend
    served: ServedModel
    searcher: Searcher


def profile_of(request: Request) -> str:
    """Return the name of the profile that a request belongs to, in the header `X-Profile`."""
    return unquote(request.headers.get("x-profile", DEFAULT))


def base_beside(sources: Mapping[str, Any], corpus: CorpusFolder) -> dict[str, str]:
    """Return the base of the first model, by a free name, where searching with it too costs little."""
    base = base_at_hand(next(iter(sources.values())))
    if base is None or base in sources.values() or Papers(corpus).count > LARGE:
        return {}
    names = (each for each in (source_name(base).replace(":", "-"), "base") if each not in sources)
    return dict.fromkeys(list(names)[:1], base)


class LibraryRoute(APIRoute):
    """An endpoint that answers from a library whose files are as they were when the server opened them."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, which checks the files before it (a shorter one may not be read) and after."""
        handle = super().get_route_handler()

        async def handle_checked(request: Request) -> Response:
            library: Library = request.app.state.library
            if request.method == "POST" and request.url.query and request.url.path != "/mcp":
                raise RequestError(422, "fields in the address are not read: send them as JSON")
            library.check_files()
            response = await handle(request)
            library.check_files()
            return response

        return handle_checked


class Library:
    """A corpus, under every route of every served model.

    Attributes:
        corpus: corpus of the search page.
        papers: table of the papers.
        views: views by name, the first model's first.
    """

    def __init__(self, corpus: CorpusFolder, models: Models, unit: str, beside: Sequence[str] = ()) -> None:
        """Read the papers' vectors under every route; those that are missing are built first.

        `beside`: names of models that are searched by default together with the first one.
        """
        self.corpus, self._models, self._unit = corpus, models, unit
        self._default = (models.first.name, *beside)
        self.papers = Papers(corpus)
        self.papers.citations(())  # read now, and not with the first search, as the domains
        self.papers.facts(range(min(self.papers.count, 1)))
        self._searchers = {served.name: (served, self._open(served)) for served in models}
        self.views = self._list_views()
        self.pool = ThreadPoolExecutor(thread_name_prefix="search")
        self._renewing: dict[str, tuple[ServedModel, asyncio.Task[None]]] = {}
        self._profiles: dict[str, Profile] = {}
        self._taught: dict[tuple[str, str], TaughtRoutes] = {}  # by profile and model
        self._was_written_to = False

    def _open(self, served: ServedModel) -> Searcher:
        """Open a searcher with the vectors of all routes, by an encoder beside the server's batches."""
        # A tokenizer takes one call at a time, and requests and other searchers of this model run meanwhile.
        encoder = BatchEncoder(served.beside(), name=served.name)
        searcher = Searcher(encoder, self.corpus, self._unit, self.papers)
        if self.papers.count > LARGE:
            logger.info(
                f"{served.name}: vectors that are missing are computed now; `index build` can do that"
            )
        for route in searcher.routes:
            searcher.vectors(route)
            searcher.scale(Blend((route,)))
        searcher.keywords  # noqa: B018  # built now, if they must be
        return searcher

    def renewed(self, corpus: CorpusFolder) -> Library:
        """Return the library of another corpus, by the same models: only new papers are encoded."""
        return Library(corpus, self._models, self._unit, self._default[1:])

    def _list_views(self) -> dict[str, CorpusView]:
        views = []
        several = len(self._searchers) > len(self._default)
        for served, searcher in self._searchers.values():
            for route in searcher.routes:
                name = f"{served.name}:{route.name}" if route.name else served.name
                label = f"{served.name}, {route.name}" if several else route.name
                views.append(
                    CorpusView(name, label if route.name else name, Blend((route,)), served, searcher)
                )
        return {view.name: view for view in views}

    def profile(self, name: str) -> Profile:
        """Return the profile of this name; a new one is kept once something is taught.

        Raises:
            RequestError: the name is not allowed, or there are too many.
        """
        if name not in self._profiles:
            with self.refusing("X-Profile"):
                profile = Profile(self.corpus, name)
            if not profile.path.exists() and len(list(profile.path.parent.glob("*.json"))) >= MAX_PROFILES:
                raise RequestError(422, f"there are {MAX_PROFILES} profiles already", "X-Profile")
            if len(self._profiles) >= MAX_PROFILES:
                self._profiles.clear()
            self._profiles[name] = profile
        return self._profiles[name]

    def taught(self, model: str, profile: str) -> TaughtRoutes:
        """Return the routes that were taught on a model; of models that are not served, on the first one."""
        with self.refusing():
            state = self.profile(profile).read()
        own = {name: each for name, each in state.routes.items() if self._model_of(each.model) == model}
        before, searcher = self._taught.pop((profile, model), None), self._searchers[model][1]
        routes = TaughtRoutes(searcher, ProfileState(routes=own), before)
        self._taught[profile, model] = routes
        for least_recent in list(self._taught)[:-MAX_FITTED]:
            self._taught.pop(least_recent, None)
        return routes

    def source_of(self, model: str) -> str | None:
        """Return the name that the model under a taught route was opened by; None for a folder."""
        return self._models.source(self._model_of(model))

    def change_of(self, name: str, entry: TaughtEntry) -> str | None:
        """Return in which way a taught route is fitted otherwise than it was taught; None if it is not."""
        return describe_change(self._searchers[self._model_of(entry.model)][1], name, entry)

    def view_of(self, entry: TaughtEntry) -> CorpusView | None:
        """Return the route of a model that a taught route began as; None if it is not served."""
        model = self._model_of(entry.model)
        return self.views.get(f"{model}:{entry.on}" if entry.on else model)

    def _model_of(self, name: str) -> str:
        return name if name in self._searchers else next(iter(self._searchers))

    def last_taught(self, profile: str) -> list[str]:
        """Return the names, in requests, of the routes that were taught last, if they fit their models."""
        with self.refusing():
            routes = self.profile(profile).read().routes
        models = [(self._model_of(each.model), name) for name, each in list(routes.items())[-LAST:]]
        return [f"{model}:{name}" for model, name in models if self.taught(model, profile).is_usable(name)]

    def find(
        self, names: Sequence[str] | None, field: str = "routes", profile: str = DEFAULT
    ) -> list[CorpusView]:
        """Find the views that a request names; a model's name means all routes but the taught ones.

        None means the first model, the base beside it, and what was taught last. NAME:ROUTE=0.7,OTHER=0.3 is
        a blend of routes.
        """
        if names is None:
            names = [*self._default, *self.last_taught(profile)]
        found: dict[str, CorpusView] = {}
        for place, name in enumerate(dict.fromkeys(names)):
            where = f"{field}.{place}" if field == "routes" else field
            views = {view.name: view for view in self.views.values() if name in (view.name, view.served.name)}
            model, _, route = name.partition(":")
            if not views and model in self._searchers:
                taught = self.taught(model, profile)
                if route in taught.unfit:
                    raise RequestError(404, taught.unfit[route], where)
                if route in taught or "=" in route:
                    views = {name: self._blended(name, model, route, where, taught)}
                elif route in self._searchers[model][1].encoder.routes:  # a pair has one side's name
                    blend = self._searchers[model][1].blend(route)
                    of_model = (view for view in self.views.values() if view.served.name == model)
                    views = {view.name: view for view in of_model if view.blend == blend}
            if not views:
                known = [*self.views, *self.last_taught(profile)]
                raise RequestError(404, f"no route {name!r}; there are {', '.join(known)}", where)
            found |= views
        if not found:
            reason = "name at least one route, or leave it out for all of the first model"
            raise RequestError(422, reason, "routes")
        return list(found.values())

    def find_one(self, name: str, field: str, profile: str) -> CorpusView:
        """Find the one view that a request names."""
        view, *others = self.find([name], field, profile)
        if others:
            known = ", ".join(each.name for each in (view, *others))
            raise RequestError(422, f"{name!r} has several routes, name one: {known}", field)
        return view

    def _blended(self, name: str, model: str, route: str, field: str, taught: TaughtRoutes) -> CorpusView:
        served, searcher = self._searchers[model]
        try:
            blend = searcher.blend(route, taught)
        except (UsageError, RouteError) as error:
            raise RequestError(422, str(error).removeprefix("`route`: "), field) from None
        shares = zip(blend.routes, blend.weights, strict=True)
        label = ", ".join(f"{each.name} {weight:.0%}" for each, weight in shares)
        label = route if route in taught else label
        return CorpusView(name, label, blend, served, searcher)

    def follow(self) -> None:
        """Begin to encode the corpus for models that were replaced; until then the one before it answers."""
        for name, (served, _) in self._searchers.items():
            newer = self._models.get(name)
            if newer is None or newer is served:
                continue
            tried, task = self._renewing.get(name, (None, None))
            if task is None or (task.done() and tried is not newer):  # what failed once would fail again
                self._renewing[name] = newer, asyncio.create_task(self._renew(name, newer))

    async def _renew(self, name: str, newer: ServedModel) -> None:
        try:
            self._searchers[name] = (newer, await asyncio.to_thread(self._open, newer))
            self.views = self._list_views()
        except Exception as error:
            text = str(error) if isinstance(error, SentenceExpertsError) else brief(error)
            logger.warning(f"{name}: searches continue with the model before it: {text}")

    def rows(self, ids: Sequence[str], field: str) -> list[int]:
        """Return the rows of papers by DOI, PMID, PMCID or paper id, which a request has in `field`."""
        with self.refusing(field):
            return self.papers.find(ids)

    @contextmanager
    def refusing(self, field: str | None = None) -> Iterator[None]:
        """Answer 422 for what the corpus does not have, 507 for a full disk, without the server's paths."""
        try:
            yield
        except NoSpaceError:
            raise RequestError(507, "the server's disk is full; nothing was changed") from None
        except (UsageError, InputError, RouteError) as error:
            path = str(self.corpus.path)
            text = str(error).replace(f"{path}: ", "").replace(path, "the corpus")
            if named := _NAMED.match(text):
                field, text = field or FIELDS.get(named[1], named[1]), text[named.end() :]
            raise RequestError(422, text, field) from None

    def check_files(self) -> None:
        """Refuse to answer from files that another program has written to.

        Raises:
            RequestError: it has.
        """
        try:
            for _, searcher in self._searchers.values():
                searcher.check_files()
        except InputError as error:
            if not self._was_written_to:
                logger.warning(str(error))
            self._was_written_to = True
            raise RequestError(
                503, "the corpus was written to while it is served: restart the server"
            ) from None

    def about(self, profile: str = DEFAULT) -> dict[str, Any]:
        """Describe the corpus and its routes, as the page shows them."""
        last = self.last_taught(profile)
        taught = [
            {"name": name, "label": route, "default": name in last, "taught": True}
            for model in self._searchers
            for route in self.taught(model, profile)
            for name in [f"{model}:{route}"]
        ]
        return {
            "corpus": self.corpus.label,
            "folder": self.corpus.path.resolve().name,
            "papers": self.papers.count,
            "passages": self._unit == PASSAGES,
            "routes": [
                {"name": view.name, "label": view.label, "default": view.served.name in self._default}
                for view in self.views.values()
            ]
            + taught,
            "values": {each: dict(list(self.papers.values(each).items())[:MAX_VALUES]) for each in VALUES},
        }

    def close(self) -> None:
        """End the threads."""
        self.pool.shutdown(wait=False, cancel_futures=True)
