"""The model card of a trained model: what it is, what it was trained on, how to use it, how it did."""

from __future__ import annotations

from typing import Any

import yaml
from sentence_transformers import SentenceTransformer

from sentence_experts.pairs.dataset import PairsFolder


def model_card(model: SentenceTransformer, pairs: PairsFolder, result: dict[str, Any]) -> str:
    """README.md of a training run's model."""
    metadata = {
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "tags": ["sentence-transformers", "sentence-experts"],
    }
    routes = {name: prompt for name, prompt in model.prompts.items() if prompt}
    settings = pairs.manifest["settings"]
    best = next(entry for entry in result["history"] if entry["step"] == result["best_step"])
    return f"""---
{yaml.safe_dump(metadata, sort_keys=False)}---
# A text encoder for {", ".join(pairs.domains)}

{_architecture(model, routes)}

## Use

```python
import sentence_experts  # makes the model type known
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
vectors = model.encode(["a text", "another"]{_prompt_argument(routes)})
```

## Training

{pairs.split("train").num_rows:,} pairs of {settings["unit"]}s linked by {settings["relation"]}, split by
{settings["split"]} (pairs dataset {pairs.fingerprint()[:12]}). Loss: in-batch negatives over cosines times
{result["config"]["scale"]:g}. The step with the best F1max on the validation split was kept:
step {result["best_step"]} of {result["steps"]}.

| validation split | |
|---|---|
| F1max | {best["eval_validation_f1_max"]:.4f} |
| ROC-AUC | {best["eval_validation_roc_auc"]:.4f} |

The validation figures chose the step, so they are not what to expect on new papers: see an evaluation on the
test split. Settings:

```yaml
{yaml.safe_dump(result["config"], sort_keys=False)}```
"""


def _architecture(model: SentenceTransformer, routes: dict[str, str]) -> str:
    config: Any = model[0].auto_model.config  # type: ignore[union-attr]
    experts = getattr(config, "experts", None)
    if not routes:
        return f"A dense {config.model_type} encoder."
    table = "\n".join(f"| {name} | `{prompt}` |" for name, prompt in routes.items())
    what = (
        f"A {config.model_type} encoder with {len(experts)} experts in {len(config.expert_layers)} of its "
        f"{config.num_hidden_layers} blocks. A text passes through one expert, chosen by its route."
        if experts and config.expert_layers
        else f"A dense {config.model_type} encoder with a domain token for each route."
    )
    return f"{what}\n\n| route | stands in front of the text |\n|---|---|\n{table}"


def _prompt_argument(routes: dict[str, str]) -> str:
    return f', prompt_name="{next(iter(routes))}"' if routes else ""
