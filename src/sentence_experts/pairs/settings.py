"""Every choice that shapes a pairs dataset."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class PairSettings(BaseModel):
    """Every choice that shapes a pairs dataset; stored in its manifest."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    relation: Literal["co-citation", "coupling", "citation"] = "co-citation"
    unit: Literal["abstract", "title", "title+abstract"] = "abstract"
    rare: int = Field(10, ge=2)
    min_count: int = Field(1, ge=1)
    split: Literal["paper", "random", "year"] = "paper"
    fractions: tuple[float, float, float] | None = None
    negatives_min_cited: int = Field(15, ge=0)
    frequency: Literal["sampling", "duplication", "none"] = "sampling"
    max_train_per_domain: int | None = Field(None, ge=1)
    max_eval_per_domain: int | None = Field(None, ge=1)
    seed: int = 0
