"""Candidates for the nearest papers of a large corpus: LanceDB's IVF_PQ, in a table in the index's folder."""

from __future__ import annotations

import importlib.util
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sentence_experts.encoding.chunks import Vectors
from sentence_experts.errors import InputError, brief
from sentence_experts.storage import locked, replacing_folder

logger = logging.getLogger(__name__)

LARGE = 200_000  # vectors that are all compared with each query
SELECTIVE = 50_000  # papers that pass a filter, which are all compared
FOLDER, TABLE = "lance", "vectors"
# The share of the partitions that a query looks into, and at least how many.
_PROBED, _MIN_PROBES = 0.03, 20
# Candidates whose whole vectors are compared: per paper wanted, and at least. Of the ten nearest papers of a
# million, the best 100 by LanceDB's shortened vectors hold 85%, the best 200 97%, 400 99.7%.
_CANDIDATES, _MIN_CANDIDATES = 5, 500
# Of k-means: a quarter of LanceDB's own work.
_ITERATIONS, _SAMPLE_RATE = 20, 128
_ROWS_PER_BATCH = 65_536


class LanceVectors:
    """The vectors of an index in a table of LanceDB."""

    def __init__(self, table: Any, count: int) -> None:
        self._table, self._count = table, count
        self._probes = max(round(_partitions(count) * _PROBED), _MIN_PROBES)

    @classmethod
    def open(cls, folder: Path, vectors: Vectors) -> LanceVectors | None:
        """Open the table in an index's folder; built if it is not there.

        None for a small corpus, and, with a warning, without LanceDB or where the table cannot be used.
        """
        if len(vectors) <= LARGE:
            return None
        if importlib.util.find_spec("lancedb") is None:
            logger.warning(
                "this corpus is large: searches compare a query with all papers; "
                'pip install "sentence-experts[index]" (LanceDB) makes them faster'
            )
            return None
        import lancedb

        place = folder / FOLDER
        try:
            if not place.is_dir():
                with locked(place, "index the vectors", wait=True):
                    if not place.is_dir():
                        logger.info(f"{place}: indexing {len(vectors):,} vectors")
                        build(place, vectors)
            return cls(lancedb.connect(str(place)).open_table(TABLE), len(vectors))
        except (OSError, RuntimeError, ValueError, InputError) as error:  # read-only, a full disk, damaged
            logger.warning(f"{place}: no index of LanceDB ({brief(error)}); all papers are compared instead")
            return None

    def candidates(self, query: Vectors, wanted: int) -> NDArray[np.int64]:
        """Return places of vectors, among them nearly all of the `wanted` with the largest dot products."""
        # LanceDB could compare whole vectors too (`refine_factor`), but takes as long for it as for the rest.
        found = (
            self._table.search(query, vector_column_name="vector")
            .distance_type("dot")
            .nprobes(self._probes)
            .limit(min(max(_CANDIDATES * wanted, _MIN_CANDIDATES), self._count))
            .select(["place", "_distance"])  # else it logs a warning for each query
        )
        places: NDArray[np.int64] = found.to_arrow()["place"].to_numpy()
        return places


def build(place: Path, vectors: Vectors) -> None:
    """Write the table of LanceDB with its index."""
    import lancedb

    count, dimensions = vectors.shape
    kind = pa.list_(pa.float32(), dimensions)
    schema = pa.schema([pa.field("place", pa.int64()), pa.field("vector", kind)])

    def batches() -> Any:
        for start in range(0, count, _ROWS_PER_BATCH):
            block = np.ascontiguousarray(vectors[start : start + _ROWS_PER_BATCH])
            column = pa.FixedSizeListArray.from_arrays(pa.array(block.ravel()), dimensions)
            numbers = pa.array(np.arange(start, start + len(block)))
            yield pa.record_batch([numbers, column], schema=schema)

    with replacing_folder(place) as temporary:
        reader = pa.RecordBatchReader.from_batches(schema, batches())
        table = lancedb.connect(str(temporary)).create_table(TABLE, reader, schema=schema)
        table.create_index("vector", config=ivf(count, dimensions))


def ivf(count: int, dimensions: int) -> Any:
    """Return the settings of LanceDB's vector index for `count` vectors of length 1."""
    from lancedb.index import IvfPq

    return IvfPq(
        distance_type="dot",
        num_partitions=_partitions(count),
        num_sub_vectors=max(each for each in range(1, dimensions // 4 + 1) if dimensions % each == 0),
        max_iterations=_ITERATIONS,
        sample_rate=_SAMPLE_RATE,
    )


def _partitions(count: int) -> int:
    """Return the number of partitions: about 1,000 for a million vectors."""
    return max(round(math.sqrt(count)), 1)
