"""The flags that say how a mixture-of-experts language model is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from sentence_experts.errors import UsageError
from sentence_experts.moee.folder import is_embedder
from sentence_experts.moee.prompts import NO_PROMPT, PROMPTEOL, PROMPTS
from sentence_experts.moee.vectors import SUM

if TYPE_CHECKING:
    from sentence_experts.moee.embedder import MoeEmbedder


class ReadingOptions(BaseModel):
    """How the model is loaded and its states are read: arguments of `MoeEmbedder`."""

    model_config = ConfigDict(extra="forbid")

    prompt: str = Field(
        PROMPTEOL, description=f"{', '.join(PROMPTS)}, {NO_PROMPT}, or one with {{text}} in it"
    )
    tokens: str = Field("last", description="last, or mean over all tokens")
    layers: str | None = Field(
        None, description="last or all, for both parts; if not given, the last of HS and all of RW"
    )
    weights: str = Field("scores", description="of the routers: scores, or logits as they are")
    max_length: int | None = Field(None, ge=1, description="cut texts to so many tokens, the prompt included")
    tokens_at_once: int = Field(8192, ge=1, description="tokens of a batch, padding included")
    cache: str | None = Field(
        None, description="folder that keeps states (float16): no text is read twice, whatever --parts"
    )
    dtype: str | None = Field(None, description="float32, bfloat16, float16; as stored when not given")
    device: str | None = Field(None, description="cpu, cuda, cuda:1; chosen by itself when not given")
    device_map: str | None = Field(None, description="auto: spread the model over what there is")
    quantise: str | None = Field(None, description="4bit or 8bit, with bitsandbytes")
    trust_remote_code: bool = Field(
        False, description="run the code beside the weights (DeepSeekMoE-16B needs it)"
    )
    revision: str | None = Field(None, description="of a hub model")


def open_embedder(
    model: str, given: dict[str, Any], parts: str | None = None, alpha: float | None = None
) -> MoeEmbedder:
    """The embedder of a language model, or of a folder that `moee make` wrote.

    Args:
        model: folder or hub id.
        given: the `ReadingOptions` that were written on the command line.
        parts, alpha: as of `MoeEmbedder`; None for what the folder says, else "sum" and 1.

    Raises:
        UsageError: a flag for a folder that says all of it itself.
    """
    from sentence_experts.moee.embedder import MoeEmbedder

    if not is_embedder(model):
        made: dict[str, Any] = {"parts": parts or SUM, "alpha": 1.0 if alpha is None else alpha}
        return MoeEmbedder(model, **ReadingOptions(**given).model_dump(), **made)
    if foreign := sorted(set(given) - {"device"}):
        raise UsageError(
            f"--{foreign[0].replace('_', '-')}: {model} was made with settings of its own; the flag is for a "
            "language model"
        )
    embedder = MoeEmbedder.open(Path(model), given.get("device"))
    return embedder.with_parts(parts or embedder.parts, alpha)
