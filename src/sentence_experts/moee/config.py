"""Settings of `MoeEmbedder`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from sentence_experts.config import Config, Device, Dtype, MaxLength, Revision, TrustRemoteCode
from sentence_experts.moee.prompts import NO_PROMPT, PROMPTEOL, PROMPTS, Prompt


class MoeeConfig(Config):
    """How a mixture-of-experts language model is loaded and read, and what its vectors hold."""

    parts: Literal["hs", "rw", "concat", "sum"] = Field(
        "sum",
        description="hs (hidden state), rw (routing weights), concat (both) or sum (cos_HS + alpha * cos_RW) "
        "(section 3.3)",
    )
    alpha: float = Field(
        1.0,
        ge=0,
        allow_inf_nan=False,
        description="Weight of the routing weights' cosine in parts sum; choose it on a development set",
    )
    prompt: str = Field(
        PROMPTEOL, description=f"{', '.join(PROMPTS)}, {NO_PROMPT}, or a template with one {{text}}"
    )
    tokens: Literal["last", "mean"] = Field(
        "last", description="The last token, or the mean of all (Table 5)"
    )
    layers: Literal["last", "all"] | None = Field(
        None, description="Layers of both parts. Default: the last of HS and all of RW, as in the paper"
    )
    weights: Literal["scores", "logits"] = Field(
        "scores", description="Scores of the routers, or their raw logits"
    )
    max_length: MaxLength = None
    tokens_at_once: int = Field(8192, ge=1, description="Maximum number of tokens per batch, with padding")
    cache: Path | None = Field(
        None,
        description="Folder that caches states (float16), so that all parts cost one reading. Default: "
        "OUT/states in evaluate and analyse, else none",
    )
    dtype: Dtype = None
    device: Device = None
    device_map: str | None = Field(None, description="auto spreads the model over all devices (accelerate)")
    quantize: Literal["4bit", "8bit"] | None = Field(
        None, description="Load the weights in 4 or 8 bits, with bitsandbytes"
    )
    trust_remote_code: TrustRemoteCode = False
    revision: Revision = None

    @field_validator("prompt")
    @classmethod
    def _check_prompt(cls, prompt: str) -> str:
        Prompt.of(prompt)
        return prompt
