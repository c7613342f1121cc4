"""A recipe's file -> the experiment, whichever sort of recipe it is."""

from __future__ import annotations

import logging
from pathlib import Path

from sentence_experts.reproduce.experiment import FULL, Experiment
from sentence_experts.reproduce.moee.experiment import experiment as on_language_models
from sentence_experts.reproduce.pairs.experiment import experiment as on_pairs
from sentence_experts.reproduce.pairs.recipe import read_recipe
from sentence_experts.reproduce.pairs.setting import how_to_get_the_corpus
from sentence_experts.reproduce.reading import RecipeFile
from sentence_experts.reproduce.tasks.experiment import experiment as on_tasks

logger = logging.getLogger(__name__)


def open_experiment(
    recipe: Path, scale: str, corpus: Path | None, out: Path, seeds: int | None, dry_run: bool
) -> Experiment:
    """Read a recipe and plan it; a missing corpus is explained, and stood for by a name in a dry run.

    A protocol that names prompts makes it a recipe on language models, one that names a task file a recipe on
    tasks, any other one on pairs.

    Raises:
        UsageError: an unknown scale, or one that does not go with `corpus`.
        InputError: a faulty recipe, or data that is not there.
    """
    protocol = RecipeFile.read(recipe).protocol
    if "prompts" in protocol:
        return on_language_models(recipe, scale, corpus, out)
    if "tasks" in protocol:
        return on_tasks(recipe, scale, corpus, out, seeds)
    read = read_recipe(recipe)
    if scale == FULL and corpus is None:
        for line in how_to_get_the_corpus(read.protocol):
            logger.info(line)
        corpus = Path("CORPUS") if dry_run else None
    return on_pairs(read, recipe.stem, scale, corpus, out, seeds)
