"""The corpus of the search page: a searcher per served model, also after a model was replaced."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import InputError, SentenceExpertsError, UsageError, brief
from sentence_experts.models.routes.known_routes import AUTO
from sentence_experts.models.sources import base_at_hand, source_name
from sentence_experts.retrieval.index import index_folder, read_index, vector_settings
from sentence_experts.retrieval.papers import VALUES, Papers
from sentence_experts.retrieval.search_routes import SearchRoute
from sentence_experts.retrieval.searcher import Searcher
from sentence_experts.retrieval.texts import PASSAGES
from sentence_experts.serve.errors import RequestError
from sentence_experts.serve.lanes import takes_packed
from sentence_experts.serve.models import Models, ServedModel

if TYPE_CHECKING:
    from sentence_experts.corpus.corpus_folder import CorpusFolder

logger = logging.getLogger(__name__)

LARGE = 20_000  # papers; encoding them takes long enough to be announced
FIELDS = {
    "type": "types",
    "journal": "journals",
    "domain": "domains",
    "keyword": "keywords",
}  # setting of `search` -> field
_NAMED = re.compile(r"`(\w+)`: ")
MAX_VALUES = 2_000  # of a filter that the page lists, the frequent ones first
CACHED_PAPERS = 1_000  # or passages, whose sentences' vectors stay in memory

Vectors = NDArray[np.float32]
# Route of the papers, and row of a paper or place of a passage -> (sentences, dimensions).
_Sentences = OrderedDict[tuple[str | None, int], Vectors]


@dataclass(frozen=True)
class CorpusView:
    """The corpus under one route of one model.

    Attributes:
        name: what requests call it: NAME:ROUTE, or NAME for a model without routes.
        label: what the page calls it.
        route: its routes for papers and queries.
        served: the model that encodes queries; the one that encoded the papers.
        searcher: finds papers.
    """

    name: str
    label: str
    route: SearchRoute
    served: ServedModel
    searcher: Searcher


def base_beside(sources: Mapping[str, Any], corpus: CorpusFolder) -> dict[str, str]:
    """The base of the first model, by a free name, where searching with it too costs little."""
    base = base_at_hand(next(iter(sources.values())))
    if base is None or base in sources.values() or Papers(corpus).count > LARGE:
        return {}
    names = (each for each in (source_name(base).replace(":", "-"), "base") if each not in sources)
    return dict.fromkeys(list(names)[:1], base)


class Library:
    """A corpus, under every route of every served model.

    Attributes:
        corpus: the corpus.
        views: by name, those of the first model first.
    """

    def __init__(self, corpus: CorpusFolder, models: Models, unit: str, beside: Sequence[str] = ()) -> None:
        """Read the papers' vectors under every route; those that are missing are built first.

        `beside`: names of models that are searched by default together with the first one.

        Raises:
            InputError: no paper has text, or vectors cannot be written beside the corpus.
        """
        self.corpus, self._models, self._unit = corpus, models, unit
        self._default = (models.first.name, *beside)
        self._papers = Papers(corpus)
        self._papers.citations(())  # read now, and not with the first search
        self._searchers = {served.name: (served, self._open(served)) for served in models}
        self.views = self._list_views()
        self.pool = ThreadPoolExecutor(thread_name_prefix="search")
        self._renewing: dict[str, tuple[ServedModel, asyncio.Task[None]]] = {}
        # By searcher, which a replaced model takes with it.
        self._sentences: WeakKeyDictionary[Searcher, _Sentences] = WeakKeyDictionary()

    def _open(self, served: ServedModel) -> Searcher:
        """A searcher with the vectors of all routes, by an encoder beside the server's batches."""
        from sentence_experts.compat.sentence_transformers import sharing_all_but_tokenizer

        # Requests may use the model's tokenizer at the same time, which takes one call at a time.
        model = sharing_all_but_tokenizer(served.model) if takes_packed(served.model) else served.model
        searcher = Searcher(BatchEncoder(model, name=served.name), self.corpus, self._unit, self._papers)
        routes = [route for route in searcher.routes if route.document_route != AUTO]
        papers = searcher.papers.count
        if papers > LARGE and (missing := [route for route in routes if not self._is_built(searcher, route)]):
            logger.info(
                f"{served.name}: {papers:,} papers are encoded under {len(missing)} routes before the "
                "server starts; `index build` can do that beforehand"
            )
        searcher.prepare(routes)
        logger.debug(f"{len(searcher.keywords.words):,} words")  # built now, if they must be
        return searcher

    def _is_built(self, searcher: Searcher, route: SearchRoute) -> bool:
        settings = vector_settings(searcher.encoder, route.document_route, searcher.unit)
        return read_index(index_folder(self.corpus, settings), self.corpus) is not None

    def _list_views(self) -> dict[str, CorpusView]:
        views = {}
        for served, searcher in self._searchers.values():
            for route in searcher.routes:
                if route.document_route == AUTO:
                    continue
                name = f"{served.name}:{route.name}" if route.name else served.name
                several = len(self._searchers) > len(self._default)
                label = (
                    f"{served.name}, {route.name}" if several and route.name else route.name or served.name
                )
                views[name] = CorpusView(name, label, route, served, searcher)
        return views

    @property
    def searcher(self) -> Searcher:
        """Any searcher, since all have the same papers."""
        return next(iter(self._searchers.values()))[1]

    def find(self, names: Sequence[str] | None, field: str = "routes") -> list[CorpusView]:
        """The views that a request names; a model's name means all of its routes.

        None means the first model and the base beside it.

        Raises:
            RequestError: 404, there is no such route; 422, none is named.
        """
        if names is None:
            names = self._default
        views: dict[str, CorpusView] = {}
        for place, name in enumerate(dict.fromkeys(names)):
            of_name = {
                each.name: each for each in self.views.values() if name in (each.name, each.served.name)
            }
            if not of_name:
                known = ", ".join(self.views)
                raise RequestError(
                    404,
                    f"no route {name!r}; there are {known}",
                    field if field == "route" else f"{field}.{place}",
                )
            views |= of_name
        if not views:
            raise RequestError(
                422, "name at least one route, or leave it out for all of the first model", "routes"
            )
        return list(views.values())

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

    def cached_sentences(self, view: CorpusView, place: int) -> Vectors | None:
        """The vectors of the sentences of a paper, or passage, if they were requested lately."""
        cached, key = self._sentences.get(view.searcher, _Sentences()), (view.route.document_route, place)
        if key in cached:
            cached.move_to_end(key)
        return cached.get(key)

    def cache_sentences(self, view: CorpusView, place: int, vectors: Vectors) -> None:
        """Keep the vectors of the sentences of a paper, or passage, for a while."""
        cached = self._sentences.setdefault(view.searcher, _Sentences())
        cached[view.route.document_route, place] = vectors
        while len(cached) > CACHED_PAPERS:
            cached.popitem(last=False)

    def refusal(self, error: SentenceExpertsError, field: str | None = None) -> RequestError:
        """An error of the searcher as clients get it, without the server's paths."""
        wrong = isinstance(error, UsageError | InputError)
        path = str(self.corpus.path)
        text = str(error).replace(f"{path}: ", "").replace(path, "the corpus")
        if field is None and (named := _NAMED.match(text)):
            field, text = FIELDS.get(named[1], named[1]), text[named.end() :]
        return RequestError(422 if wrong else 500, text, field)

    def about(self) -> dict[str, Any]:
        """The corpus and its routes, as the page shows them."""
        searcher = self.searcher
        return {
            "corpus": self.corpus.label,
            "papers": searcher.papers.count,
            "passages": self._unit == PASSAGES,
            "routes": [
                {"name": view.name, "label": view.label, "default": view.served.name in self._default}
                for view in self.views.values()
            ],
            "values": {each: dict(list(searcher.values(each).items())[:MAX_VALUES]) for each in VALUES},
        }

    def close(self) -> None:
        """End the threads."""
        self.pool.shutdown(wait=False, cancel_futures=True)
