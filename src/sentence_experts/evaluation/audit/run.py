"""An audit of a pairs dataset: what leaks from training to test pairs, and how that changes metrics."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import TypeAdapter

from sentence_experts.config import with_settings
from sentence_experts.errors import InputError, UsageError
from sentence_experts.evaluation.audit.leaks import LEAKS, WITHOUT, Leaks, Mask, Overlap, find_leaks
from sentence_experts.evaluation.config import AuditConfig
from sentence_experts.evaluation.models import TFIDF, ModelRun, Models, identity_of, model_runs
from sentence_experts.evaluation.pair_evaluation import measure, measure_text_free
from sentence_experts.evaluation.pairs import PAIR_COLUMNS, Score, domains_of, score_pairs, texts_by_domain
from sentence_experts.evaluation.results import (
    POOLED,
    ModelResult,
    PairMetrics,
    StoredResult,
    measured_once,
    suspicion,
)
from sentence_experts.evaluation.scorers import (
    MEMORY_LABEL,
    TFIDF_LABEL,
    encoder_score,
    memory_score,
    routes_by_domain,
    tfidf_scorer,
)
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.pairs.splits import SPLITS
from sentence_experts.storage import check_apart, read_json, write_json, write_parquet

logger = logging.getLogger(__name__)

MEMORY = "memory"
BASELINES = (TFIDF, MEMORY)


@dataclass(frozen=True)
class Measurement:
    """A model on the test pairs without some kinds of leaks.

    Attributes:
        model, test_set: label of the model; key of `leaks.WITHOUT`.
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
        pairs: split -> number of pairs.
        leaks: what the splits share.
        measurements: of each model on each set of test pairs.
        leaked_pairs: the test pairs with any leak, with their `row` among the test pairs and a column
            per kind of leak.
        citing: of the articles whose citations made the test pairs, the number that made training pairs too,
            and the number of all; None if the dataset does not record it.
        text_free: what separates the test pairs' classes without comparing texts.
        name, simulated: of the pairs, and whether their texts are simulated.
    """

    FILES = ("audit.json", "leaked_pairs.parquet")
    NAMES = (*FILES, "report.html")
    pairs: Mapping[str, int]
    leaks: Leaks
    measurements: tuple[Measurement, ...]
    leaked_pairs: pa.Table
    citing: tuple[int, int] | None
    text_free: tuple[ModelResult, ...] = ()
    name: str = "pairs"
    simulated: bool = False

    def summary(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
        """Return the number of leaked test pairs of each kind."""
        rows = [(meaning, f"{int(self.leaks.masks[kind].sum()):,}") for kind, meaning in LEAKS.items()]
        return f"Audit of {self.pairs['test']:,} test pairs", ("leak", "pairs"), rows

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per model and set of test pairs: numbers of pairs, and the metrics."""
        return [
            {"model": each.model, "test_set": each.test_set, "left": each.left}
            | ({"measured": each.figures.pairs, **each.figures.metrics} if each.figures else {})
            for each in self.measurements
        ]

    def main_rows(self) -> list[dict[str, Any]]:
        """Return the same with two metrics only."""
        shown = ("model", "test_set", "left", "measured", "f1_max", "roc_auc")
        return [{name: row.get(name) for name in shown} for row in self.rows()]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, ready for `storage.write_json`."""
        return {
            "name": self.name,
            "simulated": self.simulated,
            "pairs": dict(self.pairs),
            "between_splits": [asdict(overlap) for overlap in self.leaks.overlaps],
            "leaked_test_pairs": {kind: int(mask.sum()) for kind, mask in self.leaks.masks.items()},
            "contradicted_pairs": self.leaks.contradictions,
            "test_articles_seen_in_training": self.citing and self.citing[0],
            "test_articles": self.citing and self.citing[1],
            "figures": [asdict(each) for each in self.measurements],
            "text_free": [asdict(each) for each in self.text_free],
        }

    def save(self, out: Path) -> None:
        """Write `audit.json` and `leaked_pairs.parquet` to a folder."""
        write_json(out / self.FILES[0], self.to_json(), sort=False)
        write_parquet(out / self.FILES[1], self.leaked_pairs)

    @classmethod
    def _read(cls, out: Path) -> Self:
        content, leaked = read_json(out / cls.FILES[0]), pq.read_table(out / cls.FILES[1])
        masks = {kind: np.zeros(content["pairs"]["test"], dtype=bool) for kind in LEAKS}
        for kind, mask in masks.items():
            mask[leaked["row"].to_numpy()] = leaked[kind].to_numpy()
        overlaps = tuple(Overlap(**each) for each in content["between_splits"])
        seen, articles = content["test_articles_seen_in_training"], content["test_articles"]
        return cls(
            content["pairs"],
            Leaks(overlaps, masks, content["contradicted_pairs"]),
            TypeAdapter(tuple[Measurement, ...]).validate_python(content["figures"]),
            leaked,
            None if seen is None else (seen, articles),
            TypeAdapter(tuple[ModelResult, ...]).validate_python(content["text_free"]),
            content["name"],
            content["simulated"],
        )


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
        >>> "memory" in str(audit((), "pairs", baseline=["memory"], bootstrap=0).to_json())
        True
    """
    chosen = AuditConfig.of(config, **settings)
    pairs = Pairs.of(data, split=None, labelled=True)
    check_apart(out, overwrite, models, data)
    runs = model_runs(models, allow_none=True)
    made_from = lambda: {"pairs": pairs.fingerprint(), **identity_of(runs, chosen)}  # noqa: E731
    measure = lambda _: _audited(pairs, runs, chosen)  # noqa: E731
    result = measured_once(Audit, "audit", out, overwrite, made_from, measure)
    if warning := suspicion(result.text_free):
        logger.warning(warning)
    return result


def _audited(pairs: Pairs, runs: Sequence[ModelRun], chosen: AuditConfig) -> Audit:
    sets = {split: pairs.split(split).select(PAIR_COLUMNS) for split in SPLITS}
    sets = {split: table for split, table in sets.items() if table.num_rows}
    for split in ("train", "test"):
        if split not in sets:
            raise InputError(f"an audit compares training with test pairs; there are no {split} pairs")
    train, test = sets["train"], sets["test"]
    known = pairs.known_links() if pairs.path is not None else None
    leaks = find_leaks(sets, chosen.threshold, known)
    measurements = [
        each
        for label, score in _scores(runs, chosen, train, test).items()
        for each in _measured(label, score_pairs(score, test), test, leaks, chosen)
    ]
    leaked = test.append_column("row", pa.array(range(test.num_rows), pa.int64()))
    for kind in LEAKS:
        leaked = leaked.append_column(kind, pa.array(leaks.masks[kind]))
    counts = {split: table.num_rows for split, table in sets.items()}
    leaked = leaked.filter(pa.array(leaks.leaked()))
    seen = pairs.manifest.get("test_articles_seen_in_training")
    citing = None if seen is None else (seen, pairs.manifest["test_articles"])
    text_free = measure_text_free(test, pairs.works(), chosen.bootstrap, chosen.seed)
    return Audit(
        counts, leaks, tuple(measurements), leaked, citing, text_free, pairs.name, pairs.are_simulated
    )


def balanced(left: Mask, labels: NDArray[np.int64], domains: NDArray[Any], seed: int) -> Mask:
    """Select, of the pairs left, those that keep each domain's share of linked pairs among all test pairs.

    F1max rises with the share of linked pairs: without balancing, a set whose unlinked pairs leak more would
    seem easier. Pairs of the class that is too large are left out at random.
    """
    rng = np.random.default_rng(seed)
    chosen = np.zeros(len(left), dtype=bool)
    for domain in np.unique(domains):
        rows = [np.flatnonzero((domains == domain) & (labels == label)) for label in (0, 1)]
        rest = [rng.permutation(each[left[each]]) for each in rows]
        share = min(
            (len(few) / len(all_) for few, all_ in zip(rest, rows, strict=True) if len(all_)), default=0
        )
        for few, all_ in zip(rest, rows, strict=True):
            chosen[few[: round(share * len(all_))]] = True
    return chosen


def _scores(
    runs: Sequence[ModelRun], config: AuditConfig, train: pa.Table, test: pa.Table
) -> dict[str, Score]:
    """Return label -> function that scores pairs, of the baselines and the models."""
    if unknown := [name for name in config.baseline if name not in BASELINES]:
        raise UsageError(f"`baseline` {unknown[0]!r}: choose from {', '.join(BASELINES)}")
    scores: dict[str, Score] = {}
    if TFIDF in config.baseline:
        scores[TFIDF_LABEL] = tfidf_scorer(texts_by_domain(train)).score
    if MEMORY in config.baseline:
        scores[MEMORY_LABEL] = memory_score(train)
    for run in runs:
        encoder = run.open(config)
        routes = routes_by_domain(encoder.known_routes, domains_of(test))
        scores[run.label] = encoder_score(encoder, routes, run.label)
    return scores


def _measured(
    label: str, scores: NDArray[np.float64], test: pa.Table, leaks: Leaks, config: AuditConfig
) -> list[Measurement]:
    labels, domains = test["label"].to_numpy(), np.array(test["domain"].to_pylist(), dtype=object)
    measurements = []
    for name, kinds in WITHOUT.items():
        left = leaks.left(kinds)
        chosen = balanced(left, labels, domains, config.seed)
        figures = None
        if chosen.any():
            part = test.filter(pa.array(chosen))
            figures = measure(part, scores[chosen], config.bootstrap, config.seed).figures[POOLED]
        measurements.append(Measurement(label, name, int(left.sum()), figures))
    return measurements
