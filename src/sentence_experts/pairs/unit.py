"""The choice of the text that pairs are made of, where the settings leave it open (`unit=auto`)."""

from __future__ import annotations

import logging

from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.pairs.config import AUTO_UNIT, PairsConfig
from sentence_experts.pairs.graph import LinkGraph, NothingLinkedError
from sentence_experts.pairs.links import RELATIONS
from sentence_experts.pairs.sql_engine import SqlEngine

logger = logging.getLogger(__name__)

# Linked pairs of abstracts that are enough: three sets of a few hundred pairs each, and some to train on.
ENOUGH_PAIRS = 1_000
UNITS = ("abstract", "title")  # in the order of preference


def linked_works(
    corpus: CorpusFolder, settings: PairsConfig, engine: SqlEngine
) -> tuple[LinkGraph, PairsConfig, str | None]:
    """The linked works of a corpus, the settings with a unit, and why it is that one, if it was chosen.

    Abstracts say more than titles, and are taken if they give `ENOUGH_PAIRS`, or nearly as many pairs as
    titles do. Titles of cited works outside the corpus often give many more.

    Raises:
        NothingLinkedError: nothing is linked; names the other relations and units that link something.
    """
    if settings.unit != AUTO_UNIT:
        try:
            return LinkGraph(corpus, settings, engine), settings, None
        except NothingLinkedError as error:
            raise NothingLinkedError(_with_others(str(error), corpus, settings, engine)) from error
    graphs: dict[str, LinkGraph] = {}
    for unit in UNITS:
        graph = _graph(corpus, settings, engine, unit=unit)
        if graph is not None:
            graphs[unit] = graph
            if len(graph.pairs) >= ENOUGH_PAIRS:
                break
    if not graphs:
        near = f" within a {settings.within}" if settings.within != "article" else ""
        message = (
            f"no two abstracts and no two titles of one domain are linked by {settings.relation}{near}"
            f"{settings.at_least}; check `domains` and `min_count`, or add articles"
        )
        raise NothingLinkedError(_with_others(message, corpus, settings, engine))
    counts = {unit: len(graphs[unit].pairs) if unit in graphs else 0 for unit in UNITS}
    abstracts, titles = (counts[unit] for unit in UNITS)
    chosen = "abstract" if abstracts >= ENOUGH_PAIRS or 2 * abstracts >= titles else "title"
    why = f"pairs are of {chosen}s: linked pairs of abstracts {abstracts:,}"
    if abstracts < ENOUGH_PAIRS:
        why += f", of titles {titles:,}"
    logger.info(f"{why}; `unit` chooses another text")
    return graphs[chosen], settings.model_copy(update={"unit": chosen}), why


def _graph(corpus: CorpusFolder, settings: PairsConfig, engine: SqlEngine, **other: str) -> LinkGraph | None:
    try:
        return LinkGraph(corpus, settings.model_copy(update=other), engine)
    except NothingLinkedError:
        return None


def _with_others(message: str, corpus: CorpusFolder, settings: PairsConfig, engine: SqlEngine) -> str:
    """The message that nothing is linked, with the other relations and units that link something."""
    works = []
    tried = UNITS if settings.unit == AUTO_UNIT else (settings.unit,)
    fixed = settings.by_proximity or settings.split == "article"  # which need co-citation
    for relation in (settings.relation,) if fixed else RELATIONS:
        for unit in UNITS if relation != settings.relation else [each for each in UNITS if each not in tried]:
            if (graph := _graph(corpus, settings, engine, relation=relation, unit=unit)) is not None:
                works.append(f"`relation={relation}` `unit={unit}` links {len(graph.pairs):,} pairs")
    return f"{message}. These settings link some: {', '.join(works)}" if works else message
