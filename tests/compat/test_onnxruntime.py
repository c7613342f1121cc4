"""Canaries for ONNX Runtime's own operator, which multiplies in 8 bits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from sentence_experts.compat.onnxruntime import int8_linear


def given(rows: int = 5) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    weight = torch.randint(-64, 65, (12, 7), dtype=torch.int8)
    scale, zero = torch.tensor(0.05), torch.tensor(100, dtype=torch.uint8)
    return torch.randn(rows, 12) * 2, weight, torch.rand(7) / 64, scale, zero, torch.randn(7)


def test_the_product_is_that_of_integers() -> None:
    rows, weight, weight_scales, scale, zero, bias = given()
    quantized = ((rows / scale).round() + zero).clamp(0, 255).int() - int(zero)
    expected = (quantized @ weight.int()).float() * (scale * weight_scales) + bias
    assert torch.allclose(int8_linear(*given()), expected, atol=1e-5)


def test_inputs_outside_the_range_are_clipped() -> None:
    rows, *others = given()
    rows[:] = 1e6
    weight, weight_scales, scale, _, bias = others
    expected = (155 * weight.int().sum(dim=0)).float() * (scale * weight_scales) + bias
    assert torch.allclose(int8_linear(rows, *others)[0], expected, atol=1e-4)


def test_no_rows_and_several_threads_at_once() -> None:
    assert int8_linear(*given(0)).shape == (0, 7)
    inputs = given(50)  # made once: the seed is the process's
    expected = int8_linear(*inputs)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: int8_linear(*inputs), range(8)):
            assert torch.equal(found, expected)
