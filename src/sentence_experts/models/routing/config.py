"""Settings of automatic routes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sentence_experts.config import Config


class AutoRouteConfig(Config):
    """Settings of `fit_auto_routes`."""

    confidence: float = Field(
        0.5, ge=0, le=1, description="Probability that a text's best route must reach to be taken"
    )
    fallback: Literal["average", "error"] = Field(
        "average", description="Below that: encode with the average of all experts, or stop with an error"
    )
