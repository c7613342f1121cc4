"""Parts of an encoding: the vectors of some texts under every route, in one Parquet file each.

The bytes of a part follow from the texts and the settings alone. So every engine, and every run that goes on
after another was interrupted, writes the same.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.engines import Engine, ray_cluster
from sentence_experts.errors import InputError, SentenceExpertsError, brief
from sentence_experts.models.loading import LoadConfig
from sentence_experts.progress import Advance, unseen
from sentence_experts.storage import PartStore, explained
from sentence_experts.tables import TextRow

ROW, ID, VECTOR = "row", "id", "vector"

# Writes the part of a number, whose first text has another number.
WritePart = Callable[[int, int, list[TextRow]], Any]


@dataclass(frozen=True)
class PartJob:
    """Everything that decides the parts of an encoding: a plain value that is sent to workers.

    Attributes:
        parts: where they are written.
        routes: column -> the route of its vectors (None without routes).
        settings: what decides the vectors of each column, as `vector_settings` has it, by column.
        has_ids: whether texts have identifiers.
        chunk_size: number of texts encoded at once.
        normalize: whether vectors have length 1.
        source: where the texts are from, for messages.
    """

    parts: PartStore
    routes: Mapping[str, str | None]
    settings: Mapping[str, Mapping[str, Any]]
    has_ids: bool
    chunk_size: int
    normalize: bool
    source: str


@dataclass
class PartWriter:
    """Writes the parts of one job with an open model; `advance` is called as texts are done."""

    job: PartJob
    encoder: BatchEncoder
    advance: Advance = unseen

    def write(self, number: int, first: int, rows: list[TextRow]) -> int:
        """Write the part `number`, whose first text has the number `first`; return its number of texts."""
        options = {"compression": "zstd", "use_dictionary": False, "write_page_checksum": True}
        with (
            explained(self.job.parts.folder),
            self.job.parts.writing(number) as temporary,
            pq.ParquetWriter(temporary, self._schema, **options) as writer,
        ):
            for start in range(0, len(rows), self.job.chunk_size):
                chunk = rows[start : start + self.job.chunk_size]
                writer.write_table(self._encode(chunk, first + start), row_group_size=len(chunk))
            writer.close()
        return len(rows)

    @cached_property
    def _schema(self) -> pa.Schema:
        kind = pa.list_(pa.float32(), self.encoder.dimension)
        fields = [pa.field(ROW, pa.int64()), *([pa.field(ID, pa.string())] if self.job.has_ids else [])]
        for column, route in self.job.routes.items():
            about = {"route": route or "", "fingerprint": str(self.job.settings[column]["fingerprint"])}
            fields.append(pa.field(column, kind, metadata=about))
        return pa.schema(fields)

    def _encode(self, rows: Sequence[TextRow], first: int) -> pa.Table:
        texts = [row.text for row in rows]
        self.encoder.check_empty(self.job.source, texts, first)
        numbers = np.arange(first, first + len(rows))
        columns: dict[str, Any] = {ROW: _array(numbers, pa.int64()), ID: [row.id for row in rows]}
        for left, (column, route) in enumerate(self.job.routes.items(), start=1 - len(self.job.routes)):
            # Texts are done when they have the last vector.
            vectors = self.encoder.encode(texts, route, self.job.normalize, unseen if left else self.advance)
            flat = _array(np.ascontiguousarray(vectors, np.float32), pa.float32())
            columns[column] = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
        return pa.table([columns[name] for name in self._schema.names], schema=self._schema)


def _array(numbers: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return the numbers as an array of Arrow, without pandas, which `pa.array` would import."""
    return pa.Array.from_buffers(kind, numbers.size, [None, pa.py_buffer(numbers)])


def write_parts(
    chunks: Iterable[list[TextRow]], parts: PartStore, write: WritePart, advance: Advance
) -> dict[str, int]:
    """Write a part of each chunk of texts, unless an earlier run did; return the number of texts.

    Returns:
        How many `texts` there are, and how many of them are `empty`.
    """
    logger = logging.getLogger(__name__)
    number = texts = empty = reused = 0
    for number, rows in enumerate(chunks, start=1):
        if parts.is_done(number - 1):
            reused += 1
            advance(len(rows))
        else:
            write(number - 1, texts, rows)
        texts += len(rows)
        empty += sum(not row.text.strip() for row in rows)
    if reused:
        logger.info(f"{reused} of {number} parts were already encoded by an earlier, interrupted run")
    return {"texts": texts, "empty": empty}


@dataclass
class RayWorker:
    """Opens a model on one core, or one GPU, of a Ray cluster, and writes parts.

    Attributes:
        job: what is written.
        model: the path or name of the model.
        load_config, batch_size: how to open it, as `load` and `BatchEncoder` have it.
    """

    job: PartJob
    model: str
    load_config: LoadConfig
    batch_size: int | None

    @cached_property
    def _writer(self) -> PartWriter:
        import torch

        torch.set_num_threads(1)
        encoder = BatchEncoder.open(self.model, self.load_config, self.batch_size, cores=1)
        for column, route in self.job.routes.items():
            if encoder.vector_settings(route) != self.job.settings[column]:
                raise InputError(f"{self.model}: a worker found another model there than the one that began")
        return PartWriter(self.job, encoder)

    def write(self, number: int, first: int, rows: list[TextRow]) -> int:
        """Write a part, as `PartWriter` does."""
        return self._writer.write(number, first, rows)


@contextmanager
def ray_writer(
    engine: Engine,
    advance: Advance,
    job: PartJob,
    model: str,
    load_config: LoadConfig,
    batch_size: int | None,
) -> Iterator[WritePart]:
    """Yield what hands parts to the workers of a Ray cluster; at the end all are written.

    A worker that dies is replaced. Parts are written in any order.

    Raises:
        SentenceExpertsError: a worker met an error, Ray does not start, or it gave up.
    """
    with ray_cluster(engine) as ray:
        from ray.util import ActorPool

        logging.getLogger("ray").setLevel(logging.ERROR)
        uses_gpu = (load_config.device or "").startswith("cuda")
        resource = "GPU" if uses_gpu else "CPU"
        if not (workers := int(ray.cluster_resources().get(resource, 0))):
            raise SentenceExpertsError(f"`engine={engine.name}`: this cluster of Ray has no {resource}")
        options = {"num_cpus": 1, "num_gpus": int(uses_gpu), "max_restarts": -1, "max_task_retries": -1}
        actors = itertools.repeat(ray.remote(**options)(RayWorker), workers)
        pool: Any = ActorPool([each.remote(job, model, load_config, batch_size) for each in actors])

        def write(number: int, first: int, rows: list[TextRow]) -> None:
            if not pool.has_free():
                advance(pool.get_next_unordered())
            pool.submit(lambda actor, given: actor.write.remote(*given), (number, first, rows))

        try:
            yield write
            while pool.has_next():
                advance(pool.get_next_unordered())
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, SentenceExpertsError):
                raise error.cause from None
            raise SentenceExpertsError(f"`engine={engine.name}`: a worker failed ({brief(error)})") from error
        except ray.exceptions.RayError as error:
            raise SentenceExpertsError(f"`engine={engine.name}`: Ray gave up ({brief(error)})") from error
