"""Parts of an encoding: the vectors of some texts under every route, in one Parquet file each.

The bytes of a part follow from the texts and the settings alone. So every engine, and every run that goes on
after another was interrupted, writes the same.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.encoding.vector_files import ID, ROW
from sentence_experts.engines import Engine, ray_cluster
from sentence_experts.errors import InputError, SentenceExpertsError, brief
from sentence_experts.models.loading import LoadConfig
from sentence_experts.progress import Advance, unseen
from sentence_experts.storage import PartStore, explained
from sentence_experts.tables import TextRow

_FORM = {"compression": "zstd", "use_dictionary": False, "write_page_checksum": True}


@dataclass(frozen=True)
class PartJob:
    """Everything that decides the parts of an encoding: a plain value that is sent to workers.

    Attributes:
        parts: store that the parts are written to.
        routes: column -> the route of its vectors (None without routes).
        settings: column -> the settings that decide its vectors, as `vector_settings` has them.
        has_ids: whether texts have identifiers.
        chunk_size: number of texts encoded at once.
        normalize: whether vectors have length 1.
        source: name of the texts' source, for messages.
    """

    parts: PartStore
    routes: Mapping[str, str | None]
    settings: Mapping[str, Mapping[str, Any]]
    has_ids: bool
    chunk_size: int
    normalize: bool
    source: str

    def write(
        self, encoder: BatchEncoder, number: int, first: int, rows: list[TextRow], advance: Advance = unseen
    ) -> int:
        """Write the part `number`, whose first text has the number `first`; return its number of texts."""
        kind = pa.list_(pa.float32(), encoder.dimension)
        fields = [pa.field(ROW, pa.int64()), *([pa.field(ID, pa.string())] if self.has_ids else [])]
        for column, route in self.routes.items():
            about = {"route": route or "", "fingerprint": str(self.settings[column]["fingerprint"])}
            fields.append(pa.field(column, kind, metadata=about))
        schema = pa.schema(fields)
        with (
            explained(self.parts.folder),
            self.parts.writing(number) as temporary,
            pq.ParquetWriter(temporary, schema, **_FORM) as writer,
        ):
            for start in range(0, len(rows), self.chunk_size):
                chunk = rows[start : start + self.chunk_size]
                columns = self._encode(encoder, chunk, first + start, advance)
                table = pa.table([columns[name] for name in schema.names], schema=schema)
                writer.write_table(table, row_group_size=len(chunk))
            writer.close()
        return len(rows)

    def _encode(
        self, encoder: BatchEncoder, rows: Sequence[TextRow], first: int, advance: Advance
    ) -> dict[str, Any]:
        texts = [row.text for row in rows]
        encoder.check_empty(self.source, texts, first)
        numbers = _array(np.arange(first, first + len(rows)), pa.int64())
        columns: dict[str, Any] = {ROW: numbers, ID: [row.id for row in rows]}
        *_, last = self.routes
        for column, route in self.routes.items():  # texts are done when they have the last vector
            vectors = encoder.encode(texts, route, self.normalize, advance if column == last else unseen)
            flat = _array(np.ascontiguousarray(vectors, np.float32), pa.float32())
            columns[column] = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
        return columns


def _array(numbers: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return the numbers as an array of Arrow, without pandas, which `pa.array` would import."""
    return pa.Array.from_buffers(kind, numbers.size, [None, pa.py_buffer(numbers)])


@dataclass
class RayWorker:
    """A worker on a core or GPU of a Ray cluster, which opens a model (a path or name) to write parts."""

    job: PartJob
    model: str
    load_config: LoadConfig
    batch_size: int | None

    @cached_property
    def _encoder(self) -> BatchEncoder:
        import torch

        torch.set_num_threads(1)
        encoder = BatchEncoder.open(self.model, self.load_config, self.batch_size, cores=1)
        for column, route in self.job.routes.items():
            if encoder.vector_settings(route) != self.job.settings[column]:
                raise InputError(f"{self.model}: a worker found another model there than the one that began")
        return encoder

    def write(self, number: int, first: int, rows: list[TextRow]) -> int:
        """Write a part, as `PartJob.write` does."""
        return self.job.write(self._encoder, number, first, rows)


def write_on_ray(
    missing: Iterable[tuple[int, int, list[TextRow]]],
    engine: Engine,
    advance: Advance,
    job: PartJob,
    model: str,
    load_config: LoadConfig,
    batch_size: int | None,
) -> None:
    """Hand parts (`missing_parts`) to workers of a Ray cluster, in any order; one that dies is replaced.

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
        pool: Any = ActorPool([actor.remote(job, model, load_config, batch_size) for actor in actors])
        try:
            for part in missing:
                if not pool.has_free():
                    advance(pool.get_next_unordered())
                pool.submit(lambda actor, given: actor.write.remote(*given), part)
            while pool.has_next():
                advance(pool.get_next_unordered())
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, SentenceExpertsError):
                raise error.cause from None
            raise SentenceExpertsError(f"`engine={engine.name}`: a worker failed ({brief(error)})") from error
        except ray.exceptions.RayError as error:
            raise SentenceExpertsError(f"`engine={engine.name}`: Ray gave up ({brief(error)})") from error
