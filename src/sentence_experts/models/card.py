"""The first part of every model card: what a model is, and code that uses it."""

from __future__ import annotations

from typing import Any

import yaml
from sentence_transformers import SentenceTransformer

from sentence_experts.models.routing.router_kinds import router_kind

METADATA = {
    "library_name": "sentence-transformers",
    "pipeline_tag": "sentence-similarity",
    "tags": ["sentence-transformers", "sentence-experts"],
}
# What tells the routes of a dense model apart.
MARKS = {
    "token": "a domain token",
    "prefix": "an instruction",
    "mixed": "a domain token or an instruction",
}


def usage_card(model: SentenceTransformer, title: str = "A text encoder with experts") -> str:
    """The front matter, a description and a snippet that runs, for README.md."""
    prompts = {name: prompt for name, prompt in model.prompts.items() if prompt}
    use = f', prompt_name="{next(iter(prompts))}"' if prompts else ""
    return f"""---
{yaml.safe_dump(METADATA, sort_keys=False)}---
# {title}

{_architecture(model, prompts)}

## Use

```python
import sentence_experts.register  # makes the model type known
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
vectors = model.encode(["a text", "another"]{use})
```
"""


def _architecture(model: SentenceTransformer, prompts: dict[str, str]) -> str:
    """What the model is, and a table of its routes."""
    config: Any = model[0].auto_model.config  # type: ignore[union-attr]
    experts = getattr(config, "experts", None)
    if not prompts and not (experts and config.expert_layers):
        return f"A dense {config.model_type} encoder."
    if experts and config.expert_layers:
        how = router_kind(config).description.format(**config.to_dict())
        what = (
            f"A {config.model_type} encoder with {len(experts)} experts in {len(config.expert_layers)} of "
            f"its {config.num_hidden_layers} blocks. {how}"
        )
    else:
        mark = MARKS[getattr(config, "route_kind", "prefix")]
        what = f"A dense {config.model_type} encoder with {mark} for each route."
    if not prompts:
        return what
    table = "\n".join(f"| {name} | `{prompt}` |" for name, prompt in prompts.items())
    return f"{what}\n\n| route | stands in front of the text |\n|---|---|\n{table}"
