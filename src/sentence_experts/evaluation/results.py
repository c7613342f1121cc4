"""Results of evaluations: immutable, and as JSON the same for the same results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import metadata
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from sentence_experts.errors import InputError
from sentence_experts.evaluation.estimates import Interval, Runs, estimate, holm
from sentence_experts.evaluation.router_accuracy import RouterAccuracy
from sentence_experts.storage import output, read_json, write_json, write_parquet

if TYPE_CHECKING:
    import pandas as pd


class View(NamedTuple):
    """A group of pairs or tasks that metrics are averaged over.

    Attributes:
        kind: "pooled", "pair_weighted_mean" or "domain"; "average" for tasks.
        domain: the domain; None for an average.
    """

    kind: str
    domain: str | None = None


def view_of_domain(name: str) -> View:
    """Return the view of one domain."""
    return View("domain", name)


# Two ways to average over domains. The 2025 paper's Table 3 mixes them.
POOLED, PAIR_WEIGHTED_MEAN = View("pooled"), View("pair_weighted_mean")
LIBRARIES = ("sentence-experts", "sentence-transformers", "transformers", "torch", "scikit-learn", "numpy")
# Fewer training runs do not support a claim that one way of training is better than another.
SEEDS_NEEDED = 3


class Result(ABC):
    """The result of a public function: a table, and plain values for JSON."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the table with all columns."""

    def main_rows(self) -> list[dict[str, Any]]:
        """Return the rows of the table with the columns that matter most, which fit a terminal."""
        return self.rows()

    def __repr__(self) -> str:
        """Return the table of `main_rows` as text."""
        table = self.to_pandas().to_string(index=False, na_rep="-", float_format="{:.3f}".format)
        return f"{type(self).__name__}\n{table}"

    def to_pandas(self, all_columns: bool = False) -> pd.DataFrame:
        """Return `main_rows` as a table; with `all_columns` all `rows`, which may be wide."""
        return pa.Table.from_pylist(self.rows() if all_columns else self.main_rows()).to_pandas()


class StoredResult(Result):
    """A dataclass that is kept in a folder and read back.

    Attributes:
        NAMES: the files in the folder, reports included.
        FILES: the JSON file, then the Parquet file of each field that is a table, named after it.
        missing: name of what could not be measured this time -> reason.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(arbitrary_types_allowed=True)
    NAMES: ClassVar[Sequence[str]]
    FILES: ClassVar[Sequence[str]]
    missing: Mapping[str, str] = MappingProxyType({})

    def to_json(self) -> dict[str, Any]:
        """Return plain values, ready for `storage.write_json`; tables are left out."""
        values = {name: value for name, value in vars(self).items() if not isinstance(value, pa.Table)}
        plain: dict[str, Any] = to_jsonable_python(values)
        return plain

    def save(self, out: Path) -> None:
        """Write `FILES` to a folder."""
        write_json(out / self.FILES[0], self.to_json(), sort=False)
        for name in self.FILES[1:]:
            write_parquet(out / name, getattr(self, Path(name).stem))

    @classmethod
    def read(cls, out: Path) -> Self:
        """Read the results that `save` wrote to a folder.

        Raises:
            InputError: the files do not hold what this version writes.
        """
        try:
            return cls._read(out)
        except (ValidationError, LookupError, TypeError, ValueError) as error:
            message = f"{out}: not written by this version; give `overwrite` to measure again"
            raise InputError(message) from error

    @classmethod
    def _read(cls, out: Path) -> Self:
        tables = {Path(name).stem: pq.read_table(out / name) for name in cls.FILES[1:]}
        return TypeAdapter(cls).validate_python(read_json(out / cls.FILES[0]) | tables)


R = TypeVar("R", bound=StoredResult)


def measure_once(
    kind: type[R],
    what: str,
    out: Path | str | None,
    overwrite: bool,
    made_from: Callable[[], Mapping[str, Any]],
    measure: Callable[[Path | None], R],
    *,
    inputs: Mapping[str, Callable[[], str]] = MappingProxyType({}),
    caches: Sequence[str] = (),
    state: Callable[[], Mapping[str, Any]] = dict,
) -> R:
    """Measure and save, or read what a finished run of the same settings has left in `out`.

    Args:
        what: the name of the result in messages.
        made_from: function that gives all that decides the result.
        measure: function of the folder of the caches, whose names are `caches`; they are never removed.
        inputs: name -> function that hashes the input.
        state: function that gives the state of each file that may not change from its hash to the end.
    """
    if out is None:
        return measure(None)
    with output(out, what, names=kind.NAMES, keeps=caches, grows=True, overwrite=overwrite) as place:
        before = state()
        if place.begin(made_from(), inputs) == "finished":
            if not place.result.get("missing"):
                return kind.read(place.path)
            place.reopen()
        result = measure(place.final)
        now = state()
        if any(now.get(name) != known for name, known in before.items()):
            # Perhaps between the hash that the record has and the loading.
            raise InputError(
                f"{out}: not written, since a model changed while it was read; give the same command again"
            )
        result.save(place.path)
        place.result = {"missing": True} if result.missing else {}
        place.finish(*kind.FILES)
    return result


class Evaluation(StoredResult):
    """Several models measured on the same data."""

    NAMES = ("evaluation.json", "scores.parquet", "tasks.json", "report.html", "tasks.md")
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class PairMetrics:
    """The metrics of one model on one set of pairs (a domain, all pairs), or a mean of such metrics.

    Attributes:
        metrics: the eight of `metrics.METRIC_NAMES`, `mean_positive` and `mean_negative`; None if undefined.
        intervals: 95% intervals over papers (and seeds), for the metrics that have one; that of F1max is
            around its value without the bias of a maximum.
        spread: the metrics' standard deviation over seeds; empty for a model of a single run.
    """

    pairs: int
    positives: int
    metrics: Mapping[str, float | None]
    intervals: Mapping[str, Interval | None] = field(default_factory=dict)
    spread: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def f1_of_all_linked(self) -> float:
        """The F1 of calling every pair linked: F1max cannot be lower."""
        return 2 * self.positives / (self.pairs + self.positives)


@dataclass(frozen=True)
class ModelResult:
    """The metrics of one model, in three views, and what identifies it (`settings`).

    `runs` are the results of each training seed, of which the views are the mean; empty for a single run.
    """

    label: str
    settings: Mapping[str, Any]
    pooled: PairMetrics
    pair_weighted_mean: PairMetrics
    domains: Mapping[str, PairMetrics]
    runs: tuple[ModelResult, ...] = ()
    trained: bool = True

    @property
    def views(self) -> dict[View, PairMetrics]:
        """The metrics of each view: `POOLED`, `PAIR_WEIGHTED_MEAN` and each domain's."""
        means = {POOLED: self.pooled, PAIR_WEIGHTED_MEAN: self.pair_weighted_mean}
        return means | {view_of_domain(name): metrics for name, metrics in self.domains.items()}

    @property
    def seeds(self) -> int:
        """Number of training runs."""
        return max(1, len(self.runs))


@dataclass(frozen=True)
class Difference:
    """A metric of `first` minus the metric of `second`, on the same pairs, with a paired interval.

    Attributes:
        view, domain: kind and domain of `group`, the `View`.
        p_value: p-value of the interval's test for no difference; it covers papers (tasks: datasets) and
            seeds.
        p_holm: p-value corrected for all pairs of models of the view.
        equivalent: whether the interval lies within the margin that was set beforehand.
    """

    first: str
    second: str
    view: str
    metric: str
    value: float | None
    interval: Interval | None = None
    p_value: float | None = None
    p_holm: float | None = None
    equivalent: bool = False
    domain: str | None = None

    @property
    def group(self) -> View:
        """The pairs or tasks that were measured."""
        return View(self.view, self.domain)

    def turned(self) -> Difference:
        """Return the same difference, the other way round."""
        ends = self.interval and Interval(-self.interval.high, -self.interval.low)
        value = None if self.value is None else -self.value
        return replace(self, first=self.second, second=self.first, value=value, interval=ends)


def differences_of(
    values: Mapping[str, float | None], runs: Mapping[str, Runs], view: View, metric: str, margin: float
) -> list[Difference]:
    """Return each model minus each later one, with interval, equivalence, and p-value corrected by Holm.

    Args:
        values: label -> the metric of the model; None if it is undefined.
        runs: label -> the runs of the model; empty for differences without intervals.
        view, metric: view and metric to record in the differences.
        margin: bound, plus and minus, of the interval of the difference of two models that are equivalent.
    """
    found = []
    for (first, one), (second, other) in combinations(values.items(), 2):
        value = None if one is None or other is None else one - other
        difference = Difference(first, second, view.kind, metric, value, domain=view.domain)
        if (
            value is not None
            and first in runs
            and (estimated := estimate(*runs[first].minus(runs[second]))) is not None
        ):
            ends, p_value = estimated.interval(), estimated.p_value()
            # What is estimated of F1max is less than its value, the more so the fewer pairs there are.
            bounds = Interval(min(ends.low, value), max(ends.high, value))
            difference = replace(
                difference,
                interval=bounds,
                p_value=p_value if value * estimated.value > 0 else 1.0,
                equivalent=-margin < bounds.low and bounds.high < margin,
            )
        found.append(difference)
    p_values = iter(holm([each.p_value for each in found if each.p_value is not None]))
    return [each if each.p_value is None else replace(each, p_holm=next(p_values)) for each in found]


@dataclass(frozen=True, repr=False)
class PairEvaluation(Evaluation):
    """Several models on the same pairs.

    Attributes:
        settings: all that is needed to repeat the evaluation: pairs, split, seed, versions.
        models: results of the models, in the order given.
        scores: one row per pair: domain, anchor_id, positive_id, label, and for each run a column
            `score_column` with the cosine. Not part of the JSON.
        differences: metrics of each model minus each later one, in every view.
        routers: label of each run with learned routers -> how often they were right.
        text_free: figures of scores that do not compare texts; empty if all pairs are of one class.
    """

    FILES = ("evaluation.json", "scores.parquet")
    settings: Mapping[str, Any]
    models: tuple[ModelResult, ...]
    scores: pa.Table
    differences: tuple[Difference, ...] = ()
    routers: Mapping[str, RouterAccuracy] = field(default_factory=dict)
    text_free: tuple[ModelResult, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per model and view: `View`, counts, metrics and the ends of their intervals."""
        rows = []
        for model in self.models:
            for view, measured in model.views.items():
                row: dict[str, Any] = {"model": model.label, "view": view.kind, "domain": view.domain}
                row |= {"pairs": measured.pairs, "positives": measured.positives, **measured.metrics}
                for metric, interval in measured.intervals.items():
                    row |= _ends(f"{metric}_", interval)
                rows.append(row)
        return rows

    def main_rows(self) -> list[dict[str, Any]]:
        """Return a row per model and domain ("(pooled)", "(mean)"): F1max and ROC-AUC, rounded.

        Where models are compared, `gain` is the difference in ROC-AUC from the first model. `low` and `high`
        are the 95% interval of the figure before them: of ROC-AUC, or the paired one of the gain.
        """
        names = {POOLED: "(pooled)", PAIR_WEIGHTED_MEAN: "(mean)"}
        gaps = {  # `Difference` has the first model minus the other
            (gap.second, gap.group): gap.turned()
            for gap in self.differences
            if (gap.first, gap.metric) == (self.models[0].label, "roc_auc")
        }
        rows = []
        for model in self.models:
            for view, measured in model.views.items():
                figures = {name: measured.metrics[name] for name in ("f1_max", "roc_auc")}
                interval = measured.intervals.get("roc_auc")
                if gaps:
                    gap = gaps.get((model.label, view))
                    interval = gap.interval if gap else None
                    figures["gain"] = gap.value if gap else None
                figures |= _ends("", interval)
                rounded = {name: None if each is None else round(each, 3) for name, each in figures.items()}
                rows.append({"model": model.label, "domain": names.get(view, view.domain), **rounded})
        return rows


def _ends(prefix: str, interval: Interval | None) -> dict[str, float | None]:
    return {f"{prefix}{end}": getattr(interval, end, None) for end in ("low", "high")}


def score_column(label: str) -> str:
    """Return the column of a run's cosines in `PairEvaluation.scores`; no other name begins like it."""
    return f"cosine of {label}"


def library_versions(*more: str) -> dict[str, str]:
    """Return the versions of the libraries that a result can depend on, or "not installed"."""
    versions = dict.fromkeys((*LIBRARIES, *more), "not installed")
    for name in versions:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions
