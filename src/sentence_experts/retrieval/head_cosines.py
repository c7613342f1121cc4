"""Routes that own a head, a linear map after pooling: one stored vector per text serves all of them.

The vector x of a text before the heads is stored once. Under a route, whose head is y = weight @ x + bias,
the cosine of a query q of length 1 with the text is (q @ weight @ x + q @ bias) / |y|: a product with the
stored vectors, and a length per text that is computed once and kept beside them. So another head needs no
encoding.
"""

from __future__ import annotations

import contextlib
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from sentence_experts.encoding.chunks import Vectors
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.models.pooling import unit as unit_length
from sentence_experts.storage import replacing, sha256_text, write_npy

_ROWS_PER_BLOCK = 65_536
_CHECKED = 64  # stored lengths that are computed anew when they are read


@dataclass(frozen=True)
class Head:
    """The head of a route, and the lengths of what it makes of some texts.

    Attributes:
        weight: weights, (dimensions, width).
        bias: bias, (dimensions,).
        lengths: length of weight @ x + bias for each text, (texts,).
    """

    weight: Vectors
    bias: Vectors
    lengths: NDArray[np.float32]

    @classmethod
    def open(cls, weight: Vectors, bias: Vectors, shared: Vectors, folder: Path, of: str) -> Head:
        """Read the lengths of a head's vectors from the folder of the shared ones, or compute them.

        `of` is the hash of the shared vectors: meanwhile others may have taken their place in the folder.
        """
        digest = sha256_text(weight.tobytes().hex(), bias.tobytes().hex(), of)[:16]
        file = folder / f"lengths-{digest}.npz"
        checked = np.unique(np.linspace(0, len(shared) - 1, _CHECKED).astype(int))
        try:
            with np.load(file) as stored:  # a zip archive, which has a checksum
                lengths = stored["lengths"]
            right = _lengths(weight, bias, np.asarray(shared[checked]))
            if lengths.shape == (len(shared),) and np.allclose(lengths[checked], right, rtol=1e-4):
                return cls(weight, bias, lengths)
        except (OSError, ValueError, EOFError, KeyError, BadZipFile, zlib.error):  # not there yet, or damaged
            pass
        head = cls.over(weight, bias, shared)
        with contextlib.suppress(OSError), replacing(file) as temporary:  # not beside a corpus to read only
            write_npy(temporary, head.lengths, name="lengths")
        return head

    @classmethod
    def over(cls, weight: Vectors, bias: Vectors, shared: Vectors) -> Head:
        """Compute the lengths of a head's vectors."""
        blocks = range(0, len(shared), _ROWS_PER_BLOCK)
        parts = [_lengths(weight, bias, np.asarray(shared[at : at + _ROWS_PER_BLOCK])) for at in blocks]
        return cls(weight, bias, np.concatenate(parts))

    def cosines(self, products: NDArray[np.float32], query: Vectors) -> NDArray[np.float32]:
        """Return the cosines of a query of length 1 with the texts, (texts,).

        `products` are the products of the shared vectors with query @ weight.
        """
        lengths = np.maximum(self.lengths, 1e-12)
        cosines: NDArray[np.float32] = ((products + query @ self.bias) / lengths).astype(np.float32)
        return cosines

    def vectors(self, shared: Vectors) -> Vectors:
        """Return the vectors of length 1 that the head makes of shared ones, (texts, dimensions)."""
        vectors: Vectors = unit_length(shared @ self.weight.T + self.bias)
        return vectors

    def only(self, places: Any) -> Head:
        """Return the head of some of its texts."""
        return replace(self, lengths=self.lengths[places])


@dataclass(frozen=True, eq=False)
class TaughtMap:
    """The change of another route's vectors that was taught by examples (`teach`).

    Attributes:
        weight: linear map of papers and queries, (dimensions, dimensions).
    """

    weight: Vectors

    def apply(self, vectors: Vectors) -> Vectors:
        """Return vectors under the taught route, of length 1, from the other route's."""
        mapped: Vectors = unit_length(vectors @ self.weight.T)
        return mapped


def _lengths(weight: Vectors, bias: Vectors, shared: Vectors) -> NDArray[np.float32]:
    lengths: NDArray[np.float32] = np.linalg.norm(shared @ weight.T + bias, axis=1).astype(np.float32)
    return lengths


def shared_encoder(encoder: BatchEncoder, route: str | None) -> BatchEncoder | None:
    """Return an encoder of the vectors that a route's head maps; None for a route without one.

    None too where modules after the pooling do more than scale vectors to length 1.
    """
    model = encoder.model
    if route not in getattr(encoder.config, "heads", ()) or model.truncate_dim is not None:
        return None
    if not model.scales_after_pooling:
        return None
    return BatchEncoder(model.without_heads(), encoder.batch_size, encoder.name)
