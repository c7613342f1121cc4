from __future__ import annotations

from collections import Counter

import pytest

from sentence_experts.errors import UsageError
from sentence_experts.evaluation.mteb.groups import GROUPS, HubTask, hub_tasks

SIZES = {
    "mteb-en-56": 56,
    "mteb-en-seen": 38,
    "mteb-en-unseen": 18,
    "moee": 19,
    "mteb-medical": 12,
    "mteb-medical-en": 8,
}


@pytest.mark.slow
def test_groups_hold_the_tasks_of_their_papers():
    found = {name: hub_tasks([name]) for name in GROUPS}
    assert {name: len(tasks) for name, tasks in found.items()} == SIZES
    assert Counter(task.kind for task in found["mteb-en-56"]) == {
        "Retrieval": 15,
        "Classification": 12,
        "Clustering": 11,
        "Reranking": 4,
        "PairClassification": 3,
        "STS": 10,
        "Summarization": 1,
    }


def test_tasks_benchmarks_and_groups_name_each_task_once():
    found = hub_tasks(["STS12, MTEB(Medical, v1)", "STS12", "moee"], only=["STS", "SciFact"])
    assert [task.name for task in found][:2] == ["STS12", "SciFact"]
    assert len(found) == len(set(found)) == 9
    assert hub_tasks(["STS17"]) == [HubTask("STS17")]


def test_unknown_name_errors_list_known_names():
    with pytest.raises(UsageError, match=r"STS112: no folder, and no task.*did you mean STS12.*: mteb-en"):
        hub_tasks(["STS112"])
    with pytest.raises(UsageError, match="is on image, but these models only take text"):
        hub_tasks(["CIFAR10"])
    with pytest.raises(UsageError, match="`only` Clusters: no such task or type here"):
        hub_tasks(["moee"], only=["Clusters"])
