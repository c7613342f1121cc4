"""The same encoder around another transformer: how experts come in, come and go, and are taken out again."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from sentence_transformers import SentenceTransformer
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sentence_experts.storage import read_json, write_json

EncoderClass = TypeVar("EncoderClass", bound=SentenceTransformer)


def rebuilt(
    encoder_class: type[EncoderClass],
    encoder: SentenceTransformer,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Mapping[str, str | None],
    default_prompt_name: str | None,
    device: str | None,
) -> EncoderClass:
    """`encoder`'s modules (pooling, heads, normalisation) around `model` and `tokenizer`.

    By way of the files that a saved model has: the result is what loading gives, and shares nothing with
    `encoder`.
    """
    with tempfile.TemporaryDirectory(prefix="sentence-experts-") as folder:
        SentenceTransformer.save(encoder, folder, create_model_card=False)
        first = Path(folder) / json.loads((Path(folder) / "modules.json").read_text())[0]["path"]
        model.save_pretrained(first)
        tokenizer.save_pretrained(first)
        settings = Path(folder) / "config_sentence_transformers.json"
        changed = {"prompts": dict(prompts), "default_prompt_name": default_prompt_name}
        write_json(settings, {**read_json(settings), **changed})
        attention = {"attn_implementation": getattr(encoder.config, "_attn_implementation", None)}
        return encoder_class(folder, device=device, model_kwargs=attention)
