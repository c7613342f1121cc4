"""Multiplication in 8 bits by ONNX Runtime, on the memory of torch tensors.

One graph of two operators serves every layer, since the weights are among its inputs. The second operator is
ONNX Runtime's own (`com.microsoft`): documented in its ContribOperators.md, but no part of the ONNX standard.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

_TYPES = {torch.float32: np.float32, torch.uint8: np.uint8, torch.int8: np.int8}


def can_multiply_int8() -> bool:
    """Return whether ONNX Runtime, and onnx to describe the graph to it, are installed."""
    return find_spec("onnxruntime") is not None and find_spec("onnx") is not None


def int8_linear(
    rows: Tensor, weight: Tensor, weight_scales: Tensor, scale: Tensor, zero: Tensor, bias: Tensor
) -> Tensor:
    """Quantize rows, multiply them with 8-bit weights and add a bias.

    Args:
        rows: (rows, in) float32, contiguous.
        weight: (in, out) int8.
        weight_scales: (out,) float32, what a weight of 1 stands for.
        scale: () float32, what an input of 1 stands for.
        zero: () uint8, the input that stands for 0.
        bias: (out,) float32.

    Returns:
        (rows, out) float32.
    """
    output = torch.empty(len(rows), weight.shape[1])
    if not len(rows):
        return output
    session = _session(torch.get_num_threads())
    binding = session.io_binding()
    for name, value in zip("xwvszb", (rows, weight, weight_scales, scale, zero, bias), strict=True):
        binding.bind_input(name, "cpu", 0, _TYPES[value.dtype], value.shape, value.data_ptr())
    binding.bind_output("y", "cpu", 0, np.float32, output.shape, output.data_ptr())
    session.run_with_iobinding(binding)
    return output


@lru_cache(maxsize=8)
def _session(threads: int) -> Any:
    """Return the graph, with the given number of cores per call; several threads may call it at once."""
    import onnxruntime
    from onnx import TensorProto, helper

    def value(name: str, kind: int, shape: list[str]) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            helper.make_node(
                "MatMulIntegerToFloat", ["q", "w", "s", "v", "z", "", "b"], ["y"], domain="com.microsoft"
            ),
        ],
        "int8_linear",
        [
            value("x", TensorProto.FLOAT, ["rows", "in"]),
            value("w", TensorProto.INT8, ["in", "out"]),
            value("v", TensorProto.FLOAT, ["out"]),
            value("s", TensorProto.FLOAT, []),
            value("z", TensorProto.UINT8, []),
            value("b", TensorProto.FLOAT, ["out"]),
        ],
        [value("y", TensorProto.FLOAT, ["rows", "out"])],
    )
    operators = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=operators, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Waiting threads would take the cores from torch, which computes between two calls.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
