"""Settings of `export` and `quantize`."""

from __future__ import annotations

from pydantic import Field, model_validator

from sentence_experts.config import Column, Config


class ExportConfig(Config):
    """Settings of `export`."""

    route: str | None = Field(
        None, description="Route to export; the name of an expert if the model has no routes"
    )
    average: bool = Field(False, description="Export the mean of all experts and of their tokens (MoTE)")
    weights: dict[str, float] | None = Field(
        None,
        description="EXPERT=NUMBER: weights of the mean, with `average`; experts without one are left out",
    )
    all_routes: bool = Field(
        False, description="Write one ONNX graph of all routes, which reads the route from the token ids"
    )
    onnx: bool = Field(False, description="Also write model.onnx, checked against the vectors of torch")

    @model_validator(mode="after")
    def _check_choice(self) -> ExportConfig:
        if (self.route is not None) + self.average + self.all_routes != 1:
            raise ValueError("give one of `route`, `average` and `all_routes`")
        if self.weights is not None and not self.average:
            raise ValueError("`weights` is for `average`")
        return self


class QuantizeConfig(Config):
    """Settings of `quantize`."""

    column: Column = None
