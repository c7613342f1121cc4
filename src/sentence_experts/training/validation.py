"""The validation that chooses the best step: the mean over the routes of each route's own figure.

A domain's figure is ROC-AUC (or F1max) on its labelled pairs. A task's is nDCG@10, one figure for all kinds
of tasks because it needs nothing but pairs: an anchor's relevant texts are those that it is paired with, or
of its label, among the validation split's positives. The tests of each kind of task (accuracy, V-measure) are
for the end, on the test split.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_array
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator

from sentence_experts.encoding.chunks import Vectors
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import InputError, UsageError
from sentence_experts.evaluation.label_similarity import TOP, compute_ndcg
from sentence_experts.evaluation.pair_evaluation import measure
from sentence_experts.evaluation.results import POOLED
from sentence_experts.evaluation.router_accuracy import TEXTS_WHILE_TRAINING, router_accuracy
from sentence_experts.evaluation.scorers import (
    check_table,
    domains_of,
    encoder_score,
    routes_by_domain,
    score_pairs,
)
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.data import (
    NONE,
    LinkedPairs,
    TrainedRoute,
    TrainingPart,
    find_distinct,
    find_own_routes,
)

logger = logging.getLogger(__name__)

MEAN = "mean"
NDCG = "ndcg_at_10"
ANCHORS_AT_ONCE = 256
TITLES = {"roc_auc": "ROC-AUC", "f1_max": "F1max", NDCG: "nDCG@10"}


class Validator(SentenceEvaluator):
    """A measurement of a model on the validation split of each route while it trains.

    `{name}_mean` is the unweighted mean over the routes; with `name="validation"` the `metric_for_best_model`
    of a stock trainer is `"eval_validation_mean"`. The other keys are `{name}_{route}/{metric}`; see the
    parts.
    """

    def __init__(
        self,
        parts: Sequence[PairValidation | SearchValidation],
        name: str = "validation",
        batch_size: int = 32,
        max_length: int | None = None,
        missing: Sequence[str] = (),
    ) -> None:
        """Make a validator.

        Args:
            parts: measurements, one per kind of data.
            name: prefix of the keys.
            batch_size: number of texts encoded at once.
            max_length: number of tokens that the model reads meanwhile; None for as many as in training.
            missing: routes that nothing measures.
        """
        super().__init__()
        self.parts = parts
        self.name = name
        self.batch_size = batch_size
        self.max_length = max_length
        self.missing = missing
        self.greater_is_better = True
        self.primary_metric = f"{name}_{MEAN}"

    @classmethod
    def of(
        cls,
        parts: Sequence[TrainingPart],
        routes: Sequence[TrainedRoute],
        config: TrainConfig,
        max_length: int | None = None,
    ) -> Validator:
        """Measure the validation splits of these routes.

        Raises:
            InputError: there are no validation pairs to choose the best step by.
            UsageError: `pair_metric` is given, and has no effect.
        """
        measured: list[PairValidation | SearchValidation] = []
        labelled: list[pa.Table] = []  # of all sets together, as their pooled figures are
        missing: list[str] = []
        for part in parts:
            if not (own := find_own_routes(part, routes)):
                continue
            if isinstance(part, LinkedPairs):
                table = part.split("validation", own)
                if not table.num_rows and config.keep == "last":
                    continue
                if not table.num_rows:
                    raise InputError(
                        f"{part.pairs.name}: no validation pairs to choose the best step by: give some, or "
                        "`keep=last`"
                    )
                there = {*domains_of(table)}
                missing += [route.name for route in own if route.name not in there]
                own = [route for route in own if route.name in there]
                if pc.any(pc.equal(table["label"], 0)).as_py():
                    labelled.append(check_table(table, "the validation pairs"))
                    continue
            measured.append(SearchValidation({route: part.validation_pairs(route) for route in own}))
        if labelled:
            table = pa.concat_tables(labelled, promote_options="default").combine_chunks()
            measured.insert(0, PairValidation(table, config.pair_metric))
        elif config.pair_metric != "roc_auc" and config.keep == "best":
            raise UsageError(
                f"`pair_metric={config.pair_metric}` has no effect: it is of validation pairs some of which "
                "have label 0, and here nDCG@10 is measured"
            )
        return cls(measured, batch_size=config.batch_size, max_length=max_length, missing=missing)

    @property
    def has_figure(self) -> bool:
        """Whether anything can be measured; if not, there is no best step."""
        return any(part.has_figure for part in self.parts)

    def warn_of_unmeasured(self) -> None:
        """Warn of routes whose validation pairs are of one kind, linked or not: they count for nothing."""
        if unmeasured := [route for part in self.parts for route in part.without_figure]:
            rest = "" if self.has_figure else ": no step can be chosen, the last one is kept"
            logger.warning(
                f"the validation pairs of {', '.join(unmeasured)} are all linked or all unlinked, so they "
                f"measure nothing{rest}"
            )
        if self.missing:
            logger.warning(f"there are no validation pairs of {', '.join(self.missing)}: nothing measures it")

    def __call__(  # type: ignore[override]  # of all base models, only a SentenceTransformer gives vectors
        self,
        model: SentenceTransformer,
        output_path: str | Path | None = None,
        epoch: int = -1,
        steps: int = -1,
    ) -> dict[str, float]:
        """Evaluate `model`; nothing is written, the trainer passes `output_path`.

        Raises:
            RouteError: the model lacks a route.
            InputError: the model gives vectors that are not finite, or no route has a figure.
        """
        encoder = BatchEncoder(model, self.batch_size, "the model in training")
        with _length_of(model, self.max_length):
            measured = [part.measure(encoder) for part in self.parts]
        counted = [figures[name] for figures, names in measured for name in names]
        if not counted:
            raise InputError("the validation split needs both linked and unlinked pairs")
        named_figures = {f"{self.name}_{MEAN}": fmean(counted)}
        for figures, _ in measured:
            named_figures |= {f"{self.name}_{name}": float(figure) for name, figure in figures.items()}
        self.store_metrics_in_model_card_data(model, named_figures, epoch, steps)
        return named_figures


@contextmanager
def _length_of(model: SentenceTransformer, max_length: int | None) -> Iterator[None]:
    """Let a model read `max_length` tokens meanwhile; None for as many as it does."""
    before = model.max_seq_length
    if max_length in (None, before):
        yield
        return
    model.max_seq_length = max_length
    try:
        yield
    finally:
        model.max_seq_length = before


class PairValidation:
    """Linked and unlinked pairs of domains.

    Figures are `{metric}` for all pairs together and `{domain}/{metric}` for a domain, for each metric that
    is defined. A model with learned routers has `router_accuracy` too, the mean over its blocks, and
    `router_accuracy_block_{number}`.

    Args:
        table: the pairs, columns as in `scorers.PAIR_COLUMNS`.
        metric: metric that counts: roc_auc or f1_max of each domain, or pooled_f1_max of all pairs together,
            by which the published protocols stop (2025 paper, Training strategy).

    Raises:
        InputError: the table lacks a column or holds bad values.
    """

    def __init__(self, table: pa.Table, metric: str = "roc_auc") -> None:
        self.table = check_table(table, "the validation pairs")
        self.metric = metric
        kinds: dict[str, set[int]] = {domain: set() for domain in domains_of(self.table)}
        for domain, label in zip(
            *(self.table[name].to_pylist() for name in ("domain", "label")), strict=True
        ):
            kinds[domain].add(label)
        self.without_figure = [domain for domain, given in kinds.items() if len(given) < 2]
        pooled = set().union(*kinds.values()) if metric == "pooled_f1_max" else set()
        self.has_figure = len(pooled) > 1 or len(self.without_figure) < len(kinds)

    def measure(self, encoder: BatchEncoder) -> tuple[dict[str, float], list[str]]:
        """Return all figures of a model, by name, and the names of those that the mean is taken of.

        Raises:
            RouteError: the model has experts but lacks a route for a domain.
        """
        routes = routes_by_domain(encoder.known_routes, domains_of(self.table))
        scores = score_pairs(encoder_score(encoder, routes, "validation"), self.table)
        measured = measure(self.table, scores, replicates=0)
        views = {"": measured.figures[POOLED]}
        views |= {f"{domain}/": figures for domain, figures in measured.by_domain().items()}
        values = {
            f"{view}{metric}": value
            for view, figures in views.items()
            for metric, value in figures.metrics.items()
            if value is not None
        }
        counted = [
            f"{domain}/{self.metric}" for domain in measured.by_domain() if domain not in self.without_figure
        ]
        if self.metric == "pooled_f1_max":
            counted = ["f1_max"]
        accuracy = router_accuracy(encoder, self.table, routes, TEXTS_WHILE_TRAINING)
        if accuracy is not None:
            values["router_accuracy"] = accuracy.mean
            values |= {f"router_accuracy_block_{block}": share for block, share in accuracy.by_block.items()}
        return values, [name for name in counted if name in values]


class SearchValidation:
    """nDCG@10 per route, the mean over its datasets (one search each): figures `{route}/ndcg_at_10`.

    Args:
        tables: route -> a table of pairs per dataset; see `SearchSet`.

    Raises:
        InputError: a route has nothing to find.
    """

    without_figure = ()
    has_figure = True

    def __init__(self, tables: Mapping[TrainedRoute, Sequence[pa.Table]]) -> None:
        self.searches = {}
        for route, own in tables.items():
            self.searches[route.name] = [
                SearchSet(table, route.prompts, route.symmetric) for table in own if table.num_rows
            ]
            if not any(search.has_findable for search in self.searches[route.name]):
                raise InputError(
                    f"the validation split of {route.kind} {route.name} has no linked pair to choose "
                    "the best step by: give it one"
                )

    def measure(self, encoder: BatchEncoder) -> tuple[dict[str, float], list[str]]:
        """Return the figure of each route, by name, and these names, since the mean is taken of all."""
        figures = {}
        for route, searches in self.searches.items():
            values = []
            for search in searches:
                vectors = encoder.encode([*search.anchors, *search.candidates], normalize=True)
                values.append(search.ndcg(*np.split(vectors, [len(search.anchors)])))
            figures[f"{route}/{NDCG}"] = fmean(figure for figure in values if figure is not None)
        return figures, list(figures)


class SearchSet:
    """Anchors, the texts they search among, and which of those they should find.

    Args:
        table: pairs, columns anchor, positive and, where texts of a label are alike, group.
        prompts: prompts of anchors, and of the others.
        symmetric: whether anchor and positive may change places.

    Attributes:
        anchors: the distinct anchor texts, behind their prompt.
        candidates: the distinct positive texts, behind theirs.
        relevant: relevance, above 0 where the two are a pair or share a group, (anchors, candidates).
        same: the candidate that is the same text, which does not count as found, or `NONE`, (anchors,).
    """

    def __init__(self, table: pa.Table, prompts: tuple[str, str], symmetric: bool = False) -> None:
        anchors, anchor_of = find_distinct(table["anchor"])
        candidates, candidate_of = find_distinct(table["positive"])
        places = {text: number for number, text in enumerate(candidates)}
        self.same = np.array([places.get(text, NONE) for text in anchors])
        if "group" in table.column_names:
            group_of, ones = find_distinct(table["group"])[1], np.ones(table.num_rows, dtype=np.int32)
            groups = int(group_of.max(initial=-1)) + 1
            member = csr_array((ones, (anchor_of, group_of)), (len(anchors), groups))
            holder = csr_array((ones, (candidate_of, group_of)), (len(candidates), groups))
            self.relevant = member @ holder.T
        else:
            ends = np.stack([anchor_of, candidate_of])
            if symmetric:
                asked = {place: number for number, place in enumerate(self.same.tolist()) if place != NONE}
                back = [asked.get(place, NONE) for place in candidate_of.tolist()], self.same[anchor_of]
                turned = np.array(back, dtype=np.int64).reshape(2, -1)
                ends = np.concatenate([ends, turned[:, (turned != NONE).all(axis=0)]], axis=1)
            ones = np.ones(ends.shape[1], dtype=np.int32)
            self.relevant = csr_array((ones, tuple(ends)), (len(anchors), len(candidates)))
        self.anchors = [prompts[0] + text for text in anchors]
        self.candidates = [prompts[1] + text for text in candidates]

    @property
    def has_findable(self) -> bool:
        """Whether any anchor has a relevant candidate."""
        rows = np.flatnonzero(self.same != NONE)
        themselves = (
            self.relevant[rows, self.same[rows]].astype(bool).sum()
        )  # an array, or an empty sparse one
        return bool(self.relevant.count_nonzero() > themselves)

    def ndcg(self, anchors: Vectors, candidates: Vectors) -> float | None:
        """Return the mean nDCG@10 of the anchors that have something to find; None if none has.

        Vectors are of length one: (anchors, dimensions), (candidates, dimensions).
        """
        gains: list[float] = []
        for start in range(0, len(anchors), ANCHORS_AT_ONCE):
            part = slice(start, start + ANCHORS_AT_ONCE)
            same = self.same[part, None] == np.arange(len(candidates))
            relevant = (self.relevant[part].toarray() > 0) & ~same
            asked = relevant.any(axis=1)
            scores = np.where(same, -np.inf, anchors[part] @ candidates.T)[asked]
            top = np.argsort(-scores, axis=1, kind="stable")[:, :TOP]
            hits = np.take_along_axis(relevant[asked], top, axis=1)
            gains.extend(compute_ndcg(hits, relevant[asked].sum(axis=1)).tolist())
        return fmean(gains) if gains else None
