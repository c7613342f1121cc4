"""Tasks to learn one after another: training pairs, and test pairs that no training has seen.

Four real tasks, or the seven domains of the domain study; `add_without_forgetting.py` trains on them.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from measuring import CROPS, DATA, ELIFE
from sentence_experts.evaluation.statistics import ScoredPairs
from sentence_experts.recipes import RECIPES
from study import Test

if TYPE_CHECKING:
    from sentence_experts import Pairs

TEST_PAIRS = 80  # of each class and task


class Pair(NamedTuple):
    """Two texts that belong together, and what they have in common: such texts are no negatives."""

    anchor: str
    positive: str
    group: str


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


def real_domains(folder: Path) -> Pairs:
    """The seven domains of the domain study: titles cited together, split by citing article."""
    import sentence_experts

    rules = RECIPES / "material" / "real_domains.yaml"
    corpus = sentence_experts.import_corpus([DATA / name for name in (ELIFE, CROPS)], out=folder / "corpus")
    how: dict[str, Any] = {"unit": "title", "split": "article", "max_eval_per_domain": 2 * TEST_PAIRS}
    return sentence_experts.compile_pairs(corpus, out=folder / "pairs", domains=rules, **how)


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
