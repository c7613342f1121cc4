"""Tasks that come one after another: what is forgotten, and what does adding an expert cost?

    nice python benchmarks/add_without_forgetting.py --out FOLDER [--data tasks|domains] [--seeds 5]

Four real tasks in sequence: intents (Banking77), emotions of tweets, newsgroups by subject line, STS-B. Each
task gives pairs of texts that belong together, and its figure is the ROC-AUC of 80 such pairs against 80
others, of texts that training has not seen. `--data domains` takes the seven domains of the domain study in
place of the tasks, in three orders, which the seeds take in turn.

Arms, all from three blocks of all-MiniLM-L6-v2, with as many steps for each task:

- sequential: one dense model with a route token per task, trained on one task after the other;
- replay: the same, with 2 batches of earlier tasks among those of each later one (a tenth of all batches of
  the tasks, a seventh of those of the domains);
- lora: an adapter per task beside the unchanged base (peft, rank 8, ten times the rate);
- add-expert: an expert per task, added to the model and trained alone (`only_expert`); also with 2 and 4
  times the steps, or with three times the rate, as sequential too. That all other routes stay bit-equal is
  asserted;
- joint: one dense model trained on all tasks at once, the upper bound.

Models are made and trained as a user would: `extend`, `add_route`, `train`. Takes about 13 minutes of one
core, with 2 and 4 times the steps and 3 times the rate 28; the domains 25, with more steps 50.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import sentence_experts as se
from measuring import table
from sentence_experts.evaluation.statistics import Runs, ScoredPairs, estimate
from study import (
    Difference,
    Row,
    RunFile,
    arguments,
    auc_of,
    blind_table,
    by_route,
    difference_table,
    differences,
    mean_auc,
    packed,
    with_interval,
    with_sign,
    write_study,
)
from study_models import cosines, first_blocks
from task_pairs import TEST_PAIRS, Pair, Task, real_domains, real_tasks, tasks_of

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

NAME = "add_without_forgetting"
BLOCKS, BATCH, MAX_LENGTH, RATE, LORA_RATE, LORA_RANK = 3, 16, 32, 1e-4, 1e-3, 8
STEPS = {"tasks": 15, "domains": 12}  # for each; 12 in place of 8 before the first result of domains
REPLAYED = 2  # batches of earlier tasks, of `STEPS`
COMPARED_TEXTS = 16  # of each route, whose vectors must stay bit-equal
# Fixed before any run: the primary figure is the mean over the tasks of the final ROC-AUC, add-expert minus
# sequential; differences within the margin count as equal.
PRIMARY, MARGIN = ("add-expert", "sequential"), 0.01
TIMES = {"add-expert": 1, "add-expert, 2x steps": 2, "add-expert, 4x steps": 4, "add-expert, 3x rate": 1}
# Added after the first results, a family of tests of their own: adapters had a higher rate, experts had not.
FAST, HIGH_RATE = ("add-expert, 3x rate", "sequential, 3x rate"), 3e-4
ADDED = (FAST, (FAST[0], "lora"))
ORDERED = ("sequential", "replay", FAST[1])  # these depend on the order of the tasks
ARMS = (*ORDERED[:2], "lora", "add-expert", "joint", "add-expert, 2x steps", "add-expert, 4x steps", *FAST)
SETTINGS = {
    "blocks": BLOCKS, "batch": BATCH, "max_length": MAX_LENGTH, "rates": [RATE, LORA_RATE],
    "rank": LORA_RANK, "replayed": REPLAYED, "test_pairs": TEST_PAIRS,
}  # fmt: skip


def orders(names: Sequence[str], data: str) -> list[list[str]]:
    """The tasks come in one order; the domains in three: by name, reversed, from the middle."""
    by_name = list(names)
    middle = len(by_name) // 2
    return [by_name] if data == "tasks" else [by_name, by_name[::-1], by_name[middle:] + by_name[:middle]]


def learn(
    model: SentenceTransformer, pairs: Mapping[str, Sequence[Pair]], steps: int, seed: int, **settings: Any
) -> None:
    """Train in place on the pairs of some tasks, to the last step."""
    rows = [
        {"anchor": one.anchor, "positive": one.positive, "domain": task,
         "anchor_id": f"{task}/{one.group}", "positive_id": f"{task}/{one.group}"}
        for task, own in pairs.items()
        for one in own
    ]  # fmt: skip
    # A validation that measures nothing costs nothing.
    data = se.Pairs.from_tables(train=rows, validation=[{**rows[0], "label": 0}])
    how: dict[str, Any] = {
        "max_steps": steps, "eval_steps": steps, "batch_size": BATCH, "batches": "homogeneous", "seed": seed,
        "scheduler": "constant_with_warmup", "keep": "last", "max_length": MAX_LENGTH,
    }  # fmt: skip
    se.train(model, data, **{**how, **settings})


class Study:
    """One arm with one seed: what it scores right after each task, and in the end."""

    def __init__(self, tasks: Mapping[str, Task], order: Sequence[str], steps: int, seed: int) -> None:
        self.tasks = {name: tasks[name] for name in order}
        self.steps = steps  # for each task
        self.seed = seed
        random = np.random.default_rng(seed)
        self.pairs = {name: tasks[name].draw(random, 4 * steps * BATCH) for name in sorted(tasks)}
        self.own: dict[str, NDArray[np.float64]] = {}
        self.final: dict[str, NDArray[np.float64]] = {}
        self.added = 0  # parameters per task
        self.seconds = 0.0
        self.rate = RATE

    def score(self, model: SentenceTransformer, task: str) -> NDArray[np.float64]:
        """Cosines of the task's test pairs."""
        test = self.tasks[task].test
        return cosines(model, test.first, test.second, model.prompts.get(task), MAX_LENGTH)

    def learn(
        self, model: SentenceTransformer, counts: Mapping[str, int], steps: int, **settings: Any
    ) -> None:
        """Train on this many batches of pairs of each task."""
        started = time.process_time()
        chosen = {task: self.pairs[task][: batches * BATCH] for task, batches in counts.items()}
        learn(model, chosen, steps, self.seed, **{"learning_rate": self.rate, **settings})
        self.seconds += time.process_time() - started

    def dense(self) -> SentenceTransformer:
        """The dense model with a route token per task."""
        return se.extend(first_blocks(BLOCKS), sorted(self.tasks), layers="none")

    def sequential(self, replay: bool) -> None:
        """One task after the other, all weights."""
        model = self.dense()
        random = np.random.default_rng(self.seed)
        for place, task in enumerate(self.tasks):
            counts = {task: self.steps}
            if replay and place:
                earlier = [*self.tasks][:place]
                counts = {task: self.steps - REPLAYED}
                for number in range(REPLAYED):
                    old = earlier[number % place] if place <= REPLAYED else str(random.choice(earlier))
                    counts[old] = counts.get(old, 0) + 1
            self.learn(model, counts, self.steps)
            self.own[task] = self.score(model, task)
        self.final = {task: self.score(model, task) for task in self.tasks}

    def joint(self) -> None:
        """All tasks at once, all weights."""
        model = self.dense()
        self.learn(model, dict.fromkeys(self.tasks, self.steps), self.steps * len(self.tasks))
        self.final = {task: self.score(model, task) for task in self.tasks}

    def lora(self) -> None:
        """An adapter per task beside the base."""
        from peft import LoraConfig

        for task in self.tasks:
            model = first_blocks(BLOCKS)
            projections = ["query", "key", "value", "dense"]
            model.add_adapter(LoraConfig(r=LORA_RANK, lora_alpha=2 * LORA_RANK, target_modules=projections))
            self.added = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
            self.learn(model, {task: self.steps}, self.steps, learning_rate=LORA_RATE)
            self.final[task] = self.score(model, task)

    def add_route(self, times: int) -> None:
        """An expert per task, trained alone; all others stay bit-equal."""
        base = first_blocks(BLOCKS)
        model: Any = None
        before: dict[str, NDArray[np.float32]] = {}
        for task in self.tasks:
            if model is None:
                model = se.extend(base, [task])
            else:
                size = model.parameter_counts()[0]
                model = se.add_route(model, task, seed_from="base", base=base)
                self.added = model.parameter_counts()[0] - size
            self.learn(model, {task: self.steps * times}, self.steps * times, only_expert=task)
            for other, vectors in before.items():
                same = np.array_equal(vectors, self.vectors(model, other))
                assert same, f"{other} has changed while {task} was trained"
            before[task] = self.vectors(model, task)
        self.final = {task: self.score(model, task) for task in self.tasks}

    def vectors(self, model: SentenceTransformer, task: str) -> NDArray[np.float32]:
        """Vectors of some test texts under the task's route."""
        texts = [f"{model.prompts[task]}{text}" for text in self.tasks[task].test.first[:COMPARED_TEXTS]]
        found: NDArray[np.float32] = model.encode(texts, show_progress_bar=False)
        return found

    def run(self, arm: str) -> Row:
        """What the arm gives."""
        self.rate = HIGH_RATE if arm in FAST else RATE
        if arm in TIMES:
            self.add_route(TIMES[arm])
        elif arm == "lora":
            self.lora()
        elif arm == "joint":
            self.joint()
        else:
            self.sequential(arm == "replay")
        return {
            "own": packed(self.own), "scores": packed(self.final), "added": self.added,
            "steps": self.steps * len(self.tasks) * TIMES.get(arm, 1), "seconds": round(self.seconds, 1),
        }  # fmt: skip


def transfer(tests: Mapping[str, ScoredPairs], rows: Sequence[Row]) -> str:
    """Backward transfer: what all tasks but the last one gained, or lost, after their own turn."""
    if not rows[0]["own"]:
        return "0, by construction"
    (change,) = mean_auc(tests, rows).minus(mean_auc(tests, rows, "own"))
    others = len(tests) / (len(tests) - 1)  # the change of the last one is 0
    found = estimate(
        Runs(change.values * others, change.influence * others, change.averaged * others, change.sharing)
    )
    assert found is not None
    return with_sign(found)


def report(runs: RunFile, tasks: Mapping[str, Task], data: str, works: pa.Table | None) -> None:
    """Write the tables of what is finished."""
    tests = {task: one.test.pairs for task, one in tasks.items()}
    found = {arm: rows for arm in ARMS if (rows := runs.find(arm=arm))}
    arms = {arm: mean_auc(tests, rows) for arm, rows in found.items()}
    base = first_blocks(BLOCKS)
    scores = {
        task: cosines(base, one.test.first, one.test.second, max_length=MAX_LENGTH).tolist()
        for task, one in tasks.items()
    }
    untrained = auc_of(tests, scores)
    planned = [arm for arm in arms if arm not in FAST]
    compared = [(one, other) for one in planned for other in planned if one in TIMES and other not in TIMES]
    told = differences(arms, compared, MARGIN) + differences(arms, ADDED, MARGIN)
    primary = next((one for one in told if (one.first, one.second) == PRIMARY), None)
    in_turn = " Sequential and replay take three orders in turn, seed by seed." if data == "domains" else ""
    text = (
        f"# Adding {data} without forgetting\n\n"
        f"Made by `benchmarks/{NAME}.py --data {data}`. {len(tasks)} {data}, {STEPS[data]} steps of {BATCH} "
        f"pairs for each, three blocks of MiniLM; {TEST_PAIRS} test pairs of each class and task.{in_turn} "
        "The experts of add-expert are trained alone; all other routes stayed bit-equal after each of them, "
        "which the script asserts. Seconds are processor seconds of training, with reading and writing of "
        f"models. Primary figure, fixed beforehand: final mean ROC-AUC, {PRIMARY[0]} minus {PRIMARY[1]}; "
        f"margin {MARGIN:g}.\n\n**Verdict**: {sentence(primary, found, tests)}"
    )
    parts = [
        text,
        arm_table(found, tests, untrained),
        "ROC-AUC in the end, by task:",
        task_table(found, tests, scores),
        "Differences of the final means:",
        difference_table(told),
        blind_table({task: one.test for task, one in tasks.items()}, works),
    ]
    missing = [arm for arm in ARMS if not runs.find(arm=arm)]
    parts += [f"Did not run: {', '.join(missing)}."] if missing else []
    write_study({"made_by": f"benchmarks/{NAME}.py"}, runs, "\n\n".join(parts))


def arm_table(found: Mapping[str, Sequence[Row]], tests: Mapping[str, ScoredPairs], untrained: Runs) -> str:
    """What each arm reaches, and what it costs."""
    header = ["arm", "seeds", "final mean ROC-AUC", "backward transfer", "parameters per task"]
    header += ["bytes per task", "steps", "seconds"]
    lines = [["the base, untrained", "", with_interval(untrained), "", "", "", "", ""]]
    for arm, rows in found.items():
        added = rows[0]["added"]
        lines.append(
            [
                arm,
                str(len(rows)),
                with_interval(mean_auc(tests, rows)),
                "" if arm == "joint" else transfer(tests, rows),
                f"{added:,}",
                f"{4 * added / 1e6:.2f} MB",
                str(rows[0]["steps"]),
                f"{np.mean([row['seconds'] for row in rows]):.0f}",
            ]
        )
    return table(header, lines)


def task_table(
    found: Mapping[str, Sequence[Row]],
    tests: Mapping[str, ScoredPairs],
    untrained: Mapping[str, Sequence[float]],
) -> str:
    """The mean over seeds for each task."""
    every: dict[str, Sequence[Row]] = {"the base, untrained": [{"scores": untrained}], **found}
    return table(["arm", *tests], [[arm, *by_route(tests, rows)] for arm, rows in every.items()])


def sentence(
    primary: Difference | None,
    found: Mapping[str, Sequence[Row]],
    tests: Mapping[str, ScoredPairs],
) -> str:
    """The verdict."""
    if primary is None:
        return "the primary comparison did not run."
    return (
        f"added experts forget nothing, to the bit; sequential training changes earlier tasks by "
        f"{transfer(tests, found[primary.second])}. Final mean, {primary.first} minus {primary.second}: "
        f"{primary.verdict}, {primary.told()}."
    )


def main() -> None:
    """Make the runs that are missing, then write the tables."""
    given = arguments(__doc__, arms=ARMS, data=("tasks", "domains"))
    name = NAME if given.data == "tasks" else f"{NAME}_domains"
    runs = RunFile(given.out, name, {**SETTINGS, "steps": STEPS[given.data]})
    pairs = real_domains(given.out / "domains") if given.data == "domains" else None
    tasks = tasks_of(pairs) if pairs else real_tasks()
    possible = orders([*tasks], given.data)
    # Seed by seed, so that an unfinished study has whole seeds; more steps come last.
    wanted: list[Row] = [
        {"arm": arm, "seed": seed}
        for is_late in (False, True)
        for seed in range(given.seeds)
        for arm in given.arms
        if (TIMES.get(arm, 1) > 1) == is_late
    ]

    def run(arm: str, seed: int) -> Row:
        number = seed % len(possible) if arm in ORDERED else 0
        return {"order": number, **Study(tasks, possible[number], STEPS[given.data], seed).run(arm)}

    runs.make(() if given.report else wanted, run)
    report(runs, tasks, given.data, pairs.works() if pairs else None)


if __name__ == "__main__":
    main()
