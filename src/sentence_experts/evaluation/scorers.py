"""Models that score pairs of texts: TF-IDF as in the 2025 paper, memory of training, or any encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sentence_experts.encoding.chunks import Vectors
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import InputError, RouteError
from sentence_experts.evaluation.models import ANY_KEY
from sentence_experts.evaluation.pairs import cosine_by_text
from sentence_experts.models.routes.known_routes import KnownRoutes
from sentence_experts.pairs.dataset import describe_domain
from sentence_experts.pairs.splits import fold_texts
from sentence_experts.progress import Advance, announced, progress
from sentence_experts.storage.text_cache import TEXTS_PER_PART, TextCache

TFIDF_FEATURES = 4096  # 2025 paper, "Models of choice"

TFIDF_LABEL, MEMORY_LABEL = "TF-IDF", "memory of training"


class TfidfScorer:
    """TF-IDF with 4,096 features, fitted on each domain separately (2025 paper, "Models of choice").

    The paper does not state on which texts. Here it is fitted on the training texts of the domain, as a
    trained model is; with `fit_on="evaluated"`, or without training texts, on the evaluated texts. All other
    settings are scikit-learn's defaults.
    """

    def __init__(
        self, training_texts: Mapping[str, Sequence[str]], fit_on: str = "train", label: str = TFIDF_LABEL
    ) -> None:
        self.label = label
        self.fit_on = fit_on
        self._training_texts = training_texts
        self._fitted: dict[str, str] = {}

    def settings(self) -> dict[str, Any]:
        """The texts it was fitted on: domain -> "train" or "evaluated"."""
        return {
            "model": "tfidf",
            "max_features": TFIDF_FEATURES,
            "fitted_on": dict(sorted(self._fitted.items())),
        }

    @announced("scoring pairs by TF-IDF")
    def score(self, anchors: Sequence[str], positives: Sequence[str], domain: str) -> NDArray[np.float64]:
        """Cosine of the TF-IDF vectors, shape (pairs,); 0 if a text has no known word.

        Raises:
            InputError: the domain's texts hold no word at all.
        """
        from sklearn.feature_extraction.text import TfidfVectorizer

        training = self._training_texts.get(domain, ()) if self.fit_on == "train" else ()
        self._fitted[domain] = "train" if training else "evaluated"
        # Distinct and sorted, so that neither repetition nor order of the pairs matters.
        texts = sorted(set(training or (*anchors, *positives)))
        try:
            vectorizer = TfidfVectorizer(max_features=TFIDF_FEATURES).fit(texts)
        except ValueError as error:
            raise InputError(f"TF-IDF cannot be fitted on domain {domain}: {error}") from error
        product = vectorizer.transform(anchors).multiply(vectorizer.transform(positives))
        return np.asarray(product.sum(axis=1), dtype=np.float64).ravel()


class MemoryScorer:
    """Cosine of two texts' neighbourhoods among the linked training pairs, each text its own neighbour.

    Texts that training pairs link, or link to the same others, are similar; texts that are not in training
    pairs are similar to nothing. If the sets share no text, every score is 0 and the ROC-AUC 0.5: anything
    above can be reached by memory, without understanding.
    """

    def __init__(self, train: pa.Table, label: str = MEMORY_LABEL) -> None:
        self.label = label
        from scipy.sparse import coo_array, csr_array, eye_array
        from sklearn.preprocessing import normalize

        linked = train.filter(pc.equal(train["label"], 1))
        ends = [fold_texts(linked[name]).to_pylist() for name in ("anchor", "positive")]
        self._row = {text: row for row, text in enumerate(sorted({*ends[0], *ends[1]}))}
        size = len(self._row)
        rows, columns = ([self._row[text] for text in texts] for texts in ends)
        links = coo_array((np.ones(len(rows)), (rows, columns)), shape=(size, size)).tocsr()
        near = csr_array(((links + links.T + eye_array(size)) > 0).astype(np.float64))
        self._near = normalize(near)

    def settings(self) -> dict[str, Any]:
        """Only its name."""
        return {"model": "memory"}

    def score(self, anchors: Sequence[str], positives: Sequence[str], domain: str) -> NDArray[np.float64]:
        """The cosine of each pair's neighbourhoods, shape (pairs,)."""
        rows = [
            np.array([self._row.get(text, -1) for text in fold_texts(pa.array(texts)).to_pylist()], dtype=int)
            for texts in (list(anchors), list(positives))
        ]
        known = (rows[0] >= 0) & (rows[1] >= 0)
        scores = np.zeros(len(known))
        near = self._near[rows[0][known]].multiply(self._near[rows[1][known]])
        scores[known] = np.asarray(near.sum(axis=1)).ravel()
        return scores


class EncoderScorer:
    """A model that encodes each text with the route of its domain (`routes_by_domain`).

    `cache` is a folder for the vectors of any number of models, which evaluations may share.
    """

    def __init__(
        self,
        encoder: BatchEncoder,
        domains: Sequence[str],
        label: str | None = None,
        route_map: Mapping[str, str] | None = None,
        cache: Path | None = None,
    ) -> None:
        self.label = label or encoder.name
        self.encoder = encoder
        self.routes = routes_by_domain(encoder.known_routes, domains, route_map or {})
        self.cache = cache

    @property
    def identity(self) -> tuple[Any, ...]:
        """What decides the scores: another scorer with the same identity gives the same."""
        encoder = self.encoder
        return (encoder.fingerprint, encoder.pooling, encoder.model.max_seq_length, *self.routes.items())

    def settings(self) -> dict[str, Any]:
        """The model's name, hash and the route of each domain."""
        return self.encoder.settings() | {"route_of_domain": self.routes}

    def score(self, anchors: Sequence[str], positives: Sequence[str], domain: str) -> NDArray[np.float64]:
        """Cosine of the two texts' vectors, shape (pairs,)."""
        route = self.routes[domain]
        scores = cosine_by_text(anchors, positives, lambda texts: self._vectors(texts, route))
        self.encoder.log_low_confidence()
        return scores

    def _vectors(self, texts: list[str], route: str | None) -> Vectors:
        what = f"{self.label}{f' [{route}]' if route else ''}: encoding"
        with progress(what, len(texts)) as advance:
            if self.cache is None:
                return encode_in_parts(self.encoder, texts, route, advance)
            name = f"{self.encoder.name}-{route}" if route else self.encoder.name
            cache = TextCache(self.cache, name, self.encoder.vector_settings(route))
            encode = lambda some: {"vector": self.encoder.encode(some, route)}  # noqa: E731
            return cache.fetch(texts, encode, advance)["vector"]


def encode_in_parts(
    encoder: BatchEncoder, texts: Sequence[str], route: str | None, advance: Advance
) -> Vectors:
    """Encode many texts, and report to `advance`."""
    parts = []
    for start in range(0, len(texts), TEXTS_PER_PART):
        parts.append(encoder.encode(texts[start : start + TEXTS_PER_PART], route, advance=advance))
    return np.concatenate(parts) if parts else encoder.encode([])


def routes_by_domain(
    known: KnownRoutes, domains: Sequence[str], route_map: Mapping[str, str]
) -> dict[str, str | None]:
    """The route for the texts of each domain; None for no prompt.

    The route is that of the domain's name, or of `route_map` (domain -> route, "*" for all other domains). A
    model without experts that has none of these routes encodes without a prompt. A model with a single route
    uses it for every domain: a single-domain model is evaluated with its own token everywhere (2025 paper,
    Table 3). Any other model must have all routes.

    Raises:
        RouteError: a route is missing.
    """
    for route in route_map.values():
        known.choose(route)
    wanted = {domain: route_map.get(domain, route_map.get(ANY_KEY, domain)) for domain in domains}
    has_experts = bool(known.experts and known.prompts)
    routed = has_experts or any(route in known.prompts for route in wanted.values())
    if not routed:
        return dict.fromkeys(domains)
    if len(known.prompts) == 1:
        return dict.fromkeys(domains, next(iter(known.prompts)))
    for domain, route in wanted.items():
        if route not in known.prompts:
            raise RouteError(
                f"{known.model} has no route for {describe_domain(domain)}; its routes: "
                f"{', '.join(sorted(known.prompts)) or 'none'}; name one with `route_map` {domain}=ROUTE"
            )
    return dict(wanted)
