"""Where and within what limits works are linked: no choice here changes a byte of the pairs."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

DUCKDB = "duckdb"
SPARK_MASTER = re.compile(r"local(\[(\d+|\*)\])?|spark://.+|yarn|k8s://.+")
# As Spark counts (k, m, g) and as DuckDB does (KB, MB, GB): whole numbers, so that both take them.
MEMORY = re.compile(r"(\d+)\s*(MB|GB)", re.IGNORECASE)


def _engine(name: str) -> str:
    if name != DUCKDB and not SPARK_MASTER.fullmatch(name):
        raise ValueError("give duckdb, local[CORES] or spark://HOST:PORT")
    return name


def _memory(size: str | None) -> str | None:
    if size is not None and not MEMORY.fullmatch(size.strip()):
        raise ValueError("give a whole number of MB or GB, such as 4GB")
    return size


class EngineSettings(BaseModel):
    """Where and within what limits works are linked. Changes no byte of the pairs, so is not stored."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: Annotated[str, AfterValidator(_engine)] = Field(
        DUCKDB,
        description="What joins the citations: duckdb, or Spark as local[CORES] or spark://HOST:PORT (the "
        "corpus and --scratch then lie where all of its machines see them)",
    )
    memory: Annotated[str | None, AfterValidator(_memory)] = Field(
        None,
        description="The engine's memory, such as 4GB; what exceeds it goes to --scratch. When not given, "
        "the engine decides (DuckDB: 80% of what there is)",
    )
    threads: int | None = Field(
        None, ge=1, description="Cores that DuckDB uses, all when not given; Spark's stand in --engine"
    )
    scratch: str | None = Field(
        None, description="A folder for intermediate tables, emptied at the end; beside --out when not given"
    )
