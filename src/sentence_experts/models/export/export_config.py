"""Settings of `export`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from sentence_experts.config import Column, Config


class ExportConfig(Config):
    """Settings of `export`."""

    route: str | None = Field(
        None, description="Route to export; the name of an expert if the model has no routes"
    )
    average: bool = Field(
        False,
        description="Export the mean of all experts and of their tokens (MoTE), or of all routes where some "
        "have heads or adapters",
    )
    format: Literal["torch", "onnx"] = Field(
        "torch",
        description="onnx: a graph for ONNX Runtime, checked against torch, that encodes, searches and "
        "serves without torch; of all routes, unless one is named",
    )
    column: Column = None

    @model_validator(mode="after")
    def _check_choice(self) -> ExportConfig:
        chosen = (self.route is not None) + self.average
        if chosen > 1 or (not chosen and self.format == "torch"):
            raise ValueError("give one of `route`, `average` and `format=onnx`")
        return self
