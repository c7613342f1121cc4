"""An experiment, step by step: what is done is kept, and the comparison is written at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from sentence_experts.errors import SentenceExpertsError
from sentence_experts.reproduce.comparison import Comparison
from sentence_experts.reproduce.experiment import Experiment
from sentence_experts.reproduce.hub import check_models
from sentence_experts.reproduce.journal import Journal
from sentence_experts.reproduce.tables import html, markdown
from sentence_experts.storage import write_json, write_text

logger = logging.getLogger(__name__)

# Runs one command line of this package and gives its exit status.
Command = Callable[[Sequence[str]], int]


def run_experiment(experiment: Experiment, command: Command) -> Comparison:
    """Run the steps that are not done yet, then write report.json, report.md and report.html.

    Raises:
        SentenceExpertsError: a step failed.
        InputError: what the user has to bring is not there, or the hub does not give a model.
        UsageError: a result is there that was made with other settings.
    """
    experiment.prepare()
    check_models(experiment.pretrained)
    journal = Journal(experiment.root.parent / "steps.json")
    for number, step in enumerate(experiment.steps, start=1):
        at = f"step {number} of {len(experiment.steps)}"
        if journal.is_done(step):
            logger.info(f"{at}: {step.command[0]}: {step.makes} is done")
            continue
        logger.info(f"{at}: {step.command[0]}")
        journal.begin(step)
        if status := command(step.command):
            raise SentenceExpertsError(f"{at} ({step.command[0]}) failed with exit status {status}")
        journal.note(step)
    comparison = experiment.compare()
    write_json(experiment.report / "report.json", comparison.to_json())
    write_text(experiment.report / "report.md", markdown(comparison))
    write_text(experiment.report / "report.html", html(comparison))
    return comparison
