"""The harness of the studies: finished runs that are kept, arms compared with intervals, results.

A study is its data, its arms and its primary figure. Every finished run is one row, and the tables are made
of the rows alone: a study goes on where it was stopped, also from the published rows.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from measuring import RESULTS, hardware, p_text, table, versions
from sentence_experts.evaluation.estimates import Estimate, Runs, ScoredPairs, estimate, holm
from sentence_experts.evaluation.statistics import runs_of
from sentence_experts.evaluation.text_free import score_without_comparing
from sentence_experts.pairs.pair_tables import PAIR_COLUMNS

SEEDS = 5
COSINES = 10_000  # cosines are kept as integers, in units of 1 / COSINES
MOST_COLUMNS = 7

Row = dict[str, Any]
Scores = Mapping[str, NDArray[np.float64]]  # route -> cosines of the test pairs, shape (pairs,)


class RunFile:
    """The finished runs of a study, one JSON object per line, each written as soon as it is known.

    A run is known by its key, such as arm and seed. Without a file the runs of results/NAME.json are taken,
    so that a later call goes on from the published ones.
    """

    def __init__(self, folder: Path, name: str, settings: Mapping[str, Any]) -> None:
        """Args:
            folder: where NAME.jsonl stands or will stand.
            name: of the study.
            settings: what a run depends on beside its key. Runs made with others are refused.

        Raises:
            SystemExit: the runs were made with other settings.
        """
        self.name, self.path = name, folder / f"{name}.jsonl"
        self.settings: Row = json.loads(json.dumps(settings))
        published = RESULTS / f"{name}.json"
        if self.path.exists():
            # A line that a killed process left unfinished is not a run.
            lines = self.path.read_text(encoding="utf-8").split("\n")[:-1]
            self.rows: list[Row] = [json.loads(line) for line in lines]
        else:
            found = json.loads(published.read_text(encoding="utf-8")) if published.exists() else {}
            same = {key: found[key] for key in ("settings", "hardware") if key in found}
            self.rows = [{**same, **row} for row in found.get("runs", [])]
        for row in self.rows:
            if (theirs := row["settings"]) != self.settings:
                differ = [key for key in self.settings if theirs.get(key) != self.settings[key]]
                raise SystemExit(
                    f"{self.path}: runs with other settings ({', '.join(differ)}); move them away"
                )
        folder.mkdir(parents=True, exist_ok=True)
        whole = "".join(f"{json.dumps(row)}\n" for row in self.rows)
        if not self.path.exists() or self.path.read_text(encoding="utf-8") != whole:
            temporary = self.path.with_suffix(".tmp")
            temporary.write_text(whole, encoding="utf-8")
            temporary.replace(self.path)

    def find(self, **key: Any) -> list[Row]:
        """The runs with these values, in the order of their seeds."""
        found = [row for row in self.rows if all(row.get(name) == value for name, value in key.items())]
        return sorted(found, key=lambda row: int(row.get("seed", 0)))

    def append(self, row: Row) -> None:
        """Keep a finished run."""
        whole = {"settings": self.settings, "hardware": hardware(), **row}
        self.rows.append(whole)
        # One write, so that lines of several processes do not mix.
        with open(self.path, "ab", buffering=0) as file:
            file.write(f"{json.dumps(whole)}\n".encode())
            os.fsync(file.fileno())

    def make(self, keys: Iterable[Row], run: Callable[..., Row]) -> None:
        """Make the runs with these keys that are missing: `run` gets a key and gives what was found."""
        for key in keys:
            if not self.find(**key):
                self.append({**key, **run(**key)})
                print(*key.values(), self.rows[-1].get("seconds", ""), flush=True)


def arguments(description: str | None, **choices: Sequence[str]) -> argparse.Namespace:
    """The command line of a study: the folder of the runs, the number of seeds, and what else it offers.

    Args:
        description: the study's docstring.
        **choices: option -> its values; one whose name ends in "s" takes several, by default all; any other
            takes one, by default the first.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the finished runs")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    for name, values in choices.items():
        several: Row = (
            {"nargs": "+", "default": list(values)} if name.endswith("s") else {"default": values[0]}
        )
        parser.add_argument(f"--{name}", choices=values, **several)
    parser.add_argument(
        "--report", action="store_true", help="write the tables of what is finished, and stop"
    )
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    import torch

    torch.set_num_threads(1)  # a processor second is then a second of one core
    return given


# ---- figures -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Test:
    """Test pairs of a route with their texts, each (pairs,)."""

    __test__: ClassVar = False  # for pytest

    first: Sequence[str]
    second: Sequence[str]
    pairs: ScoredPairs

    def as_table(self, route: str) -> pa.Table:
        """The columns of a pairs file."""
        size = len(self.first)
        ids = [[str(each) for each in side] for side in (self.pairs.first, self.pairs.second)]
        labels = [int(label) for label in self.pairs.labels]
        columns = [list(self.first), list(self.second), labels, [route] * size, labels, *ids]
        return pa.table(dict(zip(PAIR_COLUMNS, columns, strict=True)))


def packed(scores: Scores) -> dict[str, list[int]]:
    """Cosines as a run file keeps them."""
    return {route: [round(float(value) * COSINES) for value in values] for route, values in scores.items()}


def auc_of(test: Mapping[str, ScoredPairs], scores: Mapping[str, Sequence[float]]) -> Runs:
    """The mean over the routes of the ROC-AUC of one run, by their numbers of pairs.

    Args:
        test: route -> its pairs (their scores are not used).
        scores: route -> a score per pair.
    """
    domains = {
        route: ScoredPairs(
            np.asarray(scores[route], float), pairs.labels, pairs.first, pairs.second, pairs.articles
        )
        for route, pairs in test.items()
    }
    return runs_of(domains, replicates=1)[2]["roc_auc"]


def mean_auc(test: Mapping[str, ScoredPairs], rows: Sequence[Row]) -> Runs:
    """The ROC-AUC of each run of an arm, the mean over the routes."""
    return Runs.joined([auc_of(test, row["scores"]) for row in rows])


@dataclass(frozen=True)
class Difference:
    """The first arm minus the second, paired by seed.

    Attributes:
        verdict: "better", "worse", "equal within 0.01" (the margin) or "not told apart".
    """

    first: str
    second: str
    estimate: Estimate
    p_holm: float
    verdict: str

    def told(self) -> str:
        """`+0.041 (+0.012 to +0.070), p 0.021 after Holm`: the interval is that of this difference alone."""
        return f"{with_sign(self.estimate)}, p {p_text(self.p_holm)} after Holm"

    def cells(self) -> list[str]:
        """A row of the table of differences."""
        sizes = with_sign(self.estimate)
        return [f"{self.first} - {self.second}", sizes, p_text(self.p_holm), self.verdict]


def with_sign(change: Estimate) -> str:
    """`+0.041 (+0.012 to +0.070)`."""
    interval = change.interval()
    return f"{change.value:+.3f} ({interval.low:+.3f} to {interval.high:+.3f})"


def with_interval(runs: Runs) -> str:
    """`0.917 (0.900 to 0.934)`."""
    found = estimate(runs)
    if found is None:
        return "–"
    interval = found.interval(0.0, 1.0)
    return f"{found.value:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def differences(
    arms: Mapping[str, Runs], compared: Sequence[tuple[str, str]], margin: float
) -> list[Difference]:
    """Differences of arms: intervals over the clustered test pairs and the seeds, p-values after Holm.

    The runs of an arm are in the order of their seeds, from 0; those that the other arm lacks are left out.
    Two arms are equal within the margin where the 95% interval lies within it, as in `evaluate`.
    """
    estimates = {}
    for first, second in compared:
        if {first, second} <= set(arms):
            seeds = min(len(arms[first].values), len(arms[second].values))
            one = estimate(*_of_seeds(arms[first], seeds).minus(_of_seeds(arms[second], seeds)))
            if one is not None:
                estimates[first, second] = one
    return corrected_together([Difference(*pair, one, 1.0, "") for pair, one in estimates.items()], margin)


def corrected_together(told: Sequence[Difference], margin: float) -> list[Difference]:
    """Judge differences as one family of tests, whatever family they were of before."""
    corrected = holm([each.estimate.p_value() for each in told]) if told else []
    found = []
    for each, p_holm in zip(told, corrected, strict=True):
        one = each.estimate
        inner = one.interval()
        verdict = "not told apart"
        if p_holm < 0.05:
            verdict = "better" if one.value > 0 else "worse"
        if -margin < inner.low and inner.high < margin:
            verdict = f"equal within {margin:g}"
        found.append(Difference(each.first, each.second, one, p_holm, verdict))
    return found


def _of_seeds(runs: Runs, count: int) -> Runs:
    return Runs(runs.values[:count], runs.influence[:count], runs.averaged[:count], runs.sharing, runs.unseen)


# ---- tables --------------------------------------------------------------------------------------


def by_route(test: Mapping[str, ScoredPairs], rows: Sequence[Row]) -> list[str]:
    """The mean over runs for each route."""
    return [
        f"{np.mean([auc_of({route: pairs}, row['scores']).values[0] for row in rows]):.3f}"
        for route, pairs in test.items()
    ]


def difference_table(told: Sequence[Difference]) -> str:
    """Markdown: differences of arms."""
    header = ["ROC-AUC, paired by seed", "difference (95% interval)", "p, Holm", "verdict"]
    return table(header, [one.cells() for one in told])


def blind_table(tests: Mapping[str, Test]) -> str:
    """Markdown: the ROC-AUC of scores that compare no texts, for each route, and their mean.

    `tests`: route -> its test pairs. Scores with one value for all pairs are named below: they have 0.5.
    """
    scores: dict[str, dict[str, list[float]]] = {}
    for route, test in tests.items():
        for label, found in score_without_comparing(test.as_table(route), None).items():
            scores.setdefault(label, {})[route] = found.tolist()
    routes = list(tests) if 1 < len(tests) <= MOST_COLUMNS else []
    pairs_of = {route: test.pairs for route, test in tests.items()}
    rows: list[list[str]] = []
    constant: list[str] = []
    for label, own in scores.items():
        if all(np.ptp(each) < 1e-12 for each in own.values()):
            constant.append(label)
            continue
        cells = by_route(pairs_of, [{"scores": own}]) if routes else []
        rows.append([label, *cells, with_interval(auc_of(pairs_of, own))])
    told = table(["what compares no texts", *routes, "ROC-AUC, mean" if len(tests) > 1 else "ROC-AUC"], rows)
    return told + (f"\n\nThe same for all pairs, so 0.5: {', '.join(constant)}." if constant else "")


def write_study(about: Mapping[str, Any], runs: RunFile, text: str) -> None:
    """results/NAME.json, which holds every run, and results/NAME.md; prints the text."""
    RESULTS.mkdir(exist_ok=True)
    libraries = versions()
    machines = list(dict.fromkeys(row.get("hardware", hardware()) for row in runs.rows)) or [hardware()]
    head = {**about, "hardware": machines[0], "versions": libraries, "settings": runs.settings}
    usual = {"settings": runs.settings, "hardware": machines[0]}  # of a run that names no other
    rows = [
        {key: value for key, value in row.items() if key not in usual or value != usual[key]}
        for row in runs.rows
    ]
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    opened = json.dumps(head, indent=1).removesuffix("\n}")
    content = f'{opened},\n "runs": [\n{lines}\n ]\n}}\n'
    (RESULTS / f"{runs.name}.json").write_text(content, encoding="utf-8")
    told = ", ".join(f"{library} {number}" for library, number in libraries.items())
    counts = {name: sum(row.get("hardware", name) == name for row in runs.rows) for name in machines}
    several = len(machines) > 1
    made = "; ".join(f"{name}{f' ({count} runs)' * several}" for name, count in counts.items())
    whole = f"{text}\n\n{made}, one thread; {told}.\n"
    (RESULTS / f"{runs.name}.md").write_text(whole, encoding="utf-8")
    print(whole)
