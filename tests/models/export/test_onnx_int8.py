"""Graphs in 8 bits: close to full precision, the same for a text in any batch, and known as other vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
from sentence_transformers import SentenceTransformer

from helpers.samples import make_tiny_encoder
from sentence_experts import InputError, UsageError, add_route, export, load
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.models.export.onnx_int8 import (
    MAX_INPUT,
    MAX_TEXTS,
    QuantizedLinear,
    calibrate,
    compute_smoothing,
    find_block_layers,
    select_texts,
)
from sentence_experts.models.onnx_encoder import OnnxEncoder

TEXTS = [f"rice and maize grow {'in the rain ' * (n % 9)}{n}" for n in range(80)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, minilm: str) -> Path:
    folder = tmp_path_factory.mktemp("models")
    experts = make_tiny_encoder(folder / "experts", minilm, ("crops", "neuro"), blocks=1)
    grown = add_route(experts, "field", kind="head", on="crops")
    torch.nn.init.normal_(grown.head("field").weight, std=0.2)
    grown.save(str(folder / "model"))
    return folder / "model"


@pytest.fixture(scope="module")
def eight(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = export(model, tmp_path_factory.mktemp("made") / "eight", format="onnx", int8=TEXTS)
    assert made.int8 is not None
    assert made.int8["texts"] == 20
    assert made.int8["min_cosine"] > 0.9
    assert export(model, made.out, format="onnx", int8=TEXTS).int8 == made.int8  # finished already
    return made.out


@pytest.mark.slow
def test_8_bit_vectors_are_close_and_known_as_others(model: Path, eight: Path) -> None:
    whole, small = (BatchEncoder(load(each)) for each in (model, eight))
    for route in ("crops", "neuro", "field"):
        one, other = (each.encode(TEXTS, route) for each in (whole, small))
        assert not np.array_equal(one, other)
        assert np.abs(one - other).max() < 0.2 * np.abs(one).max()
        assert whole.cache_key(route) != small.cache_key(route)


@pytest.mark.slow
def test_a_text_has_one_vector_in_any_batch(eight: Path) -> None:
    graph = OnnxEncoder(eight)
    together = graph.encode(TEXTS[:12], route="crops")
    alone = np.stack([graph.encode(text, route="crops") for text in TEXTS[:12]])
    assert together == pytest.approx(alone, abs=1e-5 * float(np.abs(alone).max()))


def test_bad_calls(model: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    with pytest.raises(UsageError, match="2 texts to calibrate on; at least 43 are needed"):
        export(model, new, format="onnx", int8=["one", "two"])
    with pytest.raises(InputError, match="no such file"):
        export(model, new, format="onnx", int8=tmp_path / "none.txt")
    with pytest.raises(UsageError, match="`int8` is for `format=onnx`"):
        export(model, new, route="crops", int8=TEXTS)
    with pytest.raises(UsageError, match="`column` is for the texts of `int8`"):
        export(model, new, route="crops", column="text")
    assert not new.exists()


@pytest.fixture(scope="module")
def linear() -> torch.nn.Linear:
    torch.manual_seed(0)
    return torch.nn.Linear(24, 7)


def product(layer: QuantizedLinear, rows: torch.Tensor) -> np.ndarray:
    """The product of ONNX Runtime's operator, by a graph of these nodes alone."""
    source = rows.numpy() if layer.multiply is None else rows.numpy() * layer.multiply
    given = {"x": source, "w": layer.weight, "v": layer.weight_scales, "s": layer.scale, "z": layer.zero}
    types = {"x": TensorProto.FLOAT, "w": TensorProto.INT8, "v": TensorProto.FLOAT, "s": TensorProto.FLOAT}
    inputs = [
        helper.make_tensor_value_info(name, types.get(name, TensorProto.UINT8), each.shape)
        for name, each in given.items()
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("MatMulIntegerToFloat", ["q", "w", "s", "v", "z"], ["y"], domain="com.microsoft"),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    operators = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "product", inputs, [output])
    content = helper.make_model(graph, opset_imports=operators, ir_version=8).SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(["y"], given)[0]
    return found


def test_the_operator_multiplies_what_it_is_given(linear: torch.nn.Linear) -> None:
    rows = torch.randn(50, 24, generator=torch.Generator().manual_seed(1))
    layer = QuantizedLinear.of(linear.weight, None, rows.min().item(), rows.max().item())
    expected = (rows @ linear.weight.T).detach().numpy()
    assert np.abs(product(layer, rows) - expected).max() < 0.03 * np.abs(expected).max()
    assert 2 * int(np.abs(layer.weight.astype(int)).max()) * MAX_INPUT < 2**15


def test_smoothing_helps_where_one_channel_is_large(linear: torch.nn.Linear) -> None:
    rows = torch.randn(50, 24, generator=torch.Generator().manual_seed(1))
    rows[:, 3] *= 60
    smooth = compute_smoothing(rows.abs().amax(dim=0), linear.weight)
    divided = rows / smooth
    plain = QuantizedLinear.of(linear.weight, None, rows.min().item(), rows.max().item())
    smoothed = QuantizedLinear.of(linear.weight, smooth, divided.min().item(), divided.max().item())
    expected = (rows @ linear.weight.T).detach().numpy()
    errors = [np.abs(product(each, rows) - expected).mean() for each in (plain, smoothed)]
    assert errors[1] < 0.5 * errors[0]


def test_every_linear_layer_of_the_blocks_is_calibrated(model: Path) -> None:
    encoder = load(model, device="cpu")
    routed = [lead + text for lead in encoder.prompts.values() if lead for text in TEXTS]
    quantized = set(calibrate(encoder, routed))
    assert quantized == {name for name, _ in find_block_layers(encoder)}
    assert len(quantized) == 4 + 2 * 2  # of a block: attention, and an MLP of each expert; no head


@pytest.mark.realdata
@pytest.mark.slow
def test_minilm_in_8_bits_keeps_its_neighbours(minilm: str, tmp_path: Path) -> None:
    made = export("minilm", tmp_path / "eight", format="onnx", int8=TEXTS * 2)
    size = (tmp_path / "eight" / "model.onnx").stat().st_size
    whole = sum(each.numel() for each in SentenceTransformer(minilm, device="cpu").parameters()) * 4
    assert size < 0.7 * whole  # token embeddings, which are half of it, stay
    assert made.int8 is not None
    assert made.int8["mean_cosine"] > 0.95


def test_texts_are_chosen_from_all_of_a_table() -> None:
    texts = [f"text {number}" for number in range(10 * MAX_TEXTS + 3)]
    chosen = select_texts(texts)
    assert len(chosen) == len(select_texts(texts[: MAX_TEXTS + 1])) == MAX_TEXTS
    assert int(chosen[-1].split()[1]) > 0.98 * len(texts)
    assert select_texts(texts[:MAX_TEXTS]) == texts[:MAX_TEXTS]
