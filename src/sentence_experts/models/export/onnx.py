"""A dense encoder as one ONNX graph: token ids in, the finished vector out, checked against torch."""

from __future__ import annotations

import logging
import warnings
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


class _WholeEncoder(nn.Module):
    """All modules of an encoder (transformer, pooling, heads, normalisation) as one function of tensors."""

    def __init__(self, encoder: SentenceTransformer, names: list[str], constants: dict[str, Any]) -> None:
        super().__init__()
        self.encoder = encoder
        self.names = names
        self.constants = constants

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

    Raises:
        InputError: the model has experts: a graph cannot choose between them.
        SentenceExpertsError: onnx is not installed, or the graph's vectors differ by more than `tolerance`;
            nothing is written then.
    """
    for module in ("onnx", "onnxscript", "onnxruntime"):
        require(module, "onnx")
    if isinstance(transformer_of(encoder), RoutedModel):
        raise InputError("a model with experts has no single graph; export one route, or the average")
    device = encoder.device
    encoder = encoder.to("cpu").eval()
    program = _traced(encoder)
    with replacing(folder / FILE) as temporary:
        program.save(str(temporary))
        difference = _largest_difference(encoder, temporary)
        if not difference <= tolerance:
            raise SentenceExpertsError(
                f"the ONNX graph's vectors differ from torch's by {difference:.1e}, "
                f"more than {tolerance:.0e}; it was not written"
            )
    encoder.to(device)
    return difference


def _traced(encoder: SentenceTransformer) -> Any:
    features = encoder.preprocess(TRACED)
    names = [name for name, value in features.items() if isinstance(value, Tensor)]
    constants = {name: value for name, value in features.items() if name not in names}
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    # Warns of torchvision, which no text needs.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch, about itself
        return torch.onnx.export(
            _WholeEncoder(encoder, names, constants).eval(),
            tuple(features[name] for name in names),
            input_names=names,
            output_names=[TOKENS, VECTOR],
            dynamic_shapes=(tuple(free for _ in names),),
            dynamo=True,
            verbose=False,
        )


def _largest_difference(encoder: SentenceTransformer, file: Path) -> float:
    from onnxruntime import InferenceSession

    session = InferenceSession(str(file), providers=["CPUExecutionProvider"])
    wanted = [each.name for each in session.get_inputs()]
    differences = []
    for texts in CHECKED:
        features = encoder.preprocess(list(texts))
        (vectors,) = session.run([VECTOR], {name: features[name].numpy() for name in wanted})
        expected = encoder.encode(list(texts), prompt="", batch_size=len(texts), show_progress_bar=False)
        differences.append(float(np.abs(vectors - expected).max()))
    return max(differences)
