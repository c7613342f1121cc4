"""One ONNX graph of all routes: it reads each text's route from its tokens, as the model does.

A batch may mix routes. Shared weights are there once; each expert and head works on the texts that it picks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from sentence_experts.compat.tokenizers import backend_copy
from sentence_experts.errors import InputError, UsageError
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
from sentence_experts.models.routes.kinds import router_kind
from sentence_experts.storage import write_json, write_text

TOKENIZER, ROUTES = "tokenizer.json", "routes.json"


def write_routed_onnx(encoder: ExpertEncoder, folder: Path, tolerance: float = TOLERANCE) -> float:
    """Write model.onnx, tokenizer.json, routes.json and README.md into a folder.

    The graph's inputs are those of the tokenizer, its outputs those of `write_onnx`: any runtime of ONNX that
    knows only token ids serves it. `routes.json` holds what stands in front of each route's texts. A text
    that begins with no route gets a vector of NaN.

    Returns:
        The largest difference of a number between the graph's vectors and those of `encode`, over all routes
        and over mixed batches.
    """
    require_onnx()
    routed = encoder.routed_model
    if router_kind(routed.config).is_learned or not encoder.routes:
        raise UsageError(
            "`all_routes` needs routes that choose the experts; export one route, or the average"
        )
    if routed.config.adapters:
        raise UsageError("`all_routes`: routes of this model own adapters; export one route, which merges it")
    if encoder.tokenizer.padding_side != "right":
        raise InputError("the tokenizer pads on the left; export one route, or the average")
    routed.check_whole("written as a graph")
    encoder = encoder.to("cpu").eval()
    prompts = {route.name: encoder.prompts.get(route.name) or route.text for route in encoder.routes}
    leads = list(prompts.values())
    routed_texts = _begun(leads, TRACED)
    encoder.encode(routed_texts)  # makes the tables that the graph holds
    routed.is_recorded = True
    try:
        program = traced(WholeEncoder(encoder, routed_texts), tensors_in(encoder.preprocess(routed_texts)))
    finally:
        routed.is_recorded = False
    # Beside the graph, since a file of protobuf ends at 2 GB.
    program.save(str(folder / FILE), external_data=_size(encoder) > 1 << 30)
    orders = [*([lead] for lead in leads), leads, leads[::-1]]
    difference = max(
        largest_difference(folder / FILE, partial(_inputs, encoder, order), partial(_vectors, encoder, order))
        for order in orders
    )
    check_difference(difference, tolerance)
    _write_tokenizer(encoder, folder / TOKENIZER)
    write_json(folder / ROUTES, {name: {"prompt": prompt} for name, prompt in prompts.items()})
    write_text(folder / "README.md", _card(encoder.routes[0].name))
    return difference


def _begun(leads: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Return the texts behind the routes' prompts, in turn."""
    return [leads[number % len(leads)] + text for number, text in enumerate(texts)]


def _inputs(encoder: ExpertEncoder, leads: Sequence[str], texts: list[str]) -> dict[str, Tensor]:
    return tensors_in(encoder.preprocess(_begun(leads, texts)))


def _vectors(encoder: ExpertEncoder, leads: Sequence[str], texts: list[str]) -> Any:
    return encoder.encode(_begun(leads, texts), prompt="", show_progress_bar=False)


def _size(encoder: ExpertEncoder) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in encoder.parameters())


def _write_tokenizer(encoder: ExpertEncoder, file: Path) -> None:
    """Write the tokenizer, which truncates and pads as the model does."""
    backend, padding = backend_copy(encoder.tokenizer), encoder.tokenizer.pad_token
    if encoder.max_seq_length is not None:
        backend.enable_truncation(encoder.max_seq_length)
    if padding is not None:
        backend.enable_padding(pad_id=encoder.tokenizer.pad_token_id, pad_token=padding)
    write_text(file, backend.to_str())


def _card(route: str) -> str:
    return f"""# A text encoder with routes, as one ONNX graph

Needs onnxruntime, tokenizers and numpy. A text's route is what stands in front of it; a call may mix routes.

```python
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

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
    names = [each.name for each in session.get_inputs()]
    inputs = {{name: np.array([getattr(row, columns[name]) for row in rows]) for name in names}}
    return session.run(["sentence_embedding"], inputs)[0]


vectors = encode(["a text", "another"], {json.dumps(route)})
```
"""
