"""`quantize`: a model that computes in 8 bits on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_experts.config import with_settings
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.export.export_config import QuantizeConfig
from sentence_experts.models.files.fingerprint import fingerprint_of
from sentence_experts.models.files.saving import model_output, write_model
from sentence_experts.models.layers import int8
from sentence_experts.models.loading import load
from sentence_experts.storage import check_apart
from sentence_experts.tables import TextTable, is_path

if TYPE_CHECKING:
    import pandas as pd
    from sentence_transformers import SentenceTransformer

MAX_TEXTS = 512  # texts that are read
CHECKED_EVERY = 4  # one text in this many is not calibrated on, but compared


@dataclass(frozen=True)
class Quantized:
    """A model that `quantize` wrote.

    Attributes:
        out: its folder.
        texts: number of texts, not calibrated on, whose vectors were compared with full precision.
        mean_cosine, min_cosine: cosines between both vectors of a text, over all texts and routes.
    """

    out: Path
    texts: int
    mean_cosine: float
    min_cosine: float

    def to_pandas(self) -> pd.DataFrame:
        """One row: out, texts, mean_cosine, min_cosine."""
        import pandas as pd

        return pd.DataFrame([vars(self)])


@with_settings(QuantizeConfig)
def quantize(
    model: SentenceTransformer | Path | str,
    texts: Sequence[str] | Any,
    out: Path | str,
    config: QuantizeConfig | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> Quantized:
    """Calibrate a model for 8 bits, in which it then computes on a CPU.

    The folder holds the weights as they were, and int8.safetensors beside them, which stock
    sentence-transformers does not read.

    Args:
        model: a model with experts, or a dense one: in memory, a folder or a hub id.
        texts: texts like those to encode: a list, a file or a table; 500 are enough.
        out: the folder to write to.
        config: the settings; `settings` override its fields, by name.
        overwrite: start over, replacing another model in `out`.

    Raises:
        UsageError: too few texts, a model without linear layers, or `out` holds something else.
        InputError: the texts cannot be read.

    Example:
        >>> model = quantize("model", ["Drought in rice", "Sleep and memory", "Wheat rust"] * 4, "in-8-bits")
        >>> model.to_pandas()["texts"].tolist()
        [3]
    """
    config, out = QuantizeConfig.of(config, **settings), Path(out)
    source = TextTable(texts, config.column)
    check_apart(out, overwrite, model, source.source if is_path(source.source) else None)
    with model_output(out, overwrite) as place:
        source.check()
        whole = load(model, device="cpu", dtype="float32", int8=False)
        made_from = {"model": fingerprint_of(whole), "column": config.column}
        if place.begin(made_from, {"texts": source.fingerprint}) != "finished":
            with place.replacing() as folder:
                place.result = _write(whole, source, folder)
    return Quantized(out, **place.result)


def _write(whole: SentenceTransformer, texts: TextTable, folder: Path) -> dict[str, Any]:
    """Write the model in 8 bits; the fields of `Quantized` but `out`."""
    read = [row.text for row in next(texts.chunks(MAX_TEXTS), []) if row.text.strip()]
    compared = read[::CHECKED_EVERY]
    others = [text for number, text in enumerate(read) if number % CHECKED_EVERY]
    routes = whole.routes if isinstance(whole, ExpertEncoder) else ()
    prefixes = [route.text for route in routes] or [""]
    int8_state = int8.calibrate(whole, [prefix + text for prefix in prefixes for text in others])
    write_model(whole, folder)
    int8.write(int8_state, folder)
    eight = load(folder, device="cpu")
    routed = [prefix + text for prefix in prefixes for text in compared]
    a, b = (model.encode(routed, normalize_embeddings=True) for model in (whole, eight))
    cosines = (a * b).sum(axis=1)
    return {"texts": len(compared), "mean_cosine": float(cosines.mean()), "min_cosine": float(cosines.min())}
