"""Make and evaluate embedders: `make_embedder` and `evaluate_parts`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sentence_experts.config import with_settings
from sentence_experts.errors import UsageError
from sentence_experts.evaluation.config import EvaluateConfig, RatedColumns
from sentence_experts.evaluation.evaluate import evaluate
from sentence_experts.evaluation.moee.rated_pairs import RatedPairs
from sentence_experts.evaluation.results import Evaluation
from sentence_experts.models.pooling import settings_of
from sentence_experts.models.sources import ModelOrigin, name_of, notes_of, source_name
from sentence_experts.moee import FILE
from sentence_experts.moee.embedder import EMBEDDER, MoeEmbedder
from sentence_experts.moee.moee_config import MoeeConfig
from sentence_experts.moee.saved import load_embedder
from sentence_experts.moee.vectors import PARTS, SUM
from sentence_experts.storage import check_apart, output, sha256_file
from sentence_experts.tables import Table, is_path
from sentence_experts.text_table import TextTable

logger = logging.getLogger(__name__)


@with_settings(MoeeConfig)
def make_embedder(
    model: str | Path,
    out: Path | str,
    config: MoeeConfig | None = None,
    *,
    develop: Path | str | None = None,
    columns: RatedColumns | None = None,
    calibrate: Table | None = None,
    column: str | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> MoeEmbedder:
    """Save an embedder of a language model; its folder says how the model is read.

    Args:
        model: a mixture-of-experts language model, or the folder of a saved embedder.
        out: folder for the embedder; the language model's weights stay where they are.
        config: the settings; those given by name come before it.
        develop: a file of rated pairs to choose alpha on; evaluate on other pairs.
        columns: the columns of `develop`.
        calibrate: texts to fit standard scores on; empty ones are left out.
        column: the column with the texts of `calibrate`.
        overwrite: start over, replacing another embedder in `out`.

    Raises:
        UsageError: settings that do not go together, or `out` holds something else.
        InputError: the model, the pairs or the texts cannot be read.

    Example:
        >>> make_embedder("language-model", "embedder", parts="rw").parts
        'rw'
    """
    config, columns = MoeeConfig.of(config, **settings), RatedColumns.of(columns)
    if calibrate is not None and config.standard is not None:
        raise UsageError(
            "`calibrate` fits standard scores once, `standard` takes those of each batch: give one"
        )
    if develop is not None and ("alpha" in config.model_fields_set or config.parts != "sum"):
        raise UsageError("`develop` chooses the alpha of parts sum: leave out `alpha` and `parts`")
    rated = None if develop is None else RatedPairs.read(Path(develop), columns)
    texts = None if calibrate is None else TextTable(calibrate, column)
    inputs = {}
    if texts is not None:
        texts.check()
        inputs["calibrate"] = texts.fingerprint
    if develop is not None:
        inputs["develop"] = lambda: sha256_file(Path(develop))
    check_apart(out, overwrite, model, develop, calibrate if is_path(calibrate) else None)
    with output(out, EMBEDDER, names=[FILE], overwrite=overwrite) as place:
        embedder = load_embedder(str(model), config, chooses_alpha=develop is not None)
        made_from: dict[str, Any] = {
            "model": embedder.fingerprint,
            "column": column,
            "columns": columns.model_dump(),
        }
        if embedder.parts != SUM and embedder.alpha != MoeeConfig.of().alpha:  # it is kept for other parts
            made_from["alpha"] = embedder.alpha
        if place.begin(made_from, inputs) == "finished":
            code = config.trust_remote_code
            return load_embedder(str(place.path), MoeeConfig.of(device=config.device, trust_remote_code=code))
        embedder = _fit(embedder, texts, rated)
        embedder.save_to(place)
    # As if it had been loaded from there, which the next call does.
    origin = ModelOrigin.of_files(source_name(str(place.path)), str(place.path))
    replace(origin, notes=notes_of(origin.place), settings=settings_of(embedder)).set(embedder)
    return embedder


def _fit(embedder: MoeEmbedder, texts: TextTable | None, rated: RatedPairs | None) -> MoeEmbedder:
    """Return the embedder with standard scores fitted on texts, and alpha chosen on rated pairs."""
    if texts is not None:
        nonempty = [text for text in texts.texts() if text.strip()]
        embedder.fit_standard(nonempty)
        logger.info(f"standard scores fitted on {len(nonempty):,} texts of {texts.name}")
    if rated is not None:
        best, tried = embedder.choose_alpha(rated.first, rated.second, list(rated.scores))
        for alpha, value in tried.items():
            logger.info(f"alpha {alpha:g}: Spearman {value:.4f}{'  chosen' if alpha == best else ''}")
        embedder = embedder.with_parts("sum", best)
        embedder.chosen_on = embedder.base_fingerprint
    return embedder


@with_settings(EvaluateConfig)
def evaluate_parts(
    model: str | Path | MoeEmbedder,
    data: Any,
    config: EvaluateConfig | None = None,
    out: Path | str | None = None,
    overwrite: bool = False,
    *,
    parts: Sequence[str] = PARTS,
    load_config: MoeeConfig | None = None,
    **settings: Any,
) -> Evaluation:
    """Measure hidden states, routing weights and their combinations. Each text is read once for all.

    Args:
        model: an embedder, its folder, or a mixture-of-experts language model.
        data, config, out, overwrite: arguments of `evaluate`; settings given by name come before `config`.
        parts: parts to measure; a label is the model's name and the part.
        load_config: settings for reading a language model; see `MoeEmbedder`.

    Raises:
        UsageError, InputError: as `evaluate` and `load_embedder`.

    Example:
        >>> evaluation = evaluate_parts("language-model", "pairs", bootstrap=0, parts=["hs", "rw"])
        >>> sorted(set(evaluation.to_pandas()["model"]))
        ['language-model-hs', 'language-model-rw']
    """
    if isinstance(model, MoeEmbedder):
        embedder, name = model, name_of(model)
    else:
        embedder, name = load_embedder(str(model), load_config), Path(model).name
    if out is not None:
        embedder = embedder.with_cache(Path(out) / "states")
    ending = f"-{embedder.standard}" if embedder.standard else ""
    variants = {f"{name}-{part}{ending}": embedder.with_parts(part) for part in parts}
    return evaluate((), data, config, out, overwrite, baseline=variants, **settings)
