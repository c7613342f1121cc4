"""`auto_route`: teach a model to choose routes, and measure its choices and the cost of mistakes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from sentence_experts.models.routes.known_routes import AUTO, SETTINGS
from sentence_experts.models.routes.route_classifier import auto_route_output
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.storage import locked, read_json, sha256_file, sha256_text
from sentence_experts.tables import Table, TextTable

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

TEXTS_PER_ROUTE = 2000  # to learn from, at most
HELD_OUT = 5  # of a table of texts, every fifth measures the accuracy

Labelled = tuple[str, str]  # a text and its domain


@dataclass(frozen=True)
class Choices:
    """The routes chosen for texts whose domain is known; without a domain, methods are of all texts.

    Attributes:
        chosen: (domain, route) -> number of texts with that most probable route, at any confidence.
        sure: (domain, route) -> the same, of the texts that reach the confidence threshold.
    """

    chosen: Counter[tuple[str, str]]
    sure: Counter[tuple[str, str]]

    @property
    def domains(self) -> list[str]:
        """The domains, sorted."""
        return sorted({domain for domain, _ in self.chosen})

    def texts(self, domain: str | None = None) -> int:
        """Return the number of texts."""
        return _count(self.chosen, domain)

    def accuracy(self, domain: str | None = None) -> float:
        """Return the share of texts whose most probable route is their domain."""
        return _count(self.chosen, domain, right=True) / self.texts(domain)

    def below_confidence(self, domain: str | None = None) -> float:
        """Return the share of texts below the confidence threshold."""
        return 1 - _count(self.sure, domain) / self.texts(domain)

    def accuracy_above_confidence(self, domain: str | None = None) -> float | None:
        """Return the accuracy on the texts that reach the confidence threshold; None if there are none."""
        sure = _count(self.sure, domain)
        return _count(self.sure, domain, right=True) / sure if sure else None


def _count(counts: Counter[tuple[str, str]], domain: str | None, right: bool = False) -> int:
    return sum(
        number
        for (own, route), number in counts.items()
        if domain in (None, own) and (not right or own == route)
    )


@dataclass(frozen=True, repr=False)
class AutoRouteResult(Result):
    """A model that chooses routes, and how well it does on texts that it did not learn from.

    Attributes:
        model: the model, which knows the route "auto"; `model.save(folder)` keeps it.
        learned: number of texts that it learned from.
        choices: its choices on other texts; None if there were none.
        cost: F1max with the true routes and with automatic ones, per view (`cost_of_mistakes`); None without
            pairs.
    """

    model: AutoRoutedEncoder
    learned: int
    choices: Choices | None
    cost: dict[View, tuple[float | None, float | None]] | None

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per domain: `texts`, `accuracy`, `below_confidence`, `accuracy_above_confidence`."""
        if (own := self.choices) is None:
            return []
        measures = (own.texts, own.accuracy, own.below_confidence, own.accuracy_above_confidence)
        return [
            {"domain": domain} | {each.__name__: each(domain) for each in measures} for domain in own.domains
        ]


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
    with locked(folder, "auto-route"), auto_route_output(folder, overwrite) as place:
        weights = {file.name: sha256_file(file) for file in sorted(folder.glob("*.safetensors"))}
        dumped = chosen.model_dump(mode="json", exclude={"device"})
        if place.begin({"weights": weights, "config": dumped}, inputs) == "finished":
            there = load(folder, device=chosen.device, int8=False)
            assert isinstance(there, AutoRoutedEncoder)
            if AUTO not in read_json(folder / SETTINGS)["prompts"]:  # killed before it was noted
                there.note_auto_routes(folder)
            return AutoRouteResult(there, sum(there.classifier.trained_on.values()), None, None)
        result = _learned(folder, opened, texts, chosen)
        result.model.classifier.write(place.path)
        place.finish()
        result.model.note_auto_routes(folder)
    return result


def _learned(
    model: SentenceTransformer | str | Path, pairs: Pairs | None, texts: Table | None, config: AutoRouteConfig
) -> AutoRouteResult:
    known, unseen = _known_and_unseen(pairs, texts, config)
    encoder = check_experts(load(model, device=config.device, int8=False))
    fitted = fit_auto_routes(
        encoder,
        [text for text, _ in known],
        [route for _, route in known],
        config.confidence,
        config.fallback,
    )
    cost = None if pairs is None else cost_of_mistakes(fitted, pairs.split(config.split))
    return AutoRouteResult(fitted, len(known), choices(fitted, unseen) if unseen else None, cost)


def _known_and_unseen(
    pairs: Pairs | None, texts: Table | None, config: AutoRouteConfig
) -> tuple[list[Labelled], list[Labelled]]:
    """Return the texts to learn from, and others to measure on."""
    seed = config.seed
    known = [] if texts is None else _read_labelled(texts, config.column)
    if pairs is None:
        return [one for number, one in enumerate(known) if number % HELD_OUT], known[::HELD_OUT]
    known = known if texts is not None else labelled_texts(pairs.split("train"), TEXTS_PER_ROUTE, seed)
    learned = {text for text, _ in known}
    return known, labelled_texts(pairs.split("validation"), TEXTS_PER_ROUTE, seed, without=learned)


def _read_labelled(texts: Table, column: str) -> list[Labelled]:
    """Return the texts and routes of a table, in an order that does not depend on the routes."""
    table = TextTable(texts, column, "domain")
    routes: dict[str, str] = {}
    for number, row in enumerate(table.rows(), start=1):
        if not row.id:
            raise InputError(f"{table.name}: row {number} has no domain")
        routes[row.text] = row.id
    return [(text, routes[text]) for text in sampled(routes, None, seed=0)]


def labelled_texts(
    pairs: pa.Table, of_each: int | None = None, seed: int = 0, without: Collection[str] = ()
) -> list[Labelled]:
    """Return the distinct texts of each domain's pairs, except `without`; a sample of `of_each` at most."""
    return [
        (text, domain)
        for domain, texts in texts_by_domain(pairs).items()
        for text in sampled(set(texts) - set(without), of_each, seed)
    ]


def sampled(texts: Collection[str], count: int | None, seed: int) -> list[str]:
    """Return `count` of the texts, or all, sorted by hash, so that their order does not matter."""
    return sorted(texts, key=lambda text: sha256_text(str(seed), text))[:count]


def choices(model: AutoRoutedEncoder, labelled: Sequence[Labelled]) -> Choices:
    """Return the routes that a model chooses for texts of known domains."""
    names, probabilities = model.choose_route([text for text, _ in labelled])
    sure = probabilities.max(axis=1) >= model.classifier.confidence
    chosen = [(domain, name) for (_, domain), name in zip(labelled, names, strict=True)]
    return Choices(
        Counter(chosen), Counter(one for one, is_sure in zip(chosen, sure, strict=True) if is_sure)
    )


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
