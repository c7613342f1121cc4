"""Do routes pay where one asks for works on one topic and the other for works of one method?

    OMP_NUM_THREADS=1 python benchmarks/topic_or_method.py --out FOLDER [--length short|long] [--seeds 5]
        [--report]

Two works share a sentence of an introduction (topic) or of methods (method), in 1,489 articles of eLife;
texts are titles. Test: works that share such a sentence with one work in introductions only and with another
in methods only. Each route asks for its own, so a model that is blind to the route has a mean ROC-AUC of
exactly 0.5. The upper bound comes first: two separate models, one trained on each kind of pairs. If it stays
below `NEAR_HALF`, routes have little to gain and the study ends; otherwise one model with two routes
follows, with an expert per route and dense.

No work of the test, and no article that cites two works of one test pair, is in training. Budget, measured
before the first result: 0.7 CPU seconds per step, 6 per test; 6 CPU minutes for the upper bound.

`--length long`, added after the first results: 100 steps for each model instead of 40, as in the pilot; a
study of its own, 18 CPU minutes.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import sentence_experts as se
from pair_study import (
    UNTRAINED,
    Citing,
    Clock,
    areas,
    by_domain,
    compared,
    corrected,
    cosines,
    difference,
    ends,
    measure_untrained,
    pairs_of,
    spent,
    text_free,
    training_pairs,
    verdict,
    with_column,
)
from pair_study import gap as gap_of
from sentence_experts.pairs.dataset import PAIR_COLUMNS
from studies import RunFile, arguments, write_study
from study import BASE, DATA, ELIFE

NAME = "topic_or_method"
# All fixed before the first result.
ROUTES = ("introduction", "methods")
STEPS, BATCH, PAIRS_PER_ARTICLE = {"short": 40, "long": 100}, 16, 4
TRAINING: dict[str, Any] = {"batch_size": BATCH, "learning_rate": 5e-5, "max_length": 32}
TEST_ANCHORS = 400
MARGIN, NEAR_HALF = 0.01, 0.55
PRIMARY = "conflict ROC-AUC of two separate models, minus that of the untrained model (0.5)"

SEPARATE = "two separate models"
# One model with two routes, twice the steps of a separate one.
SHARED = {"an expert per route": "all", "dense, two routes": "none"}
Pair = tuple[str, str]


def sentence_pairs(corpus: se.CorpusFolder) -> dict[str, set[Pair]]:
    """Route -> pairs of works (ids in order) that share a sentence of that kind of section."""
    table = pq.read_table(corpus.mentions).to_pandas()
    found: dict[str, set[Pair]] = {}
    for route in ROUTES:
        rows = table[table.section_kind == route].groupby(["citing", "paragraph", "sentence"])["cited"]
        found[route] = {pair for works in rows.unique() for pair in combinations(sorted(works), 2)}
    return found


def with_abstracts(corpus: se.CorpusFolder, shared: dict[str, set[Pair]]) -> str:
    """How many of these pairs have two abstracts: those of works that are articles of the corpus."""
    papers = pq.read_table(corpus.papers, columns=["paper_id", "abstract"]).to_pandas()
    known = set(papers.paper_id[papers.abstract.fillna("").str.len() > 0])
    counts = [
        f"{len(works & known)} of {len(works):,} works of {route} sentences, "
        f"{sum(known.issuperset(pair) for pair in pairs)} of {len(pairs):,} pairs"
        for route, pairs in shared.items()
        for works in [set().union(*pairs)]
    ]
    return f"Abstracts are at hand of {'; '.join(counts)}: too few for a test of abstracts."


class Material:
    """The test pairs, and the training pairs of each route."""

    def __init__(self, corpus: se.CorpusFolder, out: Path, steps: int) -> None:
        self.steps = steps
        pairs = training_pairs(corpus, out / "topic-or-method-pairs", within="sentence")
        self.known_links, table = pairs.known_links(), pairs.split("train")
        self.text = dict(zip(table["anchor_id"].to_pylist(), table["anchor"].to_pylist(), strict=True))
        self.text |= dict(zip(table["positive_id"].to_pylist(), table["positive"].to_pylist(), strict=True))
        shared, citing = sentence_pairs(corpus), Citing(corpus)
        self.citing, self.abstracts = citing, with_abstracts(corpus, shared)
        only = {
            route: {pair for pair in shared[route] - shared[other] if set(pair) <= self.text.keys()}
            for route, other in (ROUTES, ROUTES[::-1])
        }
        triples = self._triples(only)
        self.test = self._test(triples)
        self._draw_from(table, only, triples, citing)

    def _triples(self, only: dict[str, set[Pair]]) -> list[tuple[str, str, str]]:
        """(anchor, its work of introductions, its work of methods), one for each anchor."""
        near: dict[str, dict[str, list[str]]] = {route: defaultdict(list) for route in ROUTES}
        for route, pairs in only.items():
            for one, other in sorted(pairs):
                near[route][one].append(other)
                near[route][other].append(one)
        first, second = (near[route] for route in ROUTES)
        random = np.random.default_rng(0)
        anchors = random.permutation(sorted(first.keys() & second.keys()))[:TEST_ANCHORS].tolist()
        return [(each, str(random.choice(first[each])), str(random.choice(second[each]))) for each in anchors]

    def _test(self, triples: list[tuple[str, str, str]]) -> pa.Table:
        rows = []
        for anchor, *others in triples:
            for route, one, other in ((ROUTES[0], *others), (ROUTES[1], *reversed(others))):
                for work, label in ((one, 1), (other, 0)):
                    texts = self.text[anchor], self.text[work]
                    rows.append((*texts, label, route, label, anchor, work))
        columns = zip(*rows, strict=True)
        return pa.table(dict(zip(PAIR_COLUMNS, map(list, columns), strict=True)))

    def _draw_from(
        self,
        table: pa.Table,
        only: dict[str, set[Pair]],
        triples: list[tuple[str, str, str]],
        citing: Citing,
    ) -> None:
        """Sort the rows of the training table by route and article."""
        works = {work for triple in triples for work in triple}
        behind = {
            article for anchor, *others in triples for o in others for article in citing.both(anchor, o)
        }
        self._rows: dict[str, dict[str, list[int]]] = {route: defaultdict(list) for route in ROUTES}
        self._table = table
        for row, pair in enumerate(ends(table)):
            articles = citing.both(*pair)
            if works.intersection(pair) or behind & articles or not articles:
                continue
            for route in ROUTES:
                if (min(pair), max(pair)) in only[route]:
                    self._rows[route][min(articles)].append(row)

    def train(self, route: str, seed: int) -> pa.Table:
        """At most `PAIRS_PER_ARTICLE` pairs of an article, others for each seed."""
        random = np.random.default_rng([seed, ROUTES.index(route)])
        drawn: list[int] = []
        for article in random.permutation(sorted(self._rows[route])):
            rows = self._rows[route][article]
            drawn += random.permutation(rows)[:PAIRS_PER_ARTICLE].tolist()
        return with_column(self._table.take(pa.array(drawn[: self.steps * BATCH])), "domain", route)


def run(arm: str, seed: int, material: Material) -> dict[str, Any]:
    """Train and test one arm: two models, or one with two routes."""
    clock = Clock()
    settings = {**TRAINING, "max_steps": material.steps, "keep": "last", "seed": seed}
    tables = {route: material.train(route, seed) for route in ROUTES}
    found: dict[str, Any] = {"pairs": [len(table) for table in tables.values()]}
    if arm == SEPARATE:
        for route, table in tables.items():
            data = pairs_of(table, material.known_links)
            model = se.train(se.load(BASE, device="cpu"), data, **settings, batches="mixed").model
            found[f"cosines of {route}"] = cosines(model, material.test)
    else:
        data = pairs_of(pa.concat_tables(tables.values()), material.known_links)
        settings |= {"max_steps": 2 * material.steps, "batches": "homogeneous"}
        model = se.train(se.extend(BASE, list(ROUTES), layers=SHARED[arm]), data, **settings).model
        found["cosines"] = cosines(model, material.test)
    return {**found, "seconds": clock.seconds()}


def scores_of(row: dict[str, Any], test: pa.Table) -> list[int]:
    """The cosine of each test pair, by the model that its route asks."""
    if "cosines" in row:
        return list(row["cosines"])
    routes = test["domain"].to_pylist()
    return [row[f"cosines of {route}"][place] for place, route in enumerate(routes)]


def report(name: str, runs: RunFile, material: Material, seeds: int) -> float:
    """Write the study's page; the conflict ROC-AUC of the separate models."""
    test, mean = material.test, "pair_weighted_mean"
    arms = {arm: runs.find(arm=arm)[:seeds] for arm in (UNTRAINED, SEPARATE, *SHARED) if runs.done(arm=arm)}
    scores = {arm: [scores_of(row, test) for row in rows] for arm, rows in arms.items()}
    found = compared(test, scores, MARGIN, [UNTRAINED])
    rows = ["| | conflict ROC-AUC | minus untrained | p, Holm |", "|---|---|---|---|"]
    trained = [arm for arm in arms if arm != UNTRAINED]
    sure = corrected([difference(found, arm, UNTRAINED, mean) for arm in trained])
    gains = [f"{gap_of(found, arm, UNTRAINED, mean)} | {p}" for arm, p in zip(trained, sure, strict=True)]
    for arm, gain in zip(arms, [" | ", *gains], strict=True):
        rows.append(f"| {arm} | {areas(found, arm, mean)} | {gain} |")
    separate = next(model for model in found.models if model.label == SEPARATE)
    bound = separate.pair_weighted_mean.metrics["roc_auc"] or 0.0
    said = verdict(difference(found, SEPARATE, UNTRAINED, mean), PRIMARY, MARGIN)
    if bound < NEAR_HALF:
        said += (
            f" The upper bound stays below {NEAR_HALF}, so routes have little to gain: the study ends here."
        )
    text = [
        "# Do routes pay for topic against method?",
        "",
        f"Primary figure: {PRIMARY}; margin {MARGIN}. `python benchmarks/topic_or_method.py --out FOLDER"
        f"{' --length long' if name != NAME else ''}`.",
        "",
        f"{len(arms[SEPARATE])} seeds, each model {material.steps} steps of {BATCH} pairs; "
        f"{len(test) // 4} anchors. "
        "Mean ROC-AUC of the two routes, 95% intervals over works and seeds; 0.5 is the ceiling of a model "
        "that is blind to the route.",
        "",
        *rows,
        "",
        text_free(by_domain(test), material.citing),
        "",
        material.abstracts,
        "",
        f"**{said}**",
        "",
        spent(runs),
    ]
    write_study(name, {"verdict": said}, runs, "\n".join(text))
    return bound


def main() -> None:
    """Train and test what is missing, and write the results."""
    given = arguments(__doc__, length=tuple(STEPS))
    steps, name = STEPS[given.length], NAME if given.length == "short" else f"{NAME}_{given.length}"
    material = Material(se.import_corpus([DATA / ELIFE], out=given.out / "elife"), given.out, steps)
    training = {"max_steps": steps, **TRAINING}
    settings = {"training": training, "pairs_per_article": PAIRS_PER_ARTICLE, "primary": PRIMARY}
    settings |= {"margin": MARGIN, "test": se.Pairs.from_tables(test=material.test).fingerprint()}
    runs = RunFile(given.out, name, settings)

    def go(*arms: str) -> None:
        for seed in range(0 if given.report else given.seeds):
            for arm in arms:
                if not runs.done(arm=arm, seed=seed):
                    runs.append({"arm": arm, "seed": seed, **run(arm, seed, material)})

    measure_untrained(runs, material.test)
    go(SEPARATE)
    if report(name, runs, material, given.seeds) >= NEAR_HALF:
        go(*SHARED)
        report(name, runs, material, given.seeds)


if __name__ == "__main__":
    main()
