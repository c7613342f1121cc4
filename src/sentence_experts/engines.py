"""The engines that run the work of a verb: one grammar of `engine` for all verbs, and their start.

`local` is this machine without another program, `spark` and `ray` are these programs on this machine, each
with `[CORES]` behind it; an address names a cluster.
"""

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

LOCAL, SPARK, RAY = "local", "spark", "ray"
_ON_THIS_MACHINE = re.compile(r"(local|spark|ray)(?:\[(\d+|\*)\])?")
_CLUSTER = re.compile(r"(spark|ray)://.+|yarn|k8s://.+")
_FORMS = "local[CORES], spark[CORES], spark://HOST:PORT, ray[CORES] or ray://HOST:PORT"
_OBJECT_STORE = 256 << 20  # bytes that Ray reserves on this machine for the texts of the next parts
_ATTEMPTS = 4  # number of attempts of a task of Spark on one machine, as on a cluster


@dataclass(frozen=True)
class Engine:
    """A place where work runs.

    Attributes:
        name: name as the user wrote it.
        kind: kind of engine: "local", "spark" or "ray".
        cores: number of cores on this machine; None for those of a cluster, or all.
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
        if there := _CLUSTER.fullmatch(name):
            return cls(name, there[1] or SPARK, on_this_machine=False)
        raise ValueError(f"give {_FORMS}")

    def not_started(self, error: Exception, needs: str = "") -> SentenceExpertsError:
        """Return the error of an engine that does not start, with the things that it needs."""
        return SentenceExpertsError(
            f"`engine={self.name}`: {self.kind} did not start ({brief(error)}){needs}"
        )


def _checked(name: str) -> str:
    Engine.parse(name)
    return name


EngineName = Annotated[str, AfterValidator(_checked)]


@contextmanager
def spark_session(engine: Engine, name: str, settings: Mapping[str, str] = {}) -> Iterator[Any]:
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
        raise engine.not_started(error, "; it needs Java 17 or newer") from error
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def ray_cluster(engine: Engine) -> Iterator[Any]:
    """Connect to Ray and yield it; end it afterwards unless it ran before.

    `ray` is the cluster of RAY_ADDRESS, or one on this machine.

    Raises:
        SentenceExpertsError: Ray is not installed, or does not start.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray = require("ray", "ray")
    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if not engine.on_this_machine:
        options["address"] = engine.name
    elif engine.cores or "RAY_ADDRESS" not in os.environ:
        options |= {
            "address": "local",
            "num_cpus": engine.cores or os.cpu_count(),
            "object_store_memory": _OBJECT_STORE,
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",
        }
    try:
        ray.init(**options)
    except Exception as error:  # anything from its processes or the network
        raise engine.not_started(error) from error
    try:
        yield ray
    finally:
        ray.shutdown()
