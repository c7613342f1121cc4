"""A baseline that scores test pairs by the training pairs alone, without reading texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, eye_array
from sklearn.preprocessing import normalize

from sentence_experts.evaluation.pairs import fold_texts


class MemoryScorer:
    """Cosine of two texts' neighbourhoods among the linked training pairs, each text its own neighbour.

    Texts that training pairs link, or link to the same others, are similar; texts that are not in training
    pairs are similar to nothing. If the sets share no text, every score is 0 and the ROC-AUC 0.5: anything
    above can be reached by memory, without understanding.
    """

    def __init__(self, train: pa.Table, label: str = "memory of training") -> None:
        self.label = label
        linked = train.filter(pa.compute.equal(train["label"], 1))
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
