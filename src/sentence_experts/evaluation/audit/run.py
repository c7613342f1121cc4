"""An audit of a pairs dataset: what leaks from training into the test set, and what that does to figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sentence_experts.errors import UsageError
from sentence_experts.evaluation.audit.leaks import LEAKS, WITHOUT, Leaks, Mask, find_leaks
from sentence_experts.evaluation.audit.memory import MemoryScorer
from sentence_experts.evaluation.audit.pair_sets import read_pair_sets
from sentence_experts.evaluation.measure import measure
from sentence_experts.evaluation.pairs import PairScorer, domains_of, score_pairs, texts_by_domain
from sentence_experts.evaluation.results import POOLED, Figures
from sentence_experts.pairs.dataset import PairsFolder
from sentence_experts.storage import write_json, write_parquet

BASELINES = ("tfidf", "memory")


@dataclass(frozen=True)
class AuditPlan:
    """What to audit, and with which models.

    Attributes:
        pairs: a folder written by `sentence-experts pairs`, or a table with a split column; None with files.
        files: split -> table.
        threshold: similarity from which two texts are near-duplicates.
        models, baselines: whose figures are taken: folders or hub ids; "tfidf", "memory".
    """

    pairs: Path | None
    files: Mapping[str, Path] = field(default_factory=dict)
    threshold: float = 0.7
    models: Sequence[str] = ()
    baselines: Sequence[str] = BASELINES
    replicates: int = 1000
    seed: int = 0
    device: str | None = None


@dataclass(frozen=True)
class Measurement:
    """A model on the test pairs that are left without some leaks.

    Attributes:
        model, test_set: a scorer's label, a key of `leaks.WITHOUT`.
        left: the pairs without these leaks; `figures.pairs` of them were measured, balanced as all pairs are.
        figures: pooled over domains; None where no balanced pairs are left.
    """

    model: str
    test_set: str
    left: int
    figures: Figures | None


@dataclass(frozen=True)
class Audit:
    """What an audit found; `citing` is what the manifest of a dataset of ours says of its citing articles."""

    pairs: Mapping[str, int]
    leaks: Leaks
    measurements: tuple[Measurement, ...]
    leaked_pairs: pa.Table
    citing: tuple[int, int] | None

    def to_json(self) -> dict[str, Any]:
        """Plain values, ready for `storage.write_json`."""
        return {
            "pairs": dict(self.pairs),
            "between_splits": [asdict(overlap) for overlap in self.leaks.overlaps],
            "leaked_test_pairs": {kind: int(mask.sum()) for kind, mask in self.leaks.masks.items()},
            "contradicted_pairs": self.leaks.contradictions,
            "test_articles_seen_in_training": self.citing and self.citing[0],
            "test_articles": self.citing and self.citing[1],
            "figures": [asdict(each) for each in self.measurements],
        }


def run_audit(plan: AuditPlan) -> Audit:
    """Compare the splits, and measure every model with and without the leaked test pairs.

    Raises:
        UsageError: an option does not make sense.
        InputError: the pairs or a model cannot be read.
    """
    if not 0 < plan.threshold <= 1:
        raise UsageError(f"texts are near-duplicates from a similarity in (0, 1], not {plan.threshold}")
    sets = read_pair_sets(plan.pairs, plan.files)
    train, test = sets["train"], sets["test"]
    folder = PairsFolder.open(plan.pairs) if plan.pairs is not None and plan.pairs.is_dir() else None
    known = folder.known_links() if folder is not None and folder.has_known_links else None
    leaks = find_leaks(sets, plan.threshold, known)
    measurements = [
        each for scorer in _scorers(plan, train, test) for each in _measured(scorer, test, leaks, plan)
    ]
    leaked = test
    for kind in LEAKS:
        leaked = leaked.append_column(kind, pa.array(leaks.masks[kind]))
    counts = {split: table.num_rows for split, table in sets.items()}
    leaked = leaked.filter(pa.array(leaks.leaked()))
    return Audit(counts, leaks, tuple(measurements), leaked, _citing_articles(folder))


def write_audit(out: Path, audit: Audit) -> None:
    """Write `audit.json` and `leaked_pairs.parquet`, the test pairs with a column for each leak."""
    write_json(out / "audit.json", audit.to_json())
    write_parquet(out / "leaked_pairs.parquet", audit.leaked_pairs)


def balanced(left: Mask, labels: NDArray[np.int64], domains: NDArray[Any], seed: int) -> Mask:
    """Of the pairs left in each domain, as many of both classes as gives the share of links it has in all.

    F1max rises with the share of linked pairs: without this, a set whose unlinked pairs leak more would seem
    the easier one. Pairs of the class that is too large are left out at random.
    """
    rng = np.random.default_rng(seed)
    kept = np.zeros(len(left), dtype=bool)
    for domain in np.unique(domains):
        rows = [np.flatnonzero((domains == domain) & (labels == label)) for label in (0, 1)]
        rest = [rng.permutation(each[left[each]]) for each in rows]
        share = min(
            (len(few) / len(all_) for few, all_ in zip(rest, rows, strict=True) if len(all_)), default=0
        )
        for few, all_ in zip(rest, rows, strict=True):
            kept[few[: round(share * len(all_))]] = True
    return kept


def _scorers(plan: AuditPlan, train: pa.Table, test: pa.Table) -> list[PairScorer]:
    unknown = [name for name in plan.baselines if name not in BASELINES]
    if unknown:
        raise UsageError(f"no baseline {unknown[0]!r}; there are {', '.join(BASELINES)}")
    from sentence_experts.evaluation.baselines import EncoderScorer, TfidfScorer

    scorers: list[PairScorer] = []
    if "tfidf" in plan.baselines:
        scorers.append(TfidfScorer(texts_by_domain(train)))
    if "memory" in plan.baselines:
        scorers.append(MemoryScorer(train))
    if plan.models:
        from sentence_experts.encoding.encoder import BatchEncoder
        from sentence_experts.models.loading import load

        for model in plan.models:
            encoder = BatchEncoder(load(model, device=plan.device))
            scorers.append(EncoderScorer(encoder, domains_of(test), model))
    return scorers


def _measured(scorer: PairScorer, test: pa.Table, leaks: Leaks, plan: AuditPlan) -> list[Measurement]:
    scores = score_pairs(scorer, test)
    labels, domains = test["label"].to_numpy(), np.array(test["domain"].to_pylist(), dtype=object)
    found = []
    for name, kinds in WITHOUT.items():
        left = leaks.left(kinds)
        kept = balanced(left, labels, domains, plan.seed)
        figures = None
        if kept.any():
            part = test.filter(pa.array(kept))
            figures = measure(part, scores[kept], plan.replicates, plan.seed).figures[POOLED]
        found.append(Measurement(scorer.label, name, int(left.sum()), figures))
    return found


def _citing_articles(folder: PairsFolder | None) -> tuple[int, int] | None:
    seen = folder.manifest.get("test_articles_seen_in_training") if folder else None
    return None if folder is None or seen is None else (seen, folder.manifest["test_articles"])
