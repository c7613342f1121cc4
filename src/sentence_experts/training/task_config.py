"""The settings of a training run on tasks: a YAML file, every key of which is also a flag."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from sentence_experts.training.config import RunConfig, split_at_commas

# How a batch is drawn and how sharply it is contrasted where no task says otherwise (Romero 2025, note of
# Table 4).
STATIC_BATCHES = "heterogeneous"
STATIC_TEMPERATURE = 0.03


class TaskConfig(RunConfig):
    """How a model is trained on tasks: task-aware contrastive learning (Romero 2025, section 3.2)."""

    only_tasks: list[str] | None = Field(
        None, min_length=1, description="Train and validate on these tasks alone, comma-separated"
    )
    curriculum: Literal["task_aware", "static"] = Field(
        "task_aware",
        description="task_aware (each task's own batches and temperature) or static (the control: "
        f"{STATIC_BATCHES} batches and temperature {STATIC_TEMPERATURE} for all tasks)",
    )
    batches: Literal["homogeneous", "heterogeneous"] | None = Field(
        None,
        description="For all tasks, whatever theirs: homogeneous (a batch is of one dataset) or "
        "heterogeneous (of all datasets of its task)",
    )
    temperature: float | None = Field(None, gt=0, description="For all tasks, whatever theirs")
    sampling: Literal["proportional", "weights"] | None = Field(
        None,
        description="How tasks are drawn: proportional (to their pairs) or weights (those of the task file); "
        "by default weights where the file gives them",
    )
    instructions: bool = Field(True, description="Put the tasks' instructions in front of the texts")
    balance_loss: float | None = Field(
        None,
        ge=0,
        description="Weight of a token-level router's load balancing; by default 0.01 where there is one",
    )

    @field_validator("only_tasks", mode="before")
    @classmethod
    def _split_at_commas(cls, value: Any) -> Any:
        return split_at_commas(value)
