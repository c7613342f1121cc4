"""Shards on the engines: in this process, on workers of Ray Data, or on those of Spark."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.encoding.shards import ShardJob, ShardStamp, ShardWriter
from sentence_experts.engines import LOCAL, RAY, Engine, ray_cluster, spark_session
from sentence_experts.errors import SentenceExpertsError, brief

_SHARD = "shard"
_STAMP = pa.schema(
    [
        (_SHARD, pa.int64()),
        ("texts", pa.int64()),
        ("empty", pa.int64()),
        ("sha256", pa.string()),
        ("reused", pa.bool_()),
        ("error", pa.list_(pa.string())),
    ]
)
_SPARK_STAMP = "shard long, texts long, empty long, sha256 string, reused boolean, error array<string>"


def write_shards(
    engine: Engine, job: ShardJob, encoder: BatchEncoder | None, shards: Sequence[int]
) -> Iterator[ShardStamp]:
    """Write shards on an engine; yields what became of each, in any order.

    Args:
        engine: where.
        job: what.
        encoder: the model in this process, for `local`.
        shards: their numbers.

    Raises:
        SentenceExpertsError: the engine does not start, or gave up.
    """
    if engine.kind == LOCAL:
        writer = ShardWriter(job, encoder, engine.cores)
        yield from map(writer.write, shards)
    else:
        yield from (_on_ray if engine.kind == RAY else _on_spark)(engine, job, shards)


def uses_gpu(job: ShardJob) -> bool:
    """Whether each worker needs a GPU."""
    return (job.load_config.device or "").startswith("cuda")


# ---- Ray -----------------------------------------------------------------------------------------


class _RayWorker:
    """A worker of Ray Data, which lives as long as the job."""

    def __init__(self, job: ShardJob) -> None:
        self.job = job

    def __call__(self, batch: pa.Table) -> pa.Table:
        return _written(self.job, batch[_SHARD].to_pylist())


def _on_ray(engine: Engine, job: ShardJob, shards: Sequence[int]) -> Iterator[ShardStamp]:
    with ray_cluster(engine) as ray:
        from ray.data import ActorPoolStrategy, DataContext

        context = DataContext.get_current()
        context.enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        resource = "GPU" if uses_gpu(job) else "CPU"
        there = int(ray.cluster_resources().get(resource, 0))
        if not there:
            raise SentenceExpertsError(f"`engine={engine.name}`: this cluster of Ray has no {resource}")
        found = ray.data.from_items([{_SHARD: shard} for shard in shards], override_num_blocks=len(shards))
        found = found.map_batches(
            _RayWorker,
            fn_constructor_args=(job,),
            batch_format="pyarrow",
            batch_size=1,
            compute=ActorPoolStrategy(size=min(there, len(shards))),
            num_cpus=1,
            num_gpus=1 if uses_gpu(job) else None,
        )
        try:
            for row in found.iter_rows():
                yield _stamp(row)
        except ray.exceptions.RayError as error:
            raise SentenceExpertsError(f"`engine={engine.name}`: Ray gave up ({brief(error)})") from error


# ---- Spark ---------------------------------------------------------------------------------------


def _on_spark(engine: Engine, job: ShardJob, shards: Sequence[int]) -> Iterator[ShardStamp]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from _written(job, batch.column(0).to_pylist()).to_batches()

    with spark_session(engine, "encode") as session:
        numbers = session.sparkContext.parallelize([(shard,) for shard in shards], len(shards))
        frame = session.createDataFrame(numbers, f"{_SHARD} long")
        try:
            rows = frame.mapInArrow(work, _SPARK_STAMP).collect()
        except Exception as error:  # whatever Java raises
            raise SentenceExpertsError(f"`engine={engine.name}`: Spark gave up ({brief(error)})") from error
        for row in rows:
            yield _stamp(row.asDict())


# ---- in a worker ---------------------------------------------------------------------------------

# Of this process, which Spark uses for many tasks: opening a model takes longer than a small shard.
_writers: dict[str, ShardWriter] = {}


def _written(job: ShardJob, shards: Sequence[int]) -> pa.Table:
    """Write shards in a worker, which has one core; the stamps."""
    import torch

    torch.set_num_threads(1)
    stamps = []
    for shard in shards:
        try:
            if job.key not in _writers:
                _writers.clear()
                _writers[job.key] = ShardWriter(job, cores=1)
            stamps.append(_writers[job.key].write(shard))
        except SentenceExpertsError as error:  # the model cannot be opened
            stamps.append(ShardStamp.failed(shard, error))
    return pa.Table.from_pylist([asdict(stamp) for stamp in stamps], _STAMP)


def _stamp(row: dict[str, Any]) -> ShardStamp:
    return ShardStamp(**{**row, "error": tuple(row["error"])})
