"""Settings of the functions that measure models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from sentence_experts.config import PHRASES, BatchSize, Column, Config, Device, MaxLength, Names, Seed


class EncodingOptions(Config):
    """Settings of how models encode the texts that they are measured on."""

    batch_size: BatchSize = None
    device: Device = None


class EvaluateConfig(EncodingOptions):
    """Settings of `evaluate`. Some apply to pairs only, `only` to tasks only."""

    split: Literal["train", "validation", "test"] = Field(
        default="test", description="Pairs: split to measure on"
    )
    only: Names = Field(default=[], description="Tasks: names or types of the tasks to measure. Default: all")
    pooling: dict[str, str] = Field(
        default={},
        description="MODEL=POOLING: how the token vectors of a model become one vector: mean, last or cls",
    )
    route_map: dict[str, str] = Field(
        default={},
        description="[MODEL:]DOMAIN=ROUTE: the route for a domain (* for all), if the model's routes have "
        "other names. Tasks: [MODEL:]TYPE[.query|.document]=ROUTE, where TYPE is an mteb task type or the "
        "name of a task",
    )
    cache: Path | None = Field(
        default=None,
        description="Folder of cached vectors (tasks: of mteb's results), which several evaluations may "
        "share. Default: vectors (tasks: mteb) in the output folder",
    )
    bootstrap: int = Field(
        default=1000,
        ge=0,
        description="Pairs: number of bootstrap replicates, over papers; 0 for no intervals",
    )
    seed: Seed = Field(default=0, description="Pairs: random seed of the bootstrap")
    margin: float = Field(
        default=0.01,
        gt=0,
        le=1,
        description="Models are equivalent if the whole interval of their difference lies within plus "
        "and minus this; to be chosen before you see the results",
    )
    cluster: Literal["paper", "article"] = Field(
        default="paper",
        description="Pairs: which pairs are related, so that intervals must allow for it: those that share a "
        "paper, or those that share a paper or an article that links them",
    )
    linked_only: bool = Field(
        default=False,
        description="Pairs: measure linked pairs only, as on the preprint's test set (section 3.1)",
    )
    threshold_min: float | None = Field(
        default=None,
        allow_inf_nan=False,
        description="Pairs: lowest candidate threshold. Default: none, or 0.5 in a domain whose pairs "
        "are all linked (preprint, section 3.4)",
    )
    max_length: MaxLength = None


class AuditConfig(EncodingOptions):
    """Settings of `audit`."""

    threshold: float = Field(
        default=0.7,
        gt=0,
        le=1,
        description="Similarity (Jaccard's, of pieces of words, five characters each) from which two texts "
        "count as near-duplicates; below 0.7 some are missed",
    )
    bootstrap: int = Field(
        default=1000, ge=0, description="Number of bootstrap replicates; 0 for no intervals"
    )
    seed: Seed = 0


class SimilarityConfig(EncodingOptions):
    """Settings of `similarity`."""

    routes: Names = Field(default=[], description="Routes to compare. Default: all")
    column: Column = None
    sample: int = Field(default=128, ge=2, description="Maximum number of texts, sampled at random")
    seed: Seed = 0


class RatedColumns(Config):
    """The columns of a table of rated pairs (`RatedPairs`)."""

    anchor: str | None = Field(
        default=None, description="Column of the first text of a pair. Default: anchor, or sentence1"
    )
    positive: str | None = Field(
        default=None, description="Column of the second text. Default: positive, or sentence2"
    )
    score: str = Field(default="score", description="Column of the score")

    def names(self, columns: Sequence[str]) -> tuple[str, str, str]:
        """Return the columns to read, of a table with `columns`."""
        is_sts = {"sentence1", "sentence2"} <= set(columns) and "anchor" not in columns
        first, second = ("sentence1", "sentence2") if is_sts else ("anchor", "positive")
        return self.anchor or first, self.positive or second, self.score


class AnalyseConfig(RatedColumns):
    """Settings of `analyse`, the comparison of routing weights and hidden states on rated pairs."""

    prompts: Annotated[Names, PHRASES] = Field(
        default=[],
        description="Names or templates of prompts; the first is used for clusters and complementarity. "
        "Default: the nine of the paper",
    )
    clusters: int = Field(default=10, ge=2, description="Number of k-means clusters")
    bootstrap: int = Field(
        default=1000, ge=0, description="Number of bootstrap replicates over pairs; 0 for no intervals"
    )
    cases: int = Field(
        default=5,
        ge=0,
        description="Number of pairs to list per dataset for which HS alone is right, and as many for RW",
    )
    seed: Seed = 0
