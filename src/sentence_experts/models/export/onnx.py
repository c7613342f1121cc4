"""A model as one ONNX graph: token ids in, finished vectors out, the route read from each text's tokens.

A batch may mix routes. Shared weights are there once; each expert, adapter and head works on the texts that
it picks. A text that begins with no route gets a vector of NaN.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sentence_experts.compat.sentence_transformers import leaves_prompts_out, transformer_of
from sentence_experts.compat.tokenizers import copy_backend
from sentence_experts.compat.transformers import attention_of, set_attention
from sentence_experts.errors import InputError, SentenceExpertsError, UsageError, require
from sentence_experts.models.architectures.routed_model import RoutedModel
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.files.fingerprint import fingerprint_of
from sentence_experts.models.onnx_encoder import (
    HEAD,
    HEADS_FILE,
    INPUTS,
    MODEL_FILE,
    POOLED,
    TOKENIZER_FILE,
    VECTOR,
    OnnxEncoder,
)
from sentence_experts.models.pooling import place_of_pooling, pooling_of
from sentence_experts.models.routes.kinds import router_kind
from sentence_experts.models.sources import GRAPH_FILE, GRAPH_VERSION, notes_of
from sentence_experts.storage import write_json, write_text

TOLERANCE = 1e-5  # share of the largest number in torch's vectors
# Texts for tracing the graph, and batches of other sizes and lengths for checking it.
TRACED = ["leaves", "The roots of a plant take up water from the soil."]
CHECKED = (
    ["leaves"],
    ["", "x", "Pressure in the left ventricle rises (see figure 2); then it falls."],
    [f"word {'and another ' * count}" for count in range(0, 80, 16)],
    ["short", " ".join(f"word{number}" for number in range(400))],  # cut, by most models
)


class WholeEncoder(nn.Module):
    """All modules of an encoder (transformer, pooling, heads, normalisation) as one function of tensors.

    Attributes:
        inputs: texts of the trace, as tensors by the tokenizer's names.
        outputs: names of the outputs.
    """

    def __init__(self, encoder: SentenceTransformer, texts: Sequence[str]) -> None:
        super().__init__()
        features = encoder.preprocess(list(texts))
        self.encoder, self.pooling = encoder, place_of_pooling(encoder)
        self.outputs = [VECTOR, POOLED] if getattr(encoder.config, "heads", ()) else [VECTOR]
        self.inputs = {name: value for name, value in features.items() if isinstance(value, Tensor)}
        self.constants = {name: value for name, value in features.items() if name not in self.inputs}

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Map (batch, length) inputs to vectors, (batch, dimensions), and to those before heads, if any."""
        features = dict(zip(self.inputs, inputs, strict=True)) | self.constants
        given = dict(features)
        modules = list(self.encoder)
        for module in modules[: self.pooling + 1]:
            features = module(features)
        pooled = features[VECTOR]
        if POOLED in self.outputs:
            ids, mask = given["input_ids"], given["attention_mask"]
            features[VECTOR] = transformer_of(self.encoder).map_pooled(pooled, ids, mask)
        for module in modules[self.pooling + 1 :]:
            features = module(features)
        return (features[VECTOR], pooled)[: len(self.outputs)]


def write_graph(encoder: SentenceTransformer, folder: Path, tolerance: float = TOLERANCE) -> float:
    """Write model.onnx, tokenizer.json, graph.json and README.md into a folder, and heads.npz for heads.

    Returns:
        The largest difference of a number between vectors of the graph and of `encode`, over all routes
        and over mixed batches.

    Raises:
        UsageError: learned routers choose the experts, or only some of these are in memory.
        InputError: the tokenizer pads on the left, or is not a fast one.
        SentenceExpertsError: the graph's vectors are not torch's.
    """
    for library in ("onnx", "onnxscript", "onnxruntime"):
        require(library, "onnx")
    routed = transformer_of(encoder)
    if isinstance(routed, RoutedModel):
        if router_kind(routed.config).is_learned or not routed.routes:
            raise UsageError(
                "`format=onnx` needs routes that choose the experts; export one route, or the average"
            )
        routed.check_whole("written as a graph")
    if getattr(encoder.tokenizer, "padding_side", None) != "right":
        raise InputError("a graph needs a transformer whose tokenizer pads on the right")
    if encoder.truncate_dim is not None:
        raise UsageError("the model cuts its vectors (`truncate_dim`), which a graph does not")
    prompts = graph_prompts(encoder)
    if prompts and leaves_prompts_out(encoder):
        raise UsageError(
            "the model's pooling leaves prompts out (include_prompt=False), which a graph does not"
        )
    trains = encoder.training
    encoder = encoder.to("cpu").eval()
    leads = list(prompts.values()) or [""]
    program = _trace(encoder, _put_prompts(leads, TRACED))
    # Beside the graph, since a file of protobuf ends at 2 GB.
    size = sum(parameter.numel() * parameter.element_size() for parameter in encoder.parameters())
    program.save(str(folder / MODEL_FILE), external_data=size > 1 << 30)
    _write_tokenizer(encoder, folder / TOKENIZER_FILE)
    if heads := encoder.head_routes if isinstance(encoder, ExpertEncoder) else {}:
        pairs = enumerate(heads.values())
        named = {f"{n}.{part}": each for n, pair in pairs for part, each in zip(HEAD, pair, strict=True)}
        np.savez(folder / HEADS_FILE, allow_pickle=False, **named)
    write_json(folder / GRAPH_FILE, _describe(encoder, prompts))
    write_text(folder / "README.md", _write_card(next(iter(prompts), None)))
    orders = [*([lead] for lead in leads), leads, leads[::-1]]
    difference = check_graph(encoder, folder, orders, tolerance)
    encoder.train(trains)
    return difference


def graph_prompts(encoder: SentenceTransformer) -> dict[str, str]:
    """Return the prompt in front of each route's texts."""
    if not isinstance(encoder, ExpertEncoder):
        return {name: prompt for name, prompt in encoder.prompts.items() if prompt}
    return {route.name: encoder.prompts.get(route.name) or route.text for route in encoder.routes}


def describe_graph(encoder: SentenceTransformer) -> dict[str, Any]:
    """Return the facts that decide a graph, and may differ from the files of a model changed in memory."""
    return {
        "max_length": encoder.max_seq_length,
        "pooling": pooling_of(encoder),
        "prompts": dict(encoder.prompts),
        "default_prompt_name": encoder.default_prompt_name,
    }


def _describe(encoder: SentenceTransformer, prompts: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of graph.json."""
    config: Any = encoder.config
    names = ("model_type", "experts", "heads", "search_routes", "matryoshka_dimensions", "is_matryoshka")
    facts = {name: getattr(config, name) for name in names if getattr(config, name, None)}
    default = encoder.prompts.get(encoder.default_prompt_name or "")
    tokens = [list(route.token_ids) for route in encoder.routes] if isinstance(encoder, ExpertEncoder) else []
    record = describe_graph(encoder) | {
        "format_version": GRAPH_VERSION,
        "prompts": prompts,
        "default_prompt_name": next((name for name, prompt in prompts.items() if prompt == default), None),
        "route_tokens": tokens,
        "dimension": encoder.get_embedding_dimension(),
        "config": facts | ({"routes": list(prompts)} if facts.get("experts") else {}),
        "notes": notes_of(encoder),
        "fingerprints": _make_fingerprints(encoder, prompts),
    }
    if facts.get("heads") and isinstance(encoder, ExpertEncoder):
        record["scales_after_pooling"] = encoder.scales_after_pooling
        record["pooled_fingerprints"] = _make_fingerprints(encoder.without_heads(), prompts)
    return record


def _make_fingerprints(encoder: SentenceTransformer, prompts: Mapping[str, str]) -> dict[str, str]:
    """Return the hash of everything that decides the vectors of each route, and under "" of all."""
    return {name or "": fingerprint_of(encoder, name) for name in (None, *prompts)}


def check_graph(
    encoder: SentenceTransformer, folder: Path, orders: Sequence[Sequence[str]], tolerance: float
) -> float:
    """Return the largest difference between a graph's vectors and torch's, with leads in several orders.

    Raises:
        SentenceExpertsError: the difference is larger than `tolerance` of torch's largest number.
    """
    graph = OnnxEncoder(folder)
    difference = largest = 0.0
    for leads in orders:
        for texts in CHECKED:
            routed = _put_prompts(leads, texts)
            rows, _, _ = graph.tokenize(routed, "")
            expected = encoder.encode(routed, prompt="", show_progress_bar=False)
            largest = max(largest, float(np.abs(expected).max()))
            difference = max(difference, float(np.abs(graph.encode_rows(rows, False) - expected).max()))
    if not difference <= tolerance * max(largest, 1.0):
        raise SentenceExpertsError(
            f"the ONNX graph's vectors differ from torch's by {difference:.1e}; it was not written"
        )
    return difference


def _trace(encoder: SentenceTransformer, texts: Sequence[str]) -> Any:
    """Return the graph of a model; batch and length of the inputs are free."""
    encoder.encode(list(texts), prompt="")  # this makes the tables that the graph holds
    routed = transformer_of(encoder)
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    # The libraries warn of torchvision, which no text needs, and of empty attributes of theirs.
    for name in ("torch.onnx", "onnx_ir", "onnxscript"):
        logging.getLogger(name).setLevel(logging.ERROR)
    attention = attention_of(routed.config)
    set_attention(routed.config, "eager")  # its graph computes abstracts 1.13 times as fast as sdpa's
    is_routed = isinstance(routed, RoutedModel)
    if is_routed:
        routed.is_recorded = True
    try:
        module = WholeEncoder(encoder, texts).eval()
        if strange := set(module.inputs) - set(INPUTS):
            raise InputError(f"the model reads {', '.join(sorted(strange))}, which a graph does not")
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # a warning of torch about itself
            return torch.onnx.export(
                module,
                tuple(module.inputs.values()),
                input_names=list(module.inputs),
                output_names=module.outputs,
                dynamic_shapes=(tuple(free for _ in module.inputs),),
                dynamo=True,
                verbose=False,
            )
    finally:
        set_attention(routed.config, attention)
        if is_routed:
            routed.is_recorded = False


def _put_prompts(leads: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Return the texts with the routes' prompts in front, in turn."""
    return [leads[number % len(leads)] + text for number, text in enumerate(texts)]


def _write_tokenizer(encoder: SentenceTransformer, file: Path) -> None:
    """Write the tokenizer, which truncates and pads as the model does."""
    backend, padding = copy_backend(encoder.tokenizer), encoder.tokenizer.pad_token
    if encoder.max_seq_length is not None:
        backend.enable_truncation(encoder.max_seq_length, direction=encoder.tokenizer.truncation_side)
    if padding is not None:
        backend.enable_padding(pad_id=encoder.tokenizer.pad_token_id, pad_token=padding)
    write_text(file, backend.to_str())


def _write_card(route: str | None) -> str:
    given = "" if route is None else f", {json.dumps(route)}"
    return f"""# A text encoder as one ONNX graph

Needs onnxruntime, tokenizers and numpy. A text's route is what stands in front of it; a call may mix routes.

```python
import json
from pathlib import Path

import numpy as np
from onnxruntime import InferenceSession
from tokenizers import Tokenizer

folder = Path(".")
prompts = json.loads((folder / "{GRAPH_FILE}").read_text())["prompts"]
tokenizer = Tokenizer.from_file(str(folder / "{TOKENIZER_FILE}"))
session = InferenceSession(folder / "{MODEL_FILE}")
columns = {{"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}}


def encode(texts, route=None):
    rows = tokenizer.encode_batch([prompts.get(route, "") + text for text in texts])
    names = [each.name for each in session.get_inputs()]
    inputs = {{name: np.array([getattr(row, columns[name]) for row in rows]) for name in names}}
    return session.run(["{VECTOR}"], inputs)[0]


vectors = encode(["a text", "another"]{given})
```
"""
