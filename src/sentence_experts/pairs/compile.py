"""Compile pairs of a corpus: link the works, sort them into domains, split, add negatives."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from sentence_experts.config import with_settings
from sentence_experts.corpus.corpus_folder import CorpusFolder, open_corpus
from sentence_experts.errors import InputError
from sentence_experts.pairs.card import describe_near, describe_shortfall
from sentence_experts.pairs.config import AUTO_UNIT, LEVELS, PairsConfig
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.pairs.graph import LinkGraph, NothingLinkedError
from sentence_experts.pairs.links import RELATIONS
from sentence_experts.pairs.sets import Sets, make_sets
from sentence_experts.pairs.splits import (
    SPLITS,
    TEST,
    TRAIN,
    VALIDATION,
    PairArrays,
    seen_in_training,
)
from sentence_experts.pairs.sql_engine import SqlEngine, open_engine
from sentence_experts.pairs.user_tables import links_of
from sentence_experts.progress import progress
from sentence_experts.storage import check_apart, sha256_text

logger = logging.getLogger(__name__)

# Linked pairs of abstracts that are enough: three sets of a few hundred pairs each, and some to train on.
ENOUGH_PAIRS = 1_000
AUTO_UNITS = ("abstract", "title")  # in the order of preference
_SHARED_OUT = {"paper": "papers", "article": "citing articles"}


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
        before = _linked_in(Path(out)) if overwrite and Path(out).is_dir() else None
        if place.begin({"config": config.stored()}, inputs) != "finished":
            _compiled_from(folder, config, Path(out)).save_to(place)
            if before is not None and (after := _linked_in(Path(out))) is not None:
                common = len(before & after)
                logger.info(
                    f"in place of {len(before):,} linked pairs: {len(after):,}, of which "
                    f"{len(after) - common:,} are new; {len(before) - common:,} are gone"
                )
    return Pairs.open(out)


def _compiled_from(corpus: CorpusFolder, config: PairsConfig, out: Path | None) -> Pairs:
    rng = np.random.default_rng(config.seed)
    with open_engine(config, beside=out) as engine, progress("compile pairs", 2) as advance:
        advance(0, "linking works")
        graph, settings, why = _linked_works(corpus, config, engine)
        logger.info(f"{settings.relation} links {_describe_linked(graph.pairs)}")
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
            if settings.frequency == "duplication":  # source: Hallee et al. 2024 (preprint), 3.1
                pairs = pairs.take(np.repeat(np.arange(len(pairs)), pairs.count))
            tables[name] = graph.pair_table(pairs, np.ones(len(pairs), dtype=np.int64), rng)
        else:
            pairs, labels = _with_negatives(pairs, drawn.negatives[number])
            tables[name] = graph.pair_table(pairs, labels, rng)
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
        "papers": graph.domain_counts,
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


def _describe_linked(pairs: PairArrays) -> str:
    """The number of linked pairs, of their works, and of the pairs of each domain."""
    listed = [f"{name} {count:,}" for name, count in sorted(Counter(pairs.domain.tolist()).items())]
    works = len(np.union1d(pairs.left, pairs.right))
    return f"{len(pairs):,} pairs of {works:,} papers: {', '.join(listed)}"


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


def _linked_in(folder: Path) -> set[tuple[str, str]] | None:
    """The ids of the linked pairs in a folder; None if there are no pairs that can be read."""
    try:
        tables = Pairs.open(folder)
        ends = pa.concat_tables(links_of(tables.split(name)) for name in SPLITS).columns
    except InputError:
        return None
    return set(zip(*(column.to_pylist() for column in ends), strict=True))


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
    message, graphs = "", {}
    units = AUTO_UNITS if settings.unit == AUTO_UNIT else (settings.unit,)
    for unit in units:
        try:
            graph = LinkGraph(corpus, settings.model_copy(update={"unit": unit}), engine)
        except NothingLinkedError as error:
            message = str(error)
            continue
        if settings.unit != AUTO_UNIT:
            return graph, settings, None
        graphs[unit] = graph
        if len(graph.pairs) >= ENOUGH_PAIRS:
            break
    if not graphs:
        if settings.unit == AUTO_UNIT:
            message = (
                f"no two abstracts and no two titles of one domain are linked by {settings.relation}"
                f"{settings.at_least}; check `domains` and `min_count`, or add articles"
            )
        raise NothingLinkedError(message + _describe_others(units, corpus, settings, engine))
    abstracts, titles = (len(graphs[unit].pairs) if unit in graphs else 0 for unit in AUTO_UNITS)
    chosen = "abstract" if abstracts >= ENOUGH_PAIRS or 2 * abstracts >= titles else "title"
    why = f"pairs are of {chosen}s: linked pairs of abstracts {abstracts:,}"
    if abstracts < ENOUGH_PAIRS:
        why += f", of titles {titles:,}"
    logger.info(f"{why}; `unit` chooses another text")
    return graphs[chosen], settings.model_copy(update={"unit": chosen}), why


def _describe_others(
    tried: Sequence[str], corpus: CorpusFolder, settings: PairsConfig, engine: SqlEngine
) -> str:
    """The other relations and units that link something, and the number of pairs that they link."""
    works = []
    fixed = settings.by_proximity or settings.split == "article"  # which need co-citation
    for relation in (settings.relation,) if fixed else RELATIONS:
        for unit in AUTO_UNITS:
            if relation == settings.relation and unit in tried:
                continue
            other = settings.model_copy(update={"relation": relation, "unit": unit})
            with suppress(NothingLinkedError):
                pairs = len(LinkGraph(corpus, other, engine).pairs)
                works.append(f"`relation={relation}` `unit={unit}` links {pairs:,} pairs")
    return f". These settings link some: {', '.join(works)}" if works else ""
