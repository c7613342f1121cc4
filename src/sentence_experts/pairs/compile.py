"""Compile pairs of a corpus: link the works, sort them into domains, split, add negatives."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import yaml

from sentence_experts.config import with_settings
from sentence_experts.corpus.corpus_folder import CorpusFolder, open_corpus
from sentence_experts.errors import InputError
from sentence_experts.pairs.card import describe_near, describe_shortfall
from sentence_experts.pairs.config import AUTO_UNIT, PairsConfig
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.pairs.graph import LinkGraph, NothingLinkedError
from sentence_experts.pairs.links import RELATIONS
from sentence_experts.pairs.proximity import LEVELS
from sentence_experts.pairs.sets import Sets, duplicated_by_count, make_sets
from sentence_experts.pairs.splits import (
    SPLITS,
    TEST,
    TRAIN,
    VALIDATION,
    PairArrays,
    seen_in_training,
)
from sentence_experts.pairs.sql_engine import SqlEngine, open_engine
from sentence_experts.progress import progress
from sentence_experts.storage import check_apart, sha256_text

logger = logging.getLogger(__name__)

# Linked pairs of abstracts that are enough: three sets of a few hundred pairs each, and some to train on.
ENOUGH_PAIRS = 1_000
AUTO_UNITS = ("abstract", "title")  # in the order of preference
_SHARED_OUT = {"paper": "papers", "article": "citing articles"}
_LINKED = """SELECT DISTINCT hash(least(anchor_id, positive_id), greatest(anchor_id, positive_id)) AS pair
    FROM read_parquet(?, union_by_name = true) WHERE label = 1 ORDER BY 1"""


@with_settings(PairsConfig)
def compile_pairs(
    corpus: CorpusFolder | Path | str | tuple[Any, Any],
    config: PairsConfig | None = None,
    out: Path | str | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> Pairs:
    """Link the works of a corpus into pairs, split them and add negatives.

    The same corpus and settings give the same bytes, whichever engine links the works.

    Args:
        corpus: a corpus folder, or two tables (pandas, polars, Arrow): papers (`paper_id`, `title`,
            `abstract`, `year`, ..., optionally `domain`) and citations (`citing`, `cited`).
        config: the settings; `settings` override its fields, by name.
        out: the folder to write to; without, the pairs stay in memory.
        overwrite: start over, replacing other pairs in `out`.

    Raises:
        InputError: a domain rule cannot be applied.
        TooFewPairsError: nothing is linked, a split is empty, or there are too few negatives; the message
            names the settings that would work.
        UsageError: `out` holds something else, or the scratch folder cannot be written to.
        SentenceExpertsError: Spark was chosen and is not installed or does not start.

    Example:
        >>> pairs = compile_pairs("corpus", domains="domains.yaml", unit="title", max_eval_per_domain=20)
        >>> sorted(pairs.domains)[:2]
        ['cell_biology', 'development']
    """
    config = PairsConfig.of(config, **settings)
    if out is None:
        with open_corpus(corpus) as folder:
            return _compiled_from(folder, config, None)
    check_apart(out, overwrite, corpus, config.domains)
    with Pairs.output(out, overwrite) as place, open_corpus(corpus) as folder:
        rules = lambda: sha256_text(_rules_text(config.domains) or "")  # noqa: E731
        inputs = {"corpus": folder.fingerprint, "domains": rules}
        before = _linked_in(Path(out)) if overwrite else None
        if place.begin({"config": config.stored()}, inputs) != "finished":
            _compiled_from(folder, config, Path(out)).save_to(place)
            _report_new(before, _linked_in(Path(out)))
    return Pairs.open(out)


def _compiled_from(corpus: CorpusFolder, config: PairsConfig, out: Path | None) -> Pairs:
    rng = np.random.default_rng(config.seed)
    with open_engine(config, beside=out) as engine, progress("compile pairs", 2) as advance:
        advance(0, "linking works")
        graph, settings, why = _linked_works(corpus, config, engine)
        logger.info(f"{settings.relation} links {_by_domain(graph)}")
        advance(1, "splitting and drawing negatives")
        sets = make_sets(graph, settings, rng)
        uneven = _describe_uneven(sets, settings)
        for warning in (uneven, describe_shortfall(sets.negatives.shortfall)):
            if warning:
                logger.warning(warning)
        if near := describe_near(sets.negatives.near):
            logger.info(near)
        trained = sets.sampled[TRAIN]
        known_links = graph.known_links(np.union1d(trained.left, trained.right))
        leaks = _leaks(graph, sets.negatives.splits, settings)
        tables, works = _tables(graph, sets, settings, rng)
        advance(1)
    counts = corpus.manifest["counts"]
    manifest = {
        "unit_chosen": why,
        "domain_rules": _rules_text(config.domains),
        "corpus": {
            "fingerprint": corpus.fingerprint(),
            "licences": counts.get("by_licence"),
            "simulated": counts.get("simulated", 0),
        },
        "settings": settings.stored() | {"fractions": list(settings.shares)},
        "uneven_split": uneven,
        "known_links": known_links.num_rows,
        **_counts(graph, sets),
        **leaks,
    }
    return Pairs.in_memory(tables, known_links, manifest, works)


def _tables(
    graph: LinkGraph, sets: Sets, settings: PairsConfig, rng: np.random.Generator
) -> tuple[dict[str, pa.Table], pa.Table]:
    """The table of each split, and that of the works of validation and test."""
    drawn = sets.negatives
    tables, works = {}, np.empty(0, dtype=np.int64)
    for number, name in enumerate(SPLITS):
        pairs = drawn.splits[number]
        if number == TRAIN:
            pairs = duplicated_by_count(pairs) if settings.frequency == "duplication" else pairs
            tables[name] = graph.pair_table(pairs, np.ones(len(pairs), dtype=np.int64), rng)
        else:
            pairs, labels = _with_negatives(pairs, drawn.negatives[number])
            tables[name] = graph.pair_table(pairs, labels, rng, anchored=drawn.anchored)
            works = np.union1d(works, np.union1d(pairs.left, pairs.right))
    return tables, graph.works_table(works)


def _counts(graph: LinkGraph, sets: Sets) -> dict[str, Any]:
    """How many papers and pairs there are, and how many were left out and why."""
    drawn = sets.negatives
    # Split -> level -> the number of positives with that closest level.
    levels = {
        name: {level: int((split.level == number).sum()) for number, level in enumerate(LEVELS)}
        for name, split in zip(SPLITS, drawn.splits, strict=True)
        if split.level is not None
    }
    return {
        "papers": None if graph.domain_counts is None else graph.domain_counts.to_json(),
        "retracted": graph.retracted,
        "notices": graph.notices,
        "link_counts": graph.link_counts,
        "left_out_by_max_references": graph.long_lists,
        "pairs_of_one_text_left_out": graph.same_text_pairs,
        "pairs_between_splits_left_out": sets.crossing,
        "pairs_before_drawing": dict(zip(SPLITS, sets.before, strict=True)),
        "closest_levels": levels or None,
        "trained_within": sets.trained_within if levels else None,
        "positives_without_negative": {
            SPLITS[split]: len(sets.sampled[split]) - len(drawn.splits[split]) for split in (VALIDATION, TEST)
        },
        "not_matched": drawn.shortfall,
        "near_negatives": drawn.near,
    }


def _by_domain(graph: LinkGraph) -> str:
    """The number of linked pairs, and of their works, in each domain."""
    domains, counts = np.unique(graph.pairs.domain.astype(str), return_counts=True)
    listed = [f"{domain} {count:,}" for domain, count in zip(domains, counts.tolist(), strict=True)]
    works = len(np.union1d(graph.pairs.left, graph.pairs.right))
    return f"{len(graph.pairs):,} pairs of {works:,} papers: {', '.join(listed)}"


def _rules_text(rules: Path | Mapping[str, Any] | None) -> str | None:
    """The rules as they were given, for the manifest."""
    if isinstance(rules, Mapping):
        return yaml.safe_dump(dict(rules), sort_keys=False)
    try:
        return None if rules is None else rules.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise InputError(f"{rules}: cannot be read: {reason}") from error


def _describe_uneven(sets: Sets, settings: PairsConfig) -> str | None:
    """Describe how the sets' shares of pairs are far from `fractions`, which are of papers or articles.

    Shares of pairs follow them only roughly: one long reference list can link more pairs than all others.
    """
    if settings.split not in _SHARED_OUT:
        return None
    pairs, fractions = sets.before, settings.shares
    shares = [count / sum(pairs) for count in pairs]
    if all(want / 2 <= share <= want * 2 for share, want in zip(shares, fractions, strict=True)):
        return None
    what = _SHARED_OUT[settings.split]
    got, wanted = (", ".join(f"{share:.0%}" for share in each) for each in (shares, fractions))
    return (
        f"train, validation and test have {', '.join(f'{count:,}' for count in pairs)} pairs ({got}) where "
        f"`fractions` asks for {wanted}: they are shares of {what}, and few {what} can make most of the "
        f"pairs ({sets.crossing:,} more pairs are between two sets and left out). Long reference lists weigh "
        "less with `max_references`; other `fractions`, another `seed` or more papers help too"
    )


def _leaks(graph: LinkGraph, splits: list[PairArrays], settings: PairsConfig) -> dict[str, int | None]:
    """Count papers of test pairs, and articles behind them, that are in training too, after sampling.

    Only co-citation has articles behind its pairs; None otherwise.
    """
    compared = splits[TRAIN], splits[TEST]
    papers = seen_in_training(*(np.union1d(pairs.left, pairs.right) for pairs in compared))
    articles: tuple[int | None, int | None] = (None, None)
    if settings.relation == "co-citation":
        articles = seen_in_training(*(graph.citing_articles(pairs).article for pairs in compared))
    return {
        "test_papers": papers[1],
        "test_papers_seen_in_training": papers[0],
        "test_articles": articles[1],
        "test_articles_seen_in_training": articles[0],
    }


def _with_negatives(positives: PairArrays, negatives: PairArrays) -> tuple[PairArrays, np.ndarray]:
    """All pairs, and their labels."""
    left, right, count, domain = (
        np.concatenate([getattr(positives, column), getattr(negatives, column)])
        for column in ("left", "right", "count", "domain")
    )
    level = None
    if positives.level is not None:
        unlinked = np.full(len(negatives), -1)
        level = np.concatenate([positives.level, unlinked if negatives.level is None else negatives.level])
    labels = np.repeat(np.array([1, 0], dtype=np.int64), [len(positives), len(negatives)])
    return PairArrays(left, right, count, domain, level), labels


def _linked_in(folder: Path) -> np.ndarray | None:
    """A number for each linked pair in a folder, ascending; None if there are no pairs that can be read."""
    files = [str(path) for name in SPLITS if (path := folder / f"{name}.parquet").is_file()]
    if not files:
        return None
    try:
        with duckdb.connect() as database:
            return np.asarray(database.execute(_LINKED, [files]).fetchnumpy()["pair"])
    except duckdb.Error:
        return None


def _report_new(before: np.ndarray | None, after: np.ndarray | None) -> None:
    """Log how many linked pairs are new, and how many of those before are gone."""
    if before is not None and after is not None:
        common = len(np.intersect1d(before, after, assume_unique=True))
        logger.info(
            f"in place of {len(before):,} linked pairs: {len(after):,}, of which {len(after) - common:,} are "
            f"new; {len(before) - common:,} are gone"
        )


# ---- the text that pairs are made of -------------------------------------------------------------


def _linked_works(
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
            raise _with_others(str(error), corpus, settings, engine) from error
    graphs: dict[str, LinkGraph] = {}
    for unit in AUTO_UNITS:
        if (graph := _try_graph(corpus, settings, engine, unit=unit)) is not None:
            graphs[unit] = graph
            if len(graph.pairs) >= ENOUGH_PAIRS:
                break
    if not graphs:
        near = f" within a {settings.within}" if settings.within != "article" else ""
        message = (
            f"no two abstracts and no two titles of one domain are linked by {settings.relation}{near}"
            f"{settings.at_least}; check `domains` and `min_count`, or add articles"
        )
        raise _with_others(message, corpus, settings, engine)
    counts = {unit: len(graphs[unit].pairs) if unit in graphs else 0 for unit in AUTO_UNITS}
    abstracts, titles = (counts[unit] for unit in AUTO_UNITS)
    chosen = "abstract" if abstracts >= ENOUGH_PAIRS or 2 * abstracts >= titles else "title"
    why = f"pairs are of {chosen}s: linked pairs of abstracts {abstracts:,}"
    if abstracts < ENOUGH_PAIRS:
        why += f", of titles {titles:,}"
    logger.info(f"{why}; `unit` chooses another text")
    return graphs[chosen], settings.model_copy(update={"unit": chosen}), why


def _try_graph(
    corpus: CorpusFolder, settings: PairsConfig, engine: SqlEngine, **other: str
) -> LinkGraph | None:
    try:
        return LinkGraph(corpus, settings.model_copy(update=other), engine)
    except NothingLinkedError:
        return None


def _with_others(
    message: str, corpus: CorpusFolder, settings: PairsConfig, engine: SqlEngine
) -> NothingLinkedError:
    """The error that nothing is linked, with the other relations and units that link something."""
    works = []
    tried = AUTO_UNITS if settings.unit == AUTO_UNIT else (settings.unit,)
    fixed = settings.by_proximity or settings.split == "article"  # which need co-citation
    for relation in (settings.relation,) if fixed else RELATIONS:
        for unit in (
            AUTO_UNITS
            if relation != settings.relation
            else [each for each in AUTO_UNITS if each not in tried]
        ):
            if (graph := _try_graph(corpus, settings, engine, relation=relation, unit=unit)) is not None:
                works.append(f"`relation={relation}` `unit={unit}` links {len(graph.pairs):,} pairs")
    return NothingLinkedError(
        f"{message}. These settings link some: {', '.join(works)}" if works else message
    )
