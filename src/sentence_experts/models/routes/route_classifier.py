"""The classifier of automatic routes: a logistic regression on vectors of the averaged model.

It is stored in `auto_route/` of the model's folder (JSON and safetensors); fitting needs scikit-learn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.errors import InputError, UsageError, brief
from sentence_experts.models.layers.weight_files import read_arrays
from sentence_experts.models.pooling import unit
from sentence_experts.models.routes.known_routes import AUTO_FOLDER
from sentence_experts.storage import open_to_readers, read_json, write_json

FILES = SETTINGS, WEIGHTS = "auto_route.json", "auto_route.safetensors"
AGAIN = "write it again with `auto_route`"


@dataclass(frozen=True)
class RouteClassifier:
    """Multinomial logistic regression over vectors of length 1.

    Attributes:
        routes: the names that it chooses from.
        weights: (routes, dimensions) and
        biases: (routes,), float64.
        confidence: the probability that its choice must reach to be followed.
        fallback: below that: "average" (the averaged model's vector) or "error".
        trained_on: route -> number of texts that it was fitted on.
    """

    routes: tuple[str, ...]
    weights: NDArray[np.float64]
    biases: NDArray[np.float64]
    confidence: float = 0.5
    fallback: str = "average"
    trained_on: dict[str, int] = field(default_factory=dict)

    def probabilities(self, vectors: NDArray[Any]) -> NDArray[np.float64]:
        """Turn vectors, (texts, dimensions), into probabilities, (texts, routes)."""
        from scipy.special import softmax

        logits = unit(np.asarray(vectors, np.float64)) @ self.weights.T + self.biases
        shares: NDArray[np.float64] = softmax(logits, axis=1)
        return shares

    def write(self, folder: Path) -> None:
        """Write to a folder, which a model's folder will contain as `AUTO_FOLDER`."""
        from safetensors.numpy import save_file

        settings = dict(vars(self))
        # safetensors writes an array's memory as it is and ignores the order of its axes.
        arrays = {name: np.ascontiguousarray(settings.pop(name)) for name in ("weights", "biases")}
        folder.mkdir(exist_ok=True)
        save_file(arrays, folder / WEIGHTS)
        open_to_readers(folder)
        write_json(folder / SETTINGS, settings)

    @classmethod
    def read(cls, model: Path) -> RouteClassifier:
        """Read from the folder of a model."""
        folder = model / AUTO_FOLDER
        settings, arrays = read_json(folder / SETTINGS), read_arrays(folder / WEIGHTS, ("weights", "biases"))
        try:
            classifier = cls(tuple(settings.pop("routes")), arrays["weights"], arrays["biases"], **settings)
        except (TypeError, KeyError, AttributeError) as error:
            raise InputError(f"{folder / SETTINGS}: cannot be read ({brief(error)}); {AGAIN}") from error
        number = len(classifier.routes)
        if classifier.biases.shape != (number,) or classifier.weights.shape[:-1] != (number,):
            raise InputError(f"{folder / WEIGHTS}: does not fit its {number} routes; {AGAIN}")
        return classifier


def has_auto_route(source: str | Path) -> bool:
    """Return whether this is a model's folder with a classifier of routes."""
    return (Path(source) / AUTO_FOLDER / SETTINGS).is_file()


def fit_classifier(
    vectors: NDArray[Any], routes: Sequence[str], confidence: float = 0.5, fallback: str = "average"
) -> RouteClassifier:
    """Fit the classifier on vectors of shape (texts, dimensions) and the route of each text.

    The vectors are put around their mean, at a mean square distance of 1, so that the penalty (scikit-learn's
    default, C = 1) means the same for models whose vectors lie close together; the shift and the scale go
    into the weights. On real titles a weaker penalty made the choices worse and far too sure of themselves.
    """
    from sklearn.linear_model import LogisticRegression

    names = sorted(set(routes))
    if len(names) < 2:
        raise UsageError(f"texts of at least two routes are needed; there are {names}")
    rows = unit(np.asarray(vectors, np.float64))
    centre = rows.mean(axis=0)
    spread = np.sqrt(((rows - centre) ** 2).sum(axis=1).mean()) or 1.0
    regression = LogisticRegression(max_iter=1000).fit((rows - centre) / spread, routes)
    weights = regression.coef_ / spread
    biases = regression.intercept_ - weights @ centre
    if len(names) == 2:  # scikit-learn then keeps the second class's row only, against a row of zeros
        weights, biases = np.vstack([0 * weights, weights]), np.append(0.0, biases)
    return RouteClassifier(tuple(names), weights, biases, confidence, fallback, dict(Counter(routes)))
