"""Embeddings from mixture-of-experts language models, without training (MoEE, Li & Zhou 2024)."""

from pathlib import Path

FILE, FORMAT = "moee.json", 3  # the settings of a saved embedder
STANDARD = "standard.safetensors"  # the fitted standard scores of a saved embedder
FITTED = "fitted"  # key in the settings: the hash of the model that standard scores were fitted on, or false
CHOSEN = "alpha_chosen_on"  # key in the settings: the hash of the model for which alpha was chosen
MIN_PAIRS = 10  # scored pairs, to choose alpha or to be analysed
# Keys in the settings: as in sentence-transformers.
PROMPTS, DEFAULT, TRUNCATE = "prompts", "default_prompt_name", "truncate_dim"


def is_embedder(source: str | Path) -> bool:
    """Return whether a folder holds a saved embedder."""
    return (Path(source) / FILE).is_file()
