"""Do task experts pay? The candidates of MoTE (Romero et al. 2025) on real tasks, 3 seeds.

    python benchmarks/task_experts.py --out FOLDER [--seeds 3] [--jobs 2] [--steps 80] [--models MoTE IC ...]

Every model is made by the command line, from the same all-MiniLM-L6-v2, and sees the tasks of
`task_experts.yaml` for the same number of steps, in batches of one size; models of one task for their task's
share of them. No text of a test set is trained on. Test sets pick nothing: the last step is kept. What is
finished is kept: the script goes on where it was stopped, and the published figures of models that are not
asked for stay in the tables. A model takes 4 minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import yaml

from measuring import BASE, CROPS, DATA, ELIFE, HERE, RESULTS, cli
from sentence_experts.tasks.dataset import Tasks
from task_experts_tables import write

TASK_FILE = HERE / "task_experts.yaml"
CORPORA = {"elife": ELIFE, "crops": CROPS}
SHARED = {"clustering": "document"}


def slug(name: str) -> str:
    """The name as a folder."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)


@dataclass(frozen=True)
class Run:
    """One model of the study.

    Attributes:
        extend: flags in addition to those of the study; None: the base is trained as it is.
        train: flags in addition to those of the study.
        task: the only task that it is trained on.
        shared: clustering uses the expert of search documents.
        tokens: a route is a token in place of [CLS], not an instruction.
        average_of: the model whose experts are averaged to give this one.
    """

    name: str
    extend: tuple[str, ...] | None = None
    train: tuple[str, ...] = ()
    task: str | None = None
    shared: bool = False
    tokens: bool = False
    average_of: str | None = None


PLAIN = ("--no-instructions",)
TASKS = ("retrieval", "classification", "clustering")
ROUTES = ("query", "document", "classification", "clustering")
RUNS = (
    Run("EM", None, PLAIN),
    *(Run(f"SEM {task}", None, (*PLAIN, "--routes", task), task=task) for task in TASKS),
    Run("IC", ("--layers", "none")),
    Run("MoTE", ()),
    Run("MoTE static", (), ("--curriculum", "static")),
    Run("TLR", ("--router", "token", "--top-k", "2")),
    Run("MoTE EOB", ("--layers", "alternate")),
    Run("MoTE shared", (), shared=True),
    Run("EA", average_of="MoTE"),
    Run("MoTE tokens", ("--route", "token", "--expert-norms"), tokens=True),  # added after the first results
)
BY_NAME = {run.name: run for run in RUNS}
EVALUATED_LENGTH = 64  # tokens of a text in the tests, for all models: 2 cores, and harder than whole texts
TRAINING = ("--learning-rate", "5e-5", "--weight-decay", "0.1", "--scheduler", "linear", "--warmup", "0.1")


@dataclass(frozen=True)
class Study:
    """The settings that all models share, and where everything goes."""

    out: Path
    steps: int
    batch_size: int
    max_length: int
    max_train: int
    max_eval: int

    @property
    def tasks(self) -> Path:
        """The compiled tasks."""
        return self.out / "tasks"

    @property
    def token_tasks(self) -> Path:
        """The same, with a token for each instruction."""
        return self.out / "token-tasks"

    def tasks_of(self, run: Run) -> Path:
        """The tasks as the model reads them."""
        return self.token_tasks if run.tokens else self.tasks

    @property
    def cache(self) -> Path:
        """Results, cached between evaluations."""
        return self.out / "mteb"

    def measuring(self, tasks: Path) -> tuple[str, ...]:
        """The flags that all evaluations share."""
        longest = str(EVALUATED_LENGTH)
        return ("--tasks", str(tasks), "--cache", str(self.cache), "--max-length", longest)

    def log(self, name: str) -> Path:
        """The log of a command."""
        return self.out / "logs" / f"{slug(name)}.log"

    def folder(self, run: Run, seed: int) -> Path:
        """The folder of one trained (or averaged) model."""
        return self.out / "runs" / f"{slug(run.name)}-{seed}"


def compile_tasks(study: Study) -> None:
    """The corpora and the tasks, and the task file in which clustering shares an expert."""
    corpora = study.out / "corpora"
    for name, archive in CORPORA.items():
        if not (corpora / name / "manifest.json").exists():
            cli(study.log("corpora"), "corpus", "import", str(DATA / archive), "--out", str(corpora / name))
    content = yaml.safe_load(TASK_FILE.read_text(encoding="utf-8"))
    for task in content["tasks"].values():
        task["instructions"] = {route: f"[{route.upper()}]" for route in task["instructions"]}
    token_file = study.out / "tokens.yaml"
    token_file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    flags = ["--max-train", str(study.max_train), "--max-eval", str(study.max_eval), "--seed", "0"]
    folders = {"SENTENCE_EXPERTS_DATA": str(DATA.resolve()), "TASK_EXPERTS_CORPORA": str(corpora.resolve())}
    for file, tasks in ((TASK_FILE, study.tasks), (token_file, study.token_tasks)):
        if not (tasks / "manifest.json").exists():
            cli(study.log("tasks"), "tasks", str(file), "--out", str(tasks), *flags, **folders)
    content = yaml.safe_load(TASK_FILE.read_text(encoding="utf-8"))
    content["tasks"]["clustering"]["experts"] = SHARED
    (study.out / "shared.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def share_of(study: Study, task: str) -> float:
    """A task's share of the training pairs, and so of the steps of a model of all tasks."""
    counts = json.loads((study.tasks / "manifest.json").read_text(encoding="utf-8"))["counts"]
    pairs = {name: sum(splits["train"] for splits in counts[name].values()) for name in TASKS}
    return float(pairs[task] / sum(pairs.values()))


def train(study: Study, run: Run, seed: int) -> None:
    """One model of one seed, and its figures on the test sets."""
    folder = study.folder(run, seed)
    if not (folder / "run.json").exists():
        source = BASE
        log = study.log(folder.name)
        untrained = study.out / "untrained" / folder.name
        if run.extend is not None:
            source = str(untrained)
            tasks = study.out / "shared.yaml" if run.shared else study.tasks
            if not (untrained / "modules.json").exists():
                experts = ("--experts", ",".join(ROUTES)) if run.tokens else ("--tasks", str(tasks))
                cli(log, "extend", BASE, *experts, *run.extend, "--out", source)
        steps = study.steps if run.task is None else max(1, round(study.steps * share_of(study, run.task)))
        sizes = {"max-steps": steps, "eval-steps": steps, "batch-size": study.batch_size, "seed": seed}
        sizes["max-length"] = study.max_length
        flags = [part for key, value in sizes.items() for part in (f"--{key}", str(value))]
        flags += ["--out", str(folder), *TRAINING, *run.train]
        cli(log, "train", source, "--tasks", str(study.tasks_of(run)), *flags)
        print(f"{run.name}, seed {seed}: trained", flush=True)
        for needless in (untrained, folder / "checkpoints"):
            shutil.rmtree(needless, ignore_errors=True)
    measure(study, run, seed)


def average(study: Study, run: Run, seed: int) -> None:
    """The dense model whose MLPs are the means of a trained model's experts, and its figures."""
    folder = study.folder(run, seed)
    if not (folder / "model" / "modules.json").exists():
        trained = study.folder(BY_NAME[str(run.average_of)], seed) / "model"
        flags = ["--average", "--overwrite", "--out", str(folder / "model")]
        cli(study.log(folder.name), "export", str(trained), *flags)
    measure(study, run, seed)


def measure(study: Study, run: Run, seed: int) -> None:
    """Measure the model now, so that models are measured in parallel; the results are joined at the end."""
    folder = study.folder(run, seed)
    single = study.out / "single" / folder.name
    if not (single / "tasks.json").exists():
        flags = (*study.measuring(study.tasks_of(run)), "--out", str(single))
        cli(study.log(folder.name), "evaluate", str(folder / "model"), *flags)


def evaluate(study: Study, runs: Sequence[Run], seeds: int) -> dict:
    """Results of all models, joined over the seeds of each model, and of the base."""
    found: dict = {}
    for kind in (False, True):
        own = [run for run in runs if run.tokens == kind]
        if not own:
            continue
        places = [(run.name, study.folder(run, seed) / "model") for run in own for seed in range(seeds)]
        named = [part for name, model in places for part in ("--seeds", f"{name}={model}")]
        out = study.out / ("token-evaluation" if kind else "evaluation")
        flags = (*study.measuring(study.tasks_of(own[0])), "--out", str(out))
        cli(study.log("evaluate"), "evaluate", BASE, *named, *flags)
        more = json.loads((out / "tasks.json").read_text(encoding="utf-8"))
        if found:
            found["models"] += more["models"][1:]  # without the base
        found = found or more
    return found


def compare_routes(study: Study, first: str, second: str, seeds: int) -> list[dict]:
    """For each seed: the cosines of eLife abstracts under all routes, of one model against another."""
    found = []
    texts = ["--texts", str(study.tasks / "retrieval" / "elife" / "test.parquet"), "--column", "positive"]
    for seed in range(seeds):
        model, other = (str(study.folder(BY_NAME[name], seed) / "model") for name in (first, second))
        out = study.out / "similarity" / str(seed)
        if not (out / "similarity.json").exists():
            cli(study.log("similarity"), "similarity", model, "--against", other, *texts, "--out", str(out))
        found.append(json.loads((out / "similarity.json").read_text(encoding="utf-8")))
    return found


def main() -> None:
    """Train and evaluate all models that are missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for corpora, tasks, runs and results")
    parser.add_argument("--models", nargs="+", choices=BY_NAME, default=list(BY_NAME))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, help="number of parallel trainings")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument(
        "--max-length", type=int, default=48, help="maximum number of tokens per text in training"
    )
    parser.add_argument(
        "--max-train", type=int, default=1000, help="maximum number of training texts per dataset"
    )
    parser.add_argument(
        "--max-eval", type=int, default=250, help="maximum number of test texts or pairs per dataset"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the tables")
    given = parser.parse_args()
    needed = {run.average_of for run in RUNS if run.name in given.models} - {None, *given.models}
    if needed:
        parser.error(f"--models: {', '.join(map(str, needed))} is needed, its experts are averaged")
    sizes = (given.steps, given.batch_size, given.max_length, given.max_train, given.max_eval)
    study = Study(given.out, *sizes)
    compile_tasks(study)
    runs = [run for run in RUNS if run.name in given.models]
    # Seed by seed, so that an unfinished study has whole seeds; averages need what they are made of.
    for make, kind in ((train, False), (average, True)):
        wanted = [
            (run, seed) for seed in range(given.seeds) for run in runs if (run.average_of is not None) == kind
        ]
        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(lambda one, make=make: make(study, *one), wanted))
    about = {
        "made by": "`benchmarks/task_experts.py`",
        "machine": f"{os.cpu_count()} cores",
        "seeds": given.seeds,
        "sizes": f"{study.steps} steps of {study.batch_size} pairs, {study.max_length} tokens a text",
        "training": " ".join(TRAINING),
        "tests": f"{EVALUATED_LENGTH} tokens a text; retrieval among the documents of all splits",
        "data": f"at most {study.max_train} training and {study.max_eval} test rows of a dataset",
    }
    alike = compare_routes(study, "MoTE", "IC", given.seeds) if {"MoTE", "IC"} <= set(given.models) else []
    found = evaluate(study, runs, given.seeds)
    write(given.results, found, alike, about, Tasks.of(study.tasks).fingerprint())


if __name__ == "__main__":
    main()
