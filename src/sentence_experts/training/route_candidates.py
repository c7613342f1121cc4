"""Routes of one kind, learned from labelled texts: heads on frozen vectors; adapters and experts by training.

`choose_kind` tries the kinds in the order of their price, until the next one is no better.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sentence_transformers import SentenceTransformer

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import InputError
from sentence_experts.evaluation.label_similarity import MoreLikeThis, Vectors, mean_gain, more_like_this
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.files.fingerprint import fingerprint_with_settings
from sentence_experts.models.layers.weight_names import ADAPTERS, EXPERTS
from sentence_experts.models.pooling import make_pooled_model, unit
from sentence_experts.models.surgery.add_drop_routes import with_heads
from sentence_experts.models.surgery.extend import extend
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.pairs.labels import Rows
from sentence_experts.pairs.pair_tables import LINKS_SCHEMA, PAIRS_SCHEMA
from sentence_experts.progress import progress
from sentence_experts.storage import InUseError, NoSpaceError, sha256_text
from sentence_experts.storage.text_cache import TextCache
from sentence_experts.training.config import FitConfig
from sentence_experts.training.data import LinkedPairs
from sentence_experts.training.labelled_texts import TRAIN, VALIDATION, LabelledTexts
from sentence_experts.training.run import train
from sentence_experts.training.train_heads import BATCH as HEAD_BATCH
from sentence_experts.training.train_heads import RATES, LabelledVectors, train_head

logger = logging.getLogger(__name__)

HEAD = "head"
KINDS = (HEAD, "adapter", "expert")  # in the order of their price
MARGIN = 0.01  # gain in nDCG@10 that the next kind has to exceed
TRAINED_RATES = {"adapter": (2e-3, 4e-3), "expert": (1e-4, 2e-4)}  # the best of benchmarks/capacity.py
BATCH = 16
MAX_TOKENS = 64  # tokens of a text while adapters and experts are trained
_VALIDATION_PAIRS = 400  # number per route, alike and unlike


@dataclass
class Candidate:
    """A model whose routes were learned, all of one kind.

    Attributes:
        kind: head, adapter or expert.
        model: the model.
        vectors: function of rows; its result is route -> vectors of length 1, (rows, dimensions).
        base_vectors: function of rows; its result is the vectors of the base.
        chosen: route -> the steps and the learning rate that were chosen.
        bytes_per_route: size of the weights that a route owns.
        pairs_per_route: number of training pairs that a route had at each learning rate, at most.
        seconds: time of training, and of encoding where it came first.
        found: "more like this" on the validation texts, under each route.
    """

    kind: str
    model: ExpertEncoder
    vectors: Callable[[Rows], dict[str, Vectors]]
    base_vectors: Callable[[Rows], Vectors]
    chosen: Mapping[str, str]
    bytes_per_route: int
    pairs_per_route: int
    seconds: float = 0.0
    found: list[MoreLikeThis] = field(default_factory=list)

    def measure(self, data: LabelledTexts) -> None:
        """Measure "more like this" on the validation texts."""
        groups = data.groups_of(VALIDATION)
        self.found = [
            more_like_this(own, data.labels_of(route, VALIDATION), groups)
            for route, own in self.vectors(data.sets[VALIDATION]).items()
        ]

    def row(self) -> dict[str, str | float | int]:
        """Return the figures that a choice between kinds needs."""
        ndcg = np.concatenate([each.ndcg for each in self.found])
        return {
            "kind": self.kind,
            "validation": float(ndcg.mean()) if len(ndcg) else float("nan"),
            "pairs_per_route": self.pairs_per_route,
            "seconds": round(self.seconds, 1),
            "bytes_per_route": self.bytes_per_route,
            "encodings": "one for all routes" if self.kind == HEAD else "one per route",
            "chosen": "; ".join(f"{route}: {rate}" for route, rate in self.chosen.items()),
        }


def choose_kind(
    base: SentenceTransformer,
    data: LabelledTexts,
    routes: list[str],
    config: FitConfig,
    cache: Path | None = None,
) -> tuple[Candidate, list[Candidate], str]:
    """Learn routes of the wanted kind; for `auto` of one kind after the other, while the next is better.

    Vectors of the base and runs are kept in the folder `cache`, from which an interrupted call continues.

    Returns:
        (the chosen candidate, all that were tried, a sentence on the choice).
    """
    best: Candidate | None = None
    tried: list[Candidate] = []
    verdict = ""
    too_few = _find_route_of_few_texts(data, routes)
    if config.kind != HEAD and (config.max_length or 0) > MAX_TOKENS:
        logger.warning(
            f"`max_length={config.max_length}`: adapters and experts are trained on the first {MAX_TOKENS} "
            "tokens of a text; the new model reads more"
        )
    for kind in KINDS if config.kind == "auto" else (config.kind,):
        if kind != HEAD and too_few:
            if best is None:
                raise InputError(f"{too_few}; label more texts, or fit heads")
            verdict = too_few
            logger.info(verdict)
            break
        began = time.perf_counter()
        if kind == HEAD:
            candidate = fit_heads(base, data, routes, config, cache)
        else:
            candidate = fit_trained(kind, base, data, routes, config, cache)
        candidate.measure(data)
        candidate.seconds = time.perf_counter() - began
        tried.append(candidate)
        if best is not None:
            better, verdict = _compare(candidate, best, data.groups_of(VALIDATION))
            logger.info(verdict)
            if not better:
                break
        best = candidate
    assert best is not None
    return best, tried, verdict and f"{verdict}; {best.kind}s are kept"


def _find_route_of_few_texts(data: LabelledTexts, routes: Sequence[str]) -> str:
    """Return a sentence on a route whose texts fill no batch of pairs; empty if there is none."""
    for route in routes:
        labels = data.labels_of(route, TRAIN)
        texts = int((labels.matrix[:, labels.counts > 1].sum(axis=1) > 0).sum())
        if texts < 2 * BATCH:
            return (
                f"route {route!r} has {texts} training texts that are like another one, and adapters and "
                f"experts need {2 * BATCH}, for batches of {BATCH} pairs"
            )
    return ""


def _compare(candidate: Candidate, best: Candidate, groups: Rows) -> tuple[bool, str]:
    """Return whether a kind is better by more than the margin, and a sentence on it."""
    gain = mean_gain(candidate.found, best.found, groups)
    ends = gain.interval()
    better = gain.value > MARGIN and ends.low > 0
    verdict = (
        f"{candidate.kind}s are {'' if better else 'not '}better than {best.kind}s by more than {MARGIN}: "
        f"nDCG@10 on validation texts {gain.value:+.3f} ({ends.low:+.3f} to {ends.high:+.3f})"
    )
    if candidate.pairs_per_route != best.pairs_per_route:
        verdict += (
            f", with up to {candidate.pairs_per_route:,} training pairs per route and rate against "
            f"{best.pairs_per_route:,}"
        )
    return better, verdict


def fit_heads(
    base: SentenceTransformer, data: LabelledTexts, routes: list[str], config: FitConfig, cache: Path | None
) -> Candidate:
    """Encode all texts once, and train a map per route on the vectors."""
    width = int(make_pooled_model(base).get_embedding_dimension() or 0)
    identity = np.eye(width, dtype=np.float32), np.zeros(width, np.float32)
    rank = config.rank if config.rank is not None and config.rank < width else None  # as in `make_head`
    model = with_heads(base, dict.fromkeys(routes, identity), rank)  # refuses a base before the work
    headless = model.without_heads()
    headless.max_seq_length = config.max_length or headless.max_seq_length
    pooled = _encode(BatchEncoder(headless), data.texts, routes[0], cache)
    heads = {}
    for route in routes:
        training, validation = (
            LabelledVectors(pooled[data.sets[part]], data.labels_of(route, part), data.groups_of(part))
            for part in (TRAIN, VALIDATION)
        )
        with progress(f"route {route}", config.steps * len(RATES)) as advance:
            heads[route] = train_head(training, validation, config.steps, rank, config.seed, advance)
    model = with_heads(model, {route: (head.weight, head.bias) for route, head in heads.items()})

    def vectors(rows: Rows) -> dict[str, Vectors]:
        mapped = {route: pooled[rows] @ head.weight.T + head.bias for route, head in heads.items()}
        return {route: unit(model.finish(each)) for route, each in mapped.items()}

    untrained = "no steps, but for the mean of the texts taken away"
    chosen = {route: _describe(head.steps, head.rate, untrained) for route, head in heads.items()}
    owned = 4 * width * (1 + (width if rank is None else 2 * rank))
    seen = HEAD_BATCH * config.steps
    return Candidate(HEAD, model, vectors, lambda rows: unit(model.finish(pooled[rows])), chosen, owned, seen)


def _encode(encoder: BatchEncoder, texts: Sequence[str], route: str, cache: Path | None) -> Vectors:
    with progress("encoding", len(texts)) as advance:
        if cache is None:
            return encoder.encode(texts, route, advance=advance)
        kept = TextCache(cache, "vectors", encoder.cache_key(route))
        return kept.fetch(texts, lambda some: {"vector": encoder.encode(some, route)}, advance)["vector"]


def _describe(steps: int, rate: float | None, untrained: str = "not trained") -> str:
    return f"{steps} steps at {rate:g}" if steps else untrained


def fit_trained(
    kind: str,
    base: SentenceTransformer,
    data: LabelledTexts,
    routes: list[str],
    config: FitConfig,
    cache: Path | None = None,
) -> Candidate:
    """Train routes that lie within the blocks, on pairs of alike texts; the better of two learning rates.

    The runs are kept in the folder `cache`, from which an interrupted call continues.
    """
    pairs = label_pairs(data, routes, config)
    # Runs of other settings or data, as of an attempt that was given up, are other folders.
    of_base, of_pairs = fingerprint_with_settings(base), pairs.fingerprint()
    request = sha256_text(of_base, of_pairs, config.model_dump_json(), *routes)[:16]
    runs = {}
    options: dict[str, Any] = {"rank": config.rank} if kind == "adapter" else {}
    for rate in TRAINED_RATES[kind]:
        folder = cache and cache / f"{kind}-{rate:g}-{request}"
        try:
            with progress(f"training {kind}s at {rate:g}"):
                runs[rate] = train(
                    extend(base, routes=routes, kind=kind, **options),  # type: ignore[call-overload]
                    pairs,
                    out=folder,
                    learning_rate=rate,
                    batch_size=BATCH,
                    max_steps=config.steps,
                    max_length=min(config.max_length or MAX_TOKENS, MAX_TOKENS),
                    eval_steps=max(1, config.steps // 8),
                    seed=config.seed,
                )
        except (NoSpaceError, InUseError):
            raise
        except InputError as error:
            if folder is None or not folder.exists():
                raise
            raise InputError(f"{error} (`overwrite` of `fit` keeps it: remove {folder})") from error
    best_rate, run = max(runs.items(), key=lambda each: each[1].validation or 0.0)
    model = run.model
    assert isinstance(model, ExpertEncoder)
    model.max_seq_length = config.max_length or model.max_seq_length
    encoder = BatchEncoder(model)

    def vectors(rows: Rows) -> dict[str, Vectors]:
        texts = [data.texts[row] for row in rows]
        with progress(f"encoding under {len(routes)} routes", len(texts) * len(routes)) as advance:
            return {route: unit(encoder.encode(texts, route, advance=advance)) for route in routes}

    def base_vectors(rows: Rows) -> Vectors:
        plain, longest = BatchEncoder(base), base.max_seq_length
        base.max_seq_length = model.max_seq_length
        try:
            return unit(plain.encode([data.texts[row] for row in rows], plain.known_routes.default))
        finally:
            base.max_seq_length = longest

    own = f"{ADAPTERS if kind == 'adapter' else EXPERTS}0."
    sizes = [weight.numel() for name, weight in model.named_parameters() if own in name]
    token = model.routed_model.get_input_embeddings().weight[0]  # type: ignore[attr-defined]
    owned, seen = 4 * (sum(sizes) + token.numel()), BATCH * config.steps // len(routes)
    chosen = dict.fromkeys(routes, _describe(run.kept_step, best_rate))
    return Candidate(kind, model, vectors, base_vectors, chosen, owned, seen)


def label_pairs(data: LabelledTexts, routes: list[str], config: FitConfig) -> LinkedPairs:
    """Return pairs of alike texts per route to train on, and alike and unlike ones that choose the step.

    Texts that share a label of a route, or are of one group, are known links, so that they are no negatives
    of each other.
    """
    rng = np.random.default_rng(config.seed)
    train_pairs, validation = [], []
    known: list[tuple[Rows, Rows]] = []
    label_count = int(data.groups.max()) + 1  # groups come first among the labels
    for route in routes:
        labels, rows = data.labels[route], rng.permutation(data.sets[TRAIN])
        rows = rows[labels.labelled[rows]]
        first, second = labels.rows(rows).draw_pairs(BATCH * config.steps, rng, data.groups[rows])
        train_pairs.append(_make_pair_rows(data, route, rows[first], rows[second], 1))
        of_text, label = labels.rows(rows).matrix.nonzero()
        known += [
            (_make_ids(route, rows[of_text]), label + label_count),
            (_make_ids(route, rows), data.groups[rows]),
        ]
        label_count += len(labels.names)
        rows = data.sets[VALIDATION][labels.labelled[data.sets[VALIDATION]]]
        first, second = labels.rows(rows).draw_pairs(_VALIDATION_PAIRS, rng, data.groups[rows])
        if len(rows):
            one, other = rng.choice(rows, (2, 4 * _VALIDATION_PAIRS))
            unlike = np.flatnonzero(~labels.alike(one, other))[: len(first)]
            validation.append(_make_pair_rows(data, route, one[unlike], other[unlike], 0))
        validation.append(_make_pair_rows(data, route, rows[first], rows[second], 1))
    tables = {
        "train": pa.concat_tables(train_pairs),
        "validation": pa.concat_tables(validation),
        "test": PAIRS_SCHEMA.empty_table(),
    }
    ids, of_ids = (np.concatenate(each) for each in zip(*known, strict=True))
    pairs = Pairs.in_memory(tables, LINKS_SCHEMA.empty_table(), {})
    return LinkedPairs(pairs, pa.table({"id": ids.astype(str).tolist(), "label": of_ids.astype(np.int64)}))


def _make_ids(route: str, rows: Rows) -> Rows:
    return np.array([f"{route}:{row:08d}" for row in rows.tolist()], dtype=str)


def _make_pair_rows(data: LabelledTexts, route: str, first: Rows, second: Rows, label: int) -> pa.Table:
    return pa.table(
        {
            "anchor": [data.texts[row] for row in first],
            "positive": [data.texts[row] for row in second],
            "label": np.full(len(first), label),
            "domain": [route] * len(first),
            "count": np.full(len(first), label),
            "anchor_id": _make_ids(route, first),
            "positive_id": _make_ids(route, second),
        },
        schema=PAIRS_SCHEMA,
    )
