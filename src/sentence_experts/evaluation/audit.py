"""An audit of a pairs dataset: what leaks from training to test pairs, and how that changes metrics."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sentence_experts.config import with_settings
from sentence_experts.errors import InputError, UsageError
from sentence_experts.evaluation.config import AuditConfig
from sentence_experts.evaluation.models import (
    ModelRun,
    Models,
    identity_of,
    model_runs,
    states_of_files,
    warn_of_models,
)
from sentence_experts.evaluation.near_duplicates import near_duplicates, signatures
from sentence_experts.evaluation.pair_evaluation import measure, measure_text_free
from sentence_experts.evaluation.results import POOLED, ModelResult, PairMetrics, StoredResult, measure_once
from sentence_experts.evaluation.scorers import (
    MEMORY_LABEL,
    PAIR_COLUMNS,
    TFIDF_LABEL,
    Score,
    domains_of,
    encoder_score,
    memory_score,
    routes_by_domain,
    score_pairs,
    texts_by_domain,
    tfidf_scorer,
    warn_of_no_prompt,
)
from sentence_experts.evaluation.text_free import describe_suspicion
from sentence_experts.pairs.config import SPLITS
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.pairs.pair_tables import append_stated_negatives, find_contradicted
from sentence_experts.pairs.splits import fold_texts
from sentence_experts.storage import check_apart

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

ENDS, IDS, KEYS = ["anchor", "positive"], ["anchor_id", "positive_id"], ["by_id", "by_text"]
# Kinds of leaks of a test pair, in the order of the report.
LEAKS = {
    "shared_paper": "a paper is in training pairs",
    "both_papers": "both papers are in training pairs",
    "shared_text": "a text is in training pairs",
    "near_duplicate": "a text has a near-duplicate in training pairs",
    "same_pair": "the pair is in training pairs",
    "linked_in_training": "not linked here, but linked in training",
}
CLEANED = "without training papers and texts"  # the set that figures should hold on
# Name of a set of test pairs -> the leaks that its pairs do not have.
WITHOUT = {
    "all pairs": (),
    "without pairs of two training papers": ("both_papers",),
    CLEANED: ("shared_paper", "shared_text"),
    "without near-duplicates either": ("shared_paper", "shared_text", "near_duplicate"),
}
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Overlap:
    """Numbers of papers, texts and near-duplicate texts of `second` that `first` has too."""

    first: str
    second: str
    papers: int
    texts: int
    near_duplicates: int


@dataclass(frozen=True)
class Measurement:
    """A model on the test pairs without some kinds of leaks.

    Attributes:
        model, test_set: label of the model; key of `WITHOUT`.
        left: number of pairs without these leaks; `figures.pairs` of them were measured, balanced as all are.
        figures: metrics pooled over domains; None if no balanced pairs are left.
    """

    model: str
    test_set: str
    left: int
    figures: PairMetrics | None


@dataclass(frozen=True, repr=False)
class Audit(StoredResult):
    """The result of an audit.

    Attributes:
        name, simulated: name of the pairs, and whether their texts are simulated.
        pairs: split -> number of pairs.
        between_splits: overlaps of every two splits.
        leaked_test_pairs: kind (`LEAKS`) -> number of test pairs.
        contradicted_pairs: number of pairs of the whole dataset that are both linked and not linked.
        test_articles_seen_in_training, test_articles: number of articles whose citations made test pairs:
            those that made training pairs too, and all; None if the dataset does not record it.
        figures: measurements of each model on each set of test pairs.
        text_free: figures of scores that separate the test pairs' classes without comparing texts.
        leaked_pairs: the test pairs with any leak, with their `row` among the test pairs and a column
            per kind of leak.
    """

    FILES = ("audit.json", "leaked_pairs.parquet")
    NAMES = (*FILES, "report.html")
    name: str
    simulated: bool
    pairs: Mapping[str, int]
    between_splits: tuple[Overlap, ...]
    leaked_test_pairs: Mapping[str, int]
    contradicted_pairs: int
    test_articles_seen_in_training: int | None
    test_articles: int | None
    figures: tuple[Measurement, ...]
    text_free: tuple[ModelResult, ...]
    leaked_pairs: pa.Table

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per model and set of test pairs: numbers of pairs, and the metrics."""
        return [
            {"model": each.model, "test_set": each.test_set, "left": each.left}
            | ({"measured": each.figures.pairs, **each.figures.metrics} if each.figures else {})
            for each in self.figures
        ]

    def main_rows(self) -> list[dict[str, Any]]:
        """Return these rows with F1max and ROC-AUC only."""
        shown = ("model", "test_set", "left", "measured", "f1_max", "roc_auc")
        return [{name: row.get(name) for name in shown} for row in self.rows()]


@with_settings(AuditConfig)
def audit(
    models: Models,
    data: Any,
    config: AuditConfig | None = None,
    out: Path | str | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> Audit:
    """Find what leaks from training pairs into test pairs, and measure models with and without the leaks.

    The test pairs that are left are balanced as all test pairs are. A metric can also fall because the leaked
    pairs were easier: a model that was not trained on these pairs shows by how much.

    Args:
        models: models to measure, as in `evaluate`; may be empty: `()`.
        data: pairs with a train and a test split: a folder, a table with a column `split`, or a mapping from
            split to table.
        out: folder for audit.json and leaked_pairs.parquet; a finished audit there is read back.
        overwrite: start over, replacing another audit in `out`.
        config, settings: an `AuditConfig`, or single fields of it.

    Raises:
        UsageError: a setting is wrong, or `out` holds something else.
        InputError: the pairs or a model cannot be read.

    Example:
        >>> "memory" in str(audit((), "pairs", bootstrap=0).to_json())
        True
    """
    chosen = AuditConfig.of(config, **settings)
    pairs = Pairs.of(data, split=None, labelled=True)
    check_apart(out, overwrite, models, data)
    given = model_runs(models, allow_none=True)
    runs = [run for run in given if not run.is_tfidf]
    if len(runs) < len(given):
        logger.info(f"TF-IDF is measured in every audit, as {TFIDF_LABEL!r}")
    if taken := {TFIDF_LABEL, MEMORY_LABEL} & {run.label for run in runs}:
        raise UsageError(f"`models`: {min(taken)!r} is a baseline of the audit: give the model another label")
    warn_of_models(runs, pairs.settings.get("unit"))
    made_from = lambda: {"pairs": pairs.fingerprint(), **identity_of(runs, chosen)}  # noqa: E731
    measure = lambda _: _audit(pairs, runs, chosen)  # noqa: E731
    state = partial(states_of_files, runs)
    result = measure_once(Audit, "audit", out, overwrite, made_from, measure, state=state)
    if warning := describe_suspicion(result.text_free):
        logger.warning(warning)
    return result


def _audit(pairs: Pairs, runs: Sequence[ModelRun], chosen: AuditConfig) -> Audit:
    sets = {split: pairs.split(split).select(PAIR_COLUMNS) for split in SPLITS}
    sets = {split: table for split, table in sets.items() if table.num_rows}
    for split in ("train", "test"):
        if split not in sets:
            raise InputError(f"an audit compares training with test pairs; there are no {split} pairs")
    train, test = sets["train"], sets["test"]
    read = sets | {"train": append_stated_negatives(pairs.split("train")).select(PAIR_COLUMNS)}
    overlaps, masks, contradictions = find_leaks(read, chosen.threshold, pairs.known_links())
    leaked = test.append_column("row", pa.array(range(test.num_rows), pa.int64()))
    for kind, mask in masks.items():
        leaked = leaked.append_column(kind, pa.array(mask))
    return Audit(
        name=pairs.name,
        simulated=pairs.are_simulated,
        pairs={split: table.num_rows for split, table in sets.items()},
        between_splits=overlaps,
        leaked_test_pairs={kind: int(mask.sum()) for kind, mask in masks.items()},
        contradicted_pairs=contradictions,
        test_articles_seen_in_training=pairs.manifest.get("test_articles_seen_in_training"),
        test_articles=pairs.manifest.get("test_articles"),
        figures=tuple(_measure(_make_scores(runs, chosen, train, test), test, masks, chosen)),
        text_free=measure_text_free(test, pairs.works(), chosen.bootstrap, chosen.seed),
        leaked_pairs=leaked.filter(pa.array(np.any(list(masks.values()), axis=0))),
    )


def find_leaks(
    sets: Mapping[str, pa.Table], threshold: float = 0.7, known_links: pa.Table | None = None
) -> tuple[tuple[Overlap, ...], dict[str, Mask], int]:
    """Compare the splits of a dataset.

    Args:
        sets: split -> pairs; at least `train` and `test`.
        threshold: similarity from which two texts count as near-duplicates.
        known_links: columns `left_id`, `right_id`: links of training papers, sampled as pairs or not.

    Returns:
        Overlaps of each two splits; kind (`LEAKS`) -> whether each test pair has it, shape (test pairs,);
        the number of pairs of the whole dataset that are both linked and not linked in one domain.
    """
    import pandas as pd

    frames = {split: _fold_texts(table) for split, table in sets.items()}
    papers = {split: set(frame[IDS].to_numpy().ravel()) for split, frame in frames.items()}
    texts = {split: sorted(set(frame[ENDS].to_numpy().ravel())) for split, frame in frames.items()}
    bands = {split: signatures(of_split) for split, of_split in texts.items()}
    overlaps, near = [], {}
    for first, second in combinations(sets, 2):
        rows, *_ = near_duplicates(texts[second], texts[first], threshold, bands[second], bands[first])
        near[first, second] = {texts[second][row] for row in rows}
        shared = set(texts[first]).intersection(texts[second])
        counts = len(papers[first] & papers[second]), len(shared), len(near[first, second] - shared)
        overlaps.append(Overlap(first, second, *counts))
    train, test, everything = frames["train"], frames["test"], pd.concat(frames.values())
    linked = set(train[train.label == 1][KEYS].to_numpy().ravel())
    if known_links is not None:
        ends = (known_links[name].to_pylist() for name in ("left_id", "right_id"))
        linked.update(_make_keys("id", *ends))
    known = test[IDS].isin(papers["train"])
    masks = {
        "shared_paper": known.any(axis=1),
        "both_papers": known.all(axis=1),
        "shared_text": test[ENDS].isin(texts["train"]).any(axis=1),
        "near_duplicate": test[ENDS].isin(near["train", "test"]).any(axis=1),
        "same_pair": test[KEYS].isin(set(train[KEYS].to_numpy().ravel())).any(axis=1),
        "linked_in_training": (test.label == 0) & test[KEYS].isin(linked).any(axis=1),
    }
    contradicted = find_contradicted(pa.concat_tables([*sets.values()]))
    contradictions = everything[(everything.label == 0).to_numpy() & contradicted].by_id.nunique()
    return tuple(overlaps), {kind: mask.to_numpy(bool) for kind, mask in masks.items()}, contradictions


def _fold_texts(table: pa.Table) -> pd.DataFrame:
    """Return ids, labels, folded texts, and keys of each pair that do not depend on the order of its ends."""
    frame = table.select([*IDS, "label"]).to_pandas()
    for end in ENDS:
        frame[end] = fold_texts(table[end]).to_pylist()
    frame["by_id"] = _make_keys("id", *(frame[name] for name in IDS))
    frame["by_text"] = _make_keys("text", *(frame[name] for name in ENDS))
    return frame


def _make_keys(kind: str, left: Sequence[str], right: Sequence[str]) -> list[str]:
    return ["\n".join((kind, *sorted(ends))) for ends in zip(left, right, strict=True)]


def balance(remaining: Mask, labels: NDArray[np.int64], domains: NDArray[Any], seed: int) -> Mask:
    """Select remaining pairs that keep each domain's share of linked pairs among all test pairs.

    F1max rises with the share of linked pairs: without balancing, a set whose unlinked pairs leak more would
    seem easier. Pairs of the class that is too large are left out at random.
    """
    rng = np.random.default_rng(seed)
    chosen = np.zeros(len(remaining), dtype=bool)
    for domain in np.unique(domains):
        rows = [np.flatnonzero((domains == domain) & (labels == label)) for label in (0, 1)]
        rest = [rng.permutation(each[remaining[each]]) for each in rows]
        share = min(
            (len(few) / len(all_) for few, all_ in zip(rest, rows, strict=True) if len(all_)), default=0
        )
        for few, all_ in zip(rest, rows, strict=True):
            chosen[few[: round(share * len(all_))]] = True
    return chosen


def _make_scores(
    runs: Sequence[ModelRun], config: AuditConfig, train: pa.Table, test: pa.Table
) -> dict[str, Score]:
    """Return label -> function that scores pairs, of the baselines and the models."""
    scores = {TFIDF_LABEL: tfidf_scorer(texts_by_domain(train)).score, MEMORY_LABEL: memory_score(train)}
    for run in runs:
        encoder = run.open(config)
        routes = routes_by_domain(encoder.known_routes, domains_of(test))
        warn_of_no_prompt(run.label, encoder, routes)
        scores[run.label] = encoder_score(encoder, routes, run.label)
    return scores


def _measure(
    models: Mapping[str, Score], test: pa.Table, masks: Mapping[str, Mask], config: AuditConfig
) -> Iterator[Measurement]:
    labels, domains = test["label"].to_numpy(), np.array(test["domain"].to_pylist(), dtype=object)
    for label, score in models.items():
        scores = score_pairs(score, test)
        for name, kinds in WITHOUT.items():
            leaks = [np.zeros(test.num_rows, dtype=bool), *(masks[kind] for kind in kinds)]
            remaining = ~np.any(leaks, axis=0)
            chosen = balance(remaining, labels, domains, config.seed)
            figures = None
            if chosen.any():
                part = test.filter(pa.array(chosen))
                figures = measure(part, scores[chosen], config.bootstrap, config.seed).figures[POOLED]
            yield Measurement(label, name, int(remaining.sum()), figures)
