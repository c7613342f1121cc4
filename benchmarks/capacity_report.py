"""The tables of `capacity.py` and its figure, from the finished runs alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import capacity_overview
from capacity_data import SETS, DataSet, Folders, conflicts_of, pairs_of, share_named, sizes
from measuring import RESULTS, hardware, table, versions
from sentence_experts.evaluation.estimates import Runs, ScoredPairs, Sharing
from sentence_experts.evaluation.label_similarity import MoreLikeThis, more_like_this
from sentence_experts.training.labelled_texts import TEST
from study import Difference, Row, RunFile, Test, auc_of, blind_table, differences, with_interval, with_sign

MARGIN = 0.01
DENSE, EXPERT, HEAD, SEPARATE = "dense", "expert", "head", "separate"
ADAPTER, JOINT = "adapter, rank 8", "head and base"
TRAINED = (DENSE, ADAPTER, EXPERT, SEPARATE)
# Fixed before the first run: each question is a family of tests, over all sets that have both arms.
QUESTIONS = {
    "Is a linear map more than nothing?": [(HEAD, "base")],
    "Does anything give more than a linear map?": [(arm, HEAD) for arm in (*TRAINED, JOINT)],
    "Do experts give more than a dense model with instructions?": [(EXPERT, DENSE)],
    "Is the rank of a linear map of any weight?": [(HEAD, "head, rank 64"), (HEAD, "head, rank 16")],
    "And that of an adapter?": [("adapter, rank 32", ADAPTER)],
    "How many blocks need experts?": [
        (EXPERT, "expert, alternate blocks"),
        (EXPERT, "expert, last two blocks"),
    ],
    "Do batches of one route serve the dense model?": [(DENSE, "dense, mixed batches")],
    "Is a model of one's own more than an expert?": [(SEPARATE, EXPERT)],
    # Added after the first seeds of the main arms.
    "What does reading whole texts give (added later)?": [
        (f"{HEAD}, whole texts", HEAD),
        (f"{HEAD}, whole texts", EXPERT),
        (f"{EXPERT}, whole texts", f"{HEAD}, whole texts"),
    ],
}


@dataclass
class SetRuns:
    """The finished runs of a set, and what their figures are computed with."""

    own: DataSet
    folders: Folders
    runs: RunFile

    @cached_property
    def data(self) -> Any:
        """The texts."""
        return self.own.load(self.folders)

    @cached_property
    def queries(self) -> dict[str, MoreLikeThis]:
        """Route -> the test queries, and what a random order has."""
        nothing = np.zeros((len(self.data.sets[TEST]), 1), np.float32)
        groups = self.data.groups_of(TEST)
        return {r: more_like_this(nothing, self.data.labels_of(r, TEST), groups) for r in self.data.labels}

    @cached_property
    def tests(self) -> dict[str, dict[str, Test]]:
        """Route -> other route -> pairs that they judge in opposite ways, with their texts."""
        texts = [self.data.texts[row] for row in self.data.sets[TEST]]
        conflicts = conflicts_of(self.data)
        found: dict[str, dict[str, Test]] = {}
        for route in self.data.labels:
            for other, pairs, alike in pairs_of(route, conflicts):
                ids = [[str(row) for row in side] for side in pairs.T]
                first, second = ([texts[row] for row in side] for side in pairs.T)
                test = Test(first, second, ScoredPairs(np.zeros(len(pairs)), alike, *ids))
                found.setdefault(route, {})[f"{route}, not {other}"] = test
        return found

    def auc_runs(self, row: Row, routes: Sequence[str] | None = None) -> Runs:
        """The ROC-AUC of conflicting pairs in one run: the mean over routes, and for each over the others."""
        pairs, scores = {}, {}
        for route in routes or self.tests:
            start = 0
            for name, test in self.tests[route].items():
                pairs[name] = test.pairs
                scores[name] = row["cosines"][route][start : start + len(test.first)]
                start += len(test.first)
        return auc_of(pairs, scores)

    @cached_property
    def arms(self) -> dict[str, list[Row]]:
        """Arm -> its runs with all pairs, by seed."""
        rows = self.runs.find(data=self.own.name, stage="seed")
        names = dict.fromkeys(row["arm"] for row in self.runs.rows)
        return {arm: own for arm in names if (own := [row for row in rows if row["arm"] == arm])}

    def ndcg(
        self, rows: Sequence[Row], by_label: bool = False, weights: Mapping[str, float] | None = None
    ) -> Runs:
        """The mean over the routes of nDCG@10; queries of one text count as related, or of one label.

        Args:
            rows: runs of one arm.
            by_label: queries whose rarest label is the same are related: as if labels were drawn anew.
            weights: of the routes, in place of the mean.
        """
        runs = []
        shares = weights or dict.fromkeys(self.queries, 1 / len(self.queries))
        for row in rows:
            own = {route: np.array(row["ndcg"][route]) / 1000 for route in self.queries}
            influence = [shares[r] * (each - each.mean()) / len(each) for r, each in own.items()]
            value = np.array([sum(shares[r] * each.mean() for r, each in own.items())])
            joined = np.concatenate(influence)[np.newaxis]
            runs.append(Runs(value, joined, joined, self._sharing(by_label)))
        return Runs.joined(runs)

    def _sharing(self, by_label: bool) -> Sharing:
        clusters, start = [], 0
        for route, found in self.queries.items():
            if not by_label:
                clusters.append(found.queries)
                continue
            labels = self.data.labels_of(route, TEST)
            counts = labels.counts
            own = [min(labels.matrix[[row]].indices, key=lambda n: counts[n]) for row in found.queries]
            clusters.append(start + np.array(own))
            start += len(counts)
        first = np.concatenate(clusters)
        each = np.arange(len(first))
        return Sharing(first, first.max() + 1 + each, each)

    def disagreeing(self) -> dict[str, float]:
        """Weights of the routes by which the mean of those that the base disagrees with exceeds the others'.

        Empty where the base disagrees with all routes, or with none.
        """
        (base, *_) = self.arms["base"]
        apart = {route: self.auc(base, route) < 0.5 for route in self.tests}
        counts = [sum(apart.values()), len(apart) - sum(apart.values())]
        if 0 in counts:
            return {}
        return {route: 1 / counts[0] if against else -1 / counts[1] for route, against in apart.items()}

    def auc(self, row: Row, route: str) -> float:
        """The ROC-AUC of the conflicting pairs of a route in one run."""
        return float(self.auc_runs(row, [route]).values[0])

    def mean_auc(self, rows: Sequence[Row]) -> str:
        """The mean over routes and runs, with its interval."""
        return with_interval(Runs.joined([self.auc_runs(row) for row in rows])) if self.tests else "–"

    def figures(self) -> str:
        """Markdown: what each arm reaches, and what it costs."""
        lines = []
        for arm, rows in self.arms.items():
            runs = self.ndcg(rows)
            by_route = [
                f"{np.mean([np.mean(row['ndcg'][r]) for row in rows]) / 1000:.3f}" for r in self.queries
            ]
            lines.append(
                [arm, str(len(rows)), with_interval(runs), *by_route, self.mean_auc(rows), *costs(rows)]
            )
        routes = [f"nDCG, {route}" for route in self.queries]
        header = ["arm", "seeds", "nDCG@10 (95% interval)", *routes, "ROC-AUC of conflicts", *COSTS]
        return table(header, lines)

    def agreement(self) -> list[list[str]]:
        """A row for each route: what could explain the need, and what each arm has over a linear map."""
        found = []
        for route, own in self.queries.items():
            base = self.arms.get("base", [])
            agrees = f"{self.auc(base[0], route):.3f}" if base and route in self.tests else "–"
            head = self.route_mean(HEAD, route)
            gains = [
                "–"
                if (value := self.route_mean(arm, route)) is None or head is None
                else f"{value - head:+.3f}"
                for arm in ("base", *TRAINED)
            ]
            told = [f"{own.chance.mean():.3f}", f"{share_named(self.data, route):.2f}", agrees]
            found.append([self.own.name, route, str(len(own.queries)), *told, *gains])
        return found

    def route_mean(self, arm: str, route: str) -> float | None:
        """The mean nDCG@10 of an arm under a route; None without runs."""
        rows = self.arms.get(arm)
        return float(np.mean([np.mean(row["ndcg"][route]) for row in rows])) / 1000 if rows else None


INTERVALS_NOTE = (
    "Intervals of nDCG@10 take the ranked texts as they are. With these drawn anew too, that of a head's "
    "gain over the base was 1.3 to 1.45 times as wide on Debian's programs (four routes, one split; found "
    "when all runs had ended, whose vectors are not kept). Read an end that is near 0 or 0.01 as open."
)
COSTS = ("trained weights, shared", "per route", "training, CPU s", "ms a text, all routes", "bytes a text")


def costs(rows: Sequence[Row]) -> list[str]:
    """The costs of an arm: weights, seconds of training, milliseconds and bytes of a text for all routes."""
    weights = rows[0].get("weights", {"shared": 0, "owned": 0})
    seconds = [row["seconds"] for row in rows if "seconds" in row]
    milliseconds = [row["milliseconds"] for row in rows if "milliseconds" in row]
    one_vector = rows[0]["arm"].startswith((HEAD, "base"))
    return [
        f"{weights['shared']:,}",
        f"{weights['owned']:,}",
        f"{np.mean(seconds):,.0f}" if seconds else "–",
        f"{np.mean(milliseconds):.0f}" if milliseconds else "as the base",
        f"{4 * 384 * (1 if one_vector else len(rows[0]['ndcg'])):,}",
    ]


def cost_table(own: SetRuns) -> str:
    """Markdown: what a route of each arm costs on a set."""
    return table(["arm", *COSTS], [[arm, *costs(rows)] for arm, rows in own.arms.items()])


def judge(sets: Mapping[str, SetRuns]) -> str:
    """Markdown: each question with its family of differences, and intervals with labels drawn anew."""
    parts = []
    for question, pairs in QUESTIONS.items():
        arms, anew, compared = {}, {}, []
        for name, own in sets.items():
            for one, other in pairs:
                if not {one, other} <= set(own.arms):
                    continue
                for arm in (one, other):
                    rows = own.arms[arm]
                    seeds = len(own.arms[one]) if arm == "base" else len(rows)  # it has no seed
                    rows = rows * seeds if arm == "base" else rows
                    arms[f"{name}: {arm}"], anew[f"{name}: {arm}"] = own.ndcg(rows), own.ndcg(rows, True)
                compared.append((f"{name}: {one}", f"{name}: {other}"))
        told = differences(arms, compared, MARGIN)
        again = differences(anew, compared, MARGIN)
        lines = [
            [*one.cells(), with_sign(other.estimate), str(_seeds(arms, one))]
            for one, other in zip(told, again, strict=True)
        ]
        header = ["nDCG@10, paired by seed", "difference (95% interval)", "p, Holm", "verdict"]
        header += ["interval, labels drawn anew", "seeds"]
        parts.append(f"### {question}\n\n{table(header, lines) if lines else 'No runs yet.'}")
    return "\n\n".join(parts)


def judge_disagreement(sets: Mapping[str, SetRuns]) -> str:
    """Markdown: whether experts gain more over a linear map under routes that the base disagrees with."""
    arms: dict[str, Runs] = {}
    for name, own in sets.items():
        if {"base", EXPERT, HEAD} <= set(own.arms) and (weights := own.disagreeing()):
            for arm in (EXPERT, HEAD):
                arms[f"{name}: {arm}"] = own.ndcg(own.arms[arm], weights=weights)
    compared = [(f"{name}: {EXPERT}", f"{name}: {HEAD}") for name in sets]
    told = differences(arms, compared, MARGIN)
    header = ["nDCG@10, base disagrees minus base agrees", "difference (95% interval)", "p, Holm", "verdict"]
    return table(header, [one.cells() for one in told]) if told else "No runs yet."


def _seeds(arms: Mapping[str, Runs], one: Difference) -> int:
    return min(len(arms[name].values) for name in (one.first, one.second))


def few_table(own: SetRuns) -> str:
    """Markdown: nDCG@10 by the number of pairs of a route."""
    rows = own.runs.find(data=own.own.name, stage="few")
    lines = []
    for arm in dict.fromkeys(row["arm"] for row in rows):
        for pairs in sorted({row["pairs"] for row in rows if row["arm"] == arm}):
            found = [row for row in rows if (row["arm"], row["pairs"]) == (arm, pairs)]
            lines.append(
                [arm, f"{pairs:,}", str(len(found)), with_interval(own.ndcg(found)), own.mean_auc(found)]
            )
    lines += [
        [
            arm,
            "all",
            str(len(own.arms[arm])),
            with_interval(own.ndcg(own.arms[arm])),
            own.mean_auc(own.arms[arm]),
        ]
        for arm in dict.fromkeys(["base", *(line[0] for line in lines)])
        if arm in own.arms
    ]
    return table(["arm", "pairs of a route", "seeds", "nDCG@10", "ROC-AUC of conflicts"], lines)


def long_table(own: SetRuns) -> str:
    """Markdown: heads with four times the steps, and the steps that were kept; of one seed."""
    lines = []
    for row in own.runs.find(data=own.own.name, stage="long"):
        kept = ", ".join(f"{route} {steps}" for route, (_, steps) in row["chosen"].items())
        lines.append([row["arm"], kept, f"{own.arms[row['arm']][0]['mean']:.3f}", f"{row['mean']:.3f}"])
    return table(["arm", "steps kept", "nDCG@10, usual steps", "nDCG@10"], lines)


def rate_table(runs: RunFile) -> str:
    """Markdown: the validation figure of each rate."""
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in runs.find(stage="rate"):
        cells.setdefault((row["data"], row["arm"]), []).append(row)
    lines = [
        [
            data,
            arm,
            "; ".join(
                f"{row['rate']:g}: {row['validation']:.3f}" for row in sorted(rows, key=lambda r: r["rate"])
            ),
        ]
        for (data, arm), rows in cells.items()
    ]
    return table(["data", "arm", "rate: nDCG@10 on validation texts"], lines) if lines else "No runs yet."


def write(
    runs: RunFile, folders: Folders, made: str, plan: str, picture: Path, pages: Sequence[Path] = ()
) -> None:
    """Write results/capacity.md, the picture, and the tables of pages; print the text.

    `made` tells how many of the planned runs are there.
    """
    sets = {
        name: SetRuns(own, folders, runs) for name, own in SETS.items() if runs.find(data=name, stage="seed")
    }
    header = ["data", "route", "queries", "nDCG, chance", "label named", "base, ROC-AUC"]
    header += [f"{arm} - head" for arm in ("base", *TRAINED)]
    drawn = capacity_overview.draw(sets)
    if drawn is not None:
        picture.write_text(drawn, encoding="utf-8")
    explained = table(header, [line for own in sets.values() for line in own.agreement()])
    quality, conflicts = (capacity_overview.quality_table(sets, conflicts=each) for each in (False, True))
    parts = [
        "# How much of a model does a kind of similarity need?",
        f"Made by `benchmarks/capacity.py`, which says what is compared; {made} planned runs are "
        "there. MiniLM with six blocks; 'whole texts' are their first 256 tokens. Seconds are "
        "means over machines of unlike speed, with other work.",
        f'nDCG@10 of "more like this", mean of the routes, ± half of a 95% interval, and seeds:\n\n{quality}',
        INTERVALS_NOTE,
        f"ROC-AUC of pairs that two routes judge in opposite ways, mean of the routes:\n\n{conflicts}",
        f"## What explains the need\n\n{explained}",
        f"![Experts minus a linear map, by the base's agreement](../../docs/images/{picture.name})"
        if drawn
        else "",
        capacity_overview.explain(sets),
        f"## Questions\n\n{judge(sets)}",
        "### Do experts gain more over a linear map where the base disagrees (added later)?\n\n"
        "Routes whose conflicting pairs the base judges worse than chance, against the others of a set.\n\n"
        f"{judge_disagreement(sets)}",
    ]
    for name, own in sets.items():
        told = sizes(own.data)
        about = f"{told['texts']} texts for training, validation and test, {own.own.tokens} tokens; "
        about += f"labels: {told['labels']}."
        parts.append(f"## {name}\n\n{about}\n\n{own.figures()}")
        if own.tests:
            parts.append(
                blind_table({name: test for each in own.tests.values() for name, test in each.items()})
            )
        if runs.find(data=name, stage="few"):
            parts.append(f"With few pairs:\n\n{few_table(own)}")
        if runs.find(data=name, stage="long"):
            parts.append(f"With more steps:\n\n{long_table(own)}")
    blocks = {"quality": quality, "conflicts": conflicts}
    blocks |= {f"costs of {name}": cost_table(own) for name, own in sets.items()}
    capacity_overview.fill_pages(blocks, pages)
    parts += [f"## Rates\n\n{rate_table(runs)}", f"## Plan\n\n{plan}"]
    machines = "; ".join(dict.fromkeys(row.get("hardware", hardware()) for row in runs.rows))
    told_versions = ", ".join(f"{library} {number}" for library, number in versions().items())
    whole = (
        "\n\n".join([part for part in parts if part] + [f"{machines}; one thread; {told_versions}."]) + "\n"
    )
    (RESULTS / "capacity.md").write_text(whole, encoding="utf-8")
    print(whole)
