"""The first part of every model card: a description of the model, and code that uses it."""

from __future__ import annotations

import json
from typing import Any

import yaml
from sentence_transformers import SentenceTransformer

from sentence_experts.models.architectures.families import MODEL_TYPES
from sentence_experts.models.routes.kinds import router_kind
from sentence_experts.models.sources import NOTED, notes_of

METADATA = {
    "library_name": "sentence-transformers",
    "pipeline_tag": "sentence-similarity",
    "tags": ["sentence-transformers", "sentence-experts"],
}

STOCK = """from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")"""
REGISTERED = f"""import sentence_experts.register  # makes the model type known
{STOCK}"""


def make_usage_card(model: SentenceTransformer, title: str | None = None) -> str:
    """Return the front matter, a description and a snippet that runs, for README.md."""
    prompts = {name: prompt for name, prompt in model.prompts.items() if prompt}
    config: Any = model.config
    has_experts = getattr(config, "model_type", None) in MODEL_TYPES
    opening = REGISTERED if has_experts else STOCK
    texts, use = ["a text", "another"], ""
    routes = [route["text"] for route in getattr(config, "routes", ())]
    named = [name for name in prompts if not routes or prompts[name].startswith(tuple(routes))]
    if name := next(iter(named), None):
        use = f", prompt_name={json.dumps(name, ensure_ascii=False)}"
    elif routes:
        texts = [routes[0] + text for text in texts]
    if title is None:
        title = f"A text encoder{' with experts' if has_experts and config.expert_layers else ''}"
    notes = notes_of(model)
    metadata = METADATA | ({NOTED: notes} if notes else {})
    return f"""---
{yaml.safe_dump(metadata, sort_keys=False)}---
# {title}

{_describe_architecture(config, prompts)}

## Use

```python
{opening}
vectors = model.encode({json.dumps(texts, ensure_ascii=False)}{use})
```
"""


def _describe_architecture(config: Any, prompts: dict[str, str]) -> str:
    """Describe the model, with a table of its routes."""
    model_type = getattr(config, "model_type", "text")
    experts = getattr(config, "experts", None)
    if not prompts and not (experts and config.expert_layers):
        return f"A dense {model_type} encoder."
    if experts and config.expert_layers:
        how = router_kind(config).description.format(**config.to_dict())
        what = (
            f"A {model_type} encoder with {len(experts)} experts in {len(config.expert_layers)} of "
            f"its {config.num_hidden_layers} blocks. {how}"
        )
    else:
        what = f"A dense {model_type} encoder with a prompt for each route."
    if heads := getattr(config, "heads", None):
        what += f" A linear map of the pooled vector belongs to each of: {', '.join(heads)}."
    if adapters := [each["route"] for each in getattr(config, "adapters", None) or ()]:
        what += f" A low-rank adapter belongs to each of: {', '.join(adapters)}."
    if not prompts:
        return what
    table = "\n".join(f"| {name} | `{prompt}` |" for name, prompt in prompts.items())
    return f"{what}\n\n| route | stands in front of the text |\n|---|---|\n{table}"
