"""What the routing weights of one model tell, prompt by prompt: everything that the page shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.errors import UsageError
from sentence_experts.evaluation.moee.agreement import agreement, cluster
from sentence_experts.evaluation.moee.complementarity import (
    FAILED,
    complementarity,
    mean_between,
    rank_correlations,
)
from sentence_experts.evaluation.moee.correlation import correlation
from sentence_experts.evaluation.moee.scored_pairs import ScoredPairs
from sentence_experts.evaluation.moee.topics import topics
from sentence_experts.moee.alpha import part_cosines
from sentence_experts.moee.states import States
from sentence_experts.moee.vectors import CONCAT, HIDDEN, PARTS, ROUTING, SUM, joined, unit

Column = NDArray[np.float64]
Read = Callable[[str, Sequence[str]], States]  # prompt, texts -> states


@dataclass(frozen=True)
class Plan:
    """What to analyse.

    Attributes:
        datasets: the first is clustered, and its pairs are correlated between prompts.
        prompts: names or templates; the first is that of clusters and complementarity.
        alpha: of "sum".
        clusters: of k-means.
        replicates: of the bootstrap over pairs.
        seed: of k-means and bootstrap.
    """

    datasets: Sequence[ScoredPairs]
    prompts: Sequence[str]
    alpha: float = 1.0
    clusters: int = 10
    replicates: int = 1000
    seed: int = 0


def analyse(plan: Plan, read: Read) -> dict[str, Any]:
    """All figures of the analysis, ready for JSON.

    Args:
        plan: what to analyse.
        read: the states of texts under a prompt.

    Raises:
        UsageError: no dataset, no prompt, or two of one name.
    """
    names = [each.name for each in plan.datasets]
    for what, given in (("dataset", names), ("prompt", list(plan.prompts))):
        if not given or len(set(given)) < len(given):
            raise UsageError(f"give at least one {what}, and each once (got {', '.join(given) or 'none'})")
    cosines = {
        (prompt, data.name): _pair_cosines(data, prompt, plan.alpha, read)
        for prompt in plan.prompts
        for data in plan.datasets
    }
    first = plan.datasets[0]
    return {
        "datasets": {each.name: len(each.scores) for each in plan.datasets},
        "prompts": list(plan.prompts),
        "alpha": plan.alpha,
        "correlations": _correlations(plan, cosines),
        "stability": _stability(plan, cosines),
        "between_prompts": _between_prompts(plan, cosines),
        "complementarity": {"failed_above": FAILED, "datasets": _complementarity(plan, cosines)},
        "clusters": {"dataset": first.name, **_clusters(plan, read(plan.prompts[0], first.texts))},
    }


def _pair_cosines(data: ScoredPairs, prompt: str, alpha: float, read: Read) -> dict[str, Column]:
    """Part -> the cosines of the pairs (of "sum", the weighted sum of cosines)."""
    texts = data.texts
    states, row = read(prompt, texts), {text: place for place, text in enumerate(texts)}
    sides = [states[[row[text] for text in side]] for side in (data.first, data.second)]
    hidden, routing = part_cosines(*sides)
    both = [unit(joined(side.hidden, side.routing, CONCAT)) for side in sides]
    concat = np.einsum("ij,ij->i", *both, dtype=np.float64)
    return {HIDDEN: hidden, ROUTING: routing, CONCAT: concat, SUM: hidden + alpha * routing}


def _correlations(
    plan: Plan, cosines: Mapping[tuple[str, str], Mapping[str, Column]]
) -> list[dict[str, Any]]:
    """Spearman's correlation with the scores, each prompt, dataset and part."""
    return [
        {
            "prompt": prompt,
            "dataset": data.name,
            "part": part,
            **asdict(correlation(cosines[prompt, data.name][part], data.scores, plan.replicates, plan.seed)),
        }
        for prompt in plan.prompts
        for data in plan.datasets
        for part in PARTS
    ]


def _stability(plan: Plan, cosines: Mapping[tuple[str, str], Mapping[str, Column]]) -> list[dict[str, Any]]:
    """Mean and variance over the prompts of the correlation with the scores (MoEE, figure 5)."""
    found = []
    for data in plan.datasets:
        for part in PARTS:
            values = [
                correlation(cosines[prompt, data.name][part], data.scores, 0).value for prompt in plan.prompts
            ]
            variance = float(np.var(values, ddof=1)) if len(values) > 1 else None
            mean = float(np.mean(values))
            found.append({"dataset": data.name, "part": part, "mean": mean, "variance": variance})
    return found


def _between_prompts(plan: Plan, cosines: Mapping[tuple[str, str], Mapping[str, Column]]) -> dict[str, Any]:
    """Spearman's correlations between HS and RW under all prompts, and their means (MoEE, figure 4)."""
    data = plan.datasets[0]
    sides = [(part, prompt) for part in (HIDDEN, ROUTING) for prompt in plan.prompts]
    matrix = rank_correlations([cosines[prompt, data.name][part] for part, prompt in sides])
    half = len(plan.prompts)
    hidden, routing = range(half), range(half, 2 * half)
    means = {
        "hs_hs": mean_between(matrix, hidden, hidden),
        "rw_rw": mean_between(matrix, routing, routing),
        "hs_rw": mean_between(matrix, hidden, routing),
    }
    return {
        "dataset": data.name,
        "sides": [f"{part} {prompt}" for part, prompt in sides],
        "matrix": matrix.round(4).tolist(),
        "means": {name: value if np.isfinite(value) else None for name, value in means.items()},
    }


def _complementarity(plan: Plan, cosines: Mapping[tuple[str, str], Mapping[str, Column]]) -> dict[str, Any]:
    found = {}
    for data in plan.datasets:
        own = cosines[plan.prompts[0], data.name]
        shares = complementarity(own[HIDDEN], own[ROUTING], list(data.scores))
        found[data.name] = {**asdict(shares), "one_alone": shares.one_alone}
    return found


def _clusters(plan: Plan, states: States) -> dict[str, Any]:
    """How far clusters by HS and RW agree (MoEE, section 3.2), and the words of each (figure 3)."""
    texts = plan.datasets[0].texts
    number = min(plan.clusters, len(texts))
    labels = {
        part: cluster(getattr(states, side), number, plan.seed)
        for part, side in ((HIDDEN, "hidden"), (ROUTING, "routing"))
    }
    return {
        "texts": len(texts),
        "clusters": number,
        "agreement": asdict(agreement(labels[HIDDEN], labels[ROUTING])),
        "topics": {
            part: [
                {"texts": int((own == one).sum()), "words": words}
                for one, words in enumerate(topics(texts, own))
            ]
            for part, own in labels.items()
        },
    }
