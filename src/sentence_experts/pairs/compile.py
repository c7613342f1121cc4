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

from sentence_experts.corpus.corpus_folder import CorpusFolder, open_corpus
from sentence_experts.errors import InputError
from sentence_experts.pairs.card import describe_near, describe_shortfall
from sentence_experts.pairs.config import PairsConfig
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.pairs.graph import LinkGraph
from sentence_experts.pairs.proximity import LEVELS
from sentence_experts.pairs.sets import Sets, duplicated_by_count, make_sets
from sentence_experts.pairs.splits import (
    CROSSING,
    SPLITS,
    TEST,
    TRAIN,
    VALIDATION,
    PairArrays,
    seen_in_training,
)
from sentence_experts.pairs.sql_engine import open_engine
from sentence_experts.pairs.unit import linked_works
from sentence_experts.progress import progress
from sentence_experts.storage import check_apart, sha256_text

logger = logging.getLogger(__name__)
_SHARED_OUT = {"paper": "papers", "article": "citing articles"}
_LINKED = """SELECT DISTINCT hash(least(anchor_id, positive_id), greatest(anchor_id, positive_id)) AS pair
    FROM read_parquet(?, union_by_name = true) WHERE label = 1 ORDER BY 1"""


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
    with open_engine(config, beside=out) as engine, progress("compile pairs", 2) as advance:
        advance(0, "linking works")
        graph, chosen, why = linked_works(corpus, config, engine)
        logger.info(f"{chosen.relation} links {_by_domain(graph)}")
        advance(1, "splitting and drawing negatives")
        pairs, known_links, works, made = _compiled(graph, chosen)
        advance(1)
    manifest = {
        "unit_chosen": why,
        "domain_rules": _rules_text(config.domains),
        "corpus": {
            "fingerprint": corpus.fingerprint(),
            "licences": corpus.manifest["counts"].get("by_licence"),
            "simulated": corpus.manifest["counts"].get("simulated", 0),
        },
        **made,
    }
    return Pairs.in_memory(pairs, known_links, manifest, works)


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


def _compiled(
    graph: LinkGraph, settings: PairsConfig
) -> tuple[dict[str, pa.Table], pa.Table, pa.Table, dict[str, Any]]:
    """The table of each split, the known links, the works of the evaluation sets, and the manifest's part."""
    rng = np.random.default_rng(settings.seed)
    sets = make_sets(graph, settings, rng)
    drawn, splits = sets.negatives, sets.negatives.splits
    for warning in (uneven := _uneven_split(sets, settings), describe_shortfall(drawn.shortfall)):
        if warning:
            logger.warning(warning)
    if near := describe_near(drawn.near):
        logger.info(near)
    known_links = graph.known_links(np.union1d(sets.sampled[TRAIN].left, sets.sampled[TRAIN].right))
    leaks, levels = _leaks(graph, splits, settings), _levels(splits)
    if settings.frequency == "duplication":
        splits[TRAIN] = duplicated_by_count(splits[TRAIN])
    tables, works = {}, np.empty(0, dtype=np.int64)
    for number, name in enumerate(SPLITS):
        labelled = _with_negatives(splits[number], drawn.negatives.get(number))
        tables[name] = graph.pair_table(*labelled, rng, anchored=drawn.anchored and number != TRAIN)
        if number != TRAIN:
            works = np.union1d(works, np.union1d(labelled[0].left, labelled[0].right))
    return (
        tables,
        known_links,
        graph.works_table(works),
        {
            "settings": settings.stored() | {"fractions": list(settings.shares)},
            "papers": None if graph.domain_counts is None else graph.domain_counts.to_json(),
            "retracted": graph.retracted,
            "notices": graph.notices,
            "link_counts": graph.link_counts,
            "left_out_by_max_references": graph.long_lists,
            "pairs_of_one_text_left_out": graph.same_text_pairs,
            "pairs_between_splits_left_out": int((sets.assignment.pairs == CROSSING).sum()),
            "uneven_split": uneven,
            "pairs_before_drawing": dict(zip(SPLITS, sets.before, strict=True)),
            "known_links": known_links.num_rows,
            "closest_levels": levels,
            "trained_within": sets.trained_within if levels else None,
            "positives_without_negative": _lost(sets.sampled, splits),
            "not_matched": drawn.shortfall,
            "near_negatives": drawn.near,
            **leaks,
        },
    )


def _uneven_split(sets: Sets, settings: PairsConfig) -> str | None:
    """What to know if the sets' shares of pairs are far from `fractions`, which are of papers or articles.

    Shares of pairs follow them only roughly: one long reference list can link more pairs than all others.
    """
    if settings.split not in _SHARED_OUT:
        return None
    pairs, assignment = sets.before, sets.assignment
    shares = [count / sum(pairs) for count in pairs]
    fractions = settings.shares
    if all(want / 2 <= share <= want * 2 for share, want in zip(shares, fractions, strict=True)):
        return None
    what, crossing = _SHARED_OUT[settings.split], int((assignment.pairs == CROSSING).sum())
    got, wanted = (", ".join(f"{share:.0%}" for share in each) for each in (shares, fractions))
    return (
        f"train, validation and test have {', '.join(f'{count:,}' for count in pairs)} pairs ({got}) where "
        f"`fractions` asks for {wanted}: they are shares of {what}, and few {what} can make most of the "
        f"pairs ({crossing:,} more pairs are between two sets and left out). Long reference lists weigh less "
        "with `max_references`; other `fractions`, another `seed` or more papers help too"
    )


def _lost(before: list[PairArrays], after: list[PairArrays]) -> dict[str, int]:
    return {SPLITS[split]: len(before[split]) - len(after[split]) for split in (VALIDATION, TEST)}


def _levels(splits: list[PairArrays]) -> dict[str, dict[str, int]] | None:
    """Split -> level -> the number of positives with that closest level; None if levels do not count."""
    return {
        name: {level: int((split.level == number).sum()) for number, level in enumerate(LEVELS)}
        for name, split in zip(SPLITS, splits, strict=True)
        if split.level is not None
    } or None


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


def _with_negatives(positives: PairArrays, negatives: PairArrays | None) -> tuple[PairArrays, np.ndarray]:
    labels = np.ones(len(positives), dtype=np.int64)
    if negatives is None:
        return positives, labels
    left, right, count, domain = (
        np.concatenate([getattr(positives, column), getattr(negatives, column)])
        for column in ("left", "right", "count", "domain")
    )
    level = None
    if positives.level is not None:
        unlinked = np.full(len(negatives), -1)
        level = np.concatenate([positives.level, unlinked if negatives.level is None else negatives.level])
    labels = np.concatenate([labels, np.zeros(len(negatives), dtype=np.int64)])
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
