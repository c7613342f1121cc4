"""The settings of one training run on pairs, and those that all runs share: YAML keys that are also flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage import write_text


def split_at_commas(value: Any) -> Any:
    """A list of names from names between commas; anything else stays."""
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else value


class RunConfig(BaseModel):
    """What every training run can be told, whatever it learns from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    epochs: float = Field(1.0, gt=0, description="Passes over the training pairs")
    max_steps: int | None = Field(None, ge=1, description="Stop after so many steps, whatever the epochs")
    batch_size: int = Field(32, ge=2, description="Pairs in a batch; the others are a pair's negatives")
    cache_mini_batch: int | None = Field(
        None,
        ge=1,
        description="Gradient caching: so many pairs in memory at once, the same loss and gradient",
    )
    freeze: Literal["none", "attention", "shared"] = Field(
        "none",
        description="What is not trained: none, attention (its projections), shared (all but experts, route "
        "tokens and routers)",
    )
    only_expert: str | None = Field(
        None, description="Train this expert and its route token alone; all other routes stay as they are"
    )
    lora_rank: int | None = Field(
        None, ge=1, description="Train low-rank adapters of this rank in place of the attention"
    )
    lora_alpha: float | None = Field(None, gt=0, description="The adapters' scale; by default the rank")
    learning_rate: float = Field(2e-5, gt=0, description="Peak learning rate")
    expert_learning_rate: float | None = Field(
        None, gt=0, description="Peak learning rate of the experts; by default that of the rest"
    )
    router_learning_rate: float = Field(
        1e-3, gt=0, description="Peak learning rate of a learned router, which begins at random"
    )
    warmup: float = Field(
        0.1, ge=0, lt=1, description="Share of the steps in which the rate climbs to its peak"
    )
    warmup_steps: int | None = Field(None, ge=0, description="So many steps of warmup, whatever the share")
    scheduler: Literal["cosine", "linear", "constant_with_warmup", "one_cycle"] = Field(
        "cosine", description="The rate after warmup: cosine, linear, constant_with_warmup, one_cycle"
    )
    weight_decay: float = Field(0.01, ge=0, description="AdamW's weight decay")
    max_length: int | None = Field(None, ge=8, description="Cut texts to so many tokens while training")
    eval_steps: int = Field(
        100, ge=1, description="Evaluate on the validation split and save every so many steps"
    )
    patience: int = Field(
        5, ge=1, description="Stop when the validation figure has not risen for so many evaluations"
    )
    bf16: bool = Field(False, description="Compute in bfloat16 where the hardware does")
    gradient_checkpointing: bool = Field(False, description="Less memory for more computation")
    tensorboard: bool = Field(False, description="Log to TensorBoard, in RUN/logs")
    wandb: bool = Field(False, description="Log to Weights & Biases")
    seed: int = Field(0, ge=0, description="Fixes the order of pairs, swaps and dropout")

    @classmethod
    def read(cls, path: Path | None, given: dict[str, Any]) -> Self:
        """The file's settings (or the defaults), with those in `given` put over them.

        Raises:
            InputError: no such file, not YAML, or an unknown key or bad value in it.
            UsageError: a value in `given` is out of range.
        """
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8")) if path else {}
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise InputError(f"{path}: cannot be read as a YAML config: {error}") from error
        if not isinstance(content or {}, dict):
            raise InputError(f"{path}: a config is a list of 'key: value' lines")
        try:
            return cls.model_validate({**(content or {}), **given})
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(str(part) for part in first["loc"])
            problem = f"{first['msg']} (got {first['input']!r})"
            if key in given:
                raise UsageError(f"--{key.replace('_', '-')}: {problem}") from error
            known = (
                f"; known keys: {', '.join(cls.model_fields)}" if first["type"] == "extra_forbidden" else ""
            )
            raise InputError(f"{path}: {key}: {problem}{known}") from error

    def write(self, path: Path) -> None:
        """Write every setting as YAML."""
        write_text(path, yaml.safe_dump(self.model_dump(), sort_keys=False))


class TrainConfig(RunConfig):
    """How a model is trained on a pairs dataset."""

    domains: list[str] | None = Field(
        None, min_length=1, description="Train and validate on these domains alone, comma-separated"
    )
    batches: Literal["mixed", "domain"] = Field(
        "mixed",
        description="mixed (domains meet in a batch, so most negatives are of other domains) or domain (a "
        "batch is of one domain)",
    )
    hard_negatives: int = Field(
        0, ge=0, description="So many mined negatives a pair: near texts of its domain that are not linked"
    )
    mask_known: bool = Field(True, description="Texts of linked papers that meet in a batch are no negatives")
    loss: Literal["in_batch_negatives", "argmax_target", "learned_temperature"] = Field(
        "in_batch_negatives",
        description="in_batch_negatives (cosines times scale), argmax_target (the 2025 paper's) or "
        "learned_temperature (the preprint's)",
    )
    scale: float = Field(
        20.0,
        gt=0,
        description="Similarities are multiplied by this (1 / temperature); a learned one begins there",
    )
    route_by: Literal["domain", "router"] = Field(
        "domain",
        description="A learned router's training texts go to their domain's expert, or where the router says",
    )
    router_loss: float = Field(
        1.0, ge=0, description="Weight of a learned router's cross-entropy to the domain"
    )
    balance_loss: float = Field(0.0, ge=0, description="Weight of a learned router's load balancing")
    swap: bool = Field(True, description="Swap anchor and positive at random")

    @field_validator("domains", mode="before")
    @classmethod
    def _split_at_commas(cls, value: Any) -> Any:
        return split_at_commas(value)
