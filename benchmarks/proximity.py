"""What does a training pair teach, by how near to each other an article cites its two works?

    OMP_NUM_THREADS=1 python benchmarks/proximity.py --out FOLDER [--length short|long]
        [--parts primary levels mixed] [--report]

1,489 articles of eLife with their text; texts are the titles of the works that they cite. The articles are
divided into those for training and those for the test; no work of a test pair is cited by a training article.
all-MiniLM-L6-v2 is trained on pairs whose closest level is the article, a section, paragraph, sentence or
bracket: each time the same articles, the same number of pairs of each, the same steps.

Test: two works cited in one sentence or bracket, against (1) unlinked works, the positives' own ends paired
anew, and (2) the anchor with another work of the same article, never in one paragraph with it.

Beside these five, one model is trained on as many pairs, a fifth of each level: dense, or with an expert for
each level; both are tested by the route of the sentence.

Budget, measured before the first result: 0.7 CPU seconds per step, 7 per test; 5 seeds of the five dense
models 16 CPU minutes, the two mixed models 6 more. Every run is one line of FOLDER/proximity.jsonl, so the
study goes on where it was stopped.

`--length long`, added after the first results, which answered nothing: five times the pairs, in 100 steps of
32; a study of its own, 165 CPU seconds a run.
"""

from __future__ import annotations

import itertools
import tarfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import sentence_experts as se
from measuring import BASE, DATA, ELIFE, table
from sentence_experts.pairs.config import LEVELS
from sentence_experts.pairs.dataset import PAIR_COLUMNS
from study import (
    Difference,
    Row,
    RunFile,
    Test,
    arguments,
    blind_table,
    corrected_together,
    difference_table,
    differences,
    mean_auc,
    with_interval,
    write_study,
)
from study_models import (
    UNTRAINED,
    Citing,
    cosines_of_pairs,
    ends,
    measure_untrained,
    pairs_of,
    training_pairs,
    with_column,
)

NAME = "proximity"
# All fixed before the first result of each length.
TRAINING_ARTICLES = 0.6
TEST_POSITIVES, TEST_PER_ARTICLE = 500, 1
PRIMARY = "ROC-AUC against works of the same article, trained on the same sentence minus on the same article"
MARGIN = 0.01


@dataclass(frozen=True)
class Length:
    """How much each model is trained: steps, pairs of a step, and pairs of an article."""

    steps: int
    batch: int
    pairs_per_article: int

    @property
    def pairs(self) -> int:
        """Of one model."""
        return self.steps * self.batch

    @property
    def training(self) -> dict[str, Any]:
        """Settings of `train`."""
        return {
            "max_steps": self.steps, "batch_size": self.batch, "learning_rate": 5e-5, "max_length": 32,
        }  # fmt: skip


LENGTHS = {"short": Length(40, 16, 2), "long": Length(100, 32, 8)}

DENSE = {f"pairs of one {level}": level for level in LEVELS}
ARTICLE, SENTENCE = "pairs of one article", "pairs of one sentence"  # compared by the primary figure
# One model for the pairs of all levels, an expert for each or none; tested by the route of the sentence.
MIXED = {"all levels, an expert each": "all", "all levels, dense": "none"}
TESTS = ("same-article", "unlinked")  # kinds of negatives
# Together, so that these have as many runs wherever the study stops.
PARTS: dict[str, list[tuple[str, ...]]] = {
    "primary": [(ARTICLE, SENTENCE)],
    "levels": [(f"pairs of one {level}",) for level in ("bracket", "paragraph", "section")],
    "mixed": [tuple(MIXED)],
}


def corpora(out: Path) -> dict[str, se.CorpusFolder]:
    """The articles for training, and those for the test, as two corpora."""
    names = ("training", "test")
    archives = {name: out / f"{name}-articles.tar" for name in names}
    with tarfile.open(DATA / ELIFE) as source:
        members = sorted((m for m in source.getmembers() if m.isfile()), key=lambda member: member.name)
        order = np.random.default_rng(0).permutation(len(members))
        chosen = {members[place].name for place in order[: round(TRAINING_ARTICLES * len(members))]}
    if not all(archive.exists() for archive in archives.values()):
        with tarfile.open(DATA / ELIFE) as source:
            parts = {name: Path(f"{path}.part") for name, path in archives.items()}
            with tarfile.open(parts["training"], "w") as training, tarfile.open(parts["test"], "w") as test:
                for member in source:
                    if member.isfile():
                        to = training if member.name in chosen else test
                        to.addfile(member, source.extractfile(member))
            for name, part in parts.items():
                part.rename(archives[name])
    return {name: se.import_corpus([archives[name]], out=out / name) for name in names}


class TrainingPairs:
    """Pairs of each level; of an article that has enough at all levels, each seed draws as many of each."""

    def __init__(self, corpus: se.CorpusFolder, out: Path, length: Length) -> None:
        self.length = length
        pairs = training_pairs(corpus, out / "training-pairs", frequency="proximity")
        self.known_links = pairs.known_links()
        self.table = pairs.split("train")
        self._rows: dict[tuple[str, str | None], list[int]] = defaultdict(list)
        articles = only_article(self.table, Citing(corpus))
        for row, key in enumerate(zip(self.table["within"].to_pylist(), articles, strict=True)):
            self._rows[key].append(row)
        enough = {key for key, rows in self._rows.items() if len(rows) >= length.pairs_per_article}
        named = sorted({article for _, article in enough if article is not None})
        self.articles = [each for each in named if all((level, each) in enough for level in LEVELS)]

    def of_level(self, level: str, seed: int) -> pa.Table:
        """The same articles for all levels; other articles and pairs for each seed."""
        random = np.random.default_rng([seed, 1])
        each_gives = self.length.pairs_per_article
        order = random.permutation(len(self.articles))[: self.length.pairs // each_gives]
        random = np.random.default_rng([seed, 2, LEVELS.index(level)])
        rows = [self._rows[level, self.articles[place]] for place in order]
        drawn = [random.choice(each, each_gives, replace=False) for each in rows]
        return self.table.take(pa.array(np.concatenate(drawn)))

    def of_all_levels(self, seed: int) -> pa.Table:
        """As many pairs in total, a fifth of each level, which is their domain."""
        parts = []
        share = self.length.pairs // len(LEVELS)
        for number, level in enumerate(LEVELS):
            part = self.of_level(level, seed).slice(number * share, share)
            parts.append(with_column(part, "domain", level))
        return pa.concat_tables(parts)


def only_article(table: pa.Table, citing: Citing) -> list[str | None]:
    """The article that cites both works of each pair; None if there are several (or none by these ids)."""
    articles = [citing.both(*pair) for pair in ends(table)]
    return [next(iter(own)) if len(own) == 1 else None for own in articles]


def test_pairs(folders: dict[str, se.CorpusFolder], out: Path) -> pa.Table:
    """Positives and both kinds of negatives, in a column `kind`."""
    settings: dict[str, Any] = {"unit": "title", "within": "sentence", "split": "random"}
    settings |= {"fractions": [0.01, 0.01, 0.98], "engine": "local[1]"}
    table = se.compile_pairs(folders["test"], out=out / "test-pairs", **settings).split("test")
    seen, citing = Citing(folders["training"]), Citing(folders["test"])
    new = [not any(map(seen.times, pair)) for pair in ends(table)]
    table = table.filter(pa.array(new))
    table = table.filter(pc.equal(table["label"], 1))
    far_from = FarWorks(folders["test"])
    titles = dict(zip(table["positive_id"].to_pylist(), table["positive"].to_pylist(), strict=True))
    articles, anchors = only_article(table, citing), table["anchor_id"].to_pylist()
    taken: dict[str, int] = defaultdict(int)
    rows: list[int] = []
    used: dict[str, str] = {}  # "anchor other" -> other
    for row in np.random.default_rng(0).permutation(len(table)).tolist():
        article, anchor = articles[row], anchors[row]
        if article is None or taken[article] == TEST_PER_ARTICLE:
            continue
        free = (each for each in far_from(anchor, article) if each in titles)
        if (other := next((each for each in free if f"{anchor} {each}" not in used), None)) is None:
            continue
        taken[article] += 1
        used[f"{anchor} {other}"] = other
        rows.append(row)
        if len(rows) == TEST_POSITIVES:
            break
    near = table.take(pa.array(rows))
    columns = {name: near[name] for name in ("anchor", "anchor_id", "domain")}
    columns |= {"positive": pa.array([titles[each] for each in used.values()])}
    columns |= {"positive_id": pa.array(list(used.values()))}
    columns |= {name: pa.array([0] * len(near), pa.int64()) for name in ("label", "count")}
    parts = {"positive": near, "same-article": pa.table(columns), "unlinked": paired_anew(near, citing)}
    return pa.concat_tables(
        [
            part.select(PAIR_COLUMNS).append_column("kind", pa.array([kind] * len(part)))
            for kind, part in parts.items()
        ]
    )


class FarWorks:
    """Works that an article mentions, but no article in a paragraph with the anchor.

    Every article that cites both is known to mention both.
    """

    def __init__(self, corpus: se.CorpusFolder) -> None:
        mentions = pq.read_table(corpus.mentions).to_pandas()
        cited = pq.read_table(corpus.citations, columns=["citing", "cited"]).to_pandas().dropna()
        self._places = {work: set(zip(rows["citing"], rows["paragraph"], strict=True))
                        for work, rows in mentions.groupby("cited")}  # fmt: skip
        self._mentioned = mentions.groupby("cited")["citing"].agg(set).to_dict()
        self._listed = cited.groupby("cited")["citing"].agg(set).to_dict()
        self._works = mentions.groupby("citing")["cited"].agg(lambda works: sorted(set(works))).to_dict()

    def __call__(self, anchor: str, article: str) -> Iterator[str]:
        """Yield the works of an article that are far from the anchor."""
        for other in self._works[article]:
            both = self._listed[anchor] & self._listed[other]
            known = both <= self._mentioned[anchor] & self._mentioned[other]
            if other != anchor and known and not self._places[anchor] & self._places[other]:
                yield other


def paired_anew(positives: pa.Table, citing: Citing) -> pa.Table:
    """The same anchors and the same other works, so that each work is in as many pairs of both classes, but
    no two linked works together.
    """
    works, size = ends(positives), len(positives)
    random = np.random.default_rng(0)
    order = random.permutation(size)

    def wrong(row: int) -> bool:
        one, other = works[row][0], works[order[row]][1]
        return one == other or citing.linked(one, other)

    while bad := [row for row in range(size) if wrong(row)]:
        for row in bad:
            partner = random.integers(size)
            order[row], order[partner] = order[partner], order[row]
    other = positives.take(pa.array(order))
    columns = {name: positives[name] for name in ("anchor", "anchor_id", "domain")}
    columns |= {name: other[name] for name in ("positive", "positive_id")}
    columns |= {name: pa.array([0] * size, pa.int64()) for name in ("label", "count")}
    return pa.table({name: columns[name] for name in PAIR_COLUMNS})


def run(training: TrainingPairs, test: pa.Table, arm: str, seed: int) -> Row:
    """Train and test one model."""
    started = time.process_time()
    settings = {**training.length.training, "keep": "last", "seed": seed}
    if arm in DENSE:
        data = pairs_of(training.of_level(DENSE[arm], seed), training.known_links)
        model, routes = se.load(BASE, device="cpu"), {}
        settings["batches"] = "mixed"
    else:
        data = pairs_of(training.of_all_levels(seed), training.known_links)
        model, routes = se.extend(BASE, list(LEVELS), layers=MIXED[arm]), {"*": "sentence"}
        settings["batches"] = "homogeneous" if MIXED[arm] == "all" else "mixed"
    result = se.train(model, data, **settings)
    losses = [round(loss, 4) for _, loss in result.losses]
    found = cosines_of_pairs(result.model, test, routes)
    return {"cosines": found, "losses": losses, "seconds": round(time.process_time() - started, 1)}


def report(length: Length, runs: RunFile, test: pa.Table, citing: Citing, seeds: int) -> None:
    """Write the study's page and its figures."""
    arms = {arm: own[:seeds] for arm in (*DENSE, *MIXED) if len(own := runs.find(arm=arm)) >= seeds}
    arms = {UNTRAINED: runs.find(arm=UNTRAINED)[:1] * seeds} | arms
    experts, dense = MIXED
    gains = [(arm, UNTRAINED) for arm in arms if arm != UNTRAINED]
    others = [(arm, ARTICLE) for arm in DENSE if arm != ARTICLE]
    others += [(experts, dense), (experts, SENTENCE), (dense, SENTENCE)]
    blind: dict[str, Test] = {}
    figures: dict[str, list[list[str]]] = {}
    families: list[dict[str, list[Difference]]] = [{}, {}]
    said = "not run"
    for against in TESTS:
        rows = np.flatnonzero(np.isin(test["kind"].to_pylist(), ("positive", against)))
        blind[against] = Test.of(test.take(pa.array(rows)))
        means = {
            arm: mean_auc(
                {against: blind[against].pairs},
                [{"scores": {against: np.array(row["cosines"])[rows]}} for row in own],
            )
            for arm, own in arms.items()
        }
        figures[against] = [[arm, with_interval(own)] for arm, own in means.items()]
        for family, compared in zip(families, (gains, others), strict=True):
            family[against] = differences(means, compared, MARGIN)
    told: dict[str, list[Difference]] = {against: [] for against in TESTS}
    for family in families:  # both kinds of negatives together
        whole = [one for part in family.values() for one in part]
        corrected = iter(corrected_together(whole, MARGIN))
        for against, part in family.items():
            told[against] += itertools.islice(corrected, len(part))
    for one in told[TESTS[0]]:
        if (one.first, one.second) == (SENTENCE, ARTICLE):
            said = f"{PRIMARY}: {one.verdict}, {one.told()}"
    parts: list[str] = []
    for against in TESTS:
        shown = table(["trained on", "ROC-AUC"], figures[against])
        parts += [f"## Against {against}", shown, difference_table(told[against])]
    option = " --length long" * (runs.name != NAME)
    text = (
        "# What does a pair teach, by how near to each other its works are cited?\n\n"
        f"Primary figure: {PRIMARY}; margin {MARGIN}. `python benchmarks/proximity.py --out FOLDER{option}`."
        f"\n\n{length.steps} steps of {length.batch} pairs, {length.pairs_per_article} of each article, "
        f"{seeds} seeds. Test: {len(test) // 3:,} pairs of new articles and works, cited in one sentence, "
        "against as many of each kind. 95% intervals over works and seeds; differences are paired by seed. "
        "p-values after Holm: gains over the untrained model are one family of tests, differences of arms "
        f"another, over both kinds of negatives.\n\n**Verdict**: {said}."
    )
    write_study({"verdict": said}, runs, "\n\n".join([text, *parts, blind_table(blind, citing.works())]))


def main() -> None:
    """Train and test what is missing, and write the results."""
    given = arguments(__doc__, parts=tuple(PARTS), length=tuple(LENGTHS))
    length, name = LENGTHS[given.length], NAME if given.length == "short" else f"{NAME}_{given.length}"
    folders = corpora(given.out)
    test = test_pairs(folders, given.out)
    settings: dict[str, Any] = {"training": length.training, "pairs_per_article": length.pairs_per_article}
    settings |= {"primary": PRIMARY, "margin": MARGIN, "test": se.Pairs.from_tables(test=test).fingerprint()}
    runs = RunFile(given.out, name, settings)
    measure_untrained(runs, test)
    wanted: list[Row] = [
        {"arm": arm, "seed": seed}
        for part in given.parts
        for group in PARTS[part]
        for seed in range(given.seeds)
        for arm in group
    ]
    if not given.report and any(not runs.find(**key) for key in wanted):
        runs.make(wanted, partial(run, TrainingPairs(folders["training"], given.out, length), test))
    report(length, runs, test, Citing(folders["test"]), given.seeds)


if __name__ == "__main__":
    main()
