"""A small random encoder over MiniLM's vocabulary, for tests that need any model, not a good one."""

from __future__ import annotations

from pathlib import Path


def make_tiny_encoder(folder: Path, minilm: str, experts: tuple[str, ...] = (), seed: int = 0) -> Path:
    """Save a two-block BERT with mean pooling to `folder`, with one expert per name if any."""
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers import AutoTokenizer, BertConfig, BertModel

    import sentence_experts

    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(minilm)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    plain = folder.with_name(f"{folder.name}-plain") if experts else folder
    BertModel(BertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(plain)
    tokenizer.save_pretrained(plain)
    encoder = SentenceTransformer(str(plain), device="cpu")
    if experts:
        encoder = sentence_experts.extend(encoder, experts=experts)
        # Before training all experts are alike; make them differ.
        for name, weight in encoder[0].auto_model.named_parameters():
            if "expert" in name:
                weight.data += 0.05 * torch.randn_like(weight)
    encoder.save(str(folder), create_model_card=False)
    return folder
