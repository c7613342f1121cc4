"""Encoders whose matrix multiplications run in 8 bits on the CPU: smoothed, calibrated once, opt-in.

The linear layers of the blocks (attention and MLP, each expert's too) get weights of -64 to 64 with a scale
for each output channel. Their inputs become 0 to 255 with one scale that calibration texts have fixed, not
the batch, so that a text's vector still depends on nothing else. Before that, where a few input channels are
far larger than the others, they hand a part of it over to the weights (SmoothQuant, Xiao et al. 2023,
equation 4). Embeddings, norms, attention itself and pooling stay in fp32.

A processor without VNNI adds two products of a weight and an input in 16 bits, where more than 32,767 is cut.
Weights to 64 stay below it (2 * 64 * 255), so that a model gives the same vectors on every x86 processor.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage import replacing

logger = logging.getLogger(__name__)

FILE = "int8.safetensors"
MOST_WEIGHT, MOST_INPUT = 64, 255
# Tells vectors that were computed in 8 bits from others.
ARITHMETIC = f"8 bits, weights to {MOST_WEIGHT}, inputs to {MOST_INPUT}"
# Measured on all-MiniLM-L6-v2: the smoothing with the best cosines (0.5 gave 0.986, 0.8 0.9977), and the
# unevenness below which a layer's smoothing costs time for nothing.
SMOOTHING = 0.75  # alpha of SmoothQuant
UNEVEN = 6.0  # the largest value of an input's largest channel over that of its middle one
KEPT_OUT = 1e-5  # share of the inputs of a layer that may lie outside its 8 bits
LEAST_TEXTS = 32
_SAMPLED = 20_000  # values of an input that are kept for its range, a text
ENGINE = "fbgemm"  # torch's multiplication of 8 bits on x86
_FUSED = "linear_with_input_q_dq_qweight_dq_output_fp32"


class Int8Linear(nn.Module):
    """A linear layer in 8 bits; fp32 in and out."""

    def __init__(self, linear: nn.Linear, smooth: Tensor | None, low: float, high: float) -> None:
        """Args:
        linear: the layer, whose weight is (out, in).
        smooth: (in,) what each input channel is divided by; None for nothing.
        low: the least value of the smoothed inputs.
        high: the largest.
        """
        super().__init__()
        weight = linear.weight.detach().float()
        if smooth is not None:
            weight = weight * smooth
        scales = weight.abs().amax(dim=1).clamp(min=1e-8) / MOST_WEIGHT
        zeros = torch.zeros(len(scales), dtype=torch.int64)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.quantize_per_tensor")  # of a torch that is to come
            eight = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        bias = None if linear.bias is None else linear.bias.detach().float()
        self.packed = torch.ops.quantized.linear_prepack(eight, bias)
        self.multiply = None if smooth is None else 1 / smooth
        low, high = min(low, 0.0), max(high, 0.0)
        self.scale = max((high - low) / MOST_INPUT, 1e-8)
        self.zero = round(-low / self.scale)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        smoothed = hidden if self.multiply is None else hidden * self.multiply
        done: Tensor = getattr(torch.ops.quantized, _FUSED)(smoothed, self.scale, self.zero, self.packed)
        return done


def calibrate(encoder: SentenceTransformer, texts: Sequence[str], batch_size: int = 32) -> dict[str, Tensor]:
    """What the linear layers of the blocks read on these texts, and how they are to be smoothed.

    Args:
        encoder: a model whose weights are fp32. Texts begin with their routes where it has any.
        texts: like those that it will encode; some hundreds are enough.
        batch_size: texts read at once.

    Returns:
        Layer name + ".range", (2,), and, where its input's channels are uneven, + ".smooth", (in,): what
        `apply` needs, and `write` keeps.

    Raises:
        UsageError: too few texts, or no such layers.
    """
    if len(texts) < LEAST_TEXTS:
        raise UsageError(f"{len(texts)} texts to calibrate on; at least {LEAST_TEXTS} are needed")
    layers = dict(block_layers(encoder))
    if not layers:
        raise UsageError(f"no blocks with linear layers in {type(encoder[0]).__name__}")
    largest: dict[str, Tensor] = {}

    def watch(name: str) -> Any:
        def hook(_: nn.Module, given: tuple[Tensor, ...]) -> None:
            seen = given[0].detach().flatten(0, -2).abs().amax(dim=0).float()
            largest[name] = torch.maximum(largest[name], seen) if name in largest else seen

        return hook

    _run(encoder, texts, batch_size, {name: watch(name) for name in layers}, layers)
    if missing := sorted(set(layers) - set(largest)):
        raise UsageError(
            f"no calibration text went through {missing[0]} and {len(missing) - 1} more layers: give texts "
            "of every route"
        )
    uneven = {name for name, channels in largest.items() if channels.max() > UNEVEN * channels.median()}
    smooth = {name: _smoothing(largest[name], layers[name].weight) for name in sorted(uneven)}
    found = {f"{name}.smooth": value for name, value in smooth.items()}
    ranges = _ranges(encoder, texts, batch_size, layers, smooth)
    return found | {f"{name}.range": value for name, value in ranges.items()}


def apply(encoder: SentenceTransformer, found: Mapping[str, Tensor]) -> SentenceTransformer:
    """Put 8 bits in the place of the layers that were calibrated; the encoder is changed, and returned.

    Raises:
        InputError: it does not have these layers.
        UsageError: it computes in something else than float32.
    """
    if encoder.dtype != torch.float32:
        raise UsageError(
            f"this model computes in 8 bits, not in {_number(encoder)}; --dtype float32 gives full precision"
        )
    layers = dict(block_layers(encoder))
    names = {name.removesuffix(".range") for name in found if name.endswith(".range")}
    # Experts that are not in memory have no layers to change.
    if unknown := sorted(name for name in names - set(layers) if ".experts." not in name):
        raise InputError(f"{FILE} is of another model: it names {unknown[0]}")
    for name in sorted(names & set(layers)):
        low, high = found[f"{name}.range"].tolist()
        eight = Int8Linear(layers[name], found.get(f"{name}.smooth"), low, high)
        encoder.set_submodule(name, eight)
    return encoder.eval()


def write(found: Mapping[str, Tensor], folder: Path) -> None:
    """Keep a calibration beside a model's weights."""
    from safetensors.torch import save_file

    with replacing(folder / FILE) as temporary:
        save_file({name: value.contiguous() for name, value in found.items()}, temporary)


def apply_kept(encoder: SentenceTransformer, folder: Path) -> bool:
    """`apply` the calibration in the model's folder, if there is one.

    Elsewhere than on an x86 CPU it is not applied, and that is said.

    Returns:
        Whether the encoder computes in 8 bits now.

    Raises:
        InputError: the calibration cannot be read, or is of another model.
        UsageError: the encoder computes in something else than float32.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    file = folder / FILE
    if not file.is_file():
        return False
    if encoder.device.type != "cpu" or ENGINE not in torch.backends.quantized.supported_engines:
        said = f"on {encoder.device} it computes in {_number(encoder)}"
        logger.info(f"{folder.name}: its 8 bits are for x86 CPUs; {said}")
        return False
    try:
        apply(encoder, load_file(file))
    except (SafetensorError, KeyError) as error:
        raise InputError(f"{file}: cannot be read: {error}") from error
    return True


def block_layers(encoder: SentenceTransformer) -> Iterator[tuple[str, nn.Linear]]:
    """The linear layers inside the encoder's blocks, learned routers left out, by their names in it."""
    for name, module in encoder.named_modules():
        inside = any(part.isdigit() for part in name.split(".")[2:])
        if inside and isinstance(module, nn.Linear) and not name.endswith(".router"):
            yield name, module


def _number(encoder: SentenceTransformer) -> str:
    return str(encoder.dtype).removeprefix("torch.")


def _run(
    encoder: SentenceTransformer,
    texts: Sequence[str],
    batch_size: int,
    hooks: Mapping[str, Any],
    layers: Mapping[str, nn.Linear],
) -> None:
    handles = [layers[name].register_forward_pre_hook(hook) for name, hook in hooks.items()]
    try:
        encoder.encode(list(texts), prompt="", batch_size=batch_size, show_progress_bar=False)
    finally:
        for handle in handles:
            handle.remove()


def _smoothing(largest: Tensor, weight: Tensor) -> Tensor:
    """SmoothQuant, equation 4: what each input channel is divided by."""
    weights = weight.detach().float().abs().amax(dim=0).clamp(min=1e-5)
    return (largest.clamp(min=1e-5) ** SMOOTHING / weights ** (1 - SMOOTHING)).clamp(min=1e-4)


def _ranges(
    encoder: SentenceTransformer,
    texts: Sequence[str],
    batch_size: int,
    layers: Mapping[str, nn.Linear],
    smooth: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """(low, high) of each layer's smoothed inputs, all but a `KEPT_OUT` of them."""
    seen: dict[str, list[Tensor]] = {name: [] for name in layers}
    generator = torch.Generator().manual_seed(0)

    def watch(name: str) -> Any:
        def hook(_: nn.Module, given: tuple[Tensor, ...]) -> None:
            rows = given[0].detach().flatten(0, -2).float()
            values = (rows / smooth[name] if name in smooth else rows).flatten()
            seen[name].append(values[torch.randint(len(values), (_SAMPLED,), generator=generator)])

        return hook

    _run(encoder, texts, batch_size, {name: watch(name) for name in layers}, layers)
    found = {}
    for name, parts in seen.items():
        values = torch.cat(parts).sort().values
        out = int(len(values) * KEPT_OUT / 2)  # half on either side
        found[name] = torch.stack([values[out], values[-1 - out]])
    return found
