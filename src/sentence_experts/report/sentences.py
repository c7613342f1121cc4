"""Sentences of verdicts: which model is ahead, how certain that is, and what to try next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sentence_experts.evaluation.results import SEEDS_NEEDED, Difference, ModelResult, suspicion

SIGNIFICANT = 0.05
MAX_NAMED = 4  # models in one sentence
SEEDS_ADVISED = SEEDS_NEEDED + 2


def in_order(gap: Difference) -> list[str]:
    """The two models of a difference, the better one first."""
    return [gap.first, gap.second] if (gap.value or 0.0) >= 0 else [gap.second, gap.first]


def is_sure(gap: Difference) -> bool:
    """Whether one of the two models is ahead."""
    return gap.p_holm is not None and gap.p_holm < SIGNIFICANT and not gap.equivalent


def standing(
    order: Sequence[str], gaps: Iterable[Difference], number: Callable[[float], str], margin: str = ""
) -> list[str]:
    """Where the first of `order` stands against the others: ahead, equivalent, or neither is shown.

    Args:
        order: labels, the best first.
        gaps: the differences, in either direction, with p-values corrected for their number.
        number: writes a difference.
        margin: that of equivalence, as it is written.
    """
    if len(order) < 2:
        return []
    first, by_models = order[0], {(each.first, each.second): each for each in gaps}
    ahead: list[str] = []
    same: list[str] = []
    open_: list[str] = []
    unknown: list[str] = []
    for other in order[1:]:
        gap = by_models.get((first, other)) or _turned(by_models.get((other, first)))
        if gap is None or gap.interval is None or gap.value is None:
            unknown.append(other)
            continue
        ends = f"95% interval {number(gap.interval.low)} to {number(gap.interval.high)}"
        is_ahead = gap.p_holm is not None and gap.p_holm < SIGNIFICANT
        group = same if gap.equivalent else ahead if is_ahead else open_
        if group is open_ and not gap.interval.low < 0 < gap.interval.high:
            ends += f", but p {gap.p_holm:.2f} corrected for all comparisons"
        group.append(f"{other} ({number(gap.value)}; {ends})")
    sentences = (
        (ahead, f"{first} is ahead of {{}}."),
        (same, f"{first} is equivalent within {margin} to {{}}."),
        (open_, f"{first} cannot be told apart from {{}}."),
        (unknown, f"{first} leads {{}}, with unknown certainty: there are no intervals."),
    )
    return [text.format(listed(group)) for group, text in sentences if group]


def _turned(gap: Difference | None) -> Difference | None:
    """The same difference, the other way round."""
    if gap is None or gap.value is None or gap.interval is None:
        return gap
    ends = type(gap.interval)(-gap.interval.high, -gap.interval.low)
    return Difference(
        gap.second, gap.first, gap.view, gap.metric, -gap.value, ends, gap.p_value, gap.p_holm, gap.equivalent
    )


def pair_number(value: float) -> str:
    """A difference of a metric of pairs."""
    return f"{value:+.3f}"


def points(value: float) -> str:
    """A difference in percentage points."""
    return f"{100 * value:+.2f}"


def names_of_measured(labels: Iterable[str]) -> str:
    """The beginning of a verdict: which models were compared, or which one was measured."""
    named = listed(list(labels))
    return f"Compared {named}" if " and " in named else f"Measured {named}"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence, the first ones of many."""
    if len(names) > MAX_NAMED + 1:
        return f"{', '.join(names[:MAX_NAMED])} and {len(names) - MAX_NAMED} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def single_runs(trained: Mapping[str, int], models: int) -> list[str]:
    """How far the intervals cover training."""
    single = [label for label, seeds in trained.items() if seeds < 2]
    if not single or models < 2:
        return []
    return [f"There is one training run of {listed(single)}: another seed may give another order."]


def told_without_texts(text_free: Sequence[ModelResult]) -> list[str]:
    """Whether the classes can be told apart without comparing texts."""
    warning = suspicion(text_free)
    return [] if warning is None else [f"{warning[0].upper()}{warning[1:]}."]


def missing_baseline(baselines: Sequence[str], names: str) -> list[str]:
    """Advice where no other model was measured."""
    if baselines:
        return []
    return [f"Compare with models that were not trained here: `baseline` {names}."]


def no_trained_model_ahead(order: Sequence[str], trained: Mapping[str, int]) -> list[str]:
    """What to do where a model that was not trained here leads."""
    if not order or order[0] in trained or not trained:
        return []
    return [
        f"No trained model is ahead of {order[0]}: train on more pairs or for more steps, and look at how "
        f"the validation figure moved (run.json); otherwise use {order[0]} as it is."
    ]


def more_seeds(trained: Mapping[str, int], models: int) -> list[str]:
    """Advice where there are few training runs."""
    few = [label for label, seeds in trained.items() if seeds < SEEDS_ADVISED]
    if not few or models < 2:
        return []
    return [
        f"Train {listed(few)} with {SEEDS_ADVISED} seeds and give the runs as `seeds`, to "
        "compare ways of training and not single runs."
    ]


def more_pairs(order: Sequence[str], gaps: Sequence[Difference], margin: float, pairs: int) -> list[str]:
    """How many pairs would settle the first two, where they cannot be told apart."""
    two = set(order[:2])
    gap = next((each for each in gaps if {each.first, each.second} == two and each.interval), None)
    if gap is None or gap.interval is None or gap.equivalent or (gap.p_holm or 1.0) < SIGNIFICANT:
        return []
    half = (gap.interval.high - gap.interval.low) / 2
    needed = pairs * (half / margin) ** 2
    if needed <= pairs:
        return []
    return [
        f"To tell differences of {margin:g} between {' and '.join(order[:2])}, take about "
        f"{_rounded(needed):,} test pairs of as many more papers."
    ]


def _rounded(value: float) -> int:
    """Two digits."""
    step = 10 ** max(0, len(str(int(value))) - 2)
    return int(round(value / step) * step)


def audit_advice(settings: Mapping[str, Any]) -> list[str]:
    """Advice to audit the pairs."""
    if settings.get("split") == "random":
        return [
            "Pairs were split at random, so test papers occur in training: `audit` shows how much that "
            "matters."
        ]
    return ["See with `audit` how much the training pairs tell without any text."]
