"""`screen`: which papers of a corpus to read next, and how many relevant ones may still be unread."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Container, Sequence
from dataclasses import dataclass
from math import exp, inf, lgamma
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sentence_experts.config import with_settings
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.encoding.chunks import Vectors
from sentence_experts.encoding.encode import Model
from sentence_experts.models.loading import LoadConfig
from sentence_experts.retrieval.matching import letters_of
from sentence_experts.retrieval.papers import Filters, Papers
from sentence_experts.retrieval.search_routes import SearchRoute
from sentence_experts.retrieval.searcher import Searcher
from sentence_experts.retrieval.taught import Mark, Sample, hash_id, split_hashes
from sentence_experts.retrieval.taught_routes import (
    LASTING,
    current_ids,
    find_listed,
    gather,
    known_rows,
    latest_marks,
)
from sentence_experts.retrieval.teach import read_marks
from sentence_experts.retrieval.texts import PaperTexts
from sentence_experts.tables import Table

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)


class ScreenConfig(PaperTexts):
    """Settings of `screen`."""

    on: str | None = Field(None, description="Route of the model to begin with. Default: as for `search`")
    sample: int = Field(
        0, ge=0, description="Unread papers to draw at random and put first, to know how many are relevant"
    )


@dataclass(frozen=True)
class ScreenResult:
    """A list of papers to read, and what is known of them.

    Attributes:
        papers: dicts of `rank`, `similar`, `sampled` (yes, no or None), `score`, `paper_id` and `title`: the
            unread papers in the order in which to read them, then the read ones, without a rank. Papers with
            a larger score are more likely relevant; those without the unit's text have none and come last.
        read, relevant, unread: numbers of papers that were read, relevant ones among them, and unread ones.
        missing: papers of the table that the corpus does not have.
        waiting: papers of a random sample that are still to be read, before it tells anything.
        sampled, found: numbers of papers of the sample that were read, and of relevant ones among them.
        pool, since: numbers of papers that the sample was drawn from, and of relevant ones among them that
            have been read, in the sample or not.
        newer: unread papers that were not there when the sample was drawn.
        sample: the random sample; None without one.
        renumbered: whether the ids of a sample name other papers now, so that it does not count.
    """

    papers: list[dict[str, Any]]
    read: int
    relevant: int
    unread: int
    missing: int
    waiting: int = 0
    sampled: int = 0
    found: int = 0
    pool: int = 0
    since: int = 0
    newer: int = 0
    sample: Sample | None = None
    renumbered: bool = False

    @property
    def at_most(self) -> int:
        """Largest number of relevant papers among the unread, with 95% confidence; all without a sample."""
        if self.waiting or not self.sampled:
            return self.unread
        left = max(bound_relevant(self.pool, self.sampled, self.found) - self.since, 0)
        return min(left + self.newer, self.unread)

    @property
    def verdict(self) -> str:
        """A summary of the figures in a sentence or two."""
        counted = f"{self.read:,} papers read, {self.relevant:,} of them relevant; {self.unread:,} unread"
        if self.waiting:
            whole = self.waiting + self.sampled
            return (
                f"{counted}. Read the {whole:,} random papers first ({self.sampled:,} so far): then they tell"
            )
        if self.renumbered:
            return f"{counted}. The ids of the random sample name other papers now: draw a new one"
        if not self.sampled:
            return f"{counted}. Only a random sample can tell how many of these are relevant"
        likely = max((self.pool + self.newer) * self.found / self.sampled - self.since, 0)
        likely = min(likely, self.at_most)
        share = 100 * self.relevant // max(self.relevant + self.at_most, 1)  # down, since it is a bound
        is_list = self.sample is not None and self.sample.others is not None
        came = "that the table does not list" if is_list else "that came after it"
        newer = f", with {self.newer:,} {came}" if self.newer else ""
        return (
            f"{counted}. Of these likely {likely:,.0f} are relevant, with 95% confidence at most "
            f"{self.at_most:,} (in a random sample {self.found:,} of {self.sampled:,}{newer}); then at least "
            f"{share}% of the relevant papers were read"
        )

    def to_pandas(self) -> pd.DataFrame:
        """Return a row per paper, in the order in which to read them."""
        import pandas as pd

        return pd.DataFrame(self.papers)

    def __repr__(self) -> str:
        return f"ScreenResult({self.verdict})"


@with_settings(ScreenConfig)
def screen(
    model: Model,
    corpus: CorpusFolder | Path | str,
    examples: Table,
    config: ScreenConfig | None = None,
    *,
    load_config: LoadConfig | None = None,
    **settings: Any,
) -> ScreenResult:
    """List the papers of a corpus in the order in which to read them, by what the read ones teach.

    The order comes from a logistic regression on the vectors, which saved more reading than taught routes
    (benchmarks/results/screening.md). Queries of the table count for nothing. Nothing is kept. Corrections,
    editorials and other notices are left out.

    Args:
        model: a model in memory, or the path or name of one.
        corpus: a corpus or its folder.
        examples: a table as for `teach`, or `papers` with more marks. `similar` is empty for unread papers;
            `sampled` is yes for those that were drawn at random, no for others of which they were drawn.
        config: settings; those given by name come before it.
        load_config: settings for opening a model that is given by its path or name; see `load`.

    Raises:
        UsageError: a bad setting, or fewer than two papers of either kind.
        InputError: the corpus or the table cannot be read.
        RouteError: the model needs a route (`on`), or does not know it.

    Example:
        >>> papers = CorpusFolder.open("corpus").to_pandas()["paper_id"][:8]
        >>> rows = [{"paper": paper, "similar": number < 4} for number, paper in enumerate(papers)]
        >>> screen("model", "corpus", rows, on="genomics", unit="title").relevant
        4
    """
    config = ScreenConfig.of(config, **settings)
    opened = CorpusFolder.open(corpus)
    marks, sample, unread = read_marks(examples)
    searcher = Searcher.open(model, opened, config, load_config)
    on = searcher.one_route(config.on)
    if sample and config.sample:
        logger.warning(
            f"a new random sample takes the place of the {len(sample.papers):,} papers that the table has; "
            "without `sample` they are kept"
        )
    if sample:
        sample = sample.renamed(current_ids(searcher.papers, [*marks, *unread], gone=""))
    marks = find_listed(searcher.papers, marks, unread)
    result = order_papers(searcher, on, marks, sample, config.sample)
    if result.newer and sample and not config.sample:
        logger.warning(
            f"{result.newer:,} papers are not in the table: they came after the sample, or have no "
            f"{searcher.unit} (earlier versions left these out), or their rows were removed, and then the "
            "bound may be too low: keep all rows of a list"
        )
    return result


def order_papers(
    searcher: Searcher, on: SearchRoute, marks: Sequence[Mark], sample: Sample | None = None, draw: int = 0
) -> ScreenResult:
    """List papers as `screen` does, with a sample that was drawn before, or a new one of `draw` papers."""
    if sample:
        sample = sample.renamed(current_ids(searcher.papers, marks, gone=""))
    marks = latest_marks(searcher.papers, _without_anchors(marks))
    taught = gather(searcher, on, marks)
    rows = known_rows(searcher.papers, marks)
    pairs = [(row, mark) for row, mark in zip(rows, marks, strict=True) if row is not None]
    read = {row: mark.similar for row, mark in pairs if not mark.assumed}
    vectors, passing = searcher.vectors(on), searcher.papers.places(Filters(notices=False))
    scored = vectors.scores(fit_regression(taught.vectors, taught.similar))
    scores = dict(zip(vectors.papers.tolist(), scored.tolist(), strict=True))
    ids, titles = (searcher.papers.column(name).to_pylist() for name in ("paper_id", "title"))
    unread = [row for row in range(len(ids)) if row not in read and (passing is None or passing[row])]
    renumbered = not draw and sample is not None and _is_renumbered(searcher.papers, sample, titles)
    if renumbered:
        sample = None
    if draw:
        if draw > len(unread):
            logger.warning(f"`sample`: only {len(unread):,} papers are unread: all are drawn")
        sample = _draw_sample(ids, titles, unread, [*read], draw)
    drawn = dict.fromkeys(searcher.papers.rows_of(sample.papers if sample else ()))
    others = _find_others(searcher.papers, ids, sample)
    before_it = {*searcher.papers.rows_of(sample.before)} if sample else {*read}
    if sample:  # a paper may stand twice in the table
        before_it -= {*drawn, *(others or ())}
    waiting = [row for row in drawn if row is not None and row not in read]
    order = list(dict.fromkeys([*waiting, *sorted(unread, key=lambda row: -scores.get(row, -inf))]))
    papers = [
        {
            "rank": number if row not in read else None,
            "paper_id": ids[row],
            "similar": None if row not in read else "yes" if read[row] else "no",
            "sampled": _tell_sampled(row, sample, drawn, before_it, others),
            "score": scores.get(row),
            "title": titles[row],
        }
        for number, row in enumerate([*order, *read], start=1)
    ]
    came = set() if others is None else {*read, *unread} - before_it - {*drawn, *others}
    since = [similar for row, similar in read.items() if row not in before_it and row not in came]
    found = [similar for row, similar in read.items() if row in drawn]
    left = sum(row not in came for row in unread)
    pool = left + len(since)  # papers may have left the corpus, or come into it
    if others is None and sample and sample.pool is not None:
        pool = min(sample.pool, pool)
    return ScreenResult(
        papers,
        read=len(read),
        relevant=sum(read.values()),
        unread=len(unread),
        missing=rows.count(None),
        waiting=len(waiting),
        sampled=len(found),
        found=sum(found),
        pool=pool,
        since=sum(since),
        newer=len(unread) + len(since) - pool,
        sample=sample,
        renumbered=renumbered,
    )


def _is_renumbered(papers: Papers, sample: Sample, titles: Sequence[str | None]) -> bool:
    """Return whether the ids of a sample name other papers than those drawn, as where they number rows."""
    drawn = zip(sample.papers, papers.rows_of(sample.papers), split_hashes(sample.titles), strict=False)
    own = [(row, told) for paper, row, told in drawn if row is not None and not paper.startswith(LASTING)]
    others = sum(_hash_title(titles[row]) != told for row, told in own)
    return others > max(1, 0.2 * len(own))  # of a few the titles may have been corrected


def _draw_sample(
    ids: Sequence[str], titles: Sequence[str | None], unread: Sequence[int], read: Sequence[int], count: int
) -> Sample:
    """Draw unread papers at random."""
    drawn = np.random.default_rng(len(read)).permutation(unread)[:count].tolist()
    rest = sorted({*unread} - {*drawn})
    papers, before = (tuple(ids[row] for row in rows) for rows in (drawn, read))
    return Sample(
        papers=papers,
        before=before,
        pool=len(unread),
        rest="".join(hash_id(ids[row]) for row in rest),
        titles="".join(_hash_title(titles[row]) for row in drawn),
    )


def _hash_title(title: str | None) -> str:
    """Return a short hash of how a title begins, which stays when a subtitle comes."""
    return hash_id((letters_of(title) or "")[:25])


def _find_others(papers: Papers, ids: Sequence[str], sample: Sample | None) -> set[int | None] | None:
    """Return the rows of the papers that a sample was drawn from and does not hold; None if unknown."""
    if sample is not None and sample.others is not None:
        return {*papers.rows_of(sample.others)}
    if sample is None or sample.rest is None:
        return None
    rest = {*sample.hashes}
    return {row for row, paper in enumerate(ids) if hash_id(paper) in rest}


def _tell_sampled(
    row: int,
    sample: Sample | None,
    drawn: Container[Any],
    before: Container[Any],
    others: Container[Any] | None,
) -> str | None:
    """Return whether a paper was drawn; None if it was not among those that the sample was drawn from.

    So papers that came after the sample do not become part of it when the list is the next round's table.
    """
    if sample is None or row in before:
        return None
    if row in drawn:
        return "yes"
    return "no" if others is None or row in others else None


def _without_anchors(marks: Sequence[Mark]) -> list[Mark]:
    return [mark.model_copy(update={"query": None, "like": ()}) for mark in marks]


def fit_regression(vectors: Vectors, similar: NDArray[np.bool_]) -> Vectors:
    """Return the weights of a logistic regression with a penalty of half their squares, (dimensions,).

    Both classes count the same. The minimum is found by Newton's method.

    Args:
        vectors: vectors of length 1, (examples, dimensions).
        similar: the class of each; both must be there.
    """
    rows = np.column_stack([vectors, np.ones(len(vectors))]).astype(np.float64)
    penalty = np.append(np.ones(vectors.shape[1]), 0.0)  # not on the constant
    counts = np.where(similar, 0.5 / similar.mean(), 0.5 / (~similar).mean())
    weights = np.zeros(rows.shape[1])
    for _ in range(15):
        chance = 1 / (1 + np.exp(-rows @ weights))
        slope = rows.T @ (counts * (chance - similar)) + penalty * weights
        curve = (rows.T * (counts * chance * (1 - chance))) @ rows + np.diag(penalty)
        weights -= np.linalg.solve(curve, slope)
    return weights[:-1].astype(np.float32)


def bound_relevant(papers: int, sampled: int, found: int) -> int:
    """Return the largest number of relevant papers that a random sample does not rule out.

    With more of them, so few in the sample have a chance of 5% or less, by the hypergeometric distribution:
    the test of Callaghan and Müller-Hansen 2020 (Statistical stopping criteria for automated screening in
    systematic reviews, Systematic Reviews 9:273), solved for the number. The size of the sample must be
    decided before it is read.

    Args:
        papers: number of papers that the sample was drawn from, the sampled ones among them.
        sampled: number of papers drawn.
        found: number of relevant papers drawn.

    >>> bound_relevant(1000, 100, 0)
    28
    """

    def ways(of: int, drawn: int) -> float:
        return lgamma(of + 1) - lgamma(drawn + 1) - lgamma(of - drawn + 1)

    def is_ruled_out(count: int) -> bool:
        drawn = range(max(0, sampled - papers + count), found + 1)
        return (
            sum(
                exp(ways(count, each) + ways(papers - count, sampled - each) - ways(papers, sampled))
                for each in drawn
            )
            <= 0.05
        )

    possible = range(found, papers - sampled + found + 1)
    return possible[bisect_left(possible, True, key=is_ruled_out) - 1]
