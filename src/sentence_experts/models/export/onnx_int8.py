"""Graphs whose matrix multiplications run in 8 bits on the CPU: smoothed and calibrated once.

The linear layers of the blocks (attention and MLP, each expert's too) get weights of -64 to 64 with one scale
per output channel. Their inputs become 0 to 255 with one scale that calibration texts have fixed, not the
batch, so that a text's vector still depends on nothing else. Before that, where a few input channels are far
larger than the others, part of their scale is moved to the weights (SmoothQuant, Xiao et al. 2023, equation
4). Embeddings, norms, attention itself and pooling stay in fp32.

A processor without VNNI adds two products of a weight and an input in 16 bits, where more than 32,767 is cut.
Weights to 64 stay below it (2 * 64 * 255), so that a model gives the same vectors on every x86 processor.

The multiplication is an operator of ONNX Runtime (`com.microsoft`), documented in its ContribOperators.md but
no part of the ONNX standard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sentence_experts.errors import SentenceExpertsError, UsageError
from sentence_experts.models.layers.adapters import AdaptedLinear
from sentence_experts.models.layers.weight_names import HEADS, is_router
from sentence_experts.models.onnx_encoder import MODEL_FILE, OnnxEncoder
from sentence_experts.models.sources import GRAPH_FILE
from sentence_experts.storage import read_json, sha256_text, write_json

MAX_WEIGHT, MAX_INPUT = 64, 255
# Name of the arithmetic, which tells vectors that were computed in 8 bits from others.
ARITHMETIC = f"8 bits by ONNX Runtime, weights to {MAX_WEIGHT}, inputs to {MAX_INPUT}"
# Measured on all-MiniLM-L6-v2: the smoothing with the best cosines (0.5 gave 0.986, 0.8 0.9977), and the
# unevenness below which a layer's smoothing costs time for nothing.
SMOOTHING = 0.75  # alpha of SmoothQuant
UNEVEN = 6.0  # ratio of the largest values of an input's largest and middle channels
OUTSIDE = 1e-5  # share of the inputs of a layer that may lie outside its 8 bits
MIN_TEXTS = 32
SAMPLED_VALUES = 20_000  # number of values of an input that are sampled per batch for its range
BATCH_SIZE = 32
MAX_TEXTS = 512  # maximum number of texts that are read
CHECKED_EVERY = 4  # every 4th text is compared, the rest calibrate


@dataclass(frozen=True)
class QuantizedLinear:
    """A linear layer in 8 bits.

    Attributes:
        weight: int8 weight, (in, out).
        weight_scales: float32 values that a weight of 1 stands for, (out,).
        scale: float32 value that an input of 1 stands for.
        zero: uint8 input that stands for 0.
        multiply: float32 factors of the inputs beforehand, (in,); None for 1.
    """

    weight: NDArray[np.int8]
    weight_scales: NDArray[np.float32]
    scale: NDArray[np.float32]
    zero: NDArray[np.uint8]
    multiply: NDArray[np.float32] | None

    @classmethod
    def of(cls, weight: Tensor, smooth: Tensor | None, low: float, high: float) -> QuantizedLinear:
        """Quantize a weight, (out, in).

        Args:
            weight: weight of the layer.
            smooth: divisors of the input channels, (in,); None for 1.
            low, high: least and largest value of the smoothed inputs.
        """
        weight = weight.detach().float()
        if smooth is not None:
            weight = weight * smooth
        scales = weight.abs().amax(dim=1).clamp(min=1e-8) / MAX_WEIGHT
        low, high = min(low, 0.0), max(high, 0.0)
        scale = max((high - low) / MAX_INPUT, 1e-8)
        whole = (weight / scales[:, None]).round().to(torch.int8).t().contiguous()
        multiply = None if smooth is None else (1 / smooth).numpy()
        zero = np.array(round(-low / scale), np.uint8)
        return cls(whole.numpy(), scales.numpy(), np.array(scale, np.float32), zero, multiply)

    def digest(self) -> str:
        """Return a hash of the layer."""
        parts = (self.weight, self.weight_scales, self.scale, self.zero, self.multiply)
        return sha256_text(*("" if each is None else each.tobytes().hex() for each in parts))


def calibrate(encoder: SentenceTransformer, texts: Sequence[str]) -> dict[str, QuantizedLinear]:
    """Measure the inputs of the blocks' linear layers on these texts, and quantize the layers.

    Args:
        encoder: a model whose weights are fp32.
        texts: texts like those that it will encode, of all its routes; some hundreds are enough.

    Returns:
        Name of a layer -> the layer in 8 bits.

    Raises:
        UsageError: the model has no blocks, or routes with adapters.
    """
    layers = check_quantizable(encoder)
    largest = {name: torch.zeros(layer.in_features) for name, layer in layers.items()}

    def see(name: str, rows: Tensor) -> None:
        largest[name] = torch.maximum(largest[name], rows.abs().amax(dim=0))

    _watch(encoder, texts, layers, see)
    uneven = [name for name, channels in largest.items() if channels.max() > UNEVEN * channels.median()]
    smooth = {name: compute_smoothing(largest[name], layers[name].weight) for name in sorted(uneven)}
    seen: dict[str, list[Tensor]] = {name: [] for name in layers}
    generator = torch.Generator().manual_seed(0)

    def sample(name: str, rows: Tensor) -> None:
        values = (rows / smooth[name] if name in smooth else rows).flatten()
        seen[name].append(values[torch.randint(len(values), (SAMPLED_VALUES,), generator=generator)])

    _watch(encoder, texts, layers, sample)
    quantized = {}
    for name, parts in seen.items():
        values = torch.cat(parts).sort().values
        out = int(len(values) * OUTSIDE / 2)  # half on either side
        low, high = float(values[out]), float(values[-1 - out])
        quantized[name] = QuantizedLinear.of(layers[name].weight, smooth.get(name), low, high)
    return quantized


def check_quantizable(encoder: SentenceTransformer) -> dict[str, nn.Linear]:
    """Return the layers that compute in 8 bits; refuse a model that has none, or adapters beside them."""
    layers = dict(find_block_layers(encoder))
    if any(isinstance(layer, AdaptedLinear) for layer in layers.values()):
        raise UsageError("routes of this model own adapters, which do not compute in 8 bits")
    if not layers:
        raise UsageError(f"no blocks with linear layers in {type(encoder[0]).__name__}")
    return layers


def find_block_layers(encoder: SentenceTransformer) -> Iterator[tuple[str, nn.Linear]]:
    """Yield the linear layers inside the encoder's blocks with their names: no learned routers, no heads."""
    for name, module in encoder.named_modules():
        inside = any(part.isdigit() for part in name.split(".")[2:])
        if inside and isinstance(module, nn.Linear) and not is_router(name) and HEADS not in name:
            yield name, module


def _watch(
    encoder: SentenceTransformer,
    texts: Sequence[str],
    layers: Mapping[str, nn.Linear],
    see: Callable[[str, Tensor], None],
) -> None:
    """Encode the texts; call `see` with the name and the inputs, (tokens, in), of each layer per batch."""

    def hook(name: str) -> Callable[..., None]:
        return lambda _, given: see(name, given[0].detach().flatten(0, -2).float())

    with ExitStack() as hooks:
        for name, layer in layers.items():
            hooks.enter_context(layer.register_forward_pre_hook(hook(name)))
        encoder.encode(list(texts), prompt="", batch_size=BATCH_SIZE, show_progress_bar=False)


def compute_smoothing(largest: Tensor, weight: Tensor) -> Tensor:
    """Compute the divisor of each input channel (SmoothQuant, equation 4)."""
    weights = weight.detach().float().abs().amax(dim=0).clamp(min=1e-5)
    return (largest.clamp(min=1e-5) ** SMOOTHING / weights ** (1 - SMOOTHING)).clamp(min=1e-4)


def select_texts(texts: Sequence[str]) -> list[str]:
    """Return the texts for calibration and comparison: not the empty ones, and not all of very many.

    Raises:
        UsageError: there are too few.
    """
    read = [text for text in texts if text.strip()]
    count = min(len(read), MAX_TEXTS)
    read = [read[number * len(read) // count] for number in range(count)]  # a table may be sorted
    least = MIN_TEXTS * CHECKED_EVERY // (CHECKED_EVERY - 1) + 1
    if len(read) < least:
        raise UsageError(f"`int8`: {len(read)} texts to calibrate on; at least {least} are needed")
    return read


def compute_in_int8(folder: Path, encoder: SentenceTransformer, texts: Sequence[str]) -> dict[str, Any]:
    """Make the graph in a folder compute in 8 bits, calibrated on three quarters of the texts.

    Args:
        folder: folder that `write_graph` wrote of `encoder`.
        encoder: model of the graph.
        texts: texts like those that it will encode (`select_texts`), the same for all routes.

    Returns:
        `texts`, the number of compared texts, and the `mean_cosine` and `min_cosine` of their vectors with
        vectors of full precision, over all routes.

    Raises:
        UsageError: as in `calibrate`.
    """
    compared = texts[::CHECKED_EVERY]
    calibration_texts = [text for number, text in enumerate(texts) if number % CHECKED_EVERY]
    record = read_json(folder / GRAPH_FILE)
    leads = list(record["prompts"].values()) or [""]
    layers = calibrate(encoder, [lead + text for lead in leads for text in calibration_texts])
    if (made := quantize_graph(folder / MODEL_FILE, encoder, layers)) < len(layers):
        raise SentenceExpertsError(f"8 bits: only {made} of {len(layers)} layers were found in the graph")
    content = sha256_text(*(each.digest() for _, each in sorted(layers.items())))
    for name in {"fingerprints", "pooled_fingerprints"} & set(record):
        record[name] = {route: sha256_text(each, ARITHMETIC, content) for route, each in record[name].items()}
    write_json(folder / GRAPH_FILE, record)
    graph, routed = OnnxEncoder(folder), [lead + text for lead in leads for text in compared]
    whole = encoder.encode(routed, prompt="", normalize_embeddings=True, show_progress_bar=False)
    cosines = (whole * graph.encode(routed, prompt="", normalize_embeddings=True)).sum(axis=1)
    return {"texts": len(compared), "mean_cosine": float(cosines.mean()), "min_cosine": float(cosines.min())}


def quantize_graph(file: Path, encoder: SentenceTransformer, layers: Mapping[str, QuantizedLinear]) -> int:
    """Replace the products of the calibrated layers in a graph's file by products in 8 bits.

    A product is found by its weight, since exporters do not keep the names of layers.

    Returns:
        The number of products.
    """
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load(str(file))
    graph = model.graph
    by_weight = {
        layer.weight.detach().t().contiguous().numpy().tobytes(): layers[name]
        for name, layer in find_block_layers(encoder)
        if name in layers
    }
    constants = {each.name: each for each in graph.initializer}
    nodes: list[Any] = []
    made: dict[str, Any] = {}
    count = 0
    for node in graph.node:
        weight = constants.get(node.input[1]) if node.op_type == "MatMul" else None
        layer = None if weight is None else by_weight.get(numpy_helper.to_array(weight).tobytes())
        if layer is None:
            nodes.append(node)
            continue
        name, source = f"int8_{count}", node.input[0]
        count += 1
        made |= {f"{name}.{part}": each for part, each in vars(layer).items() if each is not None}
        if layer.multiply is not None:
            nodes.append(helper.make_node("Mul", [source, f"{name}.multiply"], [f"{name}.smoothed"]))
            source = f"{name}.smoothed"
        scale, zero = f"{name}.scale", f"{name}.zero"
        nodes.append(helper.make_node("QuantizeLinear", [source, scale, zero], [f"{name}.input"]))
        given = [f"{name}.input", f"{name}.weight", scale, f"{name}.weight_scales", zero]
        nodes.append(
            helper.make_node("MatMulIntegerToFloat", given, [node.output[0]], domain="com.microsoft")
        )
    used = {name for node in nodes for name in node.input}
    kept = [each for each in graph.initializer if each.name in used]
    kept += [numpy_helper.from_array(np.asarray(each), name) for name, each in made.items()]
    for field, values in (("node", nodes), ("initializer", kept), ("value_info", ())):
        graph.ClearField(field)
        getattr(graph, field).extend(values)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    data = file.with_name(f"{file.name}.data")  # the weights of a graph too large for one file
    is_large = data.exists()
    data.unlink(missing_ok=True)
    onnx.save(model, str(file), save_as_external_data=is_large, location=data.name)
    return count
