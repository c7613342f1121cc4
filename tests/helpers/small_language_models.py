"""Tiny random mixture-of-experts language models of every family, and a tokenizer of written-out words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast
from transformers.utils import logging

TEXT = """
This sentence means in one word In describe the style of following rice wheat field rain drought yield soil
grows falls sleep memory neurons fire cortex learns virus host cells infect spreads old new red green a an and
is are to : " - , ( ) . e g
"""
WORDS = TEXT.split()
SPECIAL = ["<unk>", "<s>", "</s>"]
LAYERS, EXPERTS = 3, 4

_WIDTH: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "intermediate_size": 24,
    "num_experts_per_tok": 2,
    "pad_token_id": None,
}
_LATENT = {"kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8}
_DEEPSEEK = {**_LATENT, "moe_intermediate_size": 8, "n_routed_experts": EXPERTS, "n_shared_experts": 1,
             "n_group": 1, "topk_group": 1}  # fmt: skip
# Model type -> what its config needs beside the width.
SIZES: dict[str, dict[str, Any]] = {
    "olmoe": {"num_experts": EXPERTS},
    "qwen2_moe": {"num_experts": EXPERTS, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8},
    "qwen3_moe": {"num_experts": EXPERTS, "moe_intermediate_size": 8, "head_dim": 8},
    "deepseek_v2": {**_DEEPSEEK, "first_k_dense_replace": 1, "topk_method": "greedy"},
    "deepseek_v3": {**_DEEPSEEK, "first_k_dense_replace": 1},
    "mixtral": {"num_local_experts": EXPERTS},
    "phimoe": {"num_local_experts": EXPERTS},
    "gpt_oss": {"num_local_experts": EXPERTS, "head_dim": 8, "layer_types": ["full_attention"] * LAYERS},
    "granitemoe": {"num_local_experts": EXPERTS},
    "jetmoe": {"num_local_experts": EXPERTS, "kv_channels": 8},
}
# Blocks whose MLP is dense: DeepSeek's first.
DENSE_BLOCKS = {"deepseek_v2": 1, "deepseek_v3": 1}
# Where a family's router is, for the hooks that tests set on their own.
ROUTER_CLASSES = {
    "olmoe": "OlmoeTopKRouter",
    "qwen2_moe": "Qwen2MoeTopKRouter",
    "qwen3_moe": "Qwen3MoeTopKRouter",
    "deepseek_v2": "DeepseekV2TopkRouter",
    "deepseek_v3": "DeepseekV3TopkRouter",
    "mixtral": "MixtralTopKRouter",
    "phimoe": "PhimoeTopKRouter",
    "gpt_oss": "GptOssTopKRouter",
    "granitemoe": "GraniteMoeTopKRouter",
    "jetmoe": "JetMoeTopKGating",
}


def tokenizer() -> PreTrainedTokenizerFast:
    """Words and signs, one token each; a text begins with <s>."""
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys([*SPECIAL, *WORDS]))}
    found = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    found.pre_tokenizer = pre_tokenizers.Split(Regex(r"\w+|[^\w\s]"), behavior="removed", invert=True)
    from tokenizers.processors import TemplateProcessing

    found.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", vocabulary["<s>"])])
    return PreTrainedTokenizerFast(
        tokenizer_object=found, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def make_language_model(folder: Path, model_type: str, seed: int = 0) -> Path:
    """A model of this type with weights large enough for routers to differ, saved with the tokenizer."""
    logging.disable_progress_bar()
    words = tokenizer()
    sizes = {**_WIDTH, **SIZES[model_type], "vocab_size": len(words), "bos_token_id": 1, "eos_token_id": 2}
    config = AutoConfig.for_model(model_type, **sizes)
    torch.manual_seed(seed)
    model = AutoModel.from_config(config)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0, 0.4)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder
