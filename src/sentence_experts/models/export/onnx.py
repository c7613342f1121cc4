"""A dense encoder as one ONNX graph: token ids in, the finished vector out, checked against torch."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sentence_experts.compat.sentence_transformers import transformer_of
from sentence_experts.errors import InputError, SentenceExpertsError, require
from sentence_experts.models.architectures.routed_model import RoutedModel
from sentence_experts.storage import replacing

FILE = "model.onnx"
TOKENS, VECTOR = "token_embeddings", "sentence_embedding"
TOLERANCE = 1e-4
# What the graph is traced with, and batches of other sizes and lengths that it is checked with.
TRACED = ["leaves", "The roots of a plant take up water from the soil."]
CHECKED = (
    ["leaves"],
    ["", "x", "Pressure in the left ventricle rises (see figure 2); then it falls."],
    [f"word {'and another ' * count}" for count in range(0, 80, 16)],
)


class WholeEncoder(nn.Module):
    """All modules of an encoder (transformer, pooling, heads, normalisation) as one function of tensors.

    Attributes:
        names: of the inputs, as the tokenizer names them.
    """

    def __init__(self, encoder: SentenceTransformer, texts: list[str] = TRACED) -> None:
        super().__init__()
        features = encoder.preprocess(texts)
        self.encoder = encoder
        self.names = list(tensors_in(features))
        self.constants = {name: value for name, value in features.items() if name not in self.names}

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, length) inputs -> (batch, length, width) of tokens, (batch, dimensions) of texts."""
        features = dict(zip(self.names, inputs, strict=True)) | self.constants
        for module in self.encoder:
            features = module(features)
        return features[TOKENS], features[VECTOR]


def write_onnx(encoder: SentenceTransformer, folder: Path, tolerance: float = TOLERANCE) -> float:
    """Write `folder/model.onnx`: inputs as the tokenizer names them, outputs `TOKENS` and `VECTOR`.

    Batch and length are free. Pooling and the modules after it are inside the graph; the tokenizer and the
    prompts are not.

    Returns:
        The largest difference of a number between the graph's vectors and torch's, over texts of several
        lengths.
    """
    require_onnx()
    if isinstance(transformer_of(encoder), RoutedModel):
        raise InputError("a model with experts has no graph of one route; export one route, or the average")
    device = encoder.device
    encoder = encoder.to("cpu").eval()
    program = traced(WholeEncoder(encoder), tensors_in(encoder.preprocess(TRACED)))
    with replacing(folder / FILE) as temporary:
        program.save(str(temporary))
        encode = partial(encoder.encode, prompt="", show_progress_bar=False)
        difference = largest_difference(temporary, encoder.preprocess, encode)
        check_difference(difference, tolerance)
    encoder.to(device)
    return difference


def require_onnx() -> None:
    """Raise a SentenceExpertsError where ONNX is not installed."""
    for module in ("onnx", "onnxscript", "onnxruntime"):
        require(module, "onnx")


def tensors_in(features: Mapping[str, Any]) -> dict[str, Tensor]:
    """Select the tensors of tokenized texts, without what is the same for all."""
    return {name: value for name, value in features.items() if isinstance(value, Tensor)}


def traced(module: nn.Module, inputs: Mapping[str, Tensor]) -> Any:
    """Return the graph of a module that gives tokens and vectors; batch and length of the inputs are free."""
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    # Warns of torchvision, which no text needs.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch, about itself
        return torch.onnx.export(
            module.eval(),
            tuple(inputs.values()),
            input_names=list(inputs),
            output_names=[TOKENS, VECTOR],
            dynamic_shapes=(tuple(free if value.dim() else None for value in inputs.values()),),
            dynamo=True,
            verbose=False,
        )


def largest_difference(
    file: Path,
    inputs_of: Callable[[list[str]], Mapping[str, Tensor]],
    encode: Callable[[list[str]], Any],
) -> float:
    """Return the largest difference between a graph's vectors and those of `encode`, over several batches."""
    from onnxruntime import InferenceSession

    session = InferenceSession(str(file), providers=["CPUExecutionProvider"])
    wanted = [each.name for each in session.get_inputs()]
    differences = []
    for texts in CHECKED:
        inputs = inputs_of(list(texts))
        (vectors,) = session.run([VECTOR], {name: inputs[name].numpy() for name in wanted})
        differences.append(float(np.abs(vectors - encode(list(texts))).max()))
    return max(differences)


def check_difference(difference: float, tolerance: float) -> None:
    """Raise a SentenceExpertsError if a graph's vectors are not torch's."""
    if not difference <= tolerance:
        raise SentenceExpertsError(
            f"the ONNX graph's vectors differ from torch's by {difference:.1e}, "
            f"more than {tolerance:.0e}; it was not written"
        )
