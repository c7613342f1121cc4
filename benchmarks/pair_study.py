"""Shared by the studies of pairs: pairs as `train` takes them, cosines that are kept, differences."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

import sentence_experts as se
from blind_scores import Texts, blind_table
from measuring import p_text
from sentence_experts.evaluation.pair_evaluation import evaluate_scorers
from sentence_experts.evaluation.pairs import Scorer
from sentence_experts.evaluation.results import Difference, PairEvaluation, score_column
from sentence_experts.evaluation.statistics import Interval, holm
from sentence_experts.pairs.dataset import LINKED_BY, PAIR_COLUMNS
from studies import RunFile
from study import BASE

Cosines = Sequence[int] | NDArray[np.int64]
UNTRAINED = "all-MiniLM-L6-v2"
COSINES = 100_000  # cosines are kept as integers, in units of 1 / COSINES


class Clock:
    """Processor seconds of this process from now on; other jobs on the machine do not count."""

    def __init__(self) -> None:
        self.start = time.process_time()

    def seconds(self) -> float:
        """Until now."""
        return round(time.process_time() - self.start, 1)


class Citing:
    """Which articles of corpora cite a work, and when it appeared."""

    def __init__(self, *corpora: se.CorpusFolder) -> None:
        self._of: dict[str, set[str]] = defaultdict(set)
        self._years: dict[str, int | None] = {}
        for corpus in corpora:
            table = pq.read_table(corpus.citations, columns=["citing", "cited", "cited_year"])
            for citing, cited, year in zip(*(column.to_pylist() for column in table.columns), strict=True):
                if cited is not None:
                    self._of[cited].add(citing)
                    self._years[cited] = year

    def both(self, one: str, other: str) -> set[str]:
        """The articles that cite both works."""
        return self._of[one] & self._of[other]

    def linked(self, one: str, other: str) -> bool:
        """Whether an article cites both, or one of them the other."""
        return bool(self.both(one, other)) or one in self._of[other] or other in self._of[one]

    def times(self, work: str) -> int:
        """How many articles cite the work."""
        return len(self._of.get(work, ()))

    def works(self) -> pa.Table:
        """What is known of the cited works, as `Pairs.works` has it; of journals and references nothing."""
        columns: dict[str, list[Any]] = {"paper_id": list(self._of), "year": list(self._years.values())}
        columns["times_cited"] = [self.times(work) for work in self._of]
        return pa.table(columns | {name: [None] * len(self._of) for name in ("references", "journal")})


def ends(table: pa.Table) -> list[tuple[str, str]]:
    """The ids of the two works of each pair."""
    return list(zip(table["anchor_id"].to_pylist(), table["positive_id"].to_pylist(), strict=True))


def only_article(table: pa.Table, citing: Citing) -> list[str | None]:
    """The article that cites both works of each pair; None if there are several (or none by these ids)."""
    found = []
    for pair in ends(table):
        articles = citing.both(*pair)
        found.append(next(iter(articles)) if len(articles) == 1 else None)
    return found


def text_free(tests: Mapping[str, pa.Table], citing: Citing) -> str:
    """Markdown: the ROC-AUC of scores that compare no texts, on each test."""
    return blind_table({name: Texts.of(test) for name, test in tests.items()}, citing.works())


def by_domain(test: pa.Table) -> dict[str, pa.Table]:
    """Domain -> its test pairs."""
    names = sorted(test["domain"].unique().to_pylist())
    return {name: test.filter(pc.equal(test["domain"], name)) for name in names}


def with_column(table: pa.Table, name: str, value: Any) -> pa.Table:
    """The table with one value in all rows of a column."""
    return table.set_column(table.column_names.index(name), name, pa.array([value] * len(table)))


def training_pairs(corpus: se.CorpusFolder, out: Path, **settings: Any) -> se.Pairs:
    """Nearly all pairs of titles of a corpus as training pairs; how they are linked is up to the settings."""
    how: dict[str, Any] = {"unit": "title", "split": "random", "fractions": [0.98, 0.01, 0.01]}
    how |= {"max_eval_per_domain": 10, "negatives": "cited", "negatives_min_cited": 0, "engine": "local[1]"}
    return se.compile_pairs(corpus, out=out, **{**how, **settings})


def pairs_of(train: pa.Table, known_links: pa.Table) -> se.Pairs:
    """Training pairs alone, for `keep="last"`; linked works are no negatives of each other."""
    train = train.select(PAIR_COLUMNS)
    works = pa.chunked_array([*train["anchor_id"].chunks, *train["positive_id"].chunks], pa.string()).unique()
    among = pc.and_(*(pc.is_in(known_links[end], value_set=works) for end in ("left_id", "right_id")))
    splits = {"train": train, "validation": train.slice(0, 0), "test": train.slice(0, 0)}
    return se.Pairs.in_memory(splits, known_links.filter(among), {})


def cosines(
    model: SentenceTransformer | str, test: pa.Table, route_map: Mapping[str, str] | None = None
) -> list[int]:
    """The cosines of the test pairs in their order, in units of 1 / `COSINES`."""
    found = se.evaluate(
        {"model": model}, se.Pairs.from_tables(test=test), bootstrap=0, route_map=dict(route_map or {})
    )
    assert isinstance(found, PairEvaluation)
    scores = found.scores[score_column("model")].to_numpy()
    return [int(each) for each in np.rint(scores * COSINES)]


def measure_untrained(runs: RunFile, test: pa.Table) -> None:
    """Test the base as it is, unless that is done."""
    if not runs.done(arm=UNTRAINED):
        clock = Clock()
        found = cosines(BASE, test)
        runs.append({"arm": UNTRAINED, "seed": 0, "cosines": found, "seconds": clock.seconds()})


def spent(runs: RunFile) -> str:
    """What all runs took."""
    return f"{len(runs.rows)} runs, {sum(row['seconds'] for row in runs.rows) / 60:.0f} CPU minutes."


def _kept(label: str, test: pa.Table, scores: Cosines) -> Scorer:
    """A run whose cosines are known."""
    domains = np.array(test["domain"].to_pylist())
    by_domain: dict[str, NDArray[np.float64]] = {
        name: np.asarray(scores)[domains == name] / COSINES for name in np.unique(domains)
    }
    return Scorer(label, lambda anchors, positives, domain: by_domain[domain], lambda: {"model": label})


def compared(
    test: pa.Table, scores: Mapping[str, Sequence[Cosines]], margin: float, baseline: Sequence[str] = ()
) -> PairEvaluation:
    """The arms on the same test pairs, each with the cosines of its runs in the order of the seeds.

    Intervals cluster by the articles that link the pairs, too, where the table keeps these.
    """
    models = {
        arm: [
            _kept(arm if len(runs) == 1 else f"{arm}, run {seed}", test, run) for seed, run in enumerate(runs)
        ]
        for arm, runs in scores.items()
    }
    cluster = "article" if LINKED_BY in test.column_names else "paper"
    return evaluate_scorers(models, test, margin=margin, baseline=baseline, cluster=cluster)


def difference(found: PairEvaluation, first: str, second: str, view: str = "pooled") -> Difference:
    """ROC-AUC of the first arm minus that of the second."""
    for each in found.differences:
        if (
            each.view.kind == view
            and each.metric == "roc_auc"
            and {each.first, each.second} == {first, second}
        ):
            return each if each.first == first else each.turned()
    raise KeyError((first, second))


def with_interval(value: float | None, interval: Interval | None, sign: str = "") -> str:
    """`0.7340 (0.7120 to 0.7600)`."""
    if value is None or interval is None:
        return "-"
    return f"{value:{sign}.4f} ({interval.low:{sign}.4f} to {interval.high:{sign}.4f})"


def gap(found: PairEvaluation, first: str, second: str, view: str = "pooled") -> str:
    """The difference of two arms in ROC-AUC, with its interval."""
    each = difference(found, first, second, view)
    return with_interval(each.value, each.interval, "+")


def corrected(differences: Sequence[Difference]) -> list[str]:
    """The p-value of each, after Holm's correction for their number."""
    return [p_text(p_value) for p_value in holm([each.p_value or 0.0 for each in differences])]


def areas(found: PairEvaluation, arm: str, view: str = "pooled") -> str:
    """The ROC-AUC of an arm, with its interval."""
    model = next(each for each in found.models if each.label == arm)
    figures = model.pooled if view == "pooled" else model.pair_weighted_mean
    return with_interval(figures.metrics["roc_auc"], figures.intervals["roc_auc"])


def verdict(found: Difference, question: str, margin: float) -> str:
    """One sentence: yes, no, equivalent, or not shown."""
    if found.interval is None:
        raise ValueError(question)
    told = f"{question}: {with_interval(found.value, found.interval, '+')}"
    small = f", a difference below the margin of {margin}" if found.equivalent else ""
    if found.interval.low > 0:
        return f"Yes: {told}{small}."
    if found.interval.high < 0:
        return f"No, the reverse: {told}{small}."
    if found.equivalent:
        return f"No: {told}; equivalent within {margin}."
    return f"Not shown: {told}; the interval holds 0 and goes beyond the margin of {margin}."
