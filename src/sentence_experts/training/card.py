"""The model card of a trained model: what it is, what it was trained on, how to use it, how it did."""

from __future__ import annotations

from typing import Any

import yaml
from sentence_transformers import SentenceTransformer

from sentence_experts.pairs.dataset import PairsFolder
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.data import pairs_of, trained_domains

METADATA = {
    "library_name": "sentence-transformers",
    "pipeline_tag": "sentence-similarity",
    "tags": ["sentence-transformers", "sentence-experts"],
}
LOSSES = {
    "in_batch_negatives": "in-batch negatives over cosines times {scale:g}",
    "argmax_target": "dot products of the batch, each row's target the pair that is most like it",
    "learned_temperature": "dot products over a learned temperature, {temperature:.4g} in the end, both ways",
}
TRAINED = {
    "mask_known": "Texts of linked papers that met in a batch were not taken for negatives.",
    "hard_negatives": "Each pair had {hard_negatives} mined negatives beside the batch's.",
    "only_expert": "Only the expert {only_expert} and its route token were trained.",
    "lora_rank": "The attention was trained through low-rank adapters of rank {lora_rank}, merged here.",
}
CHOICE = {
    "route": "A text passes through one expert, chosen by its route.",
    "learned": "In each of these a learned router chooses the one expert that a text passes through.",
    "token": "In each of these a learned router chooses {top_k} experts for each token, and their weights.",
}
# What tells the routes of a dense model apart.
MARKS = {"token": "a domain token", "prefix": "an instruction"}
FROZEN = {
    "attention": "The attention was not trained.",
    "shared": "Only experts, route tokens and routers were trained.",
}


def model_card(model: SentenceTransformer, pairs: PairsFolder, result: dict[str, Any]) -> str:
    """README.md of a training run's model."""
    routes = {name: prompt for name, prompt in model.prompts.items() if prompt}
    settings, config = pairs.manifest["settings"], result["config"]
    domains = trained_domains(pairs, TrainConfig.model_validate(config), model)
    train = pairs_of(pairs.split("train"), domains)
    best = next(entry for entry in result["history"] if entry["step"] == result["best_step"])
    return f"""---
{yaml.safe_dump(METADATA, sort_keys=False)}---
# A text encoder for {", ".join(domains)}

{architecture(model, routes)}

## Use

```python
import sentence_experts  # makes the model type known
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
vectors = model.encode(["a text", "another"]{prompt_argument(routes)})
```

## Training

{train.num_rows:,} pairs of {settings["unit"]}s linked by {settings["relation"]}, split by
{settings["split"]} (pairs dataset {pairs.fingerprint()[:12]}). {_loss(result)}
{trained(config)}The step with the best F1max on the validation split was kept:
step {result["best_step"]} of {result["steps"]}.

| validation split | |
|---|---|
| F1max | {best["eval_validation_f1_max"]:.4f} |
| ROC-AUC | {best["eval_validation_roc_auc"]:.4f} |

The validation figures chose the step, so they are not what to expect on new papers: see an evaluation on the
test split. Settings:

```yaml
{yaml.safe_dump(config, sort_keys=False)}```
"""


def _loss(result: dict[str, Any]) -> str:
    return f"Loss: {LOSSES[result['config']['loss']].format(**result['config'] | result)}."


def trained(config: dict[str, Any]) -> str:
    """How the training was not the plain one, a line each."""
    said = [text.format(**config) for name, text in TRAINED.items() if config.get(name)]
    return "".join(f"{text}\n" for text in [*said, *filter(None, [FROZEN.get(config["freeze"])])])


def architecture(model: SentenceTransformer, routes: dict[str, str]) -> str:
    """What the model is, and a table of its routes."""
    config: Any = model[0].auto_model.config  # type: ignore[union-attr]
    experts = getattr(config, "experts", None)
    if not routes and not (experts and config.expert_layers):
        return f"A dense {config.model_type} encoder."
    table = "\n".join(f"| {name} | `{prompt}` |" for name, prompt in routes.items())
    what = (
        f"A {config.model_type} encoder with {len(experts)} experts in {len(config.expert_layers)} of its "
        f"{config.num_hidden_layers} blocks. {CHOICE[config.router].format(**config.to_dict())}"
        if experts and config.expert_layers
        else f"A dense {config.model_type} encoder with "
        f"{MARKS[getattr(config, 'route_kind', 'prefix')]} for each route."
    )
    if not routes:
        return what
    return f"{what}\n\n| route | stands in front of the text |\n|---|---|\n{table}"


def prompt_argument(routes: dict[str, str]) -> str:
    """What `encode` is told of the first route, as an example."""
    return f', prompt_name="{next(iter(routes))}"' if routes else ""
