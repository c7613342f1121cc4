"""Embeddings from mixture-of-experts language models, without training (MoEE, Li & Zhou 2024)."""
