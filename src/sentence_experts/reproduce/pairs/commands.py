"""The steps of a recipe on pairs, each a command line that a user could type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from sentence_experts.corpus.tables import CITATIONS, DOMAINS, PAPERS
from sentence_experts.reproduce.pairs.setting import Setting
from sentence_experts.reproduce.step import Step, flags


def import_articles(setting: Setting) -> list[Step]:
    """The corpus of the small scale; at full scale the user brings one."""
    if setting.material is None:
        return []
    sources = map(str, setting.material.sources)
    command = ("corpus", "import", *sources, "--out", str(setting.corpus))
    return [Step(command, setting.corpus / "manifest.json")]


def compile_pairs(setting: Setting) -> Step:
    """The pairs dataset of all recipes of a protocol."""
    rules = [] if setting.rules is None else ["--domains", str(setting.rules)]
    command = ["pairs", str(setting.corpus), *rules, *flags(setting.pairs)]
    domains = setting.rules or setting.corpus / DOMAINS
    made_from = (setting.corpus / PAPERS, setting.corpus / CITATIONS, domains)
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
    setting: Setting, untrained: Step, settings: Mapping[str, Any], trials: int, fraction: float
) -> Step:
    """A search for training settings; `settings` are those that are not searched."""
    out = setting.root / "search"
    drawn = {"trials": trials, "fraction": fraction, "search_seed": 0}
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
    return [str(untrained.makes), "--pairs", str(setting.pairs_folder)]


def _read_by_training(setting: Setting, untrained: Step) -> tuple[Path, ...]:
    return (untrained.makes, setting.pairs_folder / "manifest.json")
