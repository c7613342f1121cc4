"""Settings of `publish`."""

from __future__ import annotations

from pydantic import Field

from sentence_experts.config import Config, Revision


class PublishConfig(Config):
    """Settings of `publish`."""

    dense: list[str] = Field(
        [],
        description="Routes that are also written as dense models into `route/ROUTE`, for TEI, vLLM and "
        "converters; `all` for each",
    )
    base: str | None = Field(
        None, description="Hub id of the base model, for the card, such as answerdotai/ModernBERT-base"
    )
    licence: str | None = Field(
        None, description="Licence of the weights in the hub's spelling, such as apache-2.0"
    )
    label: str | None = Field(
        None, description="What the evaluation calls this model. Default: its folder or training run"
    )
    private: bool = Field(False, description="Make a new repository private")
    revision: Revision = None
