"""Settings of automatic routes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sentence_experts.config import Config, Device, Seed


class AutoRouteConfig(Config):
    """Settings of `auto_route`: when a choice is used, and the texts to fit and measure the classifier on."""

    confidence: float = Field(
        0.5, ge=0, le=1, description="Probability that a text's most probable route must reach to be used"
    )
    fallback: Literal["average", "error"] = Field(
        "average", description="Below that: encode with the average of all experts, or stop with an error"
    )
    column: str = Field("text", description="Column with the texts of `texts`; their routes are in `domain`")
    split: Literal["train", "validation", "test"] = Field(
        "validation", description="Pairs on which the cost of mistakes is measured"
    )
    seed: Seed = 0
    device: Device = None
