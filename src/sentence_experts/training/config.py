"""The settings of one training run: a YAML file, every key of which is also a flag."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage import write_text


class TrainConfig(BaseModel):
    """How a model is trained on a pairs dataset."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    epochs: float = Field(1.0, gt=0, description="Passes over the training pairs")
    max_steps: int | None = Field(None, ge=1, description="Stop after so many steps, whatever the epochs")
    batch_size: int = Field(32, ge=2, description="Pairs in a batch; the others are a pair's negatives")
    batches: Literal["mixed", "domain"] = Field(
        "mixed",
        description="mixed (domains meet in a batch, so most negatives are of other domains) or domain (a "
        "batch is of one domain)",
    )
    cache_mini_batch: int | None = Field(
        None,
        ge=1,
        description="Gradient caching: so many pairs in memory at once, the same loss and gradient",
    )
    scale: float = Field(20.0, gt=0, description="Cosines are multiplied by this (1 / temperature)")
    learning_rate: float = Field(2e-5, gt=0, description="Peak learning rate")
    warmup: float = Field(
        0.1, ge=0, lt=1, description="Share of the steps in which the rate climbs to its peak"
    )
    scheduler: Literal["cosine", "linear", "constant_with_warmup"] = Field(
        "cosine", description="The rate after warmup: cosine, linear, constant_with_warmup"
    )
    weight_decay: float = Field(0.01, ge=0, description="AdamW's weight decay")
    max_length: int | None = Field(None, ge=8, description="Cut texts to so many tokens while training")
    eval_steps: int = Field(
        100, ge=1, description="Evaluate on the validation split and save every so many steps"
    )
    patience: int = Field(5, ge=1, description="Stop when F1max has not risen for so many evaluations")
    swap: bool = Field(True, description="Swap anchor and positive at random")
    bf16: bool = Field(False, description="Compute in bfloat16 where the hardware does")
    gradient_checkpointing: bool = Field(False, description="Less memory for more computation")
    tensorboard: bool = Field(False, description="Log to TensorBoard, in RUN/logs")
    wandb: bool = Field(False, description="Log to Weights & Biases")
    seed: int = Field(0, ge=0, description="Fixes the order of pairs, swaps and dropout")

    @classmethod
    def read(cls, path: Path | None, given: dict[str, Any]) -> TrainConfig:
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
