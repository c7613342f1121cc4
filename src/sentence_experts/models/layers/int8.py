"""Encoders whose matrix multiplications run in 8 bits on the CPU: smoothed, calibrated once, opt-in.

The linear layers of the blocks (attention and MLP, each expert's too) get weights of -64 to 64 with one scale
per output channel. Their inputs become 0 to 255 with one scale that calibration texts have fixed, not the
batch, so that a text's vector still depends on nothing else. Before that, where a few input channels are far
larger than the others, they hand a part of it over to the weights (SmoothQuant, Xiao et al. 2023, equation
4). Embeddings, norms, attention itself and pooling stay in fp32. ONNX Runtime multiplies.

A processor without VNNI adds two products of a weight and an input in 16 bits, where more than 32,767 is cut.
Weights to 64 stay below it (2 * 64 * 255), so that a model gives the same vectors on every x86 processor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sentence_experts.compat.onnxruntime import can_multiply_int8, int8_linear
from sentence_experts.errors import InputError, UsageError, brief, require
from sentence_experts.models.layers.adapters import AdaptedLinear
from sentence_experts.models.layers.weight_files import REMEDY, check_names, named
from sentence_experts.models.layers.weight_names import is_expert, is_router
from sentence_experts.storage import replacing

logger = logging.getLogger(__name__)

FILE = "int8.safetensors"
MAX_WEIGHT, MAX_INPUT = 64, 255
# Tells vectors that were computed in 8 bits from others.
ARITHMETIC = f"8 bits by ONNX Runtime, weights to {MAX_WEIGHT}, inputs to {MAX_INPUT}"
# Measured on all-MiniLM-L6-v2: the smoothing with the best cosines (0.5 gave 0.986, 0.8 0.9977), and the
# unevenness below which a layer's smoothing costs time for nothing.
SMOOTHING = 0.75  # alpha of SmoothQuant
UNEVEN = 6.0  # the largest value of an input's largest channel over that of its middle one
OUTSIDE = 1e-5  # share of the inputs of a layer that may lie outside its 8 bits
MIN_TEXTS = 32
SAMPLED_VALUES = 20_000  # values of an input that are sampled per batch for its range


class Int8Linear(nn.Module):
    """A linear layer in 8 bits; fp32 in and out."""

    weight: Tensor
    weight_scales: Tensor
    scale: Tensor
    zero: Tensor
    bias: Tensor
    multiply: Tensor | None

    def __init__(self, linear: nn.Linear, smooth: Tensor | None, low: float, high: float) -> None:
        """From a layer with weight (out, in).

        Args:
            linear: the layer.
            smooth: (in,) what each input channel is divided by; None for nothing.
            low, high: the least and the largest value of the smoothed inputs.
        """
        super().__init__()
        weight = linear.weight.detach().float()
        if smooth is not None:
            weight = weight * smooth
        scales = weight.abs().amax(dim=1).clamp(min=1e-8) / MAX_WEIGHT
        bias = torch.zeros(len(weight)) if linear.bias is None else linear.bias.detach().float()
        low, high = min(low, 0.0), max(high, 0.0)
        scale = max((high - low) / MAX_INPUT, 1e-8)
        buffers = {
            "weight": (weight / scales[:, None]).round().to(torch.int8).t().contiguous(),
            "weight_scales": scales,
            "scale": torch.tensor(scale),
            "zero": torch.tensor(round(-low / scale), dtype=torch.uint8),
            "bias": bias.clone(),
            "multiply": None if smooth is None else 1 / smooth,
        }
        for name, value in buffers.items():
            self.register_buffer(name, value, persistent=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        smoothed = hidden if self.multiply is None else hidden * self.multiply
        rows = smoothed.reshape(-1, hidden.shape[-1]).contiguous()
        output = int8_linear(rows, self.weight, self.weight_scales, self.scale, self.zero, self.bias)
        return output.view(*hidden.shape[:-1], -1)


def calibrate(encoder: SentenceTransformer, texts: Sequence[str], batch_size: int = 32) -> dict[str, Tensor]:
    """Measure what the linear layers of the blocks read on these texts, and how to smooth it.

    Args:
        encoder: a model whose weights are fp32. Texts begin with their routes where it has any.
        texts: like those that it will encode; some hundreds are enough.
        batch_size: number of texts per batch.

    Returns:
        Layer name + ".range", (2,), and, where its input's channels are uneven, + ".smooth", (in,): what
        `apply` takes and `write` stores.
    """
    if len(texts) < MIN_TEXTS:
        raise UsageError(f"{len(texts)} texts to calibrate on; at least {MIN_TEXTS} are needed")
    layers = dict(block_layers(encoder))
    if any(isinstance(layer, AdaptedLinear) for layer in layers.values()):
        raise UsageError("routes of this model own adapters, which do not compute in 8 bits")
    if not layers:
        raise UsageError(f"no blocks with linear layers in {type(encoder[0]).__name__}")
    largest: dict[str, Tensor] = {}

    def see(name: str, rows: Tensor) -> None:
        seen = rows.abs().amax(dim=0)
        largest[name] = torch.maximum(largest[name], seen) if name in largest else seen

    _watch(encoder, texts, batch_size, layers, see)
    if missing := sorted(set(layers) - set(largest)):
        raise UsageError(
            f"no calibration text went through {missing[0]} and {len(missing) - 1} more layers: give texts "
            "of every route"
        )
    uneven = {name for name, channels in largest.items() if channels.max() > UNEVEN * channels.median()}
    smooth = {name: _smoothing(largest[name], layers[name].weight) for name in sorted(uneven)}
    calibration = {f"{name}.smooth": value for name, value in smooth.items()}
    seen: dict[str, list[Tensor]] = {name: [] for name in layers}
    generator = torch.Generator().manual_seed(0)

    def sample(name: str, rows: Tensor) -> None:
        values = (rows / smooth[name] if name in smooth else rows).flatten()
        seen[name].append(values[torch.randint(len(values), (SAMPLED_VALUES,), generator=generator)])

    _watch(encoder, texts, batch_size, layers, sample)
    for name, parts in seen.items():
        values = torch.cat(parts).sort().values
        out = int(len(values) * OUTSIDE / 2)  # half on either side
        calibration[f"{name}.range"] = torch.stack([values[out], values[-1 - out]])
    return calibration


def apply(
    encoder: SentenceTransformer, calibration: Mapping[str, Tensor], source: str | Path = FILE
) -> SentenceTransformer:
    """Replace the calibrated layers by layers in 8 bits, in place, and return the encoder.

    Errors name `source`, the file of the calibration.
    """
    for module in ("onnxruntime", "onnx"):
        require(module, "onnx")
    if encoder.dtype != torch.float32:
        raise UsageError(
            f"this model computes in 8 bits, not in {_dtype(encoder)}; `dtype=float32` gives full precision"
        )
    layers = dict(block_layers(encoder))
    names = {name.removesuffix(".range") for name in calibration if name.endswith(".range")}
    # Experts that are not in memory have no layers to change.
    unknown = {name for name in names - set(layers) if not is_expert(name)}
    check_names(source, set(layers) - names, unknown)
    shapes = {f"{name}.range": (2,) for name in names}
    shapes |= {f"{name}.smooth": (layers[name].in_features,) for name in names & set(layers)}
    check_names(source, (), set(calibration) - set(shapes) - {f"{name}.smooth" for name in names})
    if other := {name for name, each in calibration.items() if each.shape != shapes.get(name, each.shape)}:
        raise InputError(f"{source}: of another model: {named(other)} has another shape; {REMEDY}")
    for name in sorted(names & set(layers)):
        low, high = calibration[f"{name}.range"].tolist()
        eight = Int8Linear(layers[name], calibration.get(f"{name}.smooth"), low, high)
        encoder.set_submodule(name, eight)
    return encoder.eval()


def write(calibration: Mapping[str, Tensor], folder: Path) -> None:
    """Store a calibration beside a model's weights."""
    from safetensors.torch import save_file

    with replacing(folder / FILE) as temporary:
        save_file({name: value.contiguous() for name, value in calibration.items()}, temporary)


def apply_saved(encoder: SentenceTransformer, folder: Path) -> bool:
    """`apply` the calibration in the model's folder, if there is one.

    On another device than a CPU, and without ONNX Runtime, the model stays as it is, which is logged.

    Returns:
        Whether the encoder computes in 8 bits now.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    file = folder / FILE
    if not file.is_file():
        return False
    if encoder.device.type != "cpu":
        logger.info(
            f"{folder.name}: its 8 bits are for CPUs; on {encoder.device} it computes in {_dtype(encoder)}"
        )
        return False
    if not can_multiply_int8():
        logger.warning(
            f"{folder.name}: its 8 bits need ONNX Runtime (pip install 'sentence-experts[onnx]'); "
            f"it computes in {_dtype(encoder)}"
        )
        return False
    try:
        apply(encoder, load_file(file), file)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{file}: cannot be read ({brief(error)}); {REMEDY}") from error
    return True


def block_layers(encoder: SentenceTransformer) -> Iterator[tuple[str, nn.Linear]]:
    """Return the linear layers inside the encoder's blocks, learned routers left out, with their names."""
    for name, module in encoder.named_modules():
        inside = any(part.isdigit() for part in name.split(".")[2:])
        if inside and isinstance(module, nn.Linear) and not is_router(name):
            yield name, module


def _dtype(encoder: SentenceTransformer) -> str:
    return str(encoder.dtype).removeprefix("torch.")


def _watch(
    encoder: SentenceTransformer,
    texts: Sequence[str],
    batch_size: int,
    layers: Mapping[str, nn.Linear],
    see: Callable[[str, Tensor], None],
) -> None:
    """Encode the texts; call `see` with the name and the inputs, (tokens, in), of each layer per batch."""

    def hook(name: str) -> Callable[..., None]:
        return lambda _, given: see(name, given[0].detach().flatten(0, -2).float())

    with ExitStack() as hooks:
        for name, layer in layers.items():
            hooks.enter_context(layer.register_forward_pre_hook(hook(name)))
        encoder.encode(list(texts), prompt="", batch_size=batch_size, show_progress_bar=False)


def _smoothing(largest: Tensor, weight: Tensor) -> Tensor:
    """SmoothQuant, equation 4: what each input channel is divided by."""
    weights = weight.detach().float().abs().amax(dim=0).clamp(min=1e-5)
    return (largest.clamp(min=1e-5) ** SMOOTHING / weights ** (1 - SMOOTHING)).clamp(min=1e-4)
