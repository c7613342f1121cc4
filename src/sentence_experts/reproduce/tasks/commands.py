"""The steps of a recipe on tasks, each a command line that a user could type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sentence_experts.reproduce.step import Step, flags
from sentence_experts.reproduce.tasks.recipe import EvaluateOptions, ExtendOptions
from sentence_experts.reproduce.tasks.setting import Setting


def import_articles(setting: Setting) -> list[Step]:
    """The corpora that the task file names."""
    return [
        Step(("corpus", "import", str(source), "--out", str(corpus)), corpus / "manifest.json")
        for corpus, source in setting.corpora.items()
    ]


def compile_tasks(setting: Setting, settings: Mapping[str, Any]) -> Step:
    """The tasks folder of all recipes of a protocol."""
    command = ["tasks", str(setting.tasks_file), *flags(settings), "--out", str(setting.tasks_folder)]
    made_from = setting.read_by_tasks
    return Step((*command, "--overwrite"), setting.tasks_folder / "manifest.json", made_from)


def extend_base(setting: Setting, base: str, options: ExtendOptions, place: str) -> Step:
    """A pretrained base with the tasks' routes; `place` names its folder."""
    out = setting.root / "untrained" / place
    command = ["extend", base, "--tasks", str(setting.tasks_folder), *flags(options.model_dump())]
    local = (Path(base),) if Path(base).is_dir() else ()
    made_from = (*local, setting.tasks_folder / "manifest.json")
    return Step((*command, "--out", str(out), "--overwrite"), out, made_from)


def train_model(setting: Setting, model: str, settings: Mapping[str, Any], place: str) -> Step:
    """One training run; `place` names its folder, `settings` hold its seed."""
    out = setting.root / "runs" / place
    command = ["train", model, "--tasks", str(setting.tasks_folder), *flags(settings)]
    local = (Path(model),) if setting.root in Path(model).parents or Path(model).is_dir() else ()
    made_from = (*local, setting.tasks_folder / "manifest.json")
    return Step((*command, "--out", str(out), "--resume"), out / "run.json", made_from, resumes=True)


def average_experts(setting: Setting, trained: Step, place: str) -> Step:
    """The dense model whose MLPs are the means of a trained model's experts."""
    out = setting.root / "runs" / place / "model"
    command = ("export", str(trained.makes.parent / "model"), "--average", "--out", str(out), "--overwrite")
    return Step(command, out, (trained.makes,))


def evaluate_models(
    setting: Setting, models: Sequence[str], made_by: Sequence[Step], options: EvaluateOptions, file: Path
) -> Step:
    """The evaluation of models, already written as options, that the steps `made_by` make."""
    measured_on = [] if options.mteb else ["--tasks", str(setting.tasks_folder)]
    command = ["evaluate", *models, *measured_on, *flags(options.model_dump())]
    command += ["--cache", str(setting.root / "mteb")]
    made_from = (setting.tasks_folder / "manifest.json", *(step.makes for step in made_by))
    return Step((*command, "--out", str(file.parent)), file, made_from, can_be_replaced=True)
