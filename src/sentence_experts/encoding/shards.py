"""Shards of bulk encoding: the vectors of a range of texts under every route, in one Parquet file.

What is in a shard follows from the input and the settings alone. So every engine, and every run that goes
on after another was interrupted, writes the same bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.encoding.text_files import TextFiles
from sentence_experts.errors import InputError, SentenceExpertsError, UsageError
from sentence_experts.models.loading import LoadConfig, load
from sentence_experts.storage import SharedFolder, explained, sha256_file, sha256_text
from sentence_experts.tables import TextRow

ROW, ID = "row", "id"
_EMPTY = b"empty"  # key of the number of empty texts in a file's metadata
_ERRORS: dict[str, type[SentenceExpertsError]] = {
    each.__name__: each for each in (InputError, UsageError, SentenceExpertsError)
}


@dataclass(frozen=True)
class ShardStamp:
    """What a worker reports of a shard, as plain values that every engine carries.

    Attributes:
        shard: its number.
        texts, empty: the number of texts, and of empty ones.
        sha256: of the file.
        reused: whether an earlier run had written it.
        error: the kind of an error, and its message, that ends the run; empty strings without.
    """

    shard: int
    texts: int = 0
    empty: int = 0
    sha256: str = ""
    reused: bool = False
    error: tuple[str, str] = ("", "")

    @classmethod
    def failed(cls, shard: int, error: SentenceExpertsError) -> ShardStamp:
        """The stamp of a shard that cannot be written."""
        return cls(shard, error=(type(error).__name__, str(error)))

    def checked(self) -> ShardStamp:
        """The stamp itself.

        Raises:
            SentenceExpertsError: the worker met an error that the user can act on.
        """
        kind, message = self.error
        if kind:
            raise _ERRORS.get(kind, SentenceExpertsError)(message)
        return self


@dataclass(frozen=True)
class ShardJob:
    """Everything that a worker needs to write shards: a plain value that is sent to it.

    Attributes:
        model: the path or name that workers open; "" if the model is in memory.
        load_config: how.
        batch_size: texts per batch, as `BatchEncoder` has it.
        files: the texts.
        out: where the shards are written.
        routes: column -> the route of its vectors (None without routes).
        settings: what decides the vectors of each column, as `vector_settings` has it, by column.
        digest: of all settings and of the input; part of every file's name.
        chunk_size: number of texts encoded at once.
        normalize: whether vectors have length 1.
    """

    model: str
    load_config: LoadConfig
    batch_size: int | None
    files: TextFiles
    out: SharedFolder
    routes: Mapping[str, str | None]
    settings: Mapping[str, Mapping[str, Any]]
    digest: str
    chunk_size: int
    normalize: bool

    def name(self, shard: int) -> str:
        """The name of a shard's file."""
        return f"part-{shard:06d}.{self.digest}.parquet"

    @cached_property
    def key(self) -> str:
        """Tells this job from others of one process."""
        return sha256_text(repr(self.out), self.digest)


class ShardWriter:
    """Writes shards of one job, with the model opened once."""

    def __init__(self, job: ShardJob, encoder: BatchEncoder | None = None, cores: int | None = 1) -> None:
        """For a job; `encoder` if it is open already, else it is opened for as many `cores`.

        Raises:
            InputError: the model is not the one that the job was planned with.
        """
        self.job = job
        if encoder is None:
            encoder = BatchEncoder(load(job.model, job.load_config), job.batch_size, cores=cores)
            for column, route in job.routes.items():
                if encoder.vector_settings(route) != job.settings[column]:
                    raise InputError(
                        f"{job.model}: a worker found another model there than the one that began"
                    )
        self.encoder = encoder

    def write(self, shard: int) -> ShardStamp:
        """Write a shard unless it is there, whole; an error that the user can act on is in the stamp."""
        try:
            with explained(Path(self.job.out.path)):
                return self._stamp_of_earlier(shard) or self._write(shard)
        except SentenceExpertsError as error:
            return ShardStamp.failed(shard, error)

    def _stamp_of_earlier(self, shard: int) -> ShardStamp | None:
        """The stamp of a shard that is there; a damaged one is removed."""
        out, name = self.job.out, self.job.name(shard)
        try:
            with out.opened(name) as content:
                file = pq.ParquetFile(content, page_checksum_verification=True)
                texts = sum(len(batch) for batch in file.iter_batches(self.job.chunk_size))
                empty = int(file.metadata.metadata[_EMPTY])
            return ShardStamp(shard, texts, empty, out.sha256(name), reused=True)
        except FileNotFoundError:
            return None
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError):
            out.remove(name)
            return None

    def _write(self, shard: int) -> ShardStamp:
        job = self.job
        rows = job.files.read(shard)
        schema, texts, empty = self._schema, 0, 0
        first = shard * job.files.size
        try:
            with (
                job.out.writing(job.name(shard)) as temporary,
                _writer(temporary, schema) as writer,
            ):
                while chunk := list(itertools.islice(rows, job.chunk_size)):
                    writer.write_table(self._encoded(chunk, first + texts), row_group_size=len(chunk))
                    texts += len(chunk)
                    empty += sum(not row.text.strip() for row in chunk)
                writer.add_key_value_metadata({_EMPTY.decode(): str(empty)})
                writer.close()
                digest = sha256_file(temporary)
        except FileExistsError:  # another worker, which was taken for dead, came first
            return self._stamp_of_earlier(shard) or self._write(shard)
        return ShardStamp(shard, texts, empty, digest)

    @cached_property
    def _schema(self) -> pa.Schema:
        kind = pa.list_(pa.float32(), self.encoder.dimension)
        fields = [pa.field(ROW, pa.int64())]
        if self.job.files.id_column:
            fields.append(pa.field(ID, pa.string()))
        for column, route in self.job.routes.items():
            about = {"route": route or "", "fingerprint": str(self.job.settings[column]["fingerprint"])}
            fields.append(pa.field(column, kind, metadata=about))
        return pa.schema(fields)

    def _encoded(self, rows: list[TextRow], first: int) -> pa.Table:
        texts = [row.text for row in rows]
        if not self.encoder.takes_empty and (
            empty := [n for n, text in enumerate(texts) if not text.strip()]
        ):
            raise InputError(
                f"text {first + empty[0] + 1} is empty, and this model cannot encode empty texts: remove it"
            )
        columns: dict[str, Any] = {ROW: range(first, first + len(rows))}
        if self.job.files.id_column:
            columns[ID] = [row.id for row in rows]
        for column, route in self.job.routes.items():
            vectors = self.encoder.encode(texts, route, self.job.normalize)
            flat = pa.array(vectors.ravel(), pa.float32())
            columns[column] = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
        return pa.table([columns[name] for name in self._schema.names], schema=self._schema)


def _writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False, write_page_checksum=True)
