"""Settings of `search`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sentence_experts.config import BatchSize, Config


class SearchConfig(Config):
    """Settings of `search`."""

    route: str | None = Field(
        None, description="Route for papers and queries; needed if the model has routes"
    )
    top_k: int = Field(10, ge=1, description="Maximum number of papers per query")
    unit: Literal["title+abstract", "abstract", "title"] = Field(
        "title+abstract", description="Text of a paper"
    )
    batch_size: BatchSize = None
