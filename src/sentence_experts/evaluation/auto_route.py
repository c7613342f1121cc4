"""`auto_route`: teach a model to choose routes, and measure its choices and the cost of mistakes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sentence_experts.config import with_settings
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import InputError, UsageError
from sentence_experts.evaluation.pair_evaluation import measure
from sentence_experts.evaluation.pairs import checked_table, domains_of, score_pairs, texts_by_domain
from sentence_experts.evaluation.results import Result, View
from sentence_experts.evaluation.scorers import encoder_score, routes_by_domain
from sentence_experts.models.automatic import AutoRoutedEncoder, fit_auto_routes
from sentence_experts.models.encoder import check_experts
from sentence_experts.models.loading import load
from sentence_experts.models.routes.auto_route_config import AutoRouteConfig
from sentence_experts.models.routes.known_routes import AUTO, AUTO_FOLDER
from sentence_experts.models.routes.route_classifier import FILES
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.storage import locked, note_changes, output, sha256_file, sha256_text
from sentence_experts.tables import Table, TextTable

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

TEXTS_PER_ROUTE = 2000  # to learn from, at most
HELD_OUT = 5  # of a table of texts, every fifth measures the accuracy

Labelled = tuple[str, str]  # a text and its domain


@dataclass(frozen=True, repr=False)
class AutoRouteResult(Result):
    """A model that chooses routes, and how well it does on texts that it did not learn from.

    Attributes:
        model: the model, which knows the route "auto"; `model.save(folder)` keeps it.
        learned: number of texts that it learned from.
        choices: how often it was right about other texts (`measure_choices`); empty if there were none.
        cost: F1max with the true routes and with automatic ones, per view (`cost_of_mistakes`); None without
            pairs.
    """

    model: AutoRoutedEncoder
    learned: int
    choices: list[dict[str, Any]]
    cost: dict[View, tuple[float | None, float | None]] | None

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per domain: `texts`, `accuracy`, `below_confidence`, `accuracy_above_confidence`."""
        return [{name: value for name, value in row.items() if name != "chosen"} for row in self.choices[:-1]]


@with_settings(AutoRouteConfig)
def auto_route(
    model: SentenceTransformer | str | Path,
    pairs: Any = None,
    config: AutoRouteConfig | None = None,
    *,
    texts: Table | None = None,
    save: bool = False,
    overwrite: bool = False,
    **settings: Any,
) -> AutoRouteResult:
    """Teach a model to choose the routes of texts, and measure how well it does.

    Args:
        model: a model with experts, or its folder.
        pairs: pairs of any form (`Pairs.of`): their training texts and domains teach the routes, their
            validation texts measure the choices.
        config: the settings; those given by name come before it.
        texts: a table of texts and routes to learn from, instead of those of `pairs`. Without pairs, every
            fifth text measures the choices.
        save: keep the automatic routes in the model's folder; the model is otherwise left as it is. If they
            are there already, from the same data and settings, they are not learned again.
        overwrite: replace automatic routes in the folder that were learned with other settings or texts.

    Raises:
        UsageError: neither pairs nor texts, a route that the model does not have or one without texts, or
            the folder has other automatic routes.
        InputError: the model has no experts, or a table cannot be read or has a text without a route.

    Example:
        >>> result = auto_route("model", "pairs")
        >>> result.model.encode(["Drought in rice"], prompt_name="auto").shape[0]
        1
    """
    chosen = AutoRouteConfig.of(config, **settings)
    if pairs is None and texts is None:
        raise UsageError("give `pairs`, or `texts` with texts and their routes")
    opened = None if pairs is None else Pairs.of(pairs)
    if not save:
        return _learned(model, opened, texts, chosen)
    if not isinstance(model, str | Path):
        raise UsageError("`save` keeps the routes in the model's folder: give that as `model`")
    folder = Path(model)
    if not folder.is_dir():
        raise InputError(f"{model}: no such model folder")
    inputs = {} if opened is None else {"pairs": opened.fingerprint}
    inputs |= {} if texts is None else {"texts": TextTable(texts).fingerprint}
    what = "set of automatic routes"
    with (
        locked(folder, "auto-route"),
        output(folder / AUTO_FOLDER, what, names=FILES, grows=True, overwrite=overwrite) as place,
    ):
        weights = {file.name: sha256_file(file) for file in sorted(folder.glob("*.safetensors"))}
        dumped = chosen.model_dump(mode="json", exclude={"device"})
        if place.begin({"weights": weights, "config": dumped}, inputs) == "finished":
            there = load(folder, device=chosen.device)
            assert isinstance(there, AutoRoutedEncoder)
            return AutoRouteResult(there, sum(there.classifier.trained_on.values()), [], None)
        result = _learned(folder, opened, texts, chosen)
        result.model.classifier.write(place.path)
        place.finish()
    note_changes(folder, [f"{AUTO_FOLDER}/{name}" for name in FILES])
    return result


def _learned(
    model: SentenceTransformer | str | Path, pairs: Pairs | None, texts: Table | None, config: AutoRouteConfig
) -> AutoRouteResult:
    known, unseen = _known_and_unseen(pairs, texts, config)
    encoder = check_experts(load(model, device=config.device))
    learned, routes = ([one[place] for one in known] for place in (0, 1))
    fitted = fit_auto_routes(encoder, learned, routes, config.confidence, config.fallback)
    cost = None if pairs is None else cost_of_mistakes(fitted, pairs.split(config.split))
    return AutoRouteResult(fitted, len(known), measure_choices(fitted, unseen) if unseen else [], cost)


def _known_and_unseen(
    pairs: Pairs | None, texts: Table | None, config: AutoRouteConfig
) -> tuple[list[Labelled], list[Labelled]]:
    """Return the texts to learn from, and others to measure on."""
    known = [] if texts is None else _read_labelled(texts, config.column)
    if pairs is None:
        return [one for number, one in enumerate(known) if number % HELD_OUT], known[::HELD_OUT]
    if texts is None:
        known = labelled_texts(pairs.split("train"), TEXTS_PER_ROUTE, config.seed)
    learned = {text for text, _ in known}
    return known, labelled_texts(pairs.split("validation"), TEXTS_PER_ROUTE, config.seed, without=learned)


def _read_labelled(texts: Table, column: str) -> list[Labelled]:
    """Return the texts and routes of a table, in an order that does not depend on the routes."""
    table = TextTable(texts, column, "domain")
    routes: dict[str, str] = {}
    for number, row in enumerate(table.rows(), start=1):
        if not row.id:
            raise InputError(f"{table.name}: row {number} has no domain")
        routes[row.text] = row.id
    return [(text, routes[text]) for text in _in_fixed_order(routes, seed=0)]


def labelled_texts(
    pairs: pa.Table, of_each: int | None = None, seed: int = 0, without: Collection[str] = ()
) -> list[Labelled]:
    """Return the distinct texts of each domain's pairs, except `without`; a sample of `of_each` at most."""
    return [
        (text, domain)
        for domain, texts in texts_by_domain(pairs).items()
        for text in _in_fixed_order(set(texts) - set(without), seed)[:of_each]
    ]


def _in_fixed_order(texts: Collection[str], seed: int) -> list[str]:
    return sorted(texts, key=lambda text: sha256_text(str(seed), text))


def measure_choices(model: AutoRoutedEncoder, labelled: Sequence[Labelled]) -> list[dict[str, Any]]:
    """Measure the routes that a model chooses for texts of known domains.

    Returns:
        A row per domain, and one of all texts, whose `domain` is None: `texts`, their number; `accuracy`, the
        share whose most probable route is their domain; `below_confidence`, the share below the confidence
        threshold; `accuracy_above_confidence`, None if all are below; `chosen`, route -> number of texts.
    """
    names, probabilities = model.choose_route([text for text, _ in labelled])
    domains, routes = np.array([domain for _, domain in labelled]), np.array(names)
    right, sure = routes == domains, probabilities.max(axis=1) >= model.classifier.confidence
    rows = []
    for domain in (*sorted(set(domains.tolist())), None):
        own = np.full(len(domains), True) if domain is None else domains == domain
        rows.append(
            {
                "domain": domain,
                "texts": int(own.sum()),
                "accuracy": float(right[own].mean()),
                "below_confidence": float(1 - sure[own].mean()),
                "accuracy_above_confidence": float(right[own & sure].mean()) if (own & sure).any() else None,
                "chosen": Counter(routes[own].tolist()),
            }
        )
    return rows


def cost_of_mistakes(
    model: AutoRoutedEncoder, pairs: pa.Table, batch_size: int = 32
) -> dict[View, tuple[float | None, float | None]]:
    """Measure F1max with the true and with automatic routes: view (`results.View`) -> (true, automatic).

    Texts below the confidence threshold are encoded with the averaged model, even if the model is set to
    raise an error for them.
    """
    table = checked_table(pairs)
    domains = domains_of(table)
    averaging = replace(model.classifier, fallback="average")
    model = AutoRoutedEncoder(model.without_auto_routes(), averaging, model.averaged)
    encoder = BatchEncoder(model, batch_size, "model")
    costs = []
    for what, route_map in (("true routes", {}), ("automatic routes", dict.fromkeys(domains, AUTO))):
        routes = routes_by_domain(encoder.known_routes, domains, route_map)
        scores = score_pairs(encoder_score(encoder, routes, what), table)
        costs.append(measure(table, scores, replicates=0).figures)
    true, automatic = costs
    return {view: (true[view].metrics["f1_max"], automatic[view].metrics["f1_max"]) for view in true}
