"""Do experts follow conflicting routes sooner than a dense model does? A control with a known ceiling.

    nice python benchmarks/conflict_control.py --out FOLDER [--seeds 5] [--parts depth3 depth1 ...]

Every text is made of as many bank questions (Banking77) as there are routes, and route j asks for question j
alone. A test pair has the same intent in one place and different ones in all others: it is alike under one
route and unlike under the rest. A model blind to the route gives a pair one score, so its mean ROC-AUC over
the routes is exactly 0.5, whatever it has learned.

Each arm sees the same texts, batches (of one route, in turn) and steps of a seed:

- dense: one model, the instruction "first: " in front of the text; also with three times the rate;
- experts: MoTE, an expert (MLP and norms) per instruction;
- experts, tokens: an expert (MLP) per route token in place of [CLS], without instructions.

Curves are measured within one run. No step and no setting is chosen by a figure: sizes were fixed by the time
that steps take. A run with three blocks takes 80 CPU seconds, with one block 45, with four routes 80.

Added after the first results: "experts, 3x rate", since experts had been compared with a faster dense model
only at their own slower rate; and the parts of four, eight and sixteen routes, at this rate, as each route
has fewer steps; their batches have 8 or 4 pairs, as the texts are longer. Added after those: "dense, 10x rate
for route tokens", a dense model with route tokens whose embeddings alone have ten times the rate; curves to
640 steps with three blocks, to 320 with one block at three times the rate, and to 160 with six at that rate;
and, as that arm was behind the dense model with instructions, "dense, tokens" at the rate of the others. And
"dense" at the lower rate with four and eight routes, since at the higher one its vectors had become all
alike. And four routes to 640 steps. And four and eight routes with all six blocks, each arm at both rates,
since a first run had shown that with four routes most of the gap is a matter of depth.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t

import sentence_experts as se
from measuring import DATA, table
from sentence_experts.evaluation.estimates import ScoredPairs
from study import (
    COSINES,
    Difference,
    Row,
    RunFile,
    Test,
    arguments,
    auc_of,
    blind_table,
    difference_table,
    differences,
    mean_auc,
    packed,
    with_interval,
    write_study,
)
from study_models import Batch, FasterTokens, cosines, first_blocks, train_steps

NAME = "conflict_control"
NAMES = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth",
    "ninth", "tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth",
)  # fmt: skip
WORDS = (5, 8)  # of a question; longer and shorter ones are left out
BATCH, RATE, HIGH_RATE = 16, 1e-4, 3e-4
MEASURED = (20, 40, 80, 160)
# Fixed before any run: the primary figure is the mean ROC-AUC at the last step, two routes, three blocks,
# experts minus dense; of the other parts the first of their arms minus the second. Differences within the
# margin count as equal.
PRIMARY, MARGIN, REACHED = ("depth3", "experts", "dense"), 0.01, 0.9
SETTINGS = {"words": WORDS, "batch": BATCH, "rates": [RATE, HIGH_RATE], "measured": MEASURED}


@dataclass(frozen=True)
class Arm:
    """Kind of the base's routes, the learning rate, and the factor of the rate of route tokens."""

    extend: Mapping[str, Any]
    rate: float = RATE
    tokens: float = 1.0


@dataclass(frozen=True)
class Part:
    """Runs that are compared: how many blocks, routes and test pairs, the arms, the steps at which they are
    measured, of which the last ends the training, and the pairs of a batch.
    """

    blocks: int
    routes: int
    test_pairs: int
    arms: tuple[str, ...]
    measured: tuple[int, ...] = MEASURED
    batch: int = BATCH

    @property
    def steps(self) -> int:
        """Steps of a training."""
        return self.measured[-1]


ARMS = {
    "dense": Arm({"route": "prefix", "layers": "none"}),
    "dense, 3x rate": Arm({"route": "prefix", "layers": "none"}, HIGH_RATE),
    "experts": Arm({"route": "prefix", "expert_norms": True}),
    "experts, 3x rate": Arm({"route": "prefix", "expert_norms": True}, HIGH_RATE),
    "experts, tokens": Arm({"route": "token"}),
    "dense, tokens": Arm({"route": "token", "layers": "none"}),
    "dense, 10x rate for route tokens": Arm({"route": "token", "layers": "none"}, tokens=10.0),
}
MAIN = ("experts", "dense")
FAST = ("experts, 3x rate", "dense, 3x rate")
TWO_ROUTES = (*MAIN, "experts, tokens", "dense, 3x rate")
TOKENS, FASTER_TOKENS = "dense, tokens", "dense, 10x rate for route tokens"
LONG = (20, 40, 80, 160, 320)
PARTS = {
    "depth3": Part(3, 2, 240, (*TWO_ROUTES, FAST[0], FASTER_TOKENS, TOKENS)),
    "depth1": Part(1, 2, 240, TWO_ROUTES),
    "depth6": Part(6, 2, 240, MAIN),
    "depth3long": Part(3, 2, 240, MAIN, (*LONG, 640)),
    "depth1fast": Part(1, 2, 240, FAST, LONG),
    "depth6fast": Part(6, 2, 240, FAST),
    "routes4": Part(3, 4, 160, (*FAST, "dense"), (80, 160, 240), batch=8),
    "routes4long": Part(3, 4, 160, FAST, (80, 160, 240, 480, 640), batch=8),
    "routes8": Part(3, 8, 96, (*FAST, "dense"), (80, 160, 320), batch=8),
    "routes4depth6": Part(6, 4, 160, (*FAST, *MAIN), (40, 80, 160), batch=8),
    "routes8depth6": Part(6, 8, 96, (*FAST, *MAIN), (80, 160, 240), batch=8),
    "routes16": Part(3, 16, 48, FAST, (160, 320), batch=4),
}
Questions = Mapping[str, Sequence[str]]  # intent -> questions


def questions() -> tuple[Questions, Questions]:
    """Short questions by intent: half of each intent for training, half for the test."""
    by_intent: dict[str, list[str]] = defaultdict(list)
    for split in ("train", "test"):
        with gzip.open(DATA / "eval" / f"banking77_{split}.jsonl.gz", "rt", encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                if WORDS[0] <= len(row["text"].split()) <= WORDS[1]:
                    by_intent[row["label"]].append(row["text"])
    random = np.random.default_rng(0)
    train, test = {}, {}
    for intent in sorted(by_intent):
        order = random.permutation(sorted(set(by_intent[intent]))).tolist()
        train[intent], test[intent] = order[::2], order[1::2]
    return train, test


@dataclass(frozen=True)
class TestPairs:
    """Pairs of texts and the place in which their intents agree, each (pairs,); no question comes twice."""

    first: list[str]
    second: list[str]
    agreeing: list[int]

    def by_route(self, routes: int) -> dict[str, ScoredPairs]:
        """Route -> all pairs with the labels of that route."""
        first, second = ([f"{side} {number}" for number in range(len(self.agreeing))] for side in "ab")
        zeros = np.zeros(len(first))
        agreeing = np.array(self.agreeing)
        return {
            NAMES[route]: ScoredPairs(zeros, (agreeing == route).astype(np.int64), first, second)
            for route in range(routes)
        }


def test_pairs(test: Questions, routes: int, count: int) -> TestPairs:
    """Test pairs, as many for each route. The same for all arms and seeds.

    Each question stands in one pair only, so pairs are independent of each other.
    """
    random = np.random.default_rng(routes)
    left = {intent: random.permutation(own).tolist() for intent, own in test.items()}

    def drawn(number: int) -> list[str]:
        """Different intents: those with the most questions left."""
        intents = random.permutation([intent for intent in left if left[intent]]).tolist()
        return sorted(intents, key=lambda intent: -len(left[intent]))[:number]

    first: list[str] = []
    second: list[str] = []
    agreeing = [number % routes for number in range(count)]
    for place in agreeing:
        same = str(random.choice([intent for intent in left if len(left[intent]) > 1]))
        couple = [left[same].pop(), left[same].pop()]
        others = random.permutation([one for one in drawn(2 * routes) if one != same][: 2 * routes - 2])
        rest = [left[intent].pop() for intent in others.tolist()]
        sides = [rest[: routes - 1], rest[routes - 1 :]]
        for side, own, texts in zip(sides, couple, (first, second), strict=True):
            side.insert(place, own)
            texts.append(" ".join(side))
    return TestPairs(first, second, agreeing)


def batches(part: Part, train: Questions, seed: int, prompts: Sequence[str]) -> Iterator[Batch]:
    """Batches of one route, the routes in turn. All pairs of a batch have another intent."""
    random = np.random.default_rng(seed)
    intents = sorted(train)

    def some() -> str:
        return str(random.choice(train[str(random.choice(intents))]))

    for step in range(part.steps):
        route = step % part.routes
        columns: tuple[list[str], list[str]] = ([], [])
        for intent in random.choice(intents, part.batch, replace=False).tolist():
            couple = random.choice(train[intent], 2, replace=False).tolist()
            for column, own in zip(columns, couple, strict=True):
                parts = [own if place == route else some() for place in range(part.routes)]
                column.append(prompts[route] + " ".join(parts))
        yield Batch(*columns, range(part.batch))


def run(part: Part, arm: Arm, seed: int, train: Questions, pairs: TestPairs) -> dict[str, Any]:
    """One run: the curve, and the cosines of the last step."""
    names = NAMES[: part.routes]
    model = se.extend(first_blocks(part.blocks), list(names), **arm.extend)
    prompts = [model.prompts[name] or "" for name in names]
    curve: list[dict[str, Any]] = []
    scores: dict[str, Any] = {}

    def measure(step: int, seconds: float) -> None:
        if step not in part.measured:
            return
        for name, prompt in zip(names, prompts, strict=True):
            scores[name] = cosines(model, pairs.first, pairs.second, prompt)
        auc = float(auc_of(pairs.by_route(part.routes), scores).values[0])
        curve.append({"step": step, "seconds": round(seconds, 2), "auc": round(auc, 5)})

    faster = FasterTokens(model, prompts, arm.tokens) if arm.tokens != 1 else None
    train_steps(model, batches(part, train, seed, prompts), arm.rate, seed, measure, faster=faster)
    return {"curve": curve, "scores": packed(scores)}


def blind_auc(part: Part, pairs: TestPairs) -> float:
    """The mean ROC-AUC over the routes of the base itself, which does not see them."""
    scores = cosines(first_blocks(part.blocks), pairs.first, pairs.second)
    by_route = pairs.by_route(part.routes)
    return float(auc_of(by_route, dict.fromkeys(by_route, scores.tolist())).values[0])


def curve_table(part: Part, found: Mapping[str, list[Row]]) -> str:
    """The mean over seeds at each step, experts minus dense, and what it takes to reach `REACHED`."""
    rows = []
    for arm, runs in found.items():
        cells = [f"{mean:.3f}" for mean in curves(runs).mean(0)]
        crossings = [next((point for point in one["curve"] if point["auc"] >= REACHED), None) for one in runs]
        reached = [point for point in crossings if point is not None]
        there = f"{len(reached)} of {len(runs)}"
        if reached:
            steps = " or ".join(str(step) for step in sorted({point["step"] for point in reached}))
            there += f": {steps} steps, {np.mean([point['seconds'] for point in reached]):.0f} s"
        whole = np.mean([one["curve"][-1]["seconds"] for one in runs])
        rows.append([arm, str(len(runs)), *cells, f"{whole:.0f} s", there])
    for first, second in (MAIN, FAST):
        if min(len(found.get(first, ())), len(found.get(second, ()))) < 2:
            continue
        one, other = (curves(found[arm]) for arm in (first, second))
        seeds = min(len(one), len(other))
        change = (one[:seeds] - other[:seeds]).T
        half = [float(t.isf(0.025, seeds - 1)) * own.std(ddof=1) / seeds**0.5 for own in change]
        cells = [f"{own.mean():+.3f} ± {width:.3f}" for own, width in zip(change, half, strict=True)]
        rows.append([f"{first} - {second}, over seeds", str(seeds), *cells, "", ""])
    header = ["mean ROC-AUC of the routes", "seeds", *(f"{step} steps" for step in part.measured)]
    return table([*header, f"{part.steps} steps take", f"runs that reach {REACHED}"], rows)


def curves(runs: Sequence[Row]) -> NDArray[np.float64]:
    """The figure of each run at each step, shape (runs, steps)."""
    return np.array([[point["auc"] for point in one["curve"]] for one in runs])


def spread(runs: Sequence[Row]) -> str:
    """Mean and standard deviation of the cosines: a model whose vectors are all alike has 1 and 0."""
    found = [np.concatenate(list(one["scores"].values())) / COSINES for one in runs]
    return f"{np.mean([own.mean() for own in found]):.3f} ± {np.mean([own.std() for own in found]):.3f}"


def families(part: Part) -> list[list[tuple[str, str]]]:
    """The comparisons of a part: what was planned is one family of tests, each later addition another."""
    planned = [arm for arm in part.arms if arm not in (FAST[0], FASTER_TOKENS, TOKENS)]
    compared = [(one, other) for other in planned for one in planned if "experts" in one and "dense" in other]
    faster = [(FASTER_TOKENS, "dense"), ("experts, tokens", FASTER_TOKENS)]
    return [
        compared,
        [FAST],
        [(FAST[0], "dense")] if "experts" not in part.arms else [],
        faster,
        [(TOKENS, "dense"), (FASTER_TOKENS, TOKENS), ("experts, tokens", TOKENS)],
    ]


def report(runs: RunFile) -> None:
    """Write the tables of what is finished."""
    _, test = questions()
    sections: list[str] = []
    told_of: set[int] = set()
    primary = "The primary comparison did not run."
    for name, part in PARTS.items():
        found = {arm: runs.find(part=name, arm=arm) for arm in part.arms}
        found = {arm: own for arm, own in found.items() if own}
        title = f"{part.routes} routes, {part.blocks} block{'s' * (part.blocks > 1)} of MiniLM"
        title += f", to {part.steps} steps (`--parts {name}`)"
        if not found:
            sections.append(f"## {title}\n\nDid not run.")
            continue
        pairs = test_pairs(test, part.routes, part.test_pairs)
        by_route = pairs.by_route(part.routes)
        arms = {arm: mean_auc(by_route, own) for arm, own in found.items()}
        told = [one for family in families(part) for one in differences(arms, family, MARGIN)]
        if name == PRIMARY[0]:
            primary = next((sentence(one) for one in told if (one.first, one.second) == PRIMARY[1:]), primary)
        figures = table(
            [f"ROC-AUC at {part.steps} steps", "mean of routes (95% interval)", "cosines of test pairs"],
            [[arm, with_interval(own), spread(found[arm])] for arm, own in arms.items()],
        )
        blind = f"The base, blind to the route: {blind_auc(part, pairs):.3f}. {part.test_pairs} test pairs, "
        blind += f"batches of {part.batch}."
        parts = [blind, curve_table(part, found), figures, difference_table(told)]
        if part.routes not in told_of:  # parts of as many routes have the same test pairs
            told_of.add(part.routes)
            parts.append(
                blind_table({route: Test(pairs.first, pairs.second, own) for route, own in by_route.items()})
            )
        sections.append("\n\n".join([f"## {title}", *parts]))
    head = (
        "# Do experts follow conflicting routes sooner than a dense model?\n\n"
        f"Made by `benchmarks/{NAME}.py`. Learning rate {RATE:g} (3x rate: "
        f"{HIGH_RATE:g}); a route-blind model has exactly 0.5. Seconds are processor seconds of one core, "
        f"without measuring. Primary figure, fixed beforehand: mean ROC-AUC at {MEASURED[-1]} steps, two "
        f"routes, three blocks, experts minus dense; margin {MARGIN:g}.\n\n**Verdict**: {primary}"
    )
    write_study({"made_by": f"benchmarks/{NAME}.py"}, runs, "\n\n".join([head, *sections]))


def sentence(primary: Difference) -> str:
    """The verdict on the primary figure."""
    words = {"better": "experts are ahead of the dense model", "worse": "experts are behind the dense model"}
    told = words.get(primary.verdict, f"experts and the dense model: {primary.verdict}")
    sizes = f"after {MEASURED[-1]} steps, {told}: {primary.told()}."
    return f"with two conflicting routes and three blocks, {sizes}"


def main() -> None:
    """Make the runs that are missing, then write the tables."""
    given = arguments(__doc__, parts=tuple(PARTS))
    runs = RunFile(given.out, NAME, SETTINGS)
    train, test = questions()
    # Seed by seed, so that an unfinished study has whole seeds; the arms that are compared first come first.
    wanted: list[Row] = [
        {"part": name, "arm": arm, "seed": seed}
        for is_main in (True, False)
        for name in (() if given.report else given.parts)
        for seed in range(given.seeds)
        for arm in PARTS[name].arms
        if (arm in PARTS[name].arms[:2]) == is_main
    ]

    def one(part: str, arm: str, seed: int) -> Row:
        own = PARTS[part]
        return run(own, ARMS[arm], seed, train, test_pairs(test, own.routes, own.test_pairs))

    runs.make(wanted, one)
    report(runs)


if __name__ == "__main__":
    main()
