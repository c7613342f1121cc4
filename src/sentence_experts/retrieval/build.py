"""`build_index`: the vectors of a corpus, before the first search needs them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from sentence_experts.config import BatchSize, with_settings
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.encoding.encode import Model
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.models.loading import LoadConfig
from sentence_experts.models.routes.known_routes import KnownRoutes, check_route
from sentence_experts.retrieval.index import FOLDER, is_current, read_index, route_vectors
from sentence_experts.retrieval.search_routes import find_search_route, list_search_routes
from sentence_experts.retrieval.texts import PASSAGES, PaperTexts
from sentence_experts.storage import RECORD

if TYPE_CHECKING:
    import pandas as pd


class IndexConfig(PaperTexts):
    """Settings of `build_index`."""

    route: list[str] | None = Field(
        None,
        description="Routes to encode with, or all. Default: all if they are heads, which share their "
        "vectors, else the one that `search` takes by default",
    )
    batch_size: BatchSize = None


@dataclass(frozen=True)
class CorpusIndex:
    """The vectors that stand beside a corpus.

    Attributes:
        corpus: the corpus.
        parts: one dict for each model, route and unit: `route` (None without routes, and if vectors
            are `shared` by all routes with heads), `unit`, `passages` (whether a paper has several vectors),
            `fingerprint` (of the route), `model`, `max_length` (in tokens), `texts`, `dimensions`,
            `megabytes`, `state` ("whole", "of an older corpus", or "damaged") and `folder`.
    """

    corpus: CorpusFolder
    parts: list[dict[str, Any]]

    @classmethod
    def open(cls, corpus: CorpusFolder | Path | str) -> CorpusIndex:
        """Read the vectors that stand beside a corpus; none is a valid answer.

        Raises:
            InputError: no corpus, or a newer version of this package wrote its vectors.
        """
        opened = CorpusFolder.open(corpus)
        # Folders with the words of the papers have records, too.
        files = sorted((opened.path / FOLDER).glob(f"[!w]*/{RECORD}"))
        return cls(opened, [_described(file.parent, opened) for file in files])

    def __repr__(self) -> str:
        names = [part["route"] or ("(all heads)" if part["shared"] else "(no routes)") for part in self.parts]
        lines = [
            f"{name}  {part['unit']}  {part['texts']:,} texts of {part['dimensions']}  "
            f"{part['megabytes']:,.1f} MB  {part['model']}  {part['state']}"
            for name, part in zip(names, self.parts, strict=True)
        ]
        return "\n".join(lines) or f"{self.corpus.path}: no vectors"

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per model, route and unit."""
        import pandas as pd

        return pd.DataFrame(self.parts)


def _described(folder: Path, corpus: CorpusFolder) -> dict[str, Any]:
    if (record := read_index(folder)) is None:
        settings, result, state = {}, {}, "damaged"
    else:
        settings, result = record["settings"], record["result"]
        state = "whole" if is_current(record, corpus) else "of an older corpus"
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return {
        "route": settings.get("route"),
        "shared": settings.get("shared", False),
        "unit": settings.get("unit", ""),
        "passages": settings.get("unit") == PASSAGES,
        "fingerprint": settings.get("fingerprint", ""),
        "model": result.get("model", ""),
        "max_length": settings.get("max_length"),
        "texts": result.get("texts", 0),
        "dimensions": result.get("dimensions", 0),
        "megabytes": round(size / 1e6, 1),
        "state": state,
        "folder": str(folder),
    }


@with_settings(IndexConfig)
def build_index(
    model: Model,
    corpus: CorpusFolder | Path | str,
    config: IndexConfig | None = None,
    *,
    load_config: LoadConfig | None = None,
    **settings: Any,
) -> CorpusIndex:
    """Encode the papers of a corpus, so that `search` finds their vectors.

    The vectors stand beside the corpus, one set for each route, bound to what decides that route's vectors:
    an expert that is added to the model, or a new card, leaves them valid. An interrupted call continues
    where it stopped. When the corpus has changed, only texts that it did not have before are encoded.

    Args:
        model: a model in memory, or the path or name of one.
        corpus: a corpus or its folder.
        config: settings; those given by name come before it.
        load_config: settings for opening a model that is given by its path or name; see `load`.

    Raises:
        UsageError: a bad setting.
        InputError: the corpus cannot be read or written to, or no paper has the text.
        RouteError: the model needs a route, or does not know one of these.

    Example:
        >>> build_index("model", "corpus", route=["genomics"], unit="title").to_pandas()["texts"].tolist()
        [120]
    """
    config = IndexConfig.of(config, **settings)
    opened = CorpusFolder.open(corpus)
    if not isinstance(model, BatchEncoder):
        known = KnownRoutes.read(model)
        for route in _routes(known, config) if known is not None else ():
            check_route(model, route)
        model = BatchEncoder.open(model, load_config, config.batch_size)
    unit = config.texts_for({model.name: model.model})
    for route in _routes(model.known_routes, config):
        route_vectors(model, opened, route, unit)
    return CorpusIndex.open(opened)


def _routes(known: KnownRoutes, config: IndexConfig) -> Iterator[str | None]:
    """Yield the routes of the papers that the settings name."""
    is_free = not config.route and known.default is None and known.share_vectors
    if is_free or known.means_all(config.route):
        yield from (route.document_route for route in list_search_routes(known))
    elif config.route:
        yield from (find_search_route(known, route).document_route for route in config.route)
    else:
        yield find_search_route(known).document_route
