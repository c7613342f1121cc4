"""All weights of a saved model, in one file or in one file per expert."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor


def weights_of(folder: Path) -> dict[str, Tensor]:
    """A weight's name -> the weight."""
    found: dict[str, Tensor] = {}
    for file in sorted(Path(folder).glob("model*.safetensors")):
        found |= load_file(file)
    assert found, folder
    return found
