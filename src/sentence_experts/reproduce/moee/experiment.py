"""A recipe of MoEE as an experiment: an evaluation under each prompt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sentence_experts.demo.plan import data_folder
from sentence_experts.errors import InputError, UsageError
from sentence_experts.reproduce.experiment import SCALES, SMALL, Experiment
from sentence_experts.reproduce.moee.compare import compare
from sentence_experts.reproduce.moee.published import Published
from sentence_experts.reproduce.moee.recipe import read_recipe
from sentence_experts.reproduce.moee.setting import Setting
from sentence_experts.reproduce.step import Step, flags


def experiment(path: Path, scale: str, corpus: Path | None, out: Path) -> Experiment:
    """The recipe of a file at a scale.

    Raises:
        UsageError: an unknown scale, or a corpus, which no such recipe takes.
        InputError: a faulty recipe, or data that is not there.
    """
    setting = _setting(path, scale, corpus, out)
    return Experiment(
        steps=tuple(_steps(setting)),
        root=setting.root,
        report=setting.report,
        pretrained=(setting.model,),
        writes_first=f"{setting.tasks_file}: the tasks, with the folder of their data"
        if setting.small
        else None,
        prepare=setting.prepare,
        compare=lambda: compare(setting),
    )


def _setting(path: Path, scale: str, corpus: Path | None, out: Path) -> Setting:
    if scale not in SCALES:
        raise UsageError(f"--scale {scale!r}: choose one of {', '.join(SCALES)}")
    if corpus is not None:
        raise UsageError("--corpus is for recipes on pairs; this one measures a language model on tasks")
    recipe = read_recipe(path)
    protocol, published = recipe.protocol, Published.read(recipe.protocol.published)
    root = out / scale / protocol.name
    model, data = published.models[recipe.model], None
    if scale == SMALL:
        model, data = str(protocol.file.parent / protocol.small.model), data_folder()
        if data is None:
            raise InputError(
                f"{path}: the small scale measures on real texts: set SENTENCE_EXPERTS_DATA to their folder"
            )
    return Setting(recipe, published, scale, root, root / path.stem, model, data)


def _steps(setting: Setting) -> Iterator[Step]:
    settings = setting.recipe.evaluate_settings(setting.small)
    tasks = setting.root / "tasks"
    read: tuple[Path, ...] = ()
    if setting.small:
        yield Step(
            ("tasks", str(setting.tasks_file), "--out", str(tasks), "--overwrite"),
            tasks / "manifest.json",
            (setting.tasks_file,),
        )
        settings |= {"tasks": str(tasks)}
        read = (tasks / "manifest.json", Path(setting.model))
    for prompt in setting.recipe.protocol.prompts:
        made = setting.evaluation(prompt)
        options = flags({"prompt": prompt, **settings, "cache": str(setting.root / "states")})
        command = ("moee", "evaluate", setting.model, *options, "--out", str(made.parent))
        yield Step(command, made, read, can_be_replaced=True)
