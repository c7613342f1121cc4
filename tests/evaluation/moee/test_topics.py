from __future__ import annotations

import numpy as np

from sentence_experts.evaluation.moee.agreement import topics


def test_topic_words_distinguish_clusters():
    texts = ["rice and wheat in the study", "wheat grows, a study", "sleep and memory", "memory of a study"]
    found = topics(texts, np.array([0, 0, 1, 1]), words=2)
    assert found[0][0] == "wheat"
    assert found[1][0] == "memory"
    assert not {"and", "the"} & {word for words in found for word in words}
    assert all("study" not in words[:1] for words in found)


def test_cluster_of_stop_words_has_no_topic():
    assert topics(["and the", "of a"], np.array([0, 1])) == [[], []]
    assert topics(["rice", "the and"], np.array([0, 1])) == [["rice"], []]
