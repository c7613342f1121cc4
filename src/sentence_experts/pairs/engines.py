"""The SQL engine that links works: DuckDB on this machine, or Spark, from one core to a cluster.

Both run the same ibis expressions. Intermediate tables are Parquet files in a scratch folder, and so are
results, so that the rows are the same whichever engine computed them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import ibis
import ibis.expr.types as ir
import pyarrow as pa
import pyarrow.parquet as pq

from sentence_experts.config import memory_bytes
from sentence_experts.engines import LOCAL, Engine, spark_session
from sentence_experts.errors import InputError, SentenceExpertsError, UsageError
from sentence_experts.pairs.config import PairsConfig
from sentence_experts.storage import explained

# Tasks per core of a self-join on one machine, so that no core waits long for the largest task.
TASKS_PER_CORE = 2
THREADS_PER_CORE = 4  # more only take memory
# What DuckDB raises for a damaged file; the base class for one whose metadata cannot be parsed.
_OF_FILES = (duckdb.Error, duckdb.InvalidInputException, duckdb.IOException, duckdb.BinderException)


class LinkEngine:
    """An ibis backend, and the folder where its tables lie."""

    def __init__(self, backend: Any, scratch: Path) -> None:
        self._backend = backend
        self._scratch = scratch
        self._tables = 0
        self.warned: set[str] = set()  # so that another unit's works give no warning twice

    def read(self, path: Path) -> ir.Table:
        """A Parquet file, or a folder of part files."""
        self._tables += 1
        try:
            table: ir.Table = self._backend.read_parquet(str(path), table_name=f"table_{self._tables}")
        except duckdb.Error as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"{path}: damaged, or not a Parquet file ({reason}); make it again") from error
        return table

    def materialized(self, expression: ir.Table) -> ir.Table:
        """Compute an expression once and store its rows on disk."""
        return self.read(self._written(expression))

    def stored(self, table: pa.Table) -> ir.Table:
        """Store an Arrow table where the engine reads it."""
        path = self._new_path()
        pq.write_table(table, path)
        return self.read(path)

    def rows(self, expression: ir.Table) -> pa.Table:
        """The rows of an expression, in its order."""
        path = self._written(expression)
        schema = expression.schema().to_pyarrow()
        parts = [pq.read_table(part, partitioning=None).cast(schema) for part in part_files(path)]
        _remove(path)
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def batches(self, expression: ir.Table) -> Iterator[pa.RecordBatch]:
        """The rows of an expression, in parts that fit into memory."""
        path = self._written(expression)
        for part in part_files(path):
            yield from pq.ParquetFile(part).iter_batches()
        _remove(path)

    def _written(self, expression: ir.Table) -> Path:
        path = self._new_path()
        try:
            with explained(path):
                self._backend.to_parquet(expression, str(path))
        except duckdb.OutOfMemoryException as error:
            raise SentenceExpertsError(
                "the join needs more memory than `memory` allows: raise it, link fewer pairs with "
                "`max_references`, or name fewer cores (`engine=local[1]`), since each keeps its own tables"
            ) from error
        except duckdb.Error as error:
            if type(error) not in _OF_FILES:
                raise
            reason = str(error).splitlines()[0]
            raise InputError(f"a table of the corpus is damaged ({reason}); make the corpus again") from error
        return path

    def _new_path(self) -> Path:
        self._tables += 1
        return self._scratch / f"{self._tables:03d}.parquet"


def part_files(path: Path) -> list[Path]:
    """The Parquet files of a table, in its order: itself, or those in the folder that Spark wrote."""
    return sorted(path.glob("part-*")) if path.is_dir() else [path]


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextmanager
def opened(settings: PairsConfig, beside: Path | None) -> Iterator[LinkEngine]:
    """Start the engine of the settings, with a scratch folder that is removed at the end.

    Unless the settings name a place, it is made `beside` a path, or in the system's temporary folder.

    Raises:
        SentenceExpertsError: Spark was chosen and is not installed, or does not start.
        UsageError: the scratch folder cannot be made.
    """
    name = beside.name if beside else "pairs"
    home = settings.scratch or (beside.absolute().parent if beside else Path(tempfile.gettempdir()))
    try:
        home.mkdir(parents=True, exist_ok=True)
        # Beside an output, the next run under its lock removes what a killed one left.
        prefix = f".{name}.{os.getpid()}.scratch."
        folder = tempfile.TemporaryDirectory(prefix=prefix, suffix=".tmp", dir=home)
    except OSError as error:
        raise UsageError(
            f"`scratch={home}`: cannot be written to ({error.strerror}); choose another"
        ) from error
    with folder as created:
        scratch = Path(created).resolve()
        connect = _duckdb if Engine.parse(settings.engine).kind == LOCAL else _spark
        with connect(settings, scratch) as backend:
            yield LinkEngine(backend, scratch)


@contextmanager
def _duckdb(settings: PairsConfig, scratch: Path) -> Iterator[Any]:
    backend = ibis.duckdb.connect()
    try:
        backend.raw_sql("SET enable_progress_bar = false")
        # Results are sorted by their values; preserving an order in between costs memory.
        backend.raw_sql("SET preserve_insertion_order = false")
        spilled = str(scratch / "spilled").replace("'", "''")
        backend.raw_sql(f"SET temp_directory = '{spilled}'")
        if settings.memory:
            backend.raw_sql(f"SET memory_limit = '{settings.memory}'")
        if cores := Engine.parse(settings.engine).cores:
            backend.raw_sql(f"SET threads = {min(cores, THREADS_PER_CORE * (os.cpu_count() or 1))}")
        yield backend
    finally:
        backend.disconnect()


@contextmanager
def _spark(settings: PairsConfig, scratch: Path) -> Iterator[Any]:
    engine = Engine.parse(settings.engine)
    wanted = {
        "spark.local.dir": str(scratch / "spilled"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    if engine.on_this_machine:
        wanted["spark.sql.shuffle.partitions"] = str(TASKS_PER_CORE * (engine.cores or os.cpu_count() or 1))
    if settings.memory:
        whose = "driver" if engine.on_this_machine else "executor"
        wanted[f"spark.{whose}.memory"] = f"{memory_bytes(settings.memory) >> 20}m"
    with spark_session(engine, "pairs", wanted) as session:
        with warnings.catch_warnings():
            # It does not support pandas 3, but no row goes through pandas here.
            warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
            backend = ibis.pyspark.connect(session)
        yield backend
