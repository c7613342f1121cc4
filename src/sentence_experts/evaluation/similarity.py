"""Similarity of a text's vectors under different routes, and whether it is lower for one of two models.

MoTE, section 5.2: each text is encoded with every route, and each pair of routes has one cosine per text,
between its two vectors. The more a model specialises, the lower they are (figure 3, equation 1). Domain
tokens can be compared in the same way.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.stats import ttest_ind

from sentence_experts.config import with_settings
from sentence_experts.encoding.encoder import BatchEncoder, cosines
from sentence_experts.errors import InputError, RouteError
from sentence_experts.evaluation.config import SimilarityConfig
from sentence_experts.evaluation.estimates import holm
from sentence_experts.evaluation.models import Model, ModelRun, identity_of, label_of, states_of_files
from sentence_experts.evaluation.results import StoredResult, measure_once
from sentence_experts.models.routes.known_routes import KnownRoutes
from sentence_experts.models.routes.task_types import ROLES
from sentence_experts.models.sources import check_source
from sentence_experts.storage import check_apart
from sentence_experts.tables import Table, is_path
from sentence_experts.text_table import TextTable

logger = logging.getLogger(__name__)

Cosines = Mapping[tuple[str, str], NDArray[np.float64]]  # two routes -> (texts,)

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
# Below this a standard deviation is rounding, as between experts that are still copies of each other.
NO_SPREAD = 1e-6


@dataclass(frozen=True, repr=False)
class Similarity(StoredResult):
    """The similarity of a text's vectors under different routes, for one model or two.

    Attributes:
        texts: number of texts read and used, and set aside by reason.
        models: label -> settings that identify the model.
        pairs: for each pair of routes `routes` (their names), `models` (label -> mean, standard deviation and
            quantiles of the cosines) and, for two models, `welch_less` (`welch_less`).
        cosines: table of a row per model and pair of routes, with the cosine of each text: columns model,
            route, other and cosines.
    """

    FILES = ("similarity.json", "cosines.parquet")
    NAMES = (*FILES, "similarity.png")
    texts: Mapping[str, Any]
    models: Mapping[str, Mapping[str, Any]]
    pairs: tuple[Mapping[str, Any], ...]
    cosines: pa.Table

    @classmethod
    def of(
        cls, cosines: Mapping[str, Cosines], texts: Mapping[str, Any], models: Mapping[str, Any]
    ) -> Similarity:
        """Summarise the cosines of one model or two, label -> cosines, and test their differences."""
        first, *others = cosines.values()
        tests = welch_by_pair(first, others[0]) if others else {}
        pairs = tuple(
            {
                "routes": list(pair),
                "models": {label: describe_cosines(each[pair]) for label, each in cosines.items()},
            }
            | ({"welch_less": tests[pair]} if tests else {})
            for pair in first
        )
        rows = [
            {"model": label, "route": route, "other": other, "cosines": values.tolist()}
            for label, by_pair in cosines.items()
            for (route, other), values in by_pair.items()
        ]
        return cls(texts, models, pairs, pa.Table.from_pylist(rows))

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per model and pair of routes: mean, deviation and quantiles of the cosines.

        Of two models, the rows of the first have the test of their difference too.
        """
        rows = []
        for place, label in enumerate(self.models):
            for pair in self.pairs:
                summary = dict(pair["models"][label])
                quantiles = {f"q{share}": value for share, value in summary.pop("quantiles").items()}
                row = {**dict(zip(("route", "other"), pair["routes"], strict=True)), "model": label}
                rows.append(row | summary | quantiles | (pair.get("welch_less", {}) if place == 0 else {}))
        return rows


@with_settings(SimilarityConfig)
def similarity(
    model: Model,
    texts: Table,
    config: SimilarityConfig | None = None,
    out: Path | str | None = None,
    overwrite: bool = False,
    *,
    against: Model | None = None,
    **settings: Any,
) -> Similarity:
    """Measure the cosine of a text's vectors under every pair of routes (MoTE, section 5.2).

    Args:
        model: folder, hub id or loaded model with two routes or more.
        texts: a list of texts, or a table with a column of texts, such as a .txt or .csv file.
        out: folder for similarity.json and cosines.parquet; a finished result there is read back.
        overwrite: start over, replacing another result in `out`.
        against: another model with the same routes: a one-sided Welch test for each pair of routes tells
            whether the mean of `model` is lower, that is, whether its routes are more specialised.
        config, settings: a `SimilarityConfig`, or single fields of it.

    Raises:
        RouteError: a route is unknown, or there are fewer than two.
        UsageError: `out` holds something else.
        InputError: a model or the texts cannot be read, or fewer than two texts are left.

    Example:
        >>> similarity("model", "texts.txt").to_pandas().empty
        False
    """
    chosen = SimilarityConfig.of(config, **settings)
    check_apart(out, overwrite, model, against, texts if is_path(texts) else None)
    runs = [ModelRun(label_of(each), "", each) for each in (model, against) if each is not None]
    named = [replace(run, label=str(place)) for place, run in enumerate(runs)]  # equal names are no error
    return measure_once(
        Similarity,
        "similarity of routes",
        out,
        overwrite,
        lambda: identity_of(named, chosen),
        lambda _: _measure(runs, texts, chosen),
        inputs={"texts": TextTable(texts, chosen.column).fingerprint},
        state=lambda: states_of_files(runs),
    )


def _measure(runs: Sequence[ModelRun], texts: Table, chosen: SimilarityConfig) -> Similarity:
    every = TextTable(texts, chosen.column).texts()
    used, aside = chosen_texts(every, chosen.sample, chosen.seed)
    for reason, count in aside.items():
        if count:
            logger.info(f"{count:,} {reason} texts left out")
    sources = [run.source for run in runs]
    check_source(*sources)
    routes: Sequence[str] = chosen.routes
    for known in filter(None, map(KnownRoutes.read, sources)):  # before the first one is loaded
        routes = comparable_routes(known, routes)
    encoders = [run.open(chosen) for run in runs]
    for encoder in encoders:
        routes = comparable_routes(encoder.known_routes, routes)
    labels = [encoder.name for encoder in encoders]
    if len(set(labels)) < len(labels):
        labels[1] = f"{labels[1]} (against)"
    by_label = dict(zip(labels, encoders, strict=True))
    found = {label: inter_route_cosines(encoder, used, routes) for label, encoder in by_label.items()}
    noted: dict[str, Any] = {"file": Path(texts).name} if is_path(texts) else {}
    noted |= {"read": len(every), "used": len(used), "seed": chosen.seed, **aside}
    return Similarity.of(found, noted, {label: each.settings() for label, each in by_label.items()})


def chosen_texts(
    texts: Sequence[str], sample: int | None = None, seed: int = 0
) -> tuple[list[str], dict[str, int]]:
    """Return at most `sample` texts, drawn at random, in their order; and how many were left out and why.

    Raises:
        InputError: fewer than two texts are left.
    """
    written = [text for text in texts if text.strip()]
    distinct = list(dict.fromkeys(written))
    aside = {"empty": len(texts) - len(written), "repeated": len(written) - len(distinct)}
    if len(distinct) < 2:
        raise InputError(f"only {len(distinct)} texts that are not empty; at least two are needed")
    if sample is not None and sample < len(distinct):
        rows = np.random.default_rng(seed).choice(len(distinct), sample, replace=False)
        distinct = [distinct[row] for row in sorted(rows)]
    return distinct, aside


def comparable_routes(model: KnownRoutes, wanted: Sequence[str] | None = None) -> list[str]:
    """Return the routes to compare: those wanted, or all, each instruction or token once, by its own name.

    Raises:
        RouteError: one is unknown, or there are fewer than two.
    """
    for name in wanted or ():
        model.choose(name)
    # The default route also has the names of both roles.
    own = {prompt: name for name, prompt in model.prompts.items() if name not in ROLES}
    distinct = {prompt: own.get(prompt, name) for name, prompt in model.prompts.items()}
    routes = list(dict.fromkeys(wanted or distinct.values()))
    if len(routes) < 2:
        raise RouteError(
            f"{model.model}: similarity is measured between two routes or more, but there are "
            f"{len(routes)}: {', '.join(routes) or 'none'}"
        )
    return routes


def inter_route_cosines(
    encoder: BatchEncoder, texts: Sequence[str], routes: Sequence[str]
) -> dict[tuple[str, str], NDArray[np.float64]]:
    """Return the cosine of each text's vectors under each pair of routes, in the routes' order."""
    vectors = {route: encoder.encode(texts, route) for route in routes}
    return {pair: cosines(*(vectors[route] for route in pair)) for pair in combinations(routes, 2)}


def describe_cosines(values: NDArray[np.float64]) -> dict[str, Any]:
    """Return mean, sample standard deviation and quantiles of the cosines of one pair of routes."""
    quantiles = zip(QUANTILES, np.quantile(values, QUANTILES), strict=True)
    return {
        "mean": float(values.mean()),
        "sd": float(values.std(ddof=1)),
        "quantiles": {f"{share:g}": float(value) for share, value in quantiles},
    }


def welch_less(first: NDArray[np.float64], second: NDArray[np.float64]) -> dict[str, float | None]:
    """Test whether the first mean is below the second (MoTE, equation 1): unequal variances, one-sided.

    As in the paper, the two samples are treated as independent, although the texts are the same. Returns
    `difference`, the first mean minus the second, and `p_value`, None if neither side varies.
    """
    p_value = None
    if max(first.std(ddof=1), second.std(ddof=1)) >= NO_SPREAD:
        p_value = float(ttest_ind(first, second, equal_var=False, alternative="less").pvalue)
    return {"difference": float(first.mean() - second.mean()), "p_value": p_value}


def welch_by_pair(cosines: Cosines, others: Cosines) -> dict[tuple[str, str], dict[str, float | None]]:
    """Return `welch_less` of each pair of routes, with `p_holm`, corrected for their number (Holm)."""
    tests = {pair: welch_less(values, others[pair]) for pair, values in cosines.items()}
    known = {pair: test["p_value"] for pair, test in tests.items() if test["p_value"] is not None}
    corrected = dict(zip(known, holm(list(known.values())), strict=True))
    return {pair: {**test, "p_holm": corrected.get(pair)} for pair, test in tests.items()}
