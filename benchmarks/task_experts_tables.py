"""The tables of `task_experts.py`: absolute figures, gains over EM, tests, and each dataset.

python benchmarks/task_experts_tables.py    # makes them again from the published scores
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t, ttest_1samp

from measuring import BASE, RESULTS, p_text
from sentence_experts.evaluation.statistics import estimate, holm, runs_of_datasets

Scores = NDArray[np.float64]  # in percent, shape (seeds, datasets)

METRICS = {
    "retrieval": "nDCG@10",
    "classification": "accuracy",
    "clustering": "V-measure",
    "sts": "Spearman",
}
SEEN = ("retrieval", "classification", "clustering")
READ_AS = {"sts": "classification"}
SINGLE = "SEM"
# first, second, and what the paper compares by them: its Table 4, its Table 5; the others are ours.
PAIRS = (
    ("MoTE", "MoTE static"),
    ("MoTE", "TLR"),
    ("MoTE", "MoTE EOB"),
    ("MoTE", "IC"),
    ("MoTE", "EA"),
    ("MoTE", "EM"),
    ("MoTE tokens", "MoTE"),
    ("MoTE tokens", "EM"),
    ("MoTE shared", "MoTE"),
    ("IC", "EM"),
    ("EM", "SEM"),
)


@dataclass(frozen=True)
class Figures:
    """What all models score: label -> scores, and the names of the datasets, `task.dataset`."""

    scores: Mapping[str, Scores]
    datasets: tuple[str, ...]

    @classmethod
    def of(cls, found: Mapping) -> Figures:
        """From tasks.json; the models of one task become one, each in the rows of its task."""
        datasets = tuple(task["name"] for task in found["tasks"])
        scores = {
            model["label"]: 100
            * np.array([[run["scores"][name] for name in datasets] for run in model["runs"]])
            for model in found["models"]
        }
        single = {
            label.removeprefix(f"{SINGLE} "): label for label in scores if label.startswith(f"{SINGLE} ")
        }
        tasks = [name.partition(".")[0] for name in datasets]
        if set(single) == set(SEEN):
            columns = [scores[single[READ_AS.get(task, task)]][:, place] for place, task in enumerate(tasks)]
            joined = {SINGLE: np.stack(columns, axis=1)}
            scores = _after(scores, "EM", joined)
        return cls({label: one for label, one in scores.items() if label not in single.values()}, datasets)

    def rows(self) -> dict[str, list[int]]:
        """A row of the tables -> the places of its datasets."""
        tasks = [name.partition(".")[0] for name in self.datasets]
        of_task = {
            task: [place for place, one in enumerate(tasks) if one == task] for task in dict.fromkeys(tasks)
        }
        seen = [place for task in SEEN for place in of_task.get(task, [])]
        named = {
            f"{task} ({len(places)}), {METRICS.get(task, '')}": places for task, places in of_task.items()
        }
        trained = f"average of trained tasks ({len(seen)})"
        return {**named, trained: seen, f"average ({len(tasks)})": list(range(len(tasks)))}


def _after(scores: dict[str, Scores], label: str, more: dict[str, Scores]) -> dict[str, Scores]:
    """`more` put behind `label`, or first."""
    ordered: dict[str, Scores] = {} if label in scores else dict(more)
    for name, one in scores.items():
        ordered[name] = one
        if name == label:
            ordered |= more
    return ordered


def with_interval(values: Scores, sign: str = "") -> str:
    """`47.52 ± 0.31`: the mean over seeds, and half of its 95% interval by Student's t."""
    mean = f"{values.mean():{sign}.2f}"
    if len(values) < 2:
        return mean
    half = t.isf(0.025, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return f"{mean} ± {half:.2f}"


def absolute_table(figures: Figures) -> Iterator[list[str]]:
    """Rows tasks, columns models."""
    yield ["", *figures.scores]
    for row, places in figures.rows().items():
        yield [row, *(with_interval(one[:, places].mean(1)) for one in figures.scores.values())]


def gain_table(figures: Figures, over: str = "EM") -> Iterator[list[str]]:
    """Gains over EM; runs of one seed are compared with each other."""
    base = figures.scores[over]
    others = {
        label: one for label, one in figures.scores.items() if one.shape == base.shape and label != over
    }
    yield ["", f"{over}, absolute", *others]
    for row, places in figures.rows().items():
        gains = [(one - base)[:, places].mean(1) for one in others.values()]
        yield [row, f"{base[:, places].mean():.2f}", *(with_interval(gain, "+") for gain in gains)]


def dataset_table(figures: Figures) -> Iterator[list[str]]:
    """The mean over seeds of each dataset."""
    yield ["", *figures.scores]
    for place, name in enumerate(figures.datasets):
        yield [name, *(f"{one[:, place].mean():.2f}" for one in figures.scores.values())]


def tests(figures: Figures) -> list[dict]:
    """Differences of averages, two-sided and paired, with Holm's correction over all of them.

    "seeds" is paired by seed, and holds for these datasets; "seeds and datasets" takes the datasets as a
    sample too, as `evaluate` does.
    """
    found: list[dict] = []
    for first, second in PAIRS:
        if first in figures.scores and second in figures.scores:
            gaps = figures.scores[first] - figures.scores[second]
            found.append({"first": first, "second": second, "gap": float(gaps.mean())})
            if len(gaps) > 1:
                of_seeds = ttest_1samp(gaps.mean(1), 0)
                interval = of_seeds.confidence_interval()
                found[-1]["seeds"] = {"low": interval.low, "high": interval.high, "p": of_seeds.pvalue}
            if over_both := estimate(runs_of_datasets(gaps)):
                bounds = over_both.interval(lowest=-100, highest=100)
                row = {"low": bounds.low, "high": bounds.high, "p": over_both.p_value()}
                found[-1]["seeds and datasets"] = row
    for kind in ("seeds", "seeds and datasets"):
        estimated = [one for one in found if kind in one]
        for one, p_holm in zip(estimated, holm([one[kind]["p"] for one in estimated]), strict=True):
            one[kind] = {key: float(value) for key, value in {**one[kind], "p_holm": p_holm}.items()}
    return found


def test_table(found: Sequence[Mapping]) -> Iterator[list[str]]:
    """The tests as rows."""
    yield [
        "difference of averages (95% interval)",
        *("over seeds", "p", "p, Holm"),
        *("over seeds and datasets", "p", "p, Holm"),
    ]
    for one in found:
        cells = [f"{one['first']} - {one['second']}"]
        for kind in ("seeds", "seeds and datasets"):
            if row := one.get(kind):
                cells.append(f"{one['gap']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f})")
                cells += [p_text(row["p"]), p_text(row["p_holm"])]
            else:  # one seed or one dataset
                cells += ["–"] * 3
        yield cells


def route_table(alike: Sequence[Mapping]) -> Iterator[list[str]]:
    """The similarity of routes: means over seeds, and the largest p of any seed (MoTE, section 5.2)."""
    yield ["cosine of one text under two routes", "MoTE", "IC", "difference", "largest p, Holm"]
    for rows in zip(*(one["pairs"] for one in alike), strict=True):
        means = np.array([_two_means(row["models"]) for row in rows]).mean(0)
        p_values = [row["welch_less"]["p_holm"] for row in rows]
        largest = "–" if None in p_values else p_text(max(p_values))
        cells = [*(f"{mean:.3f}" for mean in means), f"{means[0] - means[1]:+.3f}", largest]
        yield [" – ".join(rows[0]["routes"]), *cells]


def _two_means(models: Mapping[str, Mapping]) -> list[float]:
    """Of the model itself, then of the one that it is set against: both folders are called `model`."""
    return [models[label]["mean"] for label in sorted(models, key=lambda name: name.endswith("(--against)"))]


def markdown_table(rows: Iterator[list[str]]) -> str:
    """Rows as Markdown, the first of them the headings."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---|" + "---:|" * (lines[0].count("|") - 2), *lines[1:]])


def _with_others(
    figures: Figures, alike: Sequence[Mapping], about: Mapping, fingerprint: str, published: Mapping
) -> tuple[Figures, Sequence[Mapping], str]:
    """Add the published figures of models that were not run now, the base among them, and say which were.

    Raises:
        SystemExit: they were measured with other tasks, data or settings.
    """
    theirs = {**published["about"], "tasks": published["tasks_fingerprint"]}
    ours = {**about, "tasks": fingerprint}
    differ = [key for key in theirs if key != "machine" and theirs[key] != ours.get(key)]
    if differ or tuple(published["datasets"]) != figures.datasets:
        raise SystemExit(f"the published figures have another {', '.join(differ)}; give another --results")
    others = {label: np.array(scores) for label, scores in published["scores"].items()}
    asked = {label: scores for label, scores in figures.scores.items() if label != BASE}
    note = f"Measured in a later call: {', '.join(asked)}."
    if BASE in others and BASE in figures.scores:
        apart = np.abs(others[BASE] - figures.scores[BASE]).max()
        note += f" The base, measured again beside it, is within {apart:.2f} of its figure on every dataset."
    joined = Figures({**others, **asked}, figures.datasets)
    return joined, alike or [{"pairs": pairs} for pairs in published["routes"]], note


def write(folder: Path, found: Mapping, alike: Sequence[Mapping], about: Mapping, fingerprint: str) -> None:
    """The study's tables, for people and for programs, with the published figures of other models."""
    figures = Figures.of(found)
    published, note = folder / "task_experts.json", ""
    if published.exists():
        figures, alike, note = _with_others(
            figures, alike, about, fingerprint, json.loads(published.read_text("utf-8"))
        )
    write_tables(folder, figures, alike, about, fingerprint, note)


def write_tables(
    folder: Path, figures: Figures, alike: Sequence[Mapping], about: Mapping, fingerprint: str, note: str
) -> None:
    """Write task_experts.md and task_experts.json."""
    tested = tests(figures)
    tables = {
        "Figures": absolute_table(figures),
        "Gains over EM": gain_table(figures) if "EM" in figures.scores else iter([["EM was not run"]]),
        f"Differences, with Holm's correction for {len(tested)}": test_table(tested),
        "By dataset": dataset_table(figures),
    }
    if alike:
        tables["How alike the routes of a text are"] = route_table(alike)
    parts = ["# Do task experts pay?", "\n".join(f"- {key}: {value}" for key, value in about.items())]
    parts += [note] if note else []
    parts.append("In percent; mean over seeds ± half of its 95% interval (Student's t over seeds).")
    for title, rows in tables.items():
        parts += [f"## {title}", markdown_table(rows)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "task_experts.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    kept = {
        "about": dict(about),
        "datasets": list(figures.datasets),
        "scores": {label: one.round(4).tolist() for label, one in figures.scores.items()},
        "tests": tested,
        "routes": [one["pairs"] for one in alike],
        "tasks_fingerprint": fingerprint,
        "note": note,
    }
    (folder / "task_experts.json").write_text(json.dumps(kept, indent=1), encoding="utf-8")


def main() -> None:
    """Make the tables again from the published scores."""
    published = json.loads((RESULTS / "task_experts.json").read_text(encoding="utf-8"))
    figures = Figures(
        {label: np.array(scores) for label, scores in published["scores"].items()},
        tuple(published["datasets"]),
    )
    alike = [{"pairs": pairs} for pairs in published["routes"]]
    about, fingerprint = published["about"], published["tasks_fingerprint"]
    write_tables(RESULTS, figures, alike, about, fingerprint, published["note"])


if __name__ == "__main__":
    main()
