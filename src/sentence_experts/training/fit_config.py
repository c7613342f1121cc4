"""Settings of `fit`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from sentence_experts.config import Config, Seed


class FitConfig(Config):
    """How routes are learned from the label columns of a table."""

    text: list[str] = Field(
        [],
        description="Columns with the texts, joined line by line. Default: title and abstract of a corpus; "
        "needed for a table of several columns",
    )
    by: list[str] = Field(
        [],
        description="Label columns, one route each: COLUMN, or COLUMN:BRANCH of a hierarchy (tags:use for "
        "labels such as use::viewing, mesh:C for tree numbers), with ROUTE= in front to name the route",
    )
    group: str | None = Field(
        None,
        description="Column of groups, such as a source or an author: texts of one group are never a pair, "
        "and all are in one of the sets for training, validation and test",
    )
    mesh_descriptors: Path | None = Field(
        None,
        description="NLM's MeSH descriptor XML (desc20XX.xml), which gives headings their tree numbers, for "
        "branches such as mesh:C",
    )
    separator: str | None = Field(
        None, min_length=1, description="Stands between labels in one cell. Default: ; and |"
    )
    bins: int = Field(
        5, ge=2, le=1000, description="Number of bins for a column of more than 20 different numbers"
    )
    kind: Literal["head", "adapter", "expert", "auto"] = Field(
        "head",
        description="What each route owns of the model: head (a linear map, trained in seconds on vectors "
        "that are computed once), adapter, expert, or auto (heads, then each next kind while it is better)",
    )
    rank: int | None = Field(
        None,
        ge=1,
        description="Rank of a head's difference from the identity, or of an adapter. Default: any, or 8",
    )
    steps: int = Field(
        500,
        ge=1,
        description="Maximum number of training steps: of each head, with 64 pairs; of all adapters or "
        "experts together, with 16 pairs",
    )
    max_length: int | None = Field(
        None,
        ge=8,
        description="Maximum number of tokens per text, if the model would read more; the new model keeps it",
    )
    seed: Seed = 0
