"""The settings of `reproduce_recipe`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from sentence_experts.config import Config, TrustRemoteCode

Scale = Literal["small", "full"]


class ReproduceConfig(Config):
    """Settings of `reproduce_recipe`."""

    scale: Scale = Field(
        "small",
        description="small: minutes on two cores, without a hub, on the articles of `demo`; full: as "
        "published, on your corpus or on hub datasets",
    )
    corpus: Path | None = Field(
        None, description="Corpus folder with the articles of the paper; for recipes on pairs at full scale"
    )
    seeds: int | None = Field(
        None, ge=1, description="Number of training runs per model. Default: the recipe's"
    )
    trust_remote_code: TrustRemoteCode = False
