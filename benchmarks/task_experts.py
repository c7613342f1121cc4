"""Do task experts pay? The candidates of MoTE (Romero et al. 2025) on real tasks, 3 seeds.

    python benchmarks/task_experts.py --out FOLDER --seeds 3 [--arms MoTE IC ...] [--report]

Every model is made by the command line, from the same all-MiniLM-L6-v2, and sees the tasks of
`task_experts.yaml` for the same number of steps, in batches of one size; models of one task for their task's
share of them. No text of a test set is trained on. Test sets pick nothing: the last step is kept. A model
takes 4 minutes of one core.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy.stats import t, ttest_1samp

import study
from measuring import BASE, CROPS, DATA, ELIFE, HERE, cli, p_text, table
from sentence_experts.evaluation.statistics import estimate, holm, runs_of_datasets

Scores = Mapping[str, NDArray[np.float64]]  # arm -> percent, shape (seeds, datasets)


class Arm(NamedTuple):
    """How a model of the study is made.

    Attributes:
        extend: flags in addition to those of the study; None: the base is trained as it is.
        train: flags in addition to those of the study.
        tasks: the folder of the tasks that it reads.
        experts: the task file of its experts.
        single: it is a model for each trained task, measured on what is read as its task.
    """

    extend: tuple[str, ...] | None = None
    train: tuple[str, ...] = ()
    tasks: str = "tasks"
    experts: str = "task_experts.yaml"
    single: bool = False


PLAIN = ("--no-instructions",)
TRAINED = ("retrieval", "classification", "clustering")
READ_AS = {"sts": "classification"}
EA, ROUTES = "EA", "routes"  # the mean of MoTE's experts, and the similarity of its routes
ARMS = {
    "EM": Arm(None, PLAIN),
    "SEM": Arm(None, PLAIN, single=True),
    "IC": Arm(("--layers", "none")),
    "MoTE": Arm(()),
    "MoTE static": Arm((), ("--curriculum", "static")),
    "TLR": Arm(("--router", "token", "--top-k", "2")),
    "MoTE EOB": Arm(("--layers", "alternate")),
    "MoTE shared": Arm((), experts="shared.yaml"),
    EA: Arm(),
    "MoTE tokens": Arm(("--route", "token", "--expert-norms"), tasks="tokens", experts="tokens.yaml"),
}
# First, second: the paper's Table 4, its Table 5; the others are ours.
COMPARED = (
    ("MoTE", "MoTE static"), ("MoTE", "TLR"), ("MoTE", "MoTE EOB"), ("MoTE", "IC"), ("MoTE", EA),
    ("MoTE", "EM"), ("MoTE tokens", "MoTE"), ("MoTE tokens", "EM"), ("MoTE shared", "MoTE"), ("IC", "EM"),
    ("EM", "SEM"),
)  # fmt: skip
METRICS = {
    "retrieval": "nDCG@10", "classification": "accuracy", "clustering": "V-measure", "sts": "Spearman",
}  # fmt: skip
STEPS = 70
TRAINING = (
    "--batch-size 32 --max-length 48 --learning-rate 5e-5 --weight-decay 0.1 --scheduler linear --warmup 0.1"
)
MEASURING = "--max-length 64"  # of all models: 2 cores, and harder than whole texts
COMPILING = "--max-train 1000 --max-eval 250 --seed 0"
SETTINGS = {"steps": STEPS, "training": TRAINING, "tests": MEASURING, "data": COMPILING}


# ---- runs ----------------------------------------------------------------------------------------


class Runs:
    """Models in a folder; what is finished there is kept."""

    def __init__(self, out: Path) -> None:
        """Compile the corpora and the tasks, in words and with a token for each instruction."""
        self.out = out
        corpora = out / "corpora"
        for name, archive in {"elife": ELIFE, "crops": CROPS}.items():
            self.make(corpora / name, "corpus", "import", DATA / archive)
        words, tokens, shared = (yaml.safe_load((HERE / "task_experts.yaml").read_text()) for _ in range(3))
        for task in tokens["tasks"].values():
            task["instructions"] = {route: f"[{route.upper()}]" for route in task["instructions"]}
        shared["tasks"]["clustering"]["experts"] = {"clustering": "document"}
        for name, content in (("task_experts", words), ("tokens", tokens), ("shared", shared)):
            file = out / f"{name}.yaml"
            file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
        folders = {
            "SENTENCE_EXPERTS_DATA": str(DATA.resolve()),
            "TASK_EXPERTS_CORPORA": str(corpora.resolve()),
        }
        for name, source in (("tasks", "task_experts"), ("tokens", "tokens")):
            self.make(out / name, "tasks", out / f"{source}.yaml", *COMPILING.split(), **folders)

    def make(self, made: Path, *arguments: object, **variables: str) -> Path:
        """Run a command that makes a folder, and leaves a finished one as it is."""
        cli(self.out / "logs" / f"{made.name}.log", *map(str, arguments), "--out", str(made), **variables)
        return made

    def run(self, arm: str, seed: int) -> study.Row:
        """Train a model and measure it, or compare the routes of two models."""
        if arm == ROUTES:
            texts = self.out / "tasks" / "retrieval" / "elife" / "test.parquet"
            first, second = (self.model(name, seed) for name in ("MoTE", "IC"))
            made = self.out / "similarity" / str(seed)
            self.make(
                made, "similarity", first, "--against", second, "--texts", texts, "--column", "positive"
            )
            return {"pairs": json.loads((made / "similarity.json").read_text(encoding="utf-8"))["pairs"]}
        scores: dict[str, float] = {}
        for task in TRAINED if arm in ARMS and ARMS[arm].single else (None,):
            measured = self.measure(self.model(arm, seed, task), ARMS[arm].tasks if arm in ARMS else "tasks")
            kind = {name: name.partition(".")[0] for name in measured}
            scores |= {name: one for name, one in measured.items()
                       if task is None or READ_AS.get(kind[name], kind[name]) == task}  # fmt: skip
        return {"scores": scores}

    def model(self, arm: str, seed: int, task: str | None = None) -> Path:
        """Train a model, on one task or on all; or average the experts of one."""
        if arm == BASE:
            return Path(BASE)
        own = ARMS[arm]
        folder = self.out / "runs" / f"{arm}-{task}-{seed}".replace(" ", "-")
        if arm == EA:
            return self.make(folder, "export", self.model("MoTE", seed), "--average")
        source, steps = Path(BASE), STEPS
        if own.extend is not None:
            source = self.out / "untrained" / f"{arm}".replace(" ", "-")
            self.make(source, "extend", BASE, "--tasks", self.out / own.experts, *own.extend)
        if task is not None:
            steps = max(1, round(STEPS * self.share_of(task)))
        sizes = ("--max-steps", steps, "--eval-steps", steps, "--seed", seed, *TRAINING.split(), *own.train)
        routes = () if task is None else ("--routes", task)
        self.make(folder, "train", source, "--tasks", self.out / own.tasks, *sizes, *routes)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        return folder / "model"

    def measure(self, model: Path, tasks: str) -> dict[str, float]:
        """Measure a model on the test sets: dataset -> its figure."""
        out = self.out / "measured" / "-".join(model.parts[-2:])
        given = ("--tasks", self.out / tasks, "--cache", self.out / "mteb", *MEASURING.split())
        self.make(out, "evaluate", model, *given)
        (found,) = json.loads((out / "tasks.json").read_text(encoding="utf-8"))["models"]
        return {name: float(value) for name, value in found["runs"][0]["scores"].items()}

    def share_of(self, task: str) -> float:
        """A task's share of the training pairs, and so of the steps of a model of all tasks."""
        counts = json.loads((self.out / "tasks" / "manifest.json").read_text(encoding="utf-8"))["counts"]
        pairs = {name: sum(splits["train"] for splits in counts[name].values()) for name in TRAINED}
        return float(pairs[task] / sum(pairs.values()))


# ---- tables --------------------------------------------------------------------------------------


def by_row(datasets: tuple[str, ...]) -> dict[str, list[int]]:
    """A row of the tables -> the places of its datasets."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(datasets):
        places.setdefault(name.partition(".")[0], []).append(place)
    seen = [place for task in TRAINED for place in places.get(task, [])]
    named = {f"{task} ({len(own)}), {METRICS.get(task, '')}": own for task, own in places.items()}
    every = list(range(len(datasets)))
    return {**named, f"average of trained tasks ({len(seen)})": seen, f"average ({len(every)})": every}


def with_interval(values: NDArray[np.float64], sign: str = "") -> str:
    """`47.52 ± 0.31`: the mean over seeds, and half of its 95% interval by Student's t."""
    mean = f"{values.mean():{sign}.2f}"
    if len(values) < 2:
        return mean
    half = t.isf(0.025, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return f"{mean} ± {half:.2f}"


def tests(scores: Scores) -> list[study.Row]:
    """Differences of averages, two-sided and paired, with Holm's correction over all of them.

    "over seeds" is paired by seed, and holds for these datasets; "over seeds and datasets" takes the datasets
    as a sample too, as `evaluate` does.
    """
    found: list[study.Row] = []
    for first, second in COMPARED:
        if first in scores and second in scores:
            both = min(len(scores[first]), len(scores[second]))
            gaps = scores[first][:both] - scores[second][:both]
            found.append({"pair": f"{first} - {second}", "gap": gaps.mean()})
            if both > 1:
                seeds = ttest_1samp(gaps.mean(1), 0)
                found[-1]["over seeds"] = (*seeds.confidence_interval(), seeds.pvalue)
            if over_both := estimate(runs_of_datasets(gaps)):
                bounds = over_both.interval(lowest=-100, highest=100)
                found[-1]["over seeds and datasets"] = (bounds.low, bounds.high, over_both.p_value())
    return found


def test_table(found: list[study.Row]) -> str:
    """The tests, with their corrected p-values."""
    header, cells = ["difference of averages (95% interval)"], [[one["pair"]] for one in found]
    for kind in ("over seeds", "over seeds and datasets"):
        header += [kind, "p", "p, Holm"]
        corrected = iter(holm([one[kind][2] for one in found if kind in one]))
        for one, row in zip(found, cells, strict=True):
            if kind in one:
                low, high, p = one[kind]
                row += [f"{one['gap']:+.2f} ({low:+.2f} to {high:+.2f})", p_text(p), p_text(next(corrected))]
            else:  # one seed or one dataset
                row += ["–"] * 3
    return table(header, cells)


def route_table(runs: list[study.Row]) -> str:
    """The similarity of routes: means over seeds, and the largest p of any seed (MoTE, section 5.2)."""
    cells = []
    for rows in zip(*(run["pairs"] for run in runs), strict=True):
        # Both folders are called `model`.
        one, other = (
            np.mean([row["models"][name]["mean"] for row in rows]) for name in sorted(rows[0]["models"])
        )
        p_values = [row["welch_less"]["p_holm"] for row in rows]
        largest = "–" if None in p_values else p_text(max(p_values))
        cells.append(
            [" – ".join(rows[0]["routes"]), f"{one:.3f}", f"{other:.3f}", f"{one - other:+.3f}", largest]
        )
    header = ["cosine of one text under two routes", "MoTE", "IC", "difference", "largest p, Holm"]
    return table(header, cells)


def report(runs: study.RunFile) -> None:
    """Write the tables of the finished runs."""
    rows = {arm: runs.find(arm=arm) for arm in (BASE, *ARMS)}
    datasets = tuple(next(own[0]["scores"] for own in rows.values() if own))
    scores = {
        arm: 100 * np.array([[row["scores"][name] for name in datasets] for row in own])
        for arm, own in rows.items() if own
    }  # fmt: skip
    places = by_row(datasets)

    def figures(told: Callable[[NDArray[np.float64]], str], of: Scores) -> list[list[str]]:
        return [[row, *(told(one[:, own].mean(1)) for one in of.values())] for row, own in places.items()]

    parts = [
        "# Do task experts pay?",
        f"{STEPS} steps (`{TRAINING}`; data: `{COMPILING}`; tests: `{MEASURING}`, retrieval among all "
        "documents). In percent; mean over seeds ± half of its 95% interval (Student's t over seeds). MoTE "
        "tokens was added after the first results.",
        "## Figures",
        table(["", *scores], figures(with_interval, scores)),
    ]
    if "EM" in scores:
        base = scores["EM"]
        gains = {arm: one - base for arm, one in scores.items() if one.shape == base.shape and arm != "EM"}
        rows_of_gains = figures(lambda gain: with_interval(gain, "+"), gains)
        for row, own in zip(rows_of_gains, places.values(), strict=True):
            row.insert(1, f"{base[:, own].mean():.2f}")
        parts += ["## Gains over EM", table(["", "EM, absolute", *gains], rows_of_gains)]
    found = tests(scores)
    parts += [f"## Differences, with Holm's correction for {len(found)}", test_table(found)]
    cells = [
        [name, *(f"{one[:, place].mean():.2f}" for one in scores.values())]
        for place, name in enumerate(datasets)
    ]
    parts += ["## By dataset", table(["", *scores], cells)]
    if alike := runs.find(arm=ROUTES):
        parts += ["## How alike the routes of a text are", route_table(alike)]
    study.write_study({"made_by": "benchmarks/task_experts.py"}, runs, "\n\n".join(parts))


def main() -> None:
    """Train and measure the models that are missing, and write the tables."""
    given = study.arguments(__doc__, arms=[*ARMS, ROUTES])
    runs = study.RunFile(given.out, "task_experts", SETTINGS)
    if not given.report:
        models = Runs(given.out / "models")
        keys = [{"arm": arm, "seed": seed} for seed in range(given.seeds) for arm in given.arms]
        runs.make([{"arm": BASE, "seed": 0}, *keys], models.run)
    report(runs)


if __name__ == "__main__":
    main()
