"""Tasks that come one after another: what is forgotten, and what does adding an expert cost?

    nice python benchmarks/add_without_forgetting.py --out FOLDER [--data tasks|domains] [--seeds 5]

Four real tasks in sequence: intents (Banking77), emotions of tweets, newsgroups by subject line, STS-B. Each
task gives pairs of texts that belong together, and its figure is the ROC-AUC of 80 such pairs against 80
others, of texts that training has not seen. `--data domains` takes the seven domains of the domain study in
place of the tasks, in three orders.

Arms, all from three blocks of all-MiniLM-L6-v2, with as many steps for each task:

- sequential: one dense model with a route token per task, trained on one task after the other;
- replay: the same, with a tenth of the batches from earlier tasks;
- lora: an adapter per task beside the unchanged base (peft, rank 8, ten times the rate);
- add-expert: an expert per task, added to the model and trained alone (`only_expert`); also with 2 and 4
  times the steps. That all other routes stay bit-equal is asserted;
- joint: one dense model trained on all tasks at once, the upper bound.

Models are made and trained as a user would: `extend`, `add_expert`, `train`. Takes about 15 minutes of one
core, with 2 and 4 times the steps 30.
"""

from __future__ import annotations

import gzip
import json
import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import studies
from measuring import table
from sentence_experts.evaluation.statistics import Runs, ScoredPairs, estimate
from studies import RunFile
from study import CROPS, DATA, ELIFE, HERE

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from sentence_experts import Pairs

NAME = "add_without_forgetting"
BLOCKS, BATCH, STEPS, MAX_LENGTH, RATE, LORA_RATE, LORA_RANK = 3, 16, 15, 32, 1e-4, 1e-3, 8
REPLAYED = 2  # batches of earlier tasks, of STEPS
TEST_PAIRS, COMPARED_TEXTS = 80, 16  # of each class and task; texts of each route that must stay bit-equal
# Fixed before any run: the primary figure is the mean over the tasks of the final ROC-AUC, add-expert minus
# sequential; differences within the margin count as equal.
PRIMARY, MARGIN = ("add-expert", "sequential"), 0.01
TIMES = {"add-expert": 1, "add-expert, 2x steps": 2, "add-expert, 4x steps": 4}
ORDERED = ("sequential", "replay")  # these depend on the order of the tasks
ARMS = ("sequential", "replay", "lora", "add-expert", "joint", "add-expert, 2x steps", "add-expert, 4x steps")
SETTINGS = {
    "blocks": BLOCKS, "batch": BATCH, "steps": STEPS, "max_length": MAX_LENGTH, "rates": [RATE, LORA_RATE],
    "rank": LORA_RANK, "replayed": REPLAYED, "test_pairs": TEST_PAIRS,
}  # fmt: skip


class Pair(NamedTuple):
    """Two texts that belong together, and what they have in common: such texts are no negatives."""

    anchor: str
    positive: str
    group: str


@dataclass(frozen=True)
class Test:
    """Test pairs of one task: texts, each (pairs,), and their labels."""

    first: list[str]
    second: list[str]
    pairs: ScoredPairs


@dataclass(frozen=True)
class Task:
    """A task's training texts by label, or its training pairs; and its test."""

    test: Test
    by_label: Mapping[str, Sequence[str]] = field(default_factory=dict)
    linked: Sequence[Pair] = ()

    def draw(self, random: np.random.Generator, count: int) -> list[Pair]:
        """Training pairs."""
        if self.linked:
            chosen = random.choice(len(self.linked), count, replace=count > len(self.linked))
            return [self.linked[number] for number in chosen.tolist()]
        labels = random.choice([one for one, own in self.by_label.items() if len(own) > 1], count).tolist()
        couples = [random.choice(self.by_label[label], 2, replace=False).tolist() for label in labels]
        return [Pair(one, other, label) for (one, other), label in zip(couples, labels, strict=True)]


def rows_of(name: str) -> list[dict[str, Any]]:
    """The rows of a file of the evaluation data."""
    with gzip.open(DATA / "eval" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def scored(first: list[str], second: list[str], labels: Sequence[int]) -> Test:
    """A test; pairs with a text in common are not independent."""
    return Test(first, second, ScoredPairs(np.zeros(len(first)), np.array(labels), first, second))


def labelled_task(train: Mapping[str, Sequence[str]], test: Mapping[str, Sequence[str]]) -> Task:
    """A task of texts with labels; no test text comes twice."""
    random = np.random.default_rng(0)
    left = {label: random.permutation(own).tolist() for label, own in test.items()}
    first: list[str] = []
    second: list[str] = []
    labels = [number % 2 for number in range(2 * TEST_PAIRS)]
    for label in labels:
        most = sorted(left, key=lambda one: -len(left[one]))
        one = str(random.choice(most[: max(2, len(most) // 2)]))
        other = (
            one
            if label
            else str(random.choice([name for name in most[: max(2, len(most) // 2)] if name != one]))
        )
        first.append(left[one].pop())
        second.append(left[other].pop())
    return Task(scored(first, second, labels), by_label=train)


def by_label(rows: Sequence[Mapping[str, Any]], text: str, label: str) -> dict[str, list[str]]:
    """Distinct texts by label."""
    found: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        found[str(row[label])].append(row[text])
    return {name: sorted(set(own)) for name, own in sorted(found.items())}


def real_tasks() -> dict[str, Task]:
    """The four tasks, in their order."""
    banking = [by_label(rows_of(f"banking77_{split}"), "text", "label") for split in ("train", "test")]
    tweets = [by_label(rows_of(f"tweet_emotion_{split}"), "text", "label") for split in ("train", "test")]
    subjects = [
        {**row, "subject": re.sub(r"(?i)^((re|fwd?)\s*:\s*)+", "", row["subject"]).strip()}
        for row in rows_of("twentynewsgroups_test")
    ]
    groups = by_label([row for row in subjects if len(row["subject"].split()) > 1], "subject", "label")
    halves = [{name: own[half::2] for name, own in groups.items()} for half in (0, 1)]
    pairs = [(row["sentence1"], row["sentence2"], float(row["score"])) for row in rows_of("stsb_train")]
    linked = [
        Pair(one, two, str(n)) for n, (one, two, score) in enumerate(pairs) if score >= 4 and one != two
    ]
    rated = [(row["sentence1"], row["sentence2"], float(row["score"])) for row in rows_of("stsb_dev")]
    alike = [pair for pair in rated if pair[2] >= 4 and pair[0] != pair[1]][:TEST_PAIRS]
    unlike = [pair for pair in rated if pair[2] <= 2.5][:TEST_PAIRS]
    both = [*alike, *unlike]
    labels = [1] * len(alike) + [0] * len(unlike)
    return {
        "banking77": labelled_task(*banking),
        "emotion": labelled_task(*tweets),
        "newsgroups": labelled_task(*halves),
        "stsb": Task(scored([one for one, _, _ in both], [two for _, two, _ in both], labels), linked=linked),
    }


def real_domains(folder: Path) -> dict[str, Task]:
    """The seven domains of the domain study: titles cited together, split by citing article."""
    import sentence_experts

    rules = HERE.parent / "src" / "sentence_experts" / "recipes" / "material" / "real_domains.yaml"
    corpus = sentence_experts.import_corpus([DATA / name for name in (ELIFE, CROPS)], out=folder / "corpus")
    how: dict[str, Any] = {"unit": "title", "split": "article", "max_eval_per_domain": 2 * TEST_PAIRS}
    return tasks_of(sentence_experts.compile_pairs(corpus, out=folder / "pairs", domains=rules, **how))


def tasks_of(pairs: Pairs) -> dict[str, Task]:
    """A task per domain, each with `TEST_PAIRS` linked and as many unlinked pairs, or the fewest of any."""
    train, test = (pairs.split(split).to_pylist() for split in ("train", "test"))
    kinds = {
        name: [[row for row in test if (row["domain"], row["label"]) == (name, label)] for label in (1, 0)]
        for name in pairs.domains
    }
    size = min(TEST_PAIRS, *(len(rows) for both in kinds.values() for rows in both))
    found = {}
    for name, both in kinds.items():
        kept = [row for rows in both for row in rows[:size]]
        ids = ([row[side] for row in kept] for side in ("anchor_id", "positive_id"))
        scores = ScoredPairs(np.zeros(len(kept)), np.array([row["label"] for row in kept]), *ids)
        own = [row for row in train if (row["domain"], row["label"]) == (name, 1)]
        found[name] = Task(
            Test([row["anchor"] for row in kept], [row["positive"] for row in kept], scores),
            linked=[Pair(row["anchor"], row["positive"], str(n)) for n, row in enumerate(own)],
        )
    return found


def orders(names: Sequence[str], data: str) -> list[list[str]]:
    """The tasks come in one order; the domains in three: by name, reversed, from the middle."""
    by_name = list(names)
    middle = len(by_name) // 2
    return [by_name] if data == "tasks" else [by_name, by_name[::-1], by_name[middle:] + by_name[:middle]]


def learn(
    model: SentenceTransformer, pairs: Mapping[str, Sequence[Pair]], steps: int, seed: int, **settings: Any
) -> None:
    """Train in place on the pairs of some tasks, to the last step."""
    import sentence_experts

    rows = [
        {"anchor": one.anchor, "positive": one.positive, "domain": task,
         "anchor_id": f"{task}/{one.group}", "positive_id": f"{task}/{one.group}"}
        for task, own in pairs.items()
        for one in own
    ]  # fmt: skip
    # A validation that measures nothing costs nothing.
    data = sentence_experts.Pairs.from_tables(train=rows, validation=[{**rows[0], "label": 0}])
    how: dict[str, Any] = {
        "max_steps": steps, "eval_steps": steps, "batch_size": BATCH, "batches": "homogeneous", "seed": seed,
        "learning_rate": RATE, "scheduler": "constant_with_warmup", "keep": "last", "max_length": MAX_LENGTH,
    }  # fmt: skip
    sentence_experts.train(model, data, **{**how, **settings})


class Study:
    """One arm with one seed: what it scores right after each task, and in the end."""

    def __init__(self, tasks: Mapping[str, Task], order: Sequence[str], seed: int) -> None:
        self.tasks = {name: tasks[name] for name in order}
        self.seed = seed
        random = np.random.default_rng(seed)
        self.pairs = {name: tasks[name].draw(random, 4 * STEPS * BATCH) for name in sorted(tasks)}
        self.own: dict[str, NDArray[np.float64]] = {}
        self.final: dict[str, NDArray[np.float64]] = {}
        self.added = 0  # parameters per task
        self.seconds = 0.0

    def score(self, model: SentenceTransformer, task: str) -> NDArray[np.float64]:
        """Cosines of the task's test pairs."""
        test = self.tasks[task].test
        return studies.cosines(model, test.first, test.second, model.prompts.get(task), MAX_LENGTH)

    def learn(
        self, model: SentenceTransformer, counts: Mapping[str, int], steps: int, **settings: Any
    ) -> None:
        """Train on this many batches of pairs of each task."""
        started = time.process_time()
        chosen = {task: self.pairs[task][: batches * BATCH] for task, batches in counts.items()}
        learn(model, chosen, steps, self.seed, **settings)
        self.seconds += time.process_time() - started

    def dense(self) -> SentenceTransformer:
        """The dense model with a route token per task."""
        import sentence_experts

        return sentence_experts.extend(studies.first_blocks(BLOCKS), sorted(self.tasks), layers="none")

    def sequential(self, replay: bool) -> None:
        """One task after the other, all weights."""
        model = self.dense()
        random = np.random.default_rng(self.seed)
        for place, task in enumerate(self.tasks):
            counts = {task: STEPS}
            if replay and place:
                earlier = [*self.tasks][:place]
                counts = {task: STEPS - REPLAYED}
                for number in range(REPLAYED):
                    old = earlier[number % place] if place <= REPLAYED else str(random.choice(earlier))
                    counts[old] = counts.get(old, 0) + 1
            self.learn(model, counts, STEPS)
            self.own[task] = self.score(model, task)
        self.final = {task: self.score(model, task) for task in self.tasks}

    def joint(self) -> None:
        """All tasks at once, all weights."""
        model = self.dense()
        self.learn(model, dict.fromkeys(self.tasks, STEPS), STEPS * len(self.tasks))
        self.final = {task: self.score(model, task) for task in self.tasks}

    def lora(self) -> None:
        """An adapter per task beside the base."""
        from peft import LoraConfig

        for task in self.tasks:
            model = studies.first_blocks(BLOCKS)
            projections = ["query", "key", "value", "dense"]
            model.add_adapter(LoraConfig(r=LORA_RANK, lora_alpha=2 * LORA_RANK, target_modules=projections))
            self.added = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
            self.learn(model, {task: STEPS}, STEPS, learning_rate=LORA_RATE)
            self.final[task] = self.score(model, task)

    def add_expert(self, times: int) -> None:
        """An expert per task, trained alone; all others stay bit-equal."""
        import sentence_experts

        base = studies.first_blocks(BLOCKS)
        model: Any = None
        before: dict[str, NDArray[np.float32]] = {}
        for task in self.tasks:
            if model is None:
                model = sentence_experts.extend(base, [task])
            else:
                size = model.parameter_counts()[0]
                model = sentence_experts.add_expert(model, task, seed_from="base", base=base)
                self.added = model.parameter_counts()[0] - size
            self.learn(model, {task: STEPS * times}, STEPS * times, only_expert=task)
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

    def run(self, arm: str) -> studies.Row:
        """What the arm gives."""
        if arm in TIMES:
            self.add_expert(TIMES[arm])
        elif arm == "lora":
            self.lora()
        elif arm == "joint":
            self.joint()
        else:
            self.sequential(arm == "replay")
        return {
            "own": studies.packed(self.own), "scores": studies.packed(self.final), "added": self.added,
            "steps": STEPS * len(self.tasks) * TIMES.get(arm, 1), "seconds": round(self.seconds, 1),
        }  # fmt: skip


def joined(tests: Mapping[str, ScoredPairs], rows: Sequence[studies.Row], what: str = "scores") -> Runs:
    """The mean over these tasks in each run."""
    return Runs.joined([studies.auc_of(tests, row[what]) for row in rows])


def transfer(tests: Mapping[str, ScoredPairs], rows: Sequence[studies.Row]) -> str:
    """Backward transfer: what the tasks before the last one gained, or lost, after their own turn."""
    if not rows[0]["own"]:
        return "0, by construction"
    before = {task: tests[task] for task in [*rows[0]["own"]][:-1]}
    change = estimate(*joined(before, rows).minus(joined(before, rows, "own")))
    assert change is not None
    return studies.with_sign(change)


def report(name: str, runs: RunFile, tasks: Mapping[str, Task], data: str) -> None:
    """Write the tables of what is finished."""
    tests = {task: one.test.pairs for task, one in tasks.items()}
    found = finished(runs, orders([*tasks], data))
    arms = {arm: joined(tests, rows) for arm, rows in found.items()}
    base = studies.first_blocks(BLOCKS)
    scores = {
        task: studies.cosines(base, one.test.first, one.test.second, max_length=MAX_LENGTH).tolist()
        for task, one in tasks.items()
    }
    untrained = studies.auc_of(tests, scores)
    adders = [arm for arm in arms if arm in TIMES]
    compared = [(one, other) for one in adders for other in arms if other not in adders]
    told = studies.differences(arms, compared, MARGIN)
    plain = next((arm for arm in arms if arm.startswith(PRIMARY[1])), "")  # of several orders the first
    primary = next((one for one in told if (one.first, one.second) == (PRIMARY[0], plain)), None)
    text = (
        f"# Adding {data} without forgetting\n\n"
        f"Made by `benchmarks/{NAME}.py --data {data}`. {len(tasks)} {data}, {STEPS} steps of {BATCH} pairs "
        f"for each, three blocks of MiniLM; {TEST_PAIRS} test pairs of each class and task. The experts of "
        "add-expert are trained alone; all other routes stayed bit-equal after each of them, which the "
        "script asserts. Seconds are processor seconds of training, with reading and writing of models. "
        f"Primary figure, fixed beforehand: final mean ROC-AUC, {PRIMARY[0]} minus {PRIMARY[1]}; margin "
        f"{MARGIN:g}.\n\n**Verdict**: {sentence(primary, found, tests)}"
    )
    parts = [
        text,
        arm_table(found, tests, untrained),
        "ROC-AUC in the end, by task:",
        task_table(found, tests, scores),
        "Differences of the final means:",
        table(studies.DIFFERENCE_HEADER, [one.cells() for one in told]),
    ]
    missing = [arm for arm in ARMS if not runs.find(arm=arm)]
    parts += [f"Did not run: {', '.join(missing)}."] if missing else []
    studies.write_study(name, {"made_by": f"benchmarks/{NAME}.py"}, runs, "\n\n".join(parts))


def finished(runs: RunFile, in_order: Sequence[Sequence[str]]) -> dict[str, list[studies.Row]]:
    """Arm -> its runs; where the order of the tasks counts and there are several, an arm for each of them."""
    found = {}
    for arm in ARMS:
        for number, order in enumerate(in_order):
            label = f"{arm}, order {number + 1}" if arm in ORDERED and len(in_order) > 1 else arm
            if rows := runs.find(arm=arm, order=number):
                # Tasks in the order in which they were trained.
                found[label] = [
                    {**row, "own": {t: row["own"][t] for t in order if row["own"]}} for row in rows
                ]
    return found


def arm_table(
    found: Mapping[str, Sequence[studies.Row]], tests: Mapping[str, ScoredPairs], untrained: Runs
) -> str:
    """What each arm reaches, and what it costs."""
    header = ["arm", "seeds", "final mean ROC-AUC", "backward transfer", "parameters per task"]
    header += ["bytes per task", "steps", "seconds"]
    lines = [["the base, untrained", "", studies.with_interval(untrained), "", "", "", "", ""]]
    for arm, rows in found.items():
        added = rows[0]["added"]
        lines.append(
            [
                arm,
                str(len(rows)),
                studies.with_interval(joined(tests, rows)),
                "" if arm == "joint" else transfer(tests, rows),
                f"{added:,}",
                f"{4 * added / 1e6:.2f} MB",
                str(rows[0]["steps"]),
                f"{np.mean([row['seconds'] for row in rows]):.0f}",
            ]
        )
    return table(header, lines)


def task_table(
    found: Mapping[str, Sequence[studies.Row]],
    tests: Mapping[str, ScoredPairs],
    untrained: Mapping[str, Sequence[float]],
) -> str:
    """The mean over seeds for each task."""
    every: dict[str, Sequence[studies.Row]] = {"the base, untrained": [{"scores": untrained}], **found}
    lines = []
    for arm, rows in every.items():
        means = [
            np.mean([studies.auc_of({task: test}, row["scores"]).values[0] for row in rows])
            for task, test in tests.items()
        ]
        lines.append([arm, *(f"{mean:.3f}" for mean in means)])
    return table(["arm", *tests], lines)


def sentence(
    primary: studies.Difference | None,
    found: Mapping[str, Sequence[studies.Row]],
    tests: Mapping[str, ScoredPairs],
) -> str:
    """The verdict."""
    if primary is None:
        return "the primary comparison did not run."
    return (
        f"added experts forget nothing, to the bit; sequential training changes earlier tasks by "
        f"{transfer(tests, found[primary.second])}. Final mean, {primary.first} minus {primary.second}: "
        f"{primary.verdict}, {primary.sizes()}."
    )


def main() -> None:
    """Make the runs that are missing, then write the tables."""
    given = studies.arguments(__doc__, arms=ARMS, data=("tasks", "domains"))
    name = NAME if given.data == "tasks" else f"{NAME}_domains"
    runs = RunFile(given.out, name, SETTINGS)
    tasks = real_tasks() if given.data == "tasks" else real_domains(given.out / "domains")
    # Seed by seed, so that an unfinished study has whole seeds; more steps come last.
    wanted = [
        (arm, number, order, seed)
        for is_late in (False, True)
        for seed in range(given.seeds)
        for number, order in enumerate(orders([*tasks], given.data))
        for arm in given.arms
        if (TIMES.get(arm, 1) > 1) == is_late and (arm in ORDERED or not number)
    ]
    for arm, number, order, seed in () if given.report else wanted:
        if not runs.done(arm=arm, order=number, seed=seed):
            made = Study(tasks, order, seed).run(arm)
            runs.append({"arm": arm, "order": number, "seed": seed, **made})
            print(arm, number, seed, made["seconds"], flush=True)
    report(name, runs, tasks, given.data)


if __name__ == "__main__":
    main()
