"""How well a model searches a corpus, by the user's own judgements: nDCG@10 and recall@100.

Judgements are TREC's or BEIR's files. TREC: `qrels.txt` with lines `query 0 paper relevance`. BEIR: a table
with the columns query-id, corpus-id and score, tabs between them. The queries' texts stand in `queries.jsonl`
(`_id`, `text`) or `queries.tsv` (id, tab, text), beside the judgements or one folder above them.

Every route of every model is measured, alone and with the words of the query (hybrid), beside BM25, which
needs no model. Intervals are bootstrap percentiles over queries. Judged papers that the corpus lacks are left
out and counted, so figures of two corpora cannot be compared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.corpus.corpus_folder import Corpus, open_corpus
from sentence_experts.errors import InputError, UsageError
from sentence_experts.evaluation.config import EncodingOptions
from sentence_experts.evaluation.models import Models, model_runs
from sentence_experts.evaluation.results import Result
from sentence_experts.models.routes.known_routes import KnownRoutes
from sentence_experts.retrieval.config import PaperTexts
from sentence_experts.retrieval.keywords import FUSED, fused, keyword_index
from sentence_experts.retrieval.papers import Papers
from sentence_experts.retrieval.search_routes import Blend, find_blend
from sentence_experts.retrieval.searcher import Searcher
from sentence_experts.retrieval.texts import PASSAGES
from sentence_experts.storage import check_regular, write_json

BM25, HYBRID = "BM25", "hybrid"
NDCG, RECALL = "nDCG@10", "recall@100"
FEW = 50  # queries below which a verdict says that they are few
QUERIES = ("queries.jsonl", "queries.tsv")
_DEPTH, _TOP = 100, 10
_REPLICATES = 2000


@dataclass(frozen=True)
class SearchMetrics:
    """The metrics of one way to search: a model and route, or BM25.

    Attributes:
        model: the model's label; "BM25" without one.
        route: the route of the papers; "" without routes.
        hybrid: whether the words of the query counted too.
        ndcg, recall: nDCG@10 and recall@100, means over queries.
        ndcg_interval, recall_interval: their 95% intervals.
        gain: nDCG@10 above that of BM25.
        gain_interval: the 95% interval of the gain, over the same queries.
    """

    model: str
    route: str
    hybrid: bool
    ndcg: float
    recall: float
    ndcg_interval: tuple[float, float]
    recall_interval: tuple[float, float]
    gain: float
    gain_interval: tuple[float, float]

    @property
    def name(self) -> str:
        """The name to show."""
        return " ".join(filter(None, [self.model, self.route, HYBRID if self.hybrid else ""]))


@dataclass(frozen=True, repr=False)
class SearchEvaluation(Result):
    """The metrics of BM25, then of each route of each model.

    Attributes:
        metrics: one entry for each way to search.
        queries: the number of queries measured.
        left_out: queries without a relevant paper in the corpus.
        missing: judged papers that the corpus lacks.
        settings: what was measured, as plain values.
    """

    metrics: tuple[SearchMetrics, ...]
    queries: int
    left_out: int
    missing: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row for each way to search."""
        return [asdict(each) | {"queries": self.queries} for each in self.metrics]

    def main_rows(self) -> list[dict[str, Any]]:
        """Return one row for each way to search: rounded metrics, and the interval of the gain over BM25."""
        rows = []
        for each in self.metrics:
            figures = {"ndcg": each.ndcg, "recall": each.recall, "gain": each.gain}
            figures |= dict(zip(("gain_low", "gain_high"), each.gain_interval, strict=True))
            rounded = {name: round(value, 3) for name, value in figures.items()}
            rows.append({"model": each.model, "route": each.route, "hybrid": each.hybrid} | rounded)
        return rows

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "settings": dict(self.settings),
            "queries": self.queries,
            "queries_left_out": self.left_out,
            "judged_papers_missing": self.missing,
            "metrics": self.rows(),
            "verdict": self.verdict(),
        }

    def verdict(self) -> list[str]:
        """Return sentences: the best way to search, how certain that is, and how far to trust it."""
        best = max(self.metrics, key=lambda each: each.ndcg)
        lines = [f"Best: {best.name}, {NDCG} {with_interval(best.ndcg, best.ndcg_interval)}."]
        better = [each for each in self.metrics if each.gain_interval[0] > 0]
        if best.model != BM25 and best in better:
            gain = with_interval(best.gain, best.gain_interval)
            lines[0] = f"{lines[0][:-1]}, {gain} above {BM25}."
        elif not better:
            lines.append(f"No route is shown to be better than {BM25}, which needs no model.")
        if len(self.metrics) > 2 and best.model != BM25:
            lines.append(
                f"It was chosen among {len(self.metrics)} on the same queries: confirm it on others."
            )
        if self.queries < FEW:
            judged = "1 query was" if self.queries == 1 else f"{self.queries} queries were"
            lines.append(f"Only {judged} judged: judge some more.")
        if self.missing:
            lines.append(f"{self.missing:,} judged papers are not in the corpus and were left out.")
        return lines


def with_interval(value: float, interval: tuple[float, float], sign: str = "") -> str:
    """Write a value with its interval."""
    return f"{value:{sign}.3f} ({interval[0]:.3f} to {interval[1]:.3f})"


def evaluate_search(
    models: Models,
    qrels: Path | str,
    corpus: Corpus,
    queries: Path | str | None = None,
    out: Path | str | None = None,
    config: EncodingOptions | None = None,
    *,
    route: Sequence[str] = (),
    unit: str | None = None,
    seed: int = 0,
) -> SearchEvaluation:
    """Measure how well models search a corpus, by queries and papers that people judged.

    Args:
        models: one model or several, as in `evaluate`.
        qrels: the judgements, in TREC's or BEIR's layout; papers are named by paper id, DOI, PMID or PMCID.
        corpus: the corpus, or its folder.
        queries: the queries' texts; by default queries.jsonl or queries.tsv beside the judgements.
        out: folder for search.json.
        config: how texts are encoded.
        route: the routes to measure; by default every route of a model.
        unit: the text of a paper, or "passages" of its full text; by default as the models were trained.
        seed: of the bootstrap.

    Raises:
        UsageError: no model, or two with the same name.
        InputError: a file cannot be read, or no judged paper is in the corpus.
        RouteError: a model has no such route.
    """
    judged = Judgements.read(qrels, queries)
    runs = model_runs(models)
    if any(run.is_tfidf for run in runs):
        raise UsageError("`tfidf` is for pairs; BM25 is measured anyway")
    for run in runs:
        if (known := KnownRoutes.read(run.source)) is not None:
            for name in route:
                find_blend(known, name)
    chosen = {"passages": True} if unit == PASSAGES else {"unit": unit}
    unit = PaperTexts.of(None, **chosen).texts_for({run.label: run.source for run in runs})
    with open_corpus(corpus) as folder:
        data = JudgedPapers.of(judged, Papers(folder))
        keywords = keyword_index(folder, unit)
        by_words = [keywords.search(text, FUSED) for text in data.texts]
        figures = {(BM25, "", False): data.figures(by_words)}
        for run in runs:
            searcher = Searcher(run.open(config or EncodingOptions()), folder, unit, data.papers)
            for searched in [searcher.blend(name) for name in route] or map(Blend, zip(searcher.routes)):
                compared = searcher.compare(searcher.encode(data.texts, searched), searched)
                by_vectors = [each.nearest(FUSED) for each in compared]
                both = [fused(list(each), _DEPTH + 1) for each in zip(by_vectors, by_words, strict=True)]
                figures[run.label, searched.name, False] = data.figures(by_vectors)
                figures[run.label, searched.name, True] = data.figures(both)
        settings = {"qrels": Path(qrels).name, "corpus": folder.path.name, "unit": unit, "seed": seed}
    counts = len(data.texts), data.left_out, data.missing
    evaluation = SearchEvaluation(_metrics(figures, seed), *counts, settings)
    if out is not None:
        write_json(Path(out) / "search.json", evaluation.to_json())
    return evaluation


# (queries,) nDCG@10 and recall@100 of each query.
_Figures = tuple[NDArray[np.float64], NDArray[np.float64]]


def _metrics(figures: Mapping[tuple[str, str, bool], _Figures], seed: int) -> tuple[SearchMetrics, ...]:
    baseline = figures[BM25, "", False][0]
    draws = np.random.default_rng(seed).integers(0, len(baseline), (_REPLICATES, len(baseline)))

    def interval(values: NDArray[np.float64]) -> tuple[float, float]:
        low, high = np.quantile(values[draws].mean(axis=1), [0.025, 0.975])
        return float(low), float(high)

    measured = []
    for way, (ndcg, recall) in figures.items():
        means, gain = (float(ndcg.mean()), float(recall.mean())), ndcg - baseline
        ends = interval(ndcg), interval(recall)
        measured.append(SearchMetrics(*way, *means, *ends, float(gain.mean()), interval(gain)))
    return tuple(measured)


@dataclass(frozen=True)
class Judgements:
    """Queries, and the papers that people judged for them.

    Attributes:
        queries: query id -> text, of the queries that were judged.
        relevance: query id -> paper -> grade; 0 and less is not relevant.
    """

    queries: Mapping[str, str]
    relevance: Mapping[str, Mapping[str, float]]

    @classmethod
    def read(cls, qrels: Path | str, queries: Path | str | None = None) -> Judgements:
        """Read judgements and the texts of their queries.

        Raises:
            InputError: a file is missing or has another layout, or a judged query has no text.
        """
        relevance = _read_qrels(Path(qrels))
        if queries is None:
            folders = Path(qrels).parent, Path(qrels).parent.parent
            beside = [folder / name for folder in folders for name in QUERIES if (folder / name).is_file()]
            if not beside:
                places = f"no {' or '.join(QUERIES)} beside it or one folder above"
                raise InputError(f"{qrels}: {places}: give `queries`")
            queries = beside[0]
        texts = _read_queries(Path(queries))
        if missing := [query for query in relevance if not texts.get(query, "").strip()]:
            raise InputError(f"{queries}: no text of query {missing[0]!r}, which {qrels} judges")
        return cls({query: texts[query] for query in relevance}, relevance)


def _lines(file: Path) -> list[str]:
    check_regular(file)
    if file.is_dir():
        raise InputError(f"{file}: a folder; give the file of judgements in it")
    try:
        return file.read_text(encoding="utf-8-sig").splitlines()
    except (UnicodeDecodeError, OSError) as error:
        why = "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
        raise InputError(f"{file}: {why}") from error


def _read_qrels(file: Path) -> dict[str, dict[str, float]]:
    relevance: dict[str, dict[str, float]] = {}
    for number, line in enumerate(_lines(file), start=1):
        cells = line.split("\t") if line.count("\t") == 2 else line.split()
        if not cells or (number == 1 and cells[-1].strip().lower() in ("score", "relevance", "rel")):
            continue
        try:
            query, *_, paper, grade = cells
            if len(cells) not in (3, 4) or not math.isfinite(value := float(grade)):
                raise ValueError
        except ValueError as error:
            raise InputError(
                f"{file}, line {number}: expected `query 0 paper relevance` (TREC) or `query-id corpus-id "
                f"score` (BEIR), found {line[:80]!r}"
            ) from error
        relevance.setdefault(query.strip(), {})[paper.strip()] = value
    if not relevance:
        raise InputError(f"{file}: no judgements in it")
    return relevance


def _read_queries(file: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    is_json = file.suffix == ".jsonl"
    form = '{"_id": ..., "text": ...}' if is_json else "id, tab, text"
    for number, line in enumerate(_lines(file), start=1):
        if not line.strip():
            continue
        try:
            row = (
                json.loads(line) if is_json else dict(zip(("_id", "text"), line.split("\t", 1), strict=True))
            )
            texts[str(row["_id"]).strip()] = str(row["text"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"{file}, line {number}: expected {form}, found {line[:80]!r}") from error
    return texts


@dataclass(frozen=True)
class JudgedPapers:
    """The judgements that can be measured on a corpus.

    Attributes:
        texts: of the queries.
        grades: row of the corpus -> grade, of each query.
        own: the row of the paper that is the query itself, if it is one.
        left_out, missing: numbers, as in `SearchEvaluation`.
    """

    papers: Papers
    texts: list[str]
    grades: list[dict[int, float]]
    own: list[int | None]
    left_out: int
    missing: int

    @classmethod
    def of(cls, judged: Judgements, papers: Papers) -> JudgedPapers:
        """Find the judged papers in a corpus.

        Raises:
            InputError: none that is judged relevant is in it.
        """
        names = sorted({name for of in judged.relevance.values() for name in of})
        rows = dict(zip(names, papers.rows_of(names), strict=True))
        texts, grades, own, left_out = [], [], [], 0
        for query, of_query in judged.relevance.items():
            known: dict[int, float] = {}
            for name, grade in of_query.items():  # a paper may be judged under two of its ids
                if (judged_row := rows[name]) is not None:
                    known[judged_row] = max(grade, known.get(judged_row, grade))
            row = papers.rows_of([query])[0] if ":" in query or "/" in query else None
            known.pop(-1 if row is None else row, None)
            if not any(grade > 0 for grade in known.values()):
                left_out += 1
                continue
            texts.append(judged.queries[query])
            grades.append(known)
            own.append(row)
        if not texts:
            raise InputError(f"{papers.corpus.path}: none of the papers that are judged relevant is in it")
        return cls(papers, texts, grades, own, left_out, sum(row is None for row in rows.values()))

    def figures(self, rankings: Sequence[NDArray[np.int64]]) -> _Figures:
        """Return nDCG@10 and recall@100 of each query, as trec_eval has them (grades as gains)."""
        ndcg, recall = np.zeros(len(self.texts)), np.zeros(len(self.texts))
        discounts = 1 / np.log2(np.arange(2, _TOP + 2))
        for number, (ranking, grades) in enumerate(zip(rankings, self.grades, strict=True)):
            ranked = [row for row in ranking.tolist() if row != self.own[number]][:_DEPTH]
            gains = np.array([max(grades.get(row, 0.0), 0.0) for row in ranked[:_TOP]])
            ideal = np.sort([max(grade, 0.0) for grade in grades.values()])[::-1][:_TOP]
            ndcg[number] = gains @ discounts[: len(gains)] / (ideal @ discounts[: len(ideal)])
            relevant = {row for row, grade in grades.items() if grade > 0}
            recall[number] = len(relevant.intersection(ranked)) / len(relevant)
        return ndcg, recall
