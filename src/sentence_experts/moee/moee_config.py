"""Settings of `MoeEmbedder`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from sentence_experts.config import Config, Device, Dtype, MaxLength, Revision, TrustRemoteCode
from sentence_experts.moee.prompts import NO_PROMPT, PROMPTEOL, PROMPTS, Prompt

BATCH, FAITHFUL = "batch", "faithful"  # `standard`
PAPER, CODE = "paper", "code"  # `wording`
UNQUANTIZED = "none"


class MoeeConfig(Config):
    """Settings of how a mixture-of-experts language model is loaded and read, and of its vectors."""

    parts: Literal["hs", "rw", "concat", "sum"] = Field(
        "sum",
        description="hs (hidden state), rw (routing weights), concat (both, as they are) or sum (cos_HS + "
        "alpha * cos_RW) (section 3.3)",
    )
    alpha: float = Field(
        1.0,
        ge=0,
        allow_inf_nan=False,
        description="Weight of the routing weights' cosine in parts sum; choose it on a development set",
    )
    standard: Literal["batch", "faithful"] | None = Field(
        None,
        description="Standard scores of each batch, so that a text's vector depends on its neighbours: "
        "faithful (as in the published code, which also sets `wording` code, `weights` per model and "
        "`quantize` nf4 on a GPU) or batch (of every part, and nothing else). Default: none",
    )
    standard_batch: int = Field(
        128, ge=1, description="Texts per batch of `standard`, in their order; 128 in the published command"
    )
    prompt: str = Field(
        PROMPTEOL, description=f"{', '.join(PROMPTS)}, {NO_PROMPT}, or a template with one {{text}}"
    )
    wording: Literal["paper", "code"] | None = Field(
        None,
        description="Prompts as the paper prints them, or as the published code has them: other quotation "
        "marks, also around a text without a prompt, and a full stop after a text that ends without one. "
        "Default: paper; code with `standard` faithful",
    )
    tokens: Literal["last", "mean"] = Field(
        "last", description="The last token, or the mean of all (Table 5)"
    )
    layers: Literal["last", "all"] | None = Field(
        None, description="Layers of both parts. Default: the last of HS and all of RW, as in the paper"
    )
    weights: Literal["scores", "logits"] | None = Field(
        None,
        description="Scores of the routers, which add up to 1 in each block, or their raw logits. Default: "
        "scores; with `standard` faithful, logits for all models but DeepSeek's",
    )
    max_length: MaxLength = None
    cache: Path | None = Field(
        None,
        description="Folder that caches states (float16), so that the model reads each text once for all "
        "parts. Default: OUT/states in evaluate and analyse, else none",
    )
    dtype: Dtype = None
    device: Device = None
    device_map: str | None = Field(None, description="auto spreads the model over all devices (accelerate)")
    quantize: Literal["nf4", "none"] | None = Field(
        None,
        description="nf4: load linear layers in 4 bits with bitsandbytes, as in the published code. Experts "
        "that transformers holds as one tensor per block stay as they are. Default: none; nf4 with "
        "`standard` faithful, where there is a GPU and bitsandbytes",
    )
    trust_remote_code: TrustRemoteCode = False
    revision: Revision = None

    @property
    def faithful(self) -> bool:
        """Whether all is as in the published code, but for settings that say otherwise."""
        return self.standard == FAITHFUL

    @property
    def words_of(self) -> str:
        """The source of the prompts' wording: "paper" or "code"."""
        return self.wording or (CODE if self.faithful else PAPER)

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.device is not None and self.device_map is not None:
            raise ValueError("`device` and `device_map`: give one of them")
        return self

    @field_validator("prompt")
    @classmethod
    def _check_prompt(cls, prompt: str) -> str:
        Prompt.of(prompt)
        return prompt
