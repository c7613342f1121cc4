"""How well routes are chosen automatically: accuracy on texts of known domains, and the cost of mistakes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.evaluation.pair_evaluation import measure
from sentence_experts.evaluation.pairs import checked_table, domains_of, score_pairs, texts_by_domain
from sentence_experts.evaluation.scorers import EncoderScorer
from sentence_experts.models.routing.automatic import AutoRoutedEncoder
from sentence_experts.models.routing.route_classifier import AUTO
from sentence_experts.storage import sha256_text

Labelled = tuple[str, str]  # a text and its domain


@dataclass(frozen=True)
class Choices:
    """The routes chosen for texts whose domain is known.

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
        """Number of texts of a domain, or of all."""
        return _count(self.chosen, domain)

    def accuracy(self, domain: str | None = None) -> float:
        """Share of the texts of a domain, or of all, whose most probable route is their domain."""
        return _right(self.chosen, domain) / self.texts(domain)

    def below_confidence(self, domain: str | None = None) -> float:
        """Share of texts below the confidence threshold."""
        return 1 - _count(self.sure, domain) / self.texts(domain)

    def accuracy_above_confidence(self, domain: str | None = None) -> float | None:
        """The accuracy on the texts that reach the confidence threshold; None if there are none."""
        sure = _count(self.sure, domain)
        return _right(self.sure, domain) / sure if sure else None


def labelled_texts(
    pairs: pa.Table, of_each: int | None = None, seed: int = 0, without: Collection[str] = ()
) -> list[Labelled]:
    """The distinct texts of each domain's pairs, except `without`; at most `of_each` per domain, sampled."""
    return [
        (text, domain)
        for domain, texts in texts_by_domain(pairs).items()
        for text in sampled(set(texts) - set(without), of_each, seed)
    ]


def sampled(texts: Collection[str], count: int | None, seed: int) -> list[str]:
    """`count` of the texts, or all, sorted by hash: the order in which they are given does not matter."""
    return sorted(texts, key=lambda text: sha256_text(str(seed), text))[:count]


def choices(model: AutoRoutedEncoder, labelled: Sequence[Labelled]) -> Choices:
    """The routes that a model chooses for texts of known domains."""
    names, probabilities = model.choose_route([text for text, _ in labelled])
    sure = probabilities.max(axis=1) >= model.classifier.confidence
    chosen = [(domain, name) for (_, domain), name in zip(labelled, names, strict=True)]
    return Choices(
        Counter(chosen), Counter(one for one, is_sure in zip(chosen, sure, strict=True) if is_sure)
    )


def cost_of_mistakes(
    model: AutoRoutedEncoder, pairs: pa.Table, batch_size: int = 32
) -> dict[str, tuple[float | None, float | None]]:
    """F1max with the true and with automatic routes: view (`pooled`, ..., each domain) -> (true, automatic).

    Texts below the confidence threshold are encoded with the averaged model, even if the model is set to
    raise an error for them.
    """
    table = checked_table(pairs)
    domains = domains_of(table)
    averaging = replace(model.classifier, fallback="average")
    model = AutoRoutedEncoder(model.without_auto_routes(), averaging, model.averaged)
    encoder = BatchEncoder(model, batch_size, "model")
    found = []
    for what, route_map in (("true routes", {}), ("automatic routes", dict.fromkeys(domains, AUTO))):
        scorer = EncoderScorer(encoder, domains, what, route_map)
        found.append(measure(table, score_pairs(scorer, table), replicates=0).figures)
    true, automatic = found
    return {view: (true[view].metrics["f1_max"], automatic[view].metrics["f1_max"]) for view in true}


def _count(counts: Counter[tuple[str, str]], domain: str | None) -> int:
    return sum(number for (of, _), number in counts.items() if domain in (None, of))


def _right(counts: Counter[tuple[str, str]], domain: str | None) -> int:
    return sum(number for (of, route), number in counts.items() if domain in (None, of) and of == route)
