"""One ONNX graph of all routes: the shared weights once, the experts' stacked, the route's number an input.

A text meets one expert, so each route is a dense model, and these differ only in the experts' weights and in
the vector of the first token. The graph is that of a dense model whose experts' weights are picked from the
stacks by the route's number. A batch is of one route.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.func import functional_call

from sentence_experts.compat.sentence_transformers import transformer_of
from sentence_experts.compat.tokenizers import backend_copy
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.architectures.families import family_of
from sentence_experts.models.dense import dense_prompt, export_route
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.export.onnx import (
    FILE,
    TOLERANCE,
    TRACED,
    WholeEncoder,
    check_difference,
    largest_difference,
    require_onnx,
    tensors_in,
    traced,
)
from sentence_experts.models.layers.weight_names import base_name, expert_of, of_expert
from sentence_experts.models.routes.kinds import router_kind
from sentence_experts.storage import write_json, write_text

TOKENIZER, ROUTES = "tokenizer.json", "routes.json"
ROUTE = "route"  # the graph's input beside those of the tokenizer


def write_routed_onnx(encoder: ExpertEncoder, folder: Path, tolerance: float = TOLERANCE) -> float:
    """Write model.onnx, tokenizer.json, routes.json and README.md into a folder.

    The graph's inputs are those of the tokenizer and `ROUTE`, the number of the batch's route, of no
    dimension; its outputs are those of `write_onnx`. `routes.json` holds the number of each route and the
    prompt in front of its texts. The tokenizer is the base's: the graph puts a route's domain token in the
    place of the first token.

    Returns:
        The largest difference of a number between the graph's vectors and those of `encode`, over all routes.
    """
    require_onnx()
    if router_kind(encoder.routed_model.config).is_learned or not encoder.routes:
        raise UsageError(
            "`all_routes` needs routes that choose the experts; export one route, or the average"
        )
    encoder = encoder.to("cpu").eval()
    dense = export_route(encoder, encoder.routes[0].name)
    if dense.tokenizer.padding_side != "right":
        raise InputError("the tokenizer pads on the left; export one route, or the average")
    example = {**tensors_in(dense.preprocess(TRACED)), ROUTE: torch.tensor(0)}
    program = traced(_RoutedEncoder(encoder, dense), example)
    # Beside the graph, since a file of protobuf ends at 2 GB.
    program.save(str(folder / FILE), external_data=_size(encoder) > 1 << 30)
    prompts = {route.name: dense_prompt(encoder, route) for route in encoder.routes}
    numbered = [(number, name, prompt) for number, (name, prompt) in enumerate(prompts.items())]
    difference = max(_difference(encoder, dense, folder / FILE, *route) for route in numbered)
    check_difference(difference, tolerance)
    _write_tokenizer(dense, folder / TOKENIZER)
    routes = {name: {"number": number, "prompt": prompt} for number, name, prompt in numbered}
    write_json(folder / ROUTES, routes)
    write_text(folder / "README.md", _card(encoder.routes[0].name))
    return difference


class _RoutedEncoder(nn.Module):
    """A dense encoder whose experts' weights are picked by the route's number."""

    experts: Tensor
    tokens: Tensor

    def __init__(self, encoder: ExpertEncoder, dense: SentenceTransformer) -> None:
        """Take the weights of `encoder`; `dense` is that of its first route."""
        super().__init__()
        routed, routes = encoder.routed_model, encoder.routes
        transformer: Any = transformer_of(dense)
        weights: dict[str, Tensor] = routed.state_dict()  # type: ignore[attr-defined]
        self.whole = WholeEncoder(dense)
        self.register_buffer("experts", torch.tensor([route.expert for route in routes]))
        self.register_buffer("tokens", torch.tensor([route.token_ids[0] for route in routes]))
        self.ids = self.whole.names.index("input_ids")
        self.replaces_first = bool(routed.config.has_domain_tokens)
        if self.replaces_first:
            # With the rows of the domain tokens, which the dense model lacks.
            table: Any = routed.get_input_embeddings()  # type: ignore[attr-defined]
            transformer.get_input_embeddings().weight = nn.Parameter(table.weight.detach())
        prefix = next(name for name, module in self.whole.named_modules() if module is transformer)
        own = dict(self.whole.named_parameters())
        self.stacked: dict[str, str] = {}  # a weight of the dense model -> the stack that it is picked from
        family = family_of(routed.config.model_type)
        for name in [name for name in weights if expert_of(name) == 0]:
            stack = torch.stack([weights[of_expert(name, number)] for number in range(len(encoder.experts))])
            weight = f"{prefix}.{base_name(family, name)}"
            self.stacked[weight] = name.replace(".experts.0.", ".experts.").replace(".", "_")
            # Turned, as a graph multiplies by it, so that no call has to turn what it picks.
            self.register_buffer(self.stacked[weight], stack.transpose(1, -1).contiguous())
            own[weight].data = torch.empty(0)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the inputs of the tokenizer, (batch, length), and the route's number, ()."""
        features, route = list(inputs[:-1]), inputs[-1].reshape(1)
        if self.replaces_first:
            ids = features[self.ids]
            first = self.tokens.index_select(0, route).expand(ids.shape[0], 1)
            features[self.ids] = torch.cat([first, ids[:, 1:]], dim=1)
        expert = self.experts.index_select(0, route)
        picked = {
            weight: self.get_buffer(stack).index_select(0, expert)[0].transpose(0, -1)
            for weight, stack in self.stacked.items()
        }
        tokens, vectors = functional_call(self.whole, picked, tuple(features))
        return tokens, vectors


def _difference(
    encoder: ExpertEncoder, dense: SentenceTransformer, file: Path, number: int, name: str, prompt: str
) -> float:
    """Return the largest difference of one route's vectors."""
    return largest_difference(
        file,
        lambda texts: {**dense.preprocess([prompt + text for text in texts]), ROUTE: torch.tensor(number)},
        partial(encoder.encode, prompt_name=name, show_progress_bar=False),
    )


def _size(encoder: ExpertEncoder) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in encoder.parameters())


def _write_tokenizer(dense: SentenceTransformer, file: Path) -> None:
    """Write the tokenizer, which truncates and pads as the model does."""
    backend, padding = backend_copy(dense.tokenizer), dense.tokenizer.pad_token
    if dense.max_seq_length is not None:
        backend.enable_truncation(dense.max_seq_length)
    if padding is not None:
        backend.enable_padding(pad_id=dense.tokenizer.pad_token_id, pad_token=padding)
    write_text(file, backend.to_str())


def _card(route: str) -> str:
    return f"""# A text encoder with routes, as one ONNX graph

Needs onnxruntime, tokenizers and numpy. A call takes texts of one route.

```python
import json
from functools import partial
from pathlib import Path

import numpy as np
from onnxruntime import InferenceSession
from tokenizers import Tokenizer

folder = Path(".")
routes = json.loads((folder / "{ROUTES}").read_text())
tokenizer = Tokenizer.from_file(str(folder / "{TOKENIZER}"))
session = InferenceSession(folder / "{FILE}")
columns = {{"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}}


def encode(texts, route):
    rows = tokenizer.encode_batch([routes[route]["prompt"] + text for text in texts])
    inputs = {{"route": np.array(routes[route]["number"])}}
    for each in session.get_inputs():
        if each.name in columns:
            inputs[each.name] = np.array([getattr(row, columns[each.name]) for row in rows])
    return session.run(["sentence_embedding"], inputs)[0]


vectors = encode(["a text", "another"], {json.dumps(route)})
```
"""
