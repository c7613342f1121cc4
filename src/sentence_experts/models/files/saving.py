"""Models as sentence-transformers folders, written whole or not at all."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from sentence_transformers import SentenceTransformer

from sentence_experts.models.card import make_usage_card
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.files.fingerprint import weights_fingerprint
from sentence_experts.models.pooling import settings_of
from sentence_experts.storage import Output, output, write_text

# The first of a model's files, which tells models from other folders of the user before the work; and weights
# that would be read in place of a model's own, which stand in several files.
MODEL_FILES = (
    *("modules.json", "config.json", "README.md"),
    *("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"),
)


def model_output(out: Path | str, overwrite: bool = False) -> AbstractContextManager[Output]:
    """Lock the folder of a model while it is written (`storage.output`)."""
    return output(out, "model", names=MODEL_FILES, overwrite=overwrite)


def write_model(encoder: SentenceTransformer, folder: Path) -> None:
    """Write a model, with or without experts, and its card."""
    encoder.save(str(folder), create_model_card=isinstance(encoder, ExpertEncoder))
    if not isinstance(encoder, ExpertEncoder):
        write_text(folder / "README.md", make_usage_card(encoder))


def save(encoder: SentenceTransformer, path: str | Path, overwrite: bool = False) -> None:
    """Write a model as a sentence-transformers folder (safetensors), whole or not at all."""
    with model_output(path, overwrite) as place:
        settings = settings_of(encoder) | {"similarity": encoder.similarity_fn_name}
        if place.begin({"weights": weights_fingerprint(encoder), **settings}) != "finished":
            with place.replacing() as folder:
                write_model(encoder, folder)
