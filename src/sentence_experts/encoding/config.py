"""Settings of `encode`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sentence_experts.config import BatchSize, Column, Config, NamesWithCommas


class EncodeConfig(Config):
    """Settings of `encode`."""

    route: NamesWithCommas | None = Field(
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
