"""The steps of a recipe, each a command line that a user could type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from sentence_experts.corpus.tables import CITATIONS, PAPERS
from sentence_experts.reproduce.setting import Setting


@dataclass(frozen=True)
class Step:
    """One command line, without the program's name.

    Attributes:
        makes: is there once the step is done.
        made_from: files and folders that it reads and that may change; when they do, it is run again.
        can_be_replaced: nothing is made from it, so it may be made anew with other settings.
        resumes: its command goes on in the folder of `makes`, so that this has to go before it can run anew.
    """

    command: tuple[str, ...]
    makes: Path
    made_from: tuple[Path, ...] = ()
    can_be_replaced: bool = False
    resumes: bool = False


def import_articles(setting: Setting) -> list[Step]:
    """The corpus of the small scale; at full scale the user brings one."""
    if setting.material is None:
        return []
    sources = map(str, setting.material.sources)
    command = ("corpus", "import", *sources, "--out", str(setting.corpus))
    return [Step(command, setting.corpus / "manifest.json")]


def compile_pairs(setting: Setting) -> Step:
    """The pairs dataset of all recipes of a protocol."""
    command = ["pairs", str(setting.corpus), "--domains", str(setting.rules), *flags(setting.pairs)]
    made_from = (setting.corpus / PAPERS, setting.corpus / CITATIONS, setting.rules)
    return Step(
        (*command, "--out", str(setting.pairs_folder)), setting.pairs_folder / "manifest.json", made_from
    )


def extend_base(setting: Setting, base: str, experts: Sequence[str], options: BaseModel, place: str) -> Step:
    """A pretrained base with a route for each name; `place` names its folder."""
    out = setting.root / "untrained" / place
    command = ["extend", base, "--experts", ",".join(experts), *flags(options.model_dump())]
    made_from = (Path(base),) if Path(base).is_dir() else ()
    return Step((*command, "--out", str(out), "--overwrite"), out, made_from)


def train_model(setting: Setting, untrained: Step, settings: Mapping[str, Any], seed: int) -> Step:
    """One training run of what `untrained` makes."""
    out = setting.root / "runs" / f"{untrained.makes.name}-seed{seed}"
    command = ["train", *_model_and_pairs(setting, untrained), *flags({**settings, "seed": seed})]
    made_from = _read_by_training(setting, untrained)
    return Step((*command, "--out", str(out), "--resume"), out / "run.json", made_from, resumes=True)


def tune_settings(
    setting: Setting, untrained: Step, settings: Mapping[str, Any], trials: int, share: float
) -> Step:
    """A search for training settings; `settings` are those that are not searched."""
    out = setting.root / "search"
    drawn = {"trials": trials, "share": share, "search_seed": 0}
    command = ["tune", *_model_and_pairs(setting, untrained), *flags({**settings, **drawn})]
    made_from = _read_by_training(setting, untrained)
    return Step((*command, "--out", str(out), "--resume"), out / "best.yaml", made_from, resumes=True)


def evaluate_models(
    setting: Setting, models: Sequence[str], runs: Sequence[Step], options: BaseModel, file: Path
) -> Step:
    """The evaluation of models, already written as options, those of `runs` among them; vectors are kept."""
    command = ["evaluate", "--pairs", str(setting.pairs_folder), *flags(options.model_dump()), *models]
    command += ["--cache", str(setting.root / "vectors"), "--out", str(file.parent)]
    made_from = (setting.pairs_folder / "manifest.json", *(run.makes for run in runs))
    return Step(tuple(command), file, made_from, can_be_replaced=True)


def _model_and_pairs(setting: Setting, untrained: Step) -> list[str]:
    return ["--model", str(untrained.makes), "--pairs", str(setting.pairs_folder)]


def _read_by_training(setting: Setting, untrained: Step) -> tuple[Path, ...]:
    return (untrained.makes, setting.pairs_folder / "manifest.json")


def flags(settings: Mapping[str, Any]) -> list[str]:
    """Settings as command-line flags; None is left out, since it means the default."""
    written: list[str] = []
    for key, value in settings.items():
        flag = key.replace("_", "-")
        if isinstance(value, bool):
            written.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, list | tuple):
            written += [f"--{flag}", ",".join(map(str, value))]
        elif value is not None:
            written += [f"--{flag}", str(value)]
    return written
