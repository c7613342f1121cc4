"""Compile pairs of a corpus: link the works, sort them into domains, split, sample, add negatives."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sentence_experts.config import with_settings
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.pairs.card import describe_shortfall
from sentence_experts.pairs.config import (
    AUTO_LEVEL,
    AUTO_UNIT,
    DEFAULT_FRACTIONS,
    ENOUGH_TO_TRAIN,
    LEVELS,
    SPLITS,
    Level,
    PairsConfig,
)
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.pairs.domains import DomainRules
from sentence_experts.pairs.graph import LinkGraph, NothingLinkedError
from sentence_experts.pairs.labels import warn_of_case
from sentence_experts.pairs.links import RELATIONS
from sentence_experts.pairs.negatives import DrawnNegatives, draw_negatives
from sentence_experts.pairs.splits import (
    CROSSING,
    TEST,
    TRAIN,
    UNKNOWN_YEAR,
    PairArrays,
    TooFewPairsError,
    draw_per_domain,
    seen_in_training,
    split_by_article,
    split_by_pair,
    split_by_paper,
    split_by_year,
)
from sentence_experts.pairs.sql_engine import SqlEngine, open_engine
from sentence_experts.progress import progress
from sentence_experts.storage import check_apart, sha256_text
from sentence_experts.tables import fingerprint

logger = logging.getLogger(__name__)

# Sufficient number of linked pairs of abstracts: three sets of a few hundred pairs, and some to train on.
ENOUGH_PAIRS = 1_000
AUTO_UNITS = ("abstract", "title")  # in the order of preference
MAX_TRIED = 100_000  # maximum number of pairs on which other settings are tried out
SPLIT_METHODS = {"paper": split_by_paper, "random": split_by_pair, "year": split_by_year}
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
        corpus: a corpus, its folder, or two tables (pandas, polars, Arrow): papers (`paper_id`, `title`,
            `abstract`, `year`, ..., optionally `domain`) and citations (`citing`, `cited`).
        config: the settings; `settings` override its fields, by name.
        out: the folder to write to; without, the pairs stay in memory.
        overwrite: whether to start over, replacing other pairs in `out`.

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
        return _compile(CorpusFolder.of(corpus), config, None)
    check_apart(out, overwrite, corpus, config.domains)
    with Pairs.output(out, overwrite) as place:
        folder = CorpusFolder.of(corpus)
        inputs: dict[str, Any] = {"corpus": folder.fingerprint, "domains": partial(_hash_rules, config)}
        if place.begin({"config": config.stored()}, inputs) != "finished":
            _compile(folder, config, Path(out)).save_to(place)
    return Pairs.open(out)


def _compile(corpus: CorpusFolder, config: PairsConfig, out: Path | None) -> Pairs:
    rng = np.random.default_rng(config.seed)
    if corpus.domains is not None and "fetch" not in corpus.manifest:
        _warn_of_domains(corpus, corpus.domains, config)
    with open_engine(config, beside=out) as engine, progress("compile pairs", 2) as advance:
        advance(0, "linking works")
        graph, settings, why = _link_works(corpus, config, engine)
        _warn_of_lacking_texts(corpus, settings.unit)
        pairs = graph.pairs
        _warn_of_left_out(graph, settings)
        domains = ", ".join(f"{name} {count:,}" for name, count in sorted(Counter(pairs.domain).items()))
        works = len(np.union1d(pairs.left, pairs.right))
        logger.info(f"{settings.relation} links {len(pairs):,} pairs of {works:,} papers: {domains}")
        advance(1, "splitting and drawing negatives")
        sets = make_sets(graph, settings, rng)
        uneven = _describe_uneven(sets, settings)
        for warning in (uneven, describe_shortfall(sets.drawn.shortfall)):
            if warning:
                logger.warning(warning)
        trained = sets.sampled[TRAIN]
        known_links = graph.known_links(np.union1d(trained.left, trained.right))
        leaks = _count_leaks(graph, sets.drawn.splits, settings)
        tables, works_table = _make_tables(graph, sets.drawn, settings, rng)
        advance(1)
    counts = corpus.manifest["counts"]
    # Split -> level -> the number of positives with that closest level.
    levels = {
        name: {level: int((split.level == number).sum()) for number, level in enumerate(LEVELS)}
        for name, split in zip(SPLITS, sets.drawn.splits, strict=True)
        if split.level is not None
    }
    manifest = {
        "unit_chosen": why,
        "corpus": {
            "fingerprint": corpus.fingerprint(),
            "licences": counts.get("by_licence"),
            "simulated": counts.get("simulated", 0),
        },
        "settings": settings.stored() | {"fractions": list(settings.shares)},
        "uneven_split": uneven,
        "known_links": known_links.num_rows,
        "pairs_between_splits_left_out": sets.crossing,
        "closest_levels": levels or None,
        "trained_within": sets.trained_within if levels else None,
        "not_matched": sets.drawn.shortfall,
        **graph.counts,
        **leaks,
    }
    return Pairs.in_memory(tables, known_links, manifest, works_table)


def _warn_of_domains(corpus: CorpusFolder, domains: Path, config: PairsConfig) -> None:
    """Warn of a column `domain` that is not read, lacks papers, or has names that differ in case alone."""
    if config.domains is not None:
        logger.warning("the rules of `domains` sort the papers: their column `domain` is not read")
        return
    count, named = pq.read_metadata(corpus.papers).num_rows, pq.read_table(domains)
    if lacking := count - named.num_rows:
        logger.warning(f"papers: {lacking:,} of {count:,} have no `domain`: they are in no pair")
    warn_of_case(sorted(named["domain"].unique().to_pylist()), "papers", "domains")


def _warn_of_lacking_texts(corpus: CorpusFolder, unit: str) -> None:
    """Warn if more than a tenth of the papers lack the text that pairs are made of."""
    papers, lacking = pq.read_metadata(corpus.papers), Counter[str]()
    for number in range(papers.num_row_groups):
        group = papers.row_group(number)
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema in unit.split("+") and column.statistics is not None:
                lacking[column.path_in_schema] += column.statistics.null_count or 0
    for text, count in lacking.items():
        if 10 * count > papers.num_rows:
            logger.warning(f"{count:,} of {papers.num_rows:,} papers have no {text}: they are in no pair")


def _warn_of_left_out(graph: LinkGraph, settings: PairsConfig) -> None:
    """Warn if more than a tenth of the papers are left out, or have no year where they are split by it."""
    works = len(graph.works.year)
    for name, what in (("retracted", "retracted papers"), ("notices", "papers that are no research")):
        count = 0 if getattr(settings, f"keep_{name}") else cast(int, graph.counts[name])
        if 10 * count > works + count:
            logger.warning(
                f"{what} are in no pair ({count:,} of {works + count:,}): `keep_{name}` keeps them"
            )
    linked = np.union1d(graph.pairs.left, graph.pairs.right)
    unknown = int((graph.works.year[linked] == UNKNOWN_YEAR).sum())
    if settings.split == "year" and 10 * unknown > len(linked):
        logger.warning(
            f"split by year: {unknown:,} of {len(linked):,} papers have no year: pairs of them are tested on "
            "only where the other paper is known to be of the newest year"
        )


def _hash_rules(config: PairsConfig) -> str:
    if config.domains is None:
        return sha256_text("")
    rules = DomainRules.of(config.domains)
    if rules.mesh_descriptors is None:
        return sha256_text(rules.model_dump_json())
    _, descriptors = fingerprint(rules.mesh_descriptors)
    return sha256_text(rules.model_dump_json(exclude={"mesh_descriptors"}), descriptors)


def _make_tables(
    graph: LinkGraph, drawn: DrawnNegatives, settings: PairsConfig, rng: np.random.Generator
) -> tuple[dict[str, pa.Table], pa.Table]:
    """Return the table of each split, and the table of the works of validation and test."""
    tables, works = {}, np.empty(0, dtype=np.int64)
    for number, name in enumerate(SPLITS):
        pairs, negatives = drawn.splits[number], drawn.negatives[number]
        if number == TRAIN and settings.frequency == "duplication":  # source: Hallee et al. 2024, 3.1
            pairs = pairs.take(np.repeat(np.arange(len(pairs)), pairs.count))
        labels = np.repeat(np.array([1, 0], dtype=np.int64), [len(pairs), len(negatives)])
        columns = [
            np.concatenate([getattr(pairs, column), getattr(negatives, column)])
            for column in ("left", "right", "count", "domain")
        ]
        if pairs.level is not None:
            columns.append(np.concatenate([pairs.level, np.full(len(negatives), -1)]))
        pairs = PairArrays(*columns)
        tables[name] = graph.pair_table(pairs, labels, rng)
        if number != TRAIN:
            works = np.union1d(works, np.union1d(pairs.left, pairs.right))
    return tables, graph.works_table(works)


# ---- train, validation and test ------------------------------------------------------------------


class Sets(NamedTuple):
    """The three sets.

    Attributes:
        before: number of pairs of each set before sampling.
        crossing: number of pairs that are left out because they are between two sets.
        sampled: linked pairs of each set.
        drawn: negatives, with the pairs that have one.
        trained_within: proximity of the training pairs, as returned by `keep_nearest`.
    """

    before: list[int]
    crossing: int
    sampled: list[PairArrays]
    drawn: DrawnNegatives
    trained_within: dict[str, dict[str, Any]]


def make_sets(graph: LinkGraph, settings: PairsConfig, rng: np.random.Generator) -> Sets:
    """Split the linked pairs, sample them and draw negatives.

    Raises:
        TooFewPairsError: a set gets no pairs or no negatives; the message names settings that would work.
    """
    try:
        return _try_sets(graph, settings, rng)
    except TooFewPairsError as error:
        raise TooFewPairsError(f"{error}. {_describe_feasible(graph, settings)}") from error


def _try_sets(graph: LinkGraph, settings: PairsConfig, rng: np.random.Generator) -> Sets:
    pairs = graph.pairs
    if settings.split == "article":
        citing = graph.citing_articles(pairs)
        assignment = split_by_article(pairs, graph.works, citing, settings.shares, rng)
    else:
        assignment = SPLIT_METHODS[settings.split](pairs, graph.works, settings.shares, rng)
    splits = [pairs.take(assignment.pairs == split) for split in range(len(SPLITS))]
    before = [len(split) for split in splits]
    enough = min(ENOUGH_TO_TRAIN, settings.max_train_per_domain or ENOUGH_TO_TRAIN)
    enough = enough if settings.train_within == AUTO_LEVEL else 1
    near, trained_within = keep_nearest(splits[TRAIN], settings.trained_levels, enough, settings.within)
    if settings.train_within != AUTO_LEVEL:
        _check_near(trained_within, settings)
    by_count = settings.frequency == "sampling"
    for number, name in enumerate(SPLITS):
        maximum, among = settings.max_per_domain(name), near if number == TRAIN else None
        splits[number] = draw_per_domain(splits[number], maximum, by_count and number == TRAIN, rng, among)
    if empty := [name for name, split in zip(SPLITS, splits, strict=True) if len(split) == 0]:
        raise TooFewPairsError(
            f"the {empty[0]} split got none of the {len(pairs):,} pairs with `split={settings.split}`"
        )
    drawn = draw_negatives(graph, splits, assignment, settings.negatives, settings.negatives_min_cited, rng)
    return Sets(before, int((assignment.pairs == CROSSING).sum()), splits, drawn, trained_within)


def keep_nearest(
    pairs: PairArrays, levels: Sequence[Level], enough: int, within: str
) -> tuple[np.ndarray, dict[str, dict[str, Any]]]:
    """Select the pairs of each domain at the first of `levels` that has enough of them, else all.

    Returns:
        Mask of the pairs, and domain -> the level (of all pairs `within`, which they were made with), the
        number of its pairs, and `of` how many.
    """
    chosen, counts = np.ones(len(pairs), dtype=bool), {}
    closest = np.zeros(len(pairs), dtype=np.int64) if pairs.level is None else pairs.level
    for domain in np.unique(pairs.domain):
        rows = pairs.domain == domain
        counts[str(domain)] = {"level": within, "pairs": int(rows.sum()), "of": int(rows.sum())}
        for level in levels:
            near = rows & (closest >= LEVELS.index(level))
            if near.sum() >= enough:
                chosen &= near | ~rows
                counts[str(domain)] |= {"level": level, "pairs": int(near.sum())}
                break
    return chosen, counts


def _check_near(trained_within: Mapping[str, Mapping[str, Any]], settings: PairsConfig) -> None:
    """Refuse a level that the settings name, and of which a domain has no training pair."""
    levels = settings.trained_levels
    wider = [domain for domain, each in trained_within.items() if levels and each["level"] not in levels]
    if wider:
        raise TooFewPairsError(
            f"no training pair of {', '.join(wider)} is `train_within={settings.train_within}`: take a wider "
            f"level, or {AUTO_LEVEL}"
        )


def _count_leaks(graph: LinkGraph, splits: list[PairArrays], settings: PairsConfig) -> dict[str, int | None]:
    """Count the papers of test pairs, and the articles behind them, that training has too, after sampling.

    Only co-citation has articles behind its pairs; None otherwise.
    """
    compared, text = (splits[TRAIN], splits[TEST]), graph.works.same_text
    papers = seen_in_training(*(text[np.union1d(pairs.left, pairs.right)] for pairs in compared))
    articles: tuple[int | None, int | None] = (None, None)
    if settings.relation == "co-citation":
        articles = seen_in_training(*(graph.citing_articles(pairs).same_text for pairs in compared))
    return {
        "test_papers": papers[1],
        "test_papers_seen_in_training": papers[0],
        "test_articles": articles[1],
        "test_articles_seen_in_training": articles[0],
    }


def _describe_uneven(sets: Sets, settings: PairsConfig) -> str | None:
    """Describe how far the sets' shares of pairs are from `fractions`, the shares of papers or articles.

    Shares of pairs follow them only roughly: one long reference list can link more pairs than all others.
    """
    what, fractions = _SHARED_OUT.get(settings.split), settings.shares
    shares = [count / sum(sets.before) for count in sets.before]
    even = all(want / 2 <= share <= want * 2 for share, want in zip(shares, fractions, strict=True))
    if what is None or even:
        return None
    got, wanted = (", ".join(f"{share:.0%}" for share in each) for each in (shares, fractions))
    return (
        f"train, validation and test have {', '.join(f'{count:,}' for count in sets.before)} pairs ({got}) "
        f"where `fractions` asks for {wanted}: they are shares of {what}, and few {what} can make most of "
        f"the pairs ({sets.crossing:,} more pairs are between two sets and left out). Long reference lists "
        "weigh less with `max_references`; other `fractions`, another `seed` or more papers help too"
    )


def _describe_feasible(graph: LinkGraph, settings: PairsConfig) -> str:
    """List the other settings of split and negatives that leave no set empty, with the sizes of the sets."""
    if len(graph.pairs) > MAX_TRIED:
        return "Try another `split`, other `fractions` or `negatives=matched`, or add articles"
    even = list(DEFAULT_FRACTIONS["paper"])
    changes: list[dict[str, Any]] = [{"negatives": "matched"}] if settings.negatives == "cited" else []
    for split, usual in DEFAULT_FRACTIONS.items():
        if split != "article" or settings.relation == "co-citation":
            changes += [{"split": split}] if split != settings.split else []
            changes += [{"split": split, "fractions": even}] if (settings.fractions or usual) != even else []
    works = []
    for change in changes:
        with suppress(TooFewPairsError):
            other = settings.model_copy(update=change)
            sets = _try_sets(graph, other, np.random.default_rng(settings.seed))
            values = {
                name: ",".join(map(str, value)) if isinstance(value, list) else value
                for name, value in change.items()
            }
            named = " ".join(f"`{name}={value}`" for name, value in values.items())
            sizes = ", ".join(f"{len(split):,}" for split in sets.drawn.splits)
            works.append(f"{named} ({sizes} pairs)")
    if not works:
        return "No other split or negatives would work: add articles, or use fewer domains"
    return f"These would work: {', or '.join(works)}"


# ---- the text that pairs are made of -------------------------------------------------------------


def _link_works(
    corpus: CorpusFolder, settings: PairsConfig, engine: SqlEngine
) -> tuple[LinkGraph, PairsConfig, str | None]:
    """Return the linked works of a corpus, the settings with a unit, and the reason if the unit was chosen.

    Abstracts say more than titles, and are taken if they give `ENOUGH_PAIRS`, or nearly as many pairs as
    titles do. Titles of cited works outside the corpus often give many more.

    Raises:
        NothingLinkedError: nothing is linked; the message names other relations and units that link works.
    """
    is_open = settings.unit == AUTO_UNIT
    message, graphs = "", {}
    for unit in AUTO_UNITS if is_open else (settings.unit,):
        try:
            graphs[unit] = LinkGraph(corpus, settings.model_copy(update={"unit": unit}), engine)
        except NothingLinkedError as error:
            message = str(error)
        else:
            if len(graphs[unit].pairs) >= ENOUGH_PAIRS:
                break
    if not graphs:
        if is_open:
            message = (
                f"no two abstracts and no two titles of one domain are linked by {settings.relation}"
                f"{settings.at_least}; check `domains` and `min_count`, or add articles"
            )
        raise NothingLinkedError(message + _describe_others(corpus, settings, engine))
    if not is_open:
        return graphs[settings.unit], settings, None
    abstracts, titles = (len(graphs[unit].pairs) if unit in graphs else 0 for unit in AUTO_UNITS)
    chosen = "abstract" if abstracts >= ENOUGH_PAIRS or 2 * abstracts >= titles else "title"
    why = f"pairs are of {chosen}s: linked pairs of abstracts {abstracts:,}"
    if abstracts < ENOUGH_PAIRS:
        why += f", of titles {titles:,}"
    logger.info(f"{why}; `unit` chooses another text")
    return graphs[chosen], settings.model_copy(update={"unit": chosen}), why


def _describe_others(corpus: CorpusFolder, settings: PairsConfig, engine: SqlEngine) -> str:
    """List the other relations and units that link works, and the number of pairs that they link."""
    works = []
    fixed = settings.within != "article" or settings.split == "article"  # these need co-citation
    for relation in (settings.relation,) if fixed else RELATIONS:
        for unit in AUTO_UNITS:
            other = settings.model_copy(update={"relation": relation, "unit": unit})
            with suppress(NothingLinkedError):
                pairs = len(LinkGraph(corpus, other, engine).pairs)
                works.append(f"`relation={relation}` `unit={unit}` links {pairs:,} pairs")
    return f". These settings link some: {', '.join(works)}" if works else ""
