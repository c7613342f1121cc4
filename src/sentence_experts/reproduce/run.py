"""A recipe's plan, step by step: what is done is kept, and the comparison is written at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sentence_experts.console import say
from sentence_experts.errors import SentenceExpertsError
from sentence_experts.reproduce.compare import Comparison, compare
from sentence_experts.reproduce.hub import check_models
from sentence_experts.reproduce.journal import Journal
from sentence_experts.reproduce.plan import Plan
from sentence_experts.reproduce.recipe import Recipe
from sentence_experts.reproduce.setting import Setting
from sentence_experts.reproduce.tables import html, markdown
from sentence_experts.storage import write_json, write_text

# Runs one command line of this package and gives its exit status.
Command = Callable[[Sequence[str]], int]


def run_plan(recipe: Recipe, setting: Setting, plan: Plan, command: Command) -> Comparison:
    """Run the steps that are not done yet, then write report.json, report.md and report.html.

    Raises:
        SentenceExpertsError: a step failed.
        InputError: the corpus or the MeSH descriptors are not there, or the hub does not give a model.
        UsageError: a result is there that was made with other settings.
    """
    setting.prepare()
    check_models(plan.pretrained())
    journal = Journal(setting.root.parent / "steps.json")
    for number, step in enumerate(plan.steps, start=1):
        at = f"step {number} of {len(plan.steps)}"
        if journal.is_done(step):
            say(f"{at}: {step.command[0]}: {step.makes} is done")
            continue
        say(f"{at}: {step.command[0]}")
        journal.begin(step)
        if status := command(step.command):
            raise SentenceExpertsError(f"{at} ({step.command[0]}) failed with exit status {status}")
        journal.note(step)
    comparison = compare(recipe, setting, plan)
    write_json(plan.report / "report.json", comparison.to_json())
    write_text(plan.report / "report.md", markdown(comparison))
    write_text(plan.report / "report.html", html(comparison))
    return comparison
