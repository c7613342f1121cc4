"""Parts of an encoding: the vectors of a range of texts under every route, in one Parquet file each.

The bytes of a part follow from the input and the settings alone. So every engine, and every run that goes on
after another was interrupted, writes the same.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.encoding.text_files import TextFiles
from sentence_experts.engines import Engine, ray_cluster
from sentence_experts.errors import InputError, SentenceExpertsError, brief
from sentence_experts.models.loading import LoadConfig, load
from sentence_experts.progress import Advance, unseen
from sentence_experts.storage import SharedFolder, explained, sha256_file
from sentence_experts.tables import TextRow

ROW, ID, VECTOR = "row", "id", "vector"
_EMPTY = b"empty"  # key of the number of empty texts in a file's metadata


@dataclass(frozen=True)
class Shard:
    """A part that is written.

    Attributes:
        number: its place among the parts.
        texts, empty: the number of texts, and of empty ones.
        sha256: of the file.
        reused: whether an earlier run had written it.
    """

    number: int
    texts: int
    empty: int
    sha256: str
    reused: bool = False


@dataclass(frozen=True)
class ShardJob:
    """Everything that decides the parts of an encoding: a plain value that is sent to workers.

    Attributes:
        out: where the parts are written.
        digest: of all settings and of the input; part of every file's name.
        routes: column -> the route of its vectors (None without routes).
        settings: what decides the vectors of each column, as `vector_settings` has it, by column.
        has_ids: whether texts have identifiers.
        chunk_size: number of texts encoded at once.
        normalize: whether vectors have length 1.
        source: where the texts are from, for messages.
    """

    out: SharedFolder
    digest: str
    routes: Mapping[str, str | None]
    settings: Mapping[str, Mapping[str, Any]]
    has_ids: bool
    chunk_size: int
    normalize: bool
    source: str

    def name(self, number: int) -> str:
        """The name of a part's file."""
        return f"part-{number:06d}.{self.digest}.parquet"


@dataclass
class ShardWriter:
    """Writes the parts of one job with an open model."""

    job: ShardJob
    encoder: BatchEncoder

    def write(self, number: int, first: int, rows: Iterable[TextRow], advance: Advance = unseen) -> Shard:
        """Write a part unless it is there, whole.

        Args:
            number: of the part.
            first: the number of its first text.
            rows: its texts.
            advance: called as texts are done.
        """
        with explained(Path(self.job.out.path)):
            if (earlier := self._read_earlier(number)) is not None:
                advance(earlier.texts)
                return earlier
            return self._write(number, first, iter(rows), advance)

    def _read_earlier(self, number: int) -> Shard | None:
        """Return a part that is there; a damaged one is removed."""
        out, name = self.job.out, self.job.name(number)
        try:
            with out.opened(name) as content:
                file = pq.ParquetFile(content, page_checksum_verification=True)
                texts = sum(len(batch) for batch in file.iter_batches(self.job.chunk_size))
                empty = int(file.metadata.metadata[_EMPTY])
            return Shard(number, texts, empty, out.sha256(name), reused=True)
        except FileNotFoundError:
            return None
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError):
            out.remove(name)
            return None

    def _write(self, number: int, first: int, rows: Iterator[TextRow], advance: Advance) -> Shard:
        texts = empty = 0
        options = {"compression": "zstd", "use_dictionary": False, "write_page_checksum": True}
        try:
            with (
                self.job.out.writing(self.job.name(number)) as temporary,
                pq.ParquetWriter(temporary, self._schema, **options) as writer,
            ):
                while chunk := list(itertools.islice(rows, self.job.chunk_size)):
                    table = self._encode(chunk, first + texts, advance)
                    writer.write_table(table, row_group_size=len(chunk))
                    texts += len(chunk)
                    empty += sum(not row.text.strip() for row in chunk)
                writer.add_key_value_metadata({_EMPTY.decode(): str(empty)})
                writer.close()
                digest = sha256_file(temporary)
        except FileExistsError:  # another worker, which was taken for dead, came first
            if (earlier := self._read_earlier(number)) is None:
                raise InputError(f"{self.job.out.file(self.job.name(number))}: damaged") from None
            return earlier
        return Shard(number, texts, empty, digest)

    @cached_property
    def _schema(self) -> pa.Schema:
        kind = pa.list_(pa.float32(), self.encoder.dimension)
        fields = [pa.field(ROW, pa.int64()), *([pa.field(ID, pa.string())] if self.job.has_ids else [])]
        for column, route in self.job.routes.items():
            about = {"route": route or "", "fingerprint": str(self.job.settings[column]["fingerprint"])}
            fields.append(pa.field(column, kind, metadata=about))
        return pa.schema(fields)

    def _encode(self, rows: list[TextRow], first: int, advance: Advance) -> pa.Table:
        texts = [row.text for row in rows]
        self.encoder.check_empty(self.job.source, texts, first)
        columns: dict[str, Any] = {
            ROW: _array(np.arange(first, first + len(rows)), pa.int64()),
            ID: [row.id for row in rows],
        }
        for left, (column, route) in enumerate(self.job.routes.items(), start=1 - len(self.job.routes)):
            # Texts are done when they have the last vector.
            advanced = unseen if left else advance
            vectors = self.encoder.encode(texts, route, self.job.normalize, advanced)
            flat = _array(np.ascontiguousarray(vectors, np.float32), pa.float32())
            columns[column] = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
        return pa.table([columns[name] for name in self._schema.names], schema=self._schema)


def _array(numbers: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return the numbers as an array of Arrow, without pandas, which `pa.array` would import."""
    return pa.Array.from_buffers(kind, numbers.size, [None, pa.py_buffer(numbers)])


@dataclass
class RayWorker:
    """Opens the model on one core, or one GPU, of a Ray cluster, and writes parts.

    Attributes:
        job, files: what is written, from which texts.
        model: the path or name of the model.
        load_config, batch_size: how to open it, as `load` and `BatchEncoder` have it.
    """

    job: ShardJob
    files: TextFiles
    model: str
    load_config: LoadConfig
    batch_size: int | None

    @cached_property
    def _writer(self) -> ShardWriter:
        import torch

        torch.set_num_threads(1)
        encoder = BatchEncoder(load(self.model, self.load_config), self.batch_size, cores=1)
        for column, route in self.job.routes.items():
            if encoder.vector_settings(route) != self.job.settings[column]:
                raise InputError(f"{self.model}: a worker found another model there than the one that began")
        return ShardWriter(self.job, encoder)

    def write(self, number: int) -> Shard:
        """Write a part."""
        return self._writer.write(number, number * self.files.size, self.files.read(number))


def write_on_ray(engine: Engine, worker: RayWorker, advance: Advance) -> Iterator[Shard]:
    """Write all parts on the workers of a Ray cluster, in any order; a worker that dies is replaced.

    Raises:
        SentenceExpertsError: a worker met an error, Ray does not start, or it gave up.
    """
    with ray_cluster(engine) as ray:
        from ray.util import ActorPool

        logging.getLogger("ray").setLevel(logging.ERROR)
        uses_gpu = (worker.load_config.device or "").startswith("cuda")
        resource = "GPU" if uses_gpu else "CPU"
        if not (workers := int(ray.cluster_resources().get(resource, 0))):
            raise SentenceExpertsError(f"`engine={engine.name}`: this cluster of Ray has no {resource}")
        options = {"num_cpus": 1, "num_gpus": int(uses_gpu), "max_restarts": -1, "max_task_retries": -1}
        actor = ray.remote(**options)(RayWorker)
        arguments = [getattr(worker, name) for name in RayWorker.__dataclass_fields__]
        numbers = range(worker.files.ranges)
        pool: Any = ActorPool([actor.remote(*arguments) for _ in range(min(workers, len(numbers)))])
        try:
            for shard in pool.map_unordered(lambda each, number: each.write.remote(number), numbers):
                advance(shard.texts)
                yield shard
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, SentenceExpertsError):
                raise error.cause from None
            raise SentenceExpertsError(f"`engine={engine.name}`: a worker failed ({brief(error)})") from error
        except ray.exceptions.RayError as error:
            raise SentenceExpertsError(f"`engine={engine.name}`: Ray gave up ({brief(error)})") from error
