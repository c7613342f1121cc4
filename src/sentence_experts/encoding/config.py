"""Settings of `encode`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from sentence_experts.config import BatchSize, Column, Config


class EncodeConfig(Config):
    """Settings of `encode`."""

    route: list[str] | None = Field(
        None,
        description="Route to encode with; needed if the model has routes. With a folder as output: several "
        "routes, or `all`, each with its own column",
    )
    column: Column = None
    id_column: str | None = Field(
        None,
        description="Column with an id for each text, which Parquet output gets; in a folder, no two texts "
        "may have the same",
    )
    normalize: bool = Field(False, description="Scale every vector to length 1")
    precision: Literal["float32", "float16"] = Field(
        "float32", description="Precision of the vectors in memory or in .npy"
    )
    chunk_size: int = Field(1024, ge=1, description="Number of texts encoded between two writes to disk")
    batch_size: BatchSize = None
    shard_size: int = Field(
        16_384,
        ge=1,
        description="Number of texts per file in a folder, also the most that an interruption loses",
    )

    @field_validator("route", mode="before")
    @classmethod
    def _check_route(cls, route: Any) -> Any:
        return route.split(",") if isinstance(route, str) else route
