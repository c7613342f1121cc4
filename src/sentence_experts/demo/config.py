"""Settings of the demo."""

from __future__ import annotations

from pydantic import Field

from sentence_experts.config import Config, Seed


class DemoConfig(Config):
    """Settings of the main job in one command."""

    simulated: bool = Field(False, description="Use the simulated corpus even if there are real articles")
    steps: int = Field(
        30, ge=1, description="Training steps of each model; a route that is added later gets half of them"
    )
    seed: Seed = 0
