"""mteb's own tasks by name: single tasks, benchmarks, and the groups of `GROUPS`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sentence_experts.errors import UsageError

if TYPE_CHECKING:
    from mteb.abstasks.abstask import AbsTask


@dataclass(frozen=True)
class HubTask:
    """A task of mteb, or some of its subsets and splits; the data come from the hub."""

    name: str
    subsets: tuple[str, ...] | None = None
    splits: tuple[str, ...] | None = None

    @property
    def task(self) -> str:
        """The name without its version, such as ".v2"."""
        return self.name.partition(".")[0]

    @cached_property
    def kind(self) -> str:
        """mteb's type of the task."""
        return str(self.make().metadata.type)

    def make(self) -> AbsTask:
        """Return the task, its data not yet loaded; KeyError if mteb has none of this name.

        Tasks have random state, so every model gets a new one.
        """
        import mteb

        subsets = list(self.subsets) if self.subsets else None
        return mteb.get_task(self.name, hf_subsets=subsets, eval_splits=list(self.splits or ()) or None)


# MoTE: the 56 datasets of 7 types (section 4), the datasets of the types that it trains on (table 2), and the
# others. MoEE: the datasets that appendix A names, and SummEval; it counts 20 in all. Medical: mteb's, and
# its English part.
GROUPS: Mapping[str, tuple[str | HubTask, ...]] = {
    **dict.fromkeys(("mteb-en-56", "mteb-en-seen", "mteb-en-unseen"), ("MTEB(eng, v1)",)),
    "moee": (
        *(f"{name}Classification" for name in ("Emotion", "ToxicConversations", "TweetSentimentExtraction")),
        *("MedrxivClusteringS2S", "TwentyNewsgroupsClustering", "TwitterSemEval2015", "TwitterURLCorpus"),
        *("AskUbuntuDupQuestions", "SciDocsRR", "StackOverflowDupQuestions", "BIOSSES", "SICK-R"),
        *("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SummEval"),
    ),
    "mteb-medical": ("MTEB(Medical, v1)",),
    "mteb-medical-en": (
        HubTask("CUREv1", ("en",)),
        HubTask("PublicHealthQA", ("english",)),
        *("MedicalQARetrieval", "NFCorpus", "SciFact", "TRECCOVID"),
        *("MedrxivClusteringP2P.v2", "MedrxivClusteringS2S.v2"),
    ),
}
TYPES_OF_GROUP = {
    "mteb-en-seen": ("Retrieval", "Classification", "Clustering"),
    "mteb-en-unseen": ("Reranking", "PairClassification", "STS", "Summarization"),
}


def hub_tasks(names: Iterable[str], only: Sequence[str] = ()) -> list[HubTask]:
    """Return the tasks of these names, each once, in order.

    Args:
        names: names of groups, benchmarks or tasks of mteb; one string may hold several, separated by commas.
        only: names or types of the tasks to keep; empty keeps all.

    Raises:
        UsageError: an unknown name, a task that is not on texts alone, or an unknown name in `only`.
    """
    # Commas within brackets belong to a name: "STS12,MTEB(Medical, v1)" is two names.
    split = (name.strip() for given in names for name in re.split(r",(?![^(]*\))", given))
    tasks = dict.fromkeys(task for name in split if name for task in _find_named(name))
    return select_tasks(list(tasks), only)


def select_tasks(tasks: Sequence[Any], only: Sequence[str]) -> list[Any]:
    """Return the tasks whose name or type is in `only`, or the `task` that they are a part of.

    Raises:
        UsageError: one of `only` matches no task.
    """
    names = {task: {task.name, task.kind, task.task} for task in tasks}
    for wanted in only:
        if not any(wanted in own for own in names.values()):
            known = ", ".join(dict.fromkeys([*(task.kind for task in tasks), *(task.name for task in tasks)]))
            raise UsageError(f"`only` {wanted}: no such task or type here; there are {known}")
    return [task for task, own in names.items() if not only or own & set(only)]


def _find_named(name: str) -> list[HubTask]:
    """Return the tasks of a group, a benchmark or a task."""
    import mteb

    if name in GROUPS:
        tasks = [
            task for one in GROUPS[name] for task in ([one] if isinstance(one, HubTask) else _find_named(one))
        ]
        return [task for task in tasks if task.kind in TYPES_OF_GROUP.get(name, (task.kind,))]
    try:
        made = [HubTask(name).make()]
    except KeyError:
        benchmarks = {one.name: one for one in mteb.get_benchmarks()}
        if name not in benchmarks:
            names = [*GROUPS, *benchmarks, *(task.metadata.name for task in mteb.get_tasks())]
            near = difflib.get_close_matches(name, names)
            meant = f"; did you mean {' or '.join(near)}?" if near else ""
            raise UsageError(
                f"{name}: no folder, and no task, benchmark or group of mteb{meant}; "
                f"groups: {', '.join(GROUPS)}; benchmarks as mteb calls them"
            ) from None
        made = list(benchmarks[name].tasks)
    found = []
    for task in made:
        if list(task.metadata.modalities) != ["text"]:
            kinds = " and ".join(task.metadata.modalities)
            raise UsageError(f"{name}: {task.metadata.name} is on {kinds}, but these models only take text")
        whole = HubTask(task.metadata.name).make()
        subsets = None if list(whole.hf_subsets) == list(task.hf_subsets) else tuple(task.hf_subsets)
        splits = None if list(whole.eval_splits) == list(task.eval_splits) else tuple(task.eval_splits)
        found.append(HubTask(task.metadata.name, subsets, splits))
    return found
