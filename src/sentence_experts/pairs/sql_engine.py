"""The SQL engine that links works: DuckDB on this machine, or Spark, from one core to a cluster.

Both run the same text. It uses the functions of Spark; DuckDB gets those that it lacks as macros. Tables are
Parquet files in a scratch folder, and so are results, so that the rows are the same on both engines.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from sentence_experts.config import memory_bytes
from sentence_experts.corpus.sql_files import quote, scan_parquet
from sentence_experts.engines import LOCAL, Engine, open_spark_session
from sentence_experts.errors import InputError, SentenceExpertsError, UsageError
from sentence_experts.pairs.config import PairsConfig
from sentence_experts.storage import explained

# Number of tasks per core of a self-join on one machine, so that no core waits long for the largest task.
TASKS_PER_CORE = 2
_MACROS = {
    "explode(list)": "unnest(list)",
    "sequence(first, last)": "range(CAST(first AS BIGINT), CAST(last AS BIGINT) + 1)",
    "slice(list, place, count)": "list[place:CAST(place + count - 1 AS BIGINT)]",
    "element_at(list, place)": "list[place]",
    "array_join(list, separator)": "array_to_string(list, separator)",
}
# DuckDB's errors about a damaged file; the base class for one whose metadata cannot be parsed.
_FILE_ERRORS = (duckdb.Error, duckdb.InvalidInputException, duckdb.IOException, duckdb.BinderException)


class SqlEngine:
    """A runner of SQL over tables in a scratch folder; queries use the names that its methods return."""

    def __init__(self, scratch: Path, duck: duckdb.DuckDBPyConnection | None, spark: Any = None) -> None:
        """Run queries in `scratch` on DuckDB, or on a session of Spark."""
        self._scratch, self._duck, self._spark = scratch, duck, spark
        self._tables = 0
        self.warned: set[str] = set()  # so that another unit's works give no warning twice

    def read(self, path: Path) -> str:
        """Return the table of a Parquet file, or of a folder of part files."""
        self._tables += 1
        name = f"table_{self._tables}"
        if self._duck is None:
            # Hadoop takes these signs for a pattern.
            literal = re.sub(r"([\\\[\]{}*?])", r"\\\1", str(path))
            self._spark.read.parquet(literal).createOrReplaceTempView(name)
            return name
        try:
            self._duck.sql(f"FROM {scan_parquet(path)}").create_view(name)
        except duckdb.Error as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"{path}: damaged, or not a Parquet file ({reason}); make it again") from error
        return name

    def store(self, table: pa.Table) -> str:
        """Write an Arrow table where the engine reads it."""
        path = self._new_path()
        pq.write_table(table, path)
        return self.read(path)

    def compute(self, query: str) -> str:
        """Run a query and return the table of its rows."""
        return self.read(self._run(query))

    def rows(self, query: str) -> pa.Table:
        """Return the rows of a query, in its order."""
        path = self._run(query)
        # Spark adds metadata, and whether values can be null.
        table = pa.concat_tables(pq.read_table(part, partitioning=None) for part in _list_parts(path))
        _remove(path)
        return pa.table(table.columns, table.column_names)

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query, in parts that fit into memory."""
        path = self._run(query)
        for part in _list_parts(path):
            yield from pq.ParquetFile(part).iter_batches()
        _remove(path)

    def _new_path(self) -> Path:
        self._tables += 1
        return self._scratch / f"{self._tables:03d}.parquet"

    def _run(self, query: str) -> Path:
        path = self._new_path()
        try:
            with explained(path):
                self._write(query, path)
        except duckdb.OutOfMemoryException as error:
            raise SentenceExpertsError(
                "the join needs more memory than `memory` allows: raise it, link fewer pairs with "
                "`max_references`, or name fewer cores (`engine=local[1]`), since each keeps its own tables"
            ) from error
        except duckdb.Error as error:
            if type(error) not in _FILE_ERRORS:
                raise
            reason = str(error).splitlines()[0]
            raise InputError(f"a table of the corpus is damaged ({reason}); make the corpus again") from error
        return path

    def _write(self, query: str, path: Path) -> None:
        if self._duck is None:
            # Spark reads a backslash in a text as the beginning of an escape.
            self._spark.sql(query.replace("\\", "\\\\")).write.parquet(str(path))
        else:
            self._duck.execute(f"COPY ({query}) TO {quote(str(path))} (FORMAT parquet)")


def _list_parts(path: Path) -> list[Path]:
    """List the Parquet files of a table, in its order: itself, or those in the folder that Spark wrote."""
    return sorted(path.glob("part-*")) if path.is_dir() else [path]


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextmanager
def open_engine(settings: PairsConfig, beside: Path | None) -> Iterator[SqlEngine]:
    """Start the engine of the settings, with a scratch folder that is removed at the end.

    Unless the settings name a place, the folder is made `beside` a path, or in the system's temporary folder.

    Raises:
        SentenceExpertsError: Spark was chosen and is not installed, or does not start.
        UsageError: the scratch folder cannot be made.
    """
    home = settings.scratch or (beside.absolute().parent if beside else Path(tempfile.gettempdir()))
    try:
        home.mkdir(parents=True, exist_ok=True)
        # Beside an output, the next run under its lock removes what a killed one left.
        prefix = f".{beside.name if beside else 'pairs'}.{os.getpid()}.scratch."
        folder = tempfile.TemporaryDirectory(prefix=prefix, suffix=".tmp", dir=home)
    except OSError as error:
        raise UsageError(
            f"`scratch={home}`: cannot be written to ({error.strerror}); choose another"
        ) from error
    engine = Engine.parse(settings.engine)
    with folder as created:
        scratch = Path(created).resolve()
        if engine.kind != LOCAL:
            with open_spark_session(engine, "pairs", _spark_settings(settings, engine, scratch)) as session:
                yield SqlEngine(scratch, None, session)
            return
        with duckdb.connect() as connection:
            connection.execute("SET enable_progress_bar = false")
            # Results are sorted by their values; preserving an order in between costs memory.
            connection.execute("SET preserve_insertion_order = false")
            connection.execute(f"SET temp_directory = {quote(str(scratch / 'spilled'))}")
            if settings.memory:
                connection.execute(f"SET memory_limit = '{settings.memory}'")
            if engine.cores:
                connection.execute(f"SET threads = {engine.cores}")
            for function, expression in _MACROS.items():
                connection.execute(f"CREATE MACRO {function} AS {expression}")
            yield SqlEngine(scratch, connection)


def _spark_settings(settings: PairsConfig, engine: Engine, scratch: Path) -> dict[str, str]:
    wanted = {
        "spark.local.dir": str(scratch / "spilled"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    if engine.on_this_machine:
        wanted["spark.sql.shuffle.partitions"] = str(TASKS_PER_CORE * (engine.cores or os.cpu_count() or 1))
    if settings.memory:
        whose = "driver" if engine.on_this_machine else "executor"
        wanted[f"spark.{whose}.memory"] = f"{memory_bytes(settings.memory) >> 20}m"
    return wanted
