"""Numbers and sentences of reports: which model is ahead, how certain that is, what to try next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from sentence_experts.evaluation.estimates import Interval
from sentence_experts.evaluation.results import SEEDS_NEEDED, Difference, PairMetrics

SIGNIFICANT = 0.05
MAX_NAMED = 4  # models in one sentence
SEEDS_ADVISED = SEEDS_NEEDED + 2
SIMULATED = "SIMULATED TEXTS, which show that everything works, and nothing about science: "
REAL_ARTICLES = "Run the same on real articles: the texts here are SIMULATED."
# metric -> heading; intervals and standard deviations over seeds are shown below a value.
COLUMNS = {
    "f1_max": "F1max",
    "precision": "Prec.",
    "recall": "Recall",
    "threshold": "Thresh.",
    "roc_auc": "ROC-AUC",
    "ratio": "Ratio",
    "mean_distance": "Dist.",
    "accuracy": "Acc.",
}
UNDEFINED = "–"
EQUIVALENT = "≈"


def number(value: float | None, form: str = ".3f") -> str:
    """Return three decimals or another form, or a dash if the value is undefined."""
    return UNDEFINED if value is None else format(value, form)


def bounds(interval: Interval | None) -> str:
    """Return `.790-.835`, or nothing without an interval."""
    ends = (interval.low, interval.high) if interval else ()
    return "-".join(f"{end:.3f}".removeprefix("0") for end in ends)


def metric_cell(figures: PairMetrics, name: str) -> str:
    """Return the value of a metric, and below it its interval and its deviation over seeds, if any."""
    deviation = figures.spread.get(name)
    spread = "" if deviation is None else f"±{deviation:.3f}".replace("±0.", "±.")
    below = filter(None, (bounds(figures.intervals.get(name)), spread))
    return "\n".join([number(figures.metrics[name]), *below])


def p_value(value: float | None) -> str:
    """Return `p=.031*`, or nothing without a value; the star marks values below 0.05."""
    if value is None:
        return ""
    shown = f"p={value:.3f}".replace("=0.", "=.") if value >= 0.0005 else "p<.001"
    return shown + ("*" if value < SIGNIFICANT else "")


def is_significant(gap: Difference) -> bool:
    """Return whether the two models differ, by the corrected p-value."""
    return gap.p_holm is not None and gap.p_holm < SIGNIFICANT


def describe_standing(
    order: Sequence[str], gaps: Iterable[Difference], number: Callable[[float], str], margin: str = ""
) -> list[str]:
    """Say where the first of `order`, the best, stands against the others: ahead, equivalent, or unclear.

    `gaps` are the differences, in either direction; `number` writes one, `margin` means equivalence.
    """
    if not order:
        return []
    first, by_models = order[0], {frozenset((each.first, each.second)): each for each in gaps}
    sentences: dict[str, list[str]] = {
        "{} is ahead of {}.": [],
        f"{{}} is equivalent within {margin} to {{}}.": [],
        "{} cannot be told apart from {}.": [],
        "{} leads {}, with unknown certainty: there are no intervals.": [],
    }
    ahead, same, undecided, unknown = sentences.values()
    for other in order[1:]:
        gap = by_models.get(frozenset((first, other)))
        gap = gap.turned() if gap is not None and gap.first != first else gap
        if gap is None or gap.interval is None or gap.value is None:
            unknown.append(other)
            continue
        ends = f"95% interval {number(gap.interval.low)} to {number(gap.interval.high)}"
        group = same if gap.equivalent else ahead if is_significant(gap) else undecided
        if group is undecided and not gap.interval.low < 0 < gap.interval.high:
            ends += f", but p {gap.p_holm:.2f} corrected for all comparisons"
        group.append(f"{other} ({number(gap.value)}; {ends})")
    return [text.format(first, list_names(group)) for text, group in sentences.items() if group]


def points(value: float) -> str:
    """Write a difference in percentage points."""
    return f"{100 * value:+.2f}"


def names_of_measured(labels: Iterable[str]) -> str:
    """Return the beginning of a verdict: which models were compared, or which one was measured."""
    named = list_names(list(labels))
    return f"Compared {named}" if " and " in named else f"Measured {named}"


def list_names(names: Sequence[str]) -> str:
    """Return names as part of a sentence, the first ones of many."""
    if len(names) > MAX_NAMED + 1:
        return f"{', '.join(names[:MAX_NAMED])} and {len(names) - MAX_NAMED} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def single_runs(trained: Mapping[str, int], models: int) -> list[str]:
    """Name the models of one training run; `trained` is label -> number of runs."""
    single = [label for label, seeds in trained.items() if seeds < 2 <= models]
    return [
        f"There is one training run of {list_names(single)}: another seed may give another order."
    ] * bool(single)


def model_advice(
    order: Sequence[str], trained: Mapping[str, int], models: int, baselines: Sequence[str], names: str
) -> list[str]:
    """Advise baselines (`names`), more training where an untrained model leads, and more seeds.

    `order` has the best model first; `trained` is label -> number of runs, `baselines` are the others.
    """
    advice = []
    if not baselines:
        advice.append(f"Compare with models that were not trained here: `baseline` {names}.")
    if order and trained and order[0] not in trained:
        advice.append(
            f"No trained model is ahead of {order[0]}: train on more pairs or for more steps, and look at "
            f"how the validation figure moved (run.json); otherwise use {order[0]} as it is."
        )
    few = [label for label, seeds in trained.items() if seeds < SEEDS_ADVISED]
    if few and models > 1:
        advice.append(
            f"Train {list_names(few)} with {SEEDS_ADVISED} seeds and give the runs as `seeds`, to "
            "compare ways of training and not single runs."
        )
    return advice
