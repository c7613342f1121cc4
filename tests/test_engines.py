from __future__ import annotations

import os

import pytest

from sentence_experts.engines import Engine


@pytest.mark.parametrize(
    ("name", "kind", "cores"),
    [
        ("local", "local", None),
        ("local[3]", "local", 3),
        ("local[*]", "local", os.cpu_count()),
        ("spark[2]", "spark", 2),
    ],
)
def test_an_engine_on_this_machine_has_cores(name, kind, cores):
    engine = Engine.parse(name)
    assert (engine.kind, engine.cores, engine.on_this_machine) == (kind, cores, True)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("spark://host:7077", "spark"), ("yarn", "spark"), ("k8s://host", "spark")],
)
def test_an_address_is_a_cluster(name, kind):
    engine = Engine.parse(name)
    assert (engine.kind, engine.cores, engine.on_this_machine) == (kind, None, False)


@pytest.mark.parametrize("name", ["", "duckdb", "local[0]", "local[-1]", "local[x]", "ray", "dask://host"])
def test_anything_else_is_refused_with_the_forms(name):
    with pytest.raises(ValueError, match=r"give local\[CORES\], spark\[CORES\]"):
        Engine.parse(name)
