"""Embeddings from mixture-of-experts language models, without training (MoEE, Li & Zhou 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sentence_experts.moee.embedder import MoeEmbedder

__all__ = ["MoeEmbedder"]


def __getattr__(name: str) -> Any:
    """The embedder; torch comes with it."""
    if name == "MoeEmbedder":
        from sentence_experts.moee.embedder import MoeEmbedder

        return MoeEmbedder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
