"""Screening: how many papers of a review need not be read if a way orders them, at 95% recall.

    python benchmarks/screening.py --cache FOLDER [--draws 5] [--processes 2]

A review is a made-up one: 1,000 labelled texts, of which those with one label are relevant. Labels are every
second one, by frequency, of the `use::` values of Debian's programs and the research organisms of eLife's
articles that 3% to 15% of the texts have; texts without a label of the kind are left out. A draw takes the
texts, and two relevant ones and five others to start with, the same for all ways. Then a batch is read, the
way learns from all that was read, orders the rest, and so on; batches are of 10 texts, later half as many as
were read.

Work saved over sampling (Cohen et al. 2006, J Am Med Inform Assoc 13:206): the share of texts that are unread
when 95% of the relevant ones are found, less 0.05; the start does not count.

- taught: the map of `teach` (in the stored figures, below 100 texts, Rocchio's method where `teach` took it,
  as it did then). The order is that of the cosine with the mean of the relevant texts.
- MiniLM: the same order, untaught.
- ELAS u4: the default of ASReview 3.0.8 (asreview/models/models.py): TF-IDF of words and pairs of words with
  a linear SVM, all settings as there, by scikit-learn; the most relevant texts are read first.
- ELAS u3: what ASReview says mimics its version 1: TF-IDF with naive Bayes.
- regression: logistic regression on MiniLM's vectors, as in few_shot.py. `screen` orders papers so, which was
  decided after this run.
- BM25: by the words of the two relevant texts of the start; it learns nothing.
- random: any order.

Primary figure, chosen before the first run: WSS@95 of taught less that of ELAS u4, mean of the labels, with
the 95% interval of Student's t over labels (a label's value is the mean of its draws). All else is secondary;
labels of one kind share texts, so that intervals are a little narrow.

Stopping: when the taught order has found 95%, a random sample of 100 unread texts (all, if there are fewer)
bounds the number of relevant ones that are unread. The table says how often the bound held.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from few_shot import REGRESSION, encoded, read_articles, read_programs, values_of, with_half
from measuring import options, table, write
from sentence_experts.models.pooling import unit
from sentence_experts.retrieval.keywords import common_words, stems_of
from sentence_experts.retrieval.screening import bound_relevant
from sentence_experts.retrieval.teaching import Examples, fit_head

PRIMARY = ("taught", "ELAS u4")
TEXTS, SHARES, RECALL = 1_000, (0.03, 0.15), 0.95
START = {True: 2, False: 5}  # relevant or not -> texts to start with
BATCH, GROWTH = 10, 0.5
SAMPLE = 100
WAYS = ("taught", "MiniLM", "ELAS u4", "ELAS u3", "regression", "BM25", "random")

Scores = NDArray[Any]
Rank = Callable[[NDArray[np.int64]], Scores]  # rows that were read -> scores of all texts


@dataclass(frozen=True)
class Review:
    """Texts with their vectors of length 1, and whether each is relevant."""

    texts: Sequence[str]
    vectors: NDArray[np.float32]
    relevant: NDArray[np.bool_]


# ---- data ----------------------------------------------------------------------------------------


def labelled_sets(cache: Path) -> dict[str, tuple[list[str], list[set[str]], NDArray[np.float32]]]:
    """Texts, their labels and vectors: Debian's programs by use, eLife's articles by organism."""
    programs, articles = read_programs(), read_articles(cache)
    uses = [row["description"] for row in programs], [values_of(row, "use") for row in programs]
    sets = {}
    for name, file, (texts, labels) in (
        ("Debian, use", "debian", uses),
        ("eLife, organism", "elife_organisms", articles),
    ):
        vectors = encoded(cache, file, lambda texts=texts: texts)  # type: ignore[misc]
        kept = [number for number, each in enumerate(labels) if each]
        sets[name] = ([texts[n] for n in kept], [labels[n] for n in kept], unit(vectors[kept]))
    return sets


def draw(data: tuple[list[str], list[set[str]], Any], label: str, dice: Any) -> Review:
    """A review of some of the texts."""
    texts, labels, vectors = data
    rows = dice.permutation(len(texts))[:TEXTS]
    return Review([texts[n] for n in rows], vectors[rows], np.array([label in labels[n] for n in rows]))


# ---- ways ----------------------------------------------------------------------------------------


def by_mean(review: Review, taught: bool) -> Rank:
    """The cosine with the mean of the relevant texts, under the taught route or MiniLM's own."""

    def rank(read: NDArray[np.int64]) -> Scores:
        similar, papers = review.relevant[read], review.vectors
        if not taught:
            return np.asarray(papers @ papers[read[similar]].mean(axis=0))
        examples = Examples(papers[read], similar, np.full(len(read), -1), papers[:0])
        papers = fit_head(examples).apply(papers)
        return np.asarray(papers @ unit(papers[read[similar]].mean(axis=0, keepdims=True))[0])

    return rank


def by_classifier(review: Review, features: Any, model: Any, ratio: float | None = None) -> Rank:
    """The scores of a classifier; `ratio` weighs the classes as ASReview's `Balanced` does."""

    def rank(read: NDArray[np.int64]) -> Scores:
        labels, weights = review.relevant[read], None
        if ratio is not None:
            weights = np.where(labels, 1.0, labels.sum() / (ratio * (~labels).sum()))
            weights *= len(labels) / weights.sum()
        model.fit(features[read], labels, sample_weight=weights)
        scored = getattr(model, "decision_function", None) or (lambda x: model.predict_log_proba(x)[:, 1])
        return np.asarray(scored(features))

    return rank


def ways(review: Review, start: NDArray[np.int64], dice: Any) -> dict[str, Rank]:
    """All ways to order a review."""
    from bm25s import BM25
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.svm import LinearSVC

    pairs = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=1, max_df=0.95)
    words = TfidfVectorizer(stop_words="english")
    stems = [stems_of(re.findall(r"\w+", text.lower())) for text in review.texts]
    bm25 = BM25()
    bm25.index(stems, show_progress=False)
    known = {stem for row in start[review.relevant[start]] for stem in stems[row]}
    by_words = bm25.get_scores(sorted(known - {*stems_of(sorted(common_words()))}))
    any_order = dice.random(len(review.texts))
    regression = LogisticRegression(C=REGRESSION, class_weight="balanced", max_iter=1000)
    return {
        "taught": by_mean(review, True),
        "MiniLM": by_mean(review, False),
        "ELAS u4": by_classifier(
            review, pairs.fit_transform(review.texts), LinearSVC(C=0.11, loss="squared_hinge"), 9.8
        ),
        "ELAS u3": by_classifier(review, words.fit_transform(review.texts), MultinomialNB(alpha=3.822), 1.2),
        "regression": by_classifier(review, review.vectors, regression),
        "BM25": lambda _: by_words,
        "random": lambda _: any_order,
    }


# ---- reading -------------------------------------------------------------------------------------


def read_review(review: Review, rank: Rank, start: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows in the order in which they are read, until 95% of the relevant ones are found."""
    wanted = int(np.ceil(RECALL * (review.relevant.sum() - START[True])))
    read = start
    while review.relevant[read].sum() - START[True] < wanted:
        scores = np.array(rank(read), np.float64)
        scores[read] = -np.inf
        batch = min(max(BATCH, int(GROWTH * len(read))), len(scores) - len(read))
        read = np.append(read, np.argsort(-scores, kind="stable")[:batch])
    found = np.cumsum(review.relevant[read]) - START[True]
    return read[: int(np.argmax(found >= wanted)) + 1]


def measure(name: str, label: str, data: Any, seed: int, kept: Path) -> dict[str, Any]:
    """WSS@95 of each way in a draw of a label, and the bound after the taught order; kept in a file."""
    file = kept / f"{name}, {label}, {seed}.json"
    if file.exists():
        return dict(json.loads(file.read_text(encoding="utf-8")))
    dice = np.random.default_rng(seed)
    review = draw(data, label, dice)
    start = np.concatenate([
        dice.choice(np.flatnonzero(review.relevant == kind), count, replace=False)
        for kind, count in START.items()
    ])  # fmt: skip
    found: dict[str, Any] = {"set": name, "label": label, "seed": seed, "wss": {}}
    for way, rank in ways(review, start, dice).items():
        read = read_review(review, rank, start)
        unread = np.setdiff1d(np.arange(len(review.texts)), read)
        found["wss"][way] = len(unread) / (len(review.texts) - len(start)) - (1 - RECALL)
        if way == "taught":
            sample = dice.choice(unread, min(SAMPLE, len(unread)), replace=False)
            true, drawn = int(review.relevant[unread].sum()), int(review.relevant[sample].sum())
            bound = bound_relevant(len(unread), len(sample), drawn)
            found["stop"] = {"unread": len(unread), "drawn": drawn, "bound": bound, "true": true}
    file.write_text(json.dumps(found), encoding="utf-8")
    print(name, label, seed, {way: round(each, 3) for way, each in found["wss"].items()}, flush=True)
    return found


def report(rows: Sequence[Mapping[str, Any]], draws: int) -> str:
    """The tables in Markdown."""
    labels = dict.fromkeys((row["set"], row["label"]) for row in rows)
    own = {each: [row["wss"] for row in rows if (row["set"], row["label"]) == each] for each in labels}
    means = {way: np.array([np.mean([one[way] for one in own[each]]) for each in labels]) for way in WAYS}
    primary = with_half(means[PRIMARY[0]] - means[PRIMARY[1]], "+.3f")
    lines = [
        [": ".join(each), *(f"{means[way][number]:.3f}" for way in WAYS)]
        for number, each in enumerate(labels)
    ]
    lines.append(["mean", *(f"{means[way].mean():.3f}" for way in WAYS)])
    for one in ("taught", "regression"):
        less = [with_half(means[one] - means[way], "+.3f") if way != one else "" for way in WAYS]
        lines.append([f"{one} - this", *less])
    stops = [row["stop"] for row in rows]
    held = sum(each["true"] <= each["bound"] for each in stops)
    unread, bound, true = (np.median([each[key] for each in stops]) for key in ("unread", "bound", "true"))
    return (
        f"# Screening: work saved over sampling at 95% recall\n\nPrimary figure, {' less '.join(PRIMARY)}: "
        f"{primary} ({len(labels)} labels, {draws} draws each). `screen` orders papers by the regression, "
        f"which was decided after the first run.\n\n{table(['relevant', *WAYS], lines)}\n\n"
        f"Stopping, with a random sample of {SAMPLE} unread texts at the end of the taught order: the bound "
        f"of the relevant ones among the unread held in {held} of {len(stops)} draws (claimed: 95%). "
        f"Medians: {unread:.0f} unread, of which {true:.0f} relevant, at most {bound:.0f} by the bound."
    )


def main() -> None:
    """Measure and write the results."""
    args = options(__doc__, cache=Path("screening_cache"), draws=5, processes=2)
    (kept := args.cache / "screening").mkdir(parents=True, exist_ok=True)
    jobs: list[tuple[Any, ...]] = []
    for name, data in labelled_sets(args.cache).items():
        counts = Counter(sorted(label for own in data[1] for label in own))
        low, high = (share * len(data[0]) for share in SHARES)
        frequent = [label for label, count in counts.most_common() if low <= count <= high]
        jobs += [(name, label, data, seed, kept) for label in frequent[::2] for seed in range(args.draws)]
    with ProcessPoolExecutor(args.processes) as pool:
        rows = list(pool.map(measure, *zip(*jobs, strict=True)))
    write("screening", {"draws": args.draws, "primary": PRIMARY, "rows": rows}, report(rows, args.draws))


if __name__ == "__main__":
    main()
