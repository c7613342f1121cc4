"""Embeddings from mixture-of-experts language models, without training (MoEE, Li & Zhou 2024)."""

from pathlib import Path

FILE, FORMAT = "moee.json", 3  # the settings of a saved embedder
STANDARD = "standard.safetensors"  # its fitted standard scores
FITTED = "fitted"  # in the settings, whether there are some


def is_embedder(source: str | Path) -> bool:
    """Return whether a folder holds a saved embedder."""
    return (Path(source) / FILE).is_file()
