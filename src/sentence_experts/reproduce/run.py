"""Run a recipe step by step; finished steps are not repeated, and the comparison is written at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sentence_experts.config import with_settings
from sentence_experts.errors import UsageError
from sentence_experts.recipes import find_recipe
from sentence_experts.report.content import html, markdown
from sentence_experts.report.write import is_newer, set_aside
from sentence_experts.reproduce.comparison import ReproductionResult
from sentence_experts.reproduce.experiment import Experiment
from sentence_experts.reproduce.kinds import KINDS
from sentence_experts.reproduce.recipe import ReproduceConfig, read_recipe
from sentence_experts.storage import locked, read_json, temporary_folder, write_json, write_text

logger = logging.getLogger(__name__)


@with_settings(ReproduceConfig)
def reproduce_recipe(
    recipe: Path | str,
    config: ReproduceConfig | None = None,
    out: Path | str = "reproduced",
    **settings: Any,
) -> ReproductionResult:
    """Run a published experiment and set its figures beside the printed ones.

    Every step calls a public function of this package. Called again, it continues where it stopped.

    Args:
        recipe: the name of a shipped recipe ("hallee2025/moe_all"), or the path of one.
        config: the settings; `settings` override its fields, by name.
        out: the folder for all recipes; recipes of one paper share data and models.

    Returns:
        The comparison, which is also written to `out` as report.json, report.md and report.html.

    Raises:
        InputError: a faulty recipe, missing data, or a model that cannot be had.
        UsageError: a setting that the recipe does not take, or a result that was made with other settings.

    Example:
        >>> reproduce_recipe("hallee2025/moe_all", out="reproduced")  # doctest: +SKIP
    """
    return run_experiment(plan_recipe(recipe, config, out, **settings))


@with_settings(ReproduceConfig)
def plan_recipe(
    recipe: Path | str,
    config: ReproduceConfig | None = None,
    out: Path | str = "reproduced",
    dry_run: bool = False,
    **settings: Any,
) -> Experiment:
    """Read a recipe and plan its steps; nothing is run. With `dry_run`, a missing corpus is called CORPUS.

    Raises:
        InputError, UsageError: as `reproduce_recipe`.
    """
    config = ReproduceConfig.of(config, **settings)
    file = find_recipe(recipe)
    content = read_recipe(file)
    if dry_run and content.protocol.kind == "pairs" and config.scale == "full" and config.corpus is None:
        config = ReproduceConfig.of(config, corpus=Path("CORPUS"))
    experiment = KINDS[content.protocol.kind](content, file.stem, config, Path(out))
    if (config.seeds or 1) > 1 and not any(step.call == "train" for step in experiment.steps):
        raise UsageError("`seeds`: this recipe trains no model; leave it out")
    return experiment


def run_experiment(experiment: Experiment) -> ReproductionResult:
    """Run the steps that are not done yet, then write report.json, report.md and report.html.

    Reports that were written after the evaluations stay: they may have been edited.

    Raises:
        InputError: something that the user has to provide is missing, or the hub does not give a model.
        UsageError: a result exists that was made with other settings, or files of these names before one.
        InUseError: another process reproduces in the same folder, where recipes share data and models.
    """
    results = experiment.evaluations
    with locked(experiment.root.parent, "reproduction"), temporary_folder() as temporary:
        files = [experiment.report / f"report.{ending}" for ending in ("json", "md", "html")]
        if results and not any(result.exists() for result in results.values()):
            for file in filter(Path.exists, files):
                raise UsageError(f"{file} is there without the results that it reports: move it away")
        for step in experiment.steps:
            step.run()
        comparison = experiment.compare({name: read_json(result) for name, result in results.items()})
        report = comparison.report()
        writers: list[Callable[[Path], None]] = [
            lambda file: write_json(file, comparison.to_json()),
            lambda file: write_text(file, markdown(report)),
            lambda file: write_text(file, html(report)),
        ]
        for file, write in zip(files, writers, strict=True):
            fresh = Path(temporary) / file.name
            write(fresh)
            if not results or not is_newer(file, *results.values()):
                set_aside(file, fresh.read_bytes())
                write(file)
            elif fresh.read_bytes() != file.read_bytes():
                logger.warning(
                    f"{file} stays, though it would be written otherwise now (or was edited): remove it to "
                    "have it written anew"
                )
    return comparison
