"""Vectors in fewer bits: sentence-transformers' numbers, whatever the chunks."""

from __future__ import annotations

import numpy as np
import pytest
from sentence_transformers.util import quantize_embeddings

from sentence_experts.encoding.vector_files import write_in_precision


@pytest.fixture
def files(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(40, 16)).astype(np.float32)
    parts = []
    for number, part in enumerate(np.split(vectors, [13, 30])):
        parts.append(tmp_path / f"{number}.npy")
        np.save(parts[-1], part)
    return vectors, parts


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_floats_are_the_chunks(files, tmp_path, precision):
    vectors, parts = files
    write_in_precision(tmp_path / "all.npy", parts, 40, precision)
    assert np.array_equal(np.load(tmp_path / "all.npy"), vectors.astype(precision))


@pytest.mark.parametrize("precision", ["int8", "uint8", "binary", "ubinary"])
def test_ranges_are_those_of_all_chunks(files, tmp_path, precision):
    vectors, parts = files
    out = tmp_path / "v.npy"
    write_in_precision(out, parts, 40, precision)
    found = np.load(out)
    assert found.dtype == (
        precision if "int" in precision else {"binary": "int8", "ubinary": "uint8"}[precision]
    )
    assert np.array_equal(found, quantize_embeddings(vectors, precision=precision))
    if precision in ("int8", "uint8"):
        ranges = np.load(tmp_path / "v.ranges.npy")
        assert np.array_equal(quantize_embeddings(vectors[:3], precision=precision, ranges=ranges), found[:3])
