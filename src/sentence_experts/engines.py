"""The engine that joins citations: this process (`local[CORES]`), or Spark on this machine or a cluster."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator

from sentence_experts.errors import SentenceExpertsError, brief, require

LOCAL, SPARK = "local", "spark"
_ON_THIS_MACHINE = re.compile(r"(local|spark)(?:\[(\d+|\*)\])?")
_CLUSTER = re.compile(r"spark://.+|yarn|k8s://.+")
_ATTEMPTS = 4  # number of attempts of a task of Spark on one machine, as on a cluster


@dataclass(frozen=True)
class Engine:
    """A place where work runs.

    Attributes:
        name: name as the user wrote it.
        kind: kind of engine: "local" or "spark".
        cores: number of cores on this machine; None for a cluster's, or all.
        on_this_machine: whether no cluster is named.
    """

    name: str
    kind: str
    cores: int | None = None
    on_this_machine: bool = True

    @classmethod
    def parse(cls, name: str) -> Engine:
        """Return the engine of a name.

        Raises:
            ValueError: it is no engine; the message lists the forms.
        """
        if here := _ON_THIS_MACHINE.fullmatch(name):
            cores = (os.cpu_count() or 1) if here[2] == "*" else int(here[2]) if here[2] else None
            if cores != 0:
                return cls(name, here[1], cores)
        if _CLUSTER.fullmatch(name):
            return cls(name, SPARK, on_this_machine=False)
        raise ValueError("give local[CORES], spark[CORES] or spark://HOST:PORT")


def _check_name(name: str) -> str:
    Engine.parse(name)
    return name


EngineName = Annotated[str, AfterValidator(_check_name)]


@contextmanager
def open_spark_session(engine: Engine, name: str, settings: Mapping[str, str] = {}) -> Iterator[Any]:
    """Yield a Spark session, stopped at the end; one that runs already is used as it is and left running.

    Args:
        engine: engine that runs the session.
        name: name of the application.
        settings: settings of Spark, beside those that keep it quiet.

    Raises:
        SentenceExpertsError: Spark is not installed, or does not start.
    """
    sql = require("pyspark.sql", "spark")
    if (running := sql.SparkSession.getActiveSession()) is not None:
        yield running
        return
    master = engine.name
    wanted = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
    }
    if engine.on_this_machine:
        master = f"local[{engine.cores or os.cpu_count() or 1},{_ATTEMPTS}]"
        wanted["spark.driver.host"] = "localhost"
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = sql.SparkSession.builder.master(master).appName(f"sentence-experts {name}")
    for key, value in {**wanted, **settings}.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:  # anything from Java, the network or the cluster
        reason = f"spark did not start ({brief(error)}); it needs Java 17 or newer"
        raise SentenceExpertsError(f"`engine={engine.name}`: {reason}") from error
    try:
        yield session
    finally:
        session.stop()
