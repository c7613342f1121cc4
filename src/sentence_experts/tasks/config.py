"""The settings of `compile_tasks`: how the datasets of a task file are split and sampled."""

from __future__ import annotations

from pydantic import Field, field_validator

from sentence_experts.config import Config, Seed
from sentence_experts.pairs.config import check_shares

FRACTIONS = (0.8, 0.1, 0.1)


class TasksConfig(Config):
    """Settings of `compile_tasks`. Stored in the manifest of the result."""

    fractions: list[float] | None = Field(
        None,
        description="Shares of train,validation,test, of groups, for a dataset that is not split already. "
        "Default: 0.8,0.1,0.1",
    )
    max_train: int | None = Field(
        None,
        ge=1,
        description="Maximum number of training pairs, each with all its negatives, or texts, per dataset; a "
        "query stays with all its pairs",
    )
    max_eval: int | None = Field(
        None,
        ge=1,
        description="Maximum number of pairs, queries to re-rank, or texts, per dataset, in validation and "
        "in test; a query stays with all its pairs",
    )
    seed: Seed = 0

    _check_fractions = field_validator("fractions", mode="before")(check_shares)

    @property
    def shares(self) -> tuple[float, float, float]:
        """`fractions`, or the default."""
        train, validation, test = self.fractions or FRACTIONS
        return train, validation, test
