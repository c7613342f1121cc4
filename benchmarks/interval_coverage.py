"""Do 95% intervals of pair metrics hold the true value, and do equal ways of training look equal?

    python benchmarks/interval_coverage.py [--worlds 2000] [--replicates 100]

Runs the statistics of `evaluate` on simulated pairs of papers, whose scores are normal with an effect of each
paper, so that the true metrics are known:

- Coverage: the share of worlds in which the interval holds the true F1max and ROC-AUC, pooled and as the mean
  of the domains.
- False positives: ways of training whose runs differ by chance only, with a given standard deviation between
  seeds. The share of worlds in which two of them differ with p < 0.05, and in which any two of three do so
  after Holm's correction. And two equally good models of one run each, on fewer pairs.

Writes benchmarks/results/interval_coverage.{json,md}. Takes about 20 minutes of one core, and
goes on where it was stopped.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, product

import numpy as np
from scipy.stats import norm

from measuring import RESULTS, options, table
from sentence_experts.evaluation.estimates import Runs, ScoredPairs, estimate, holm
from sentence_experts.evaluation.statistics import runs_of

LEVEL = 0.05
THRESHOLDS = np.linspace(-6, 14, 6001)
METRICS = tuple((view, metric) for view in ("pooled", "mean") for metric in ("f1_max", "roc_auc"))
SEED_DEVIATIONS = (0.002, 0.004, 0.007)  # of the ROC-AUC of single runs
SEEDS = (3, 5)
SHARES = {3: 2, 5: 4}  # false positives are looked for in this part of the worlds
PAIRS, PAPERS, DISTANCE = 600, 400, 1.2  # of the worlds of false positives
PER_ARTICLE = 6
COVERAGE_NOTE = (
    "Intervals of F1max are up to a tenth too wide: its error is that at the best threshold, while its value "
    "is averaged over those of replicates, which varies less. They are wider still, up to nine times, where "
    "calling all pairs linked is nearly the best. Pairs of one article are many and alike, so that "
    "with few articles the intervals are a little narrow, and much so if the articles are not known. "
    "Labels make linked pairs alike too, here some six of one label; intervals take the labels as given."
)
FAMILY_NOTE = (
    "Any of three: after Holm's correction, whose 5% is an upper bound: the three differences of three ways "
    "are correlated."
)
MODELS_NOTE = (
    "A fortieth (nearly alike) or a quarter (unlike) of the variance of a model's scores is its own, and as "
    "much that of its run; the distance is between linked and unlinked pairs, in standard deviations. Half "
    "as many worlds as for coverage."
)
ABOVE = 10.0  # distance of the rare pairs from other unlinked ones
OWN_NOISE = 0.01  # share of a way's variance that is its own, and share that is that of a run
MODELS = {"nearly alike": 0.025, "unlike": 0.25}  # those shares, of two models of one run each
MODEL_PAIRS, MODEL_DISTANCES = (60, 100, 200, 300, 600), (1.2, 2.2)


@dataclass(frozen=True)
class World:
    """Domains of normal scores; linked pairs score higher by `distance`, in units of standard deviations.

    Attributes:
        pairs: number of pairs of each domain.
        pairs_per_paper: number of pairs of a domain, by its number of papers.
        effect: share of the variance that is due to the papers.
        hubs: whether some papers are in many more pairs than others.
        linked: share of linked pairs.
        article: share of a linked pair's variance that is due to the articles that link it, of `PER_ARTICLE`
            pairs each; every fifth pair has two.
        by_article: whether intervals know the articles.
        rare: share of unlinked pairs that score above all linked ones, as wrongly labelled ones may.
        repeated: whether all domains have the same pairs, and every other domain links what the others do
            not, as routes that contradict each other do.
    """

    pairs: tuple[int, ...]
    pairs_per_paper: float = 1.5
    effect: float = 0.4
    hubs: bool = False
    linked: float = 0.5
    distance: float = 1.2
    article: float = 0.0
    by_article: bool = True
    rare: float = 0.0
    repeated: bool = False

    def distances(self) -> np.ndarray:
        """The distance of each domain: some are easier."""
        count = len(self.pairs)
        return self.distance + (np.linspace(-0.4, 0.4, count) if count > 1 else np.zeros(1))

    def levels(self) -> np.ndarray:
        """The mean score of each domain's unlinked pairs."""
        return np.linspace(0.5, -0.5, len(self.pairs)) if len(self.pairs) > 1 else np.zeros(1)

    def truth(self) -> dict[tuple[str, str], float]:
        """(view, metric) -> its value without chance."""
        shares, levels = np.array(self.pairs) / sum(self.pairs), self.levels()
        found = self.linked * norm.sf(THRESHOLDS - (levels + self.distances())[:, None])
        usual, above = (norm.sf(THRESHOLDS - levels[:, None] - shift) for shift in (0.0, ABOVE))
        false = (1 - self.linked) * ((1 - self.rare) * usual + self.rare * above)
        best = [(2 * hit / (hit + miss + self.linked)).max() for hit, miss in zip(found, false, strict=True)]
        hit, miss = shares @ found, shares @ false
        gaps = (levels + self.distances())[:, None] - levels

        def area(gap: np.ndarray) -> np.ndarray:
            usual, below = norm.cdf(gap / np.sqrt(2)), norm.cdf((gap - ABOVE) / np.sqrt(2))
            found: np.ndarray = (1 - self.rare) * usual + self.rare * below
            return found

        return {
            ("pooled", "f1_max"): (2 * hit / (hit + miss + self.linked)).max(),
            ("mean", "f1_max"): shares @ best,
            ("pooled", "roc_auc"): shares @ area(gaps) @ shares,
            ("mean", "roc_auc"): shares @ area(self.distances()),
        }

    def sample(self, generator: np.random.Generator) -> dict[str, ScoredPairs]:
        """Pairs of every domain."""
        if self.repeated:
            return self._repeated(generator)
        domains = {}
        for number, (count, level, distance) in enumerate(
            zip(self.pairs, self.levels(), self.distances(), strict=True)
        ):
            papers = int(count / self.pairs_per_paper)
            weights = 1 / np.sqrt(np.arange(1, papers + 1)) if self.hubs else np.ones(papers)
            ends = _two_papers(count, weights, generator)
            labels = (np.arange(count) < round(self.linked * count)).astype(np.int64)
            effects = generator.normal(size=papers) * np.sqrt(self.effect / 2)
            noise = generator.normal(size=count) * np.sqrt(1 - self.effect - self.article * labels)
            scores = level + distance * labels + effects[ends].sum(0) + noise
            if self.rare:
                scores += ABOVE * ((labels == 0) & (generator.random(count) < self.rare))
            articles = None
            if self.article:
                shift, articles = _articles(labels, number, generator)
                scores += shift * np.sqrt(self.article)
            known = articles if self.by_article else None
            first, second = _names(ends, number)
            domains[str(number)] = ScoredPairs(scores, labels, first, second, known)
        return domains

    def _repeated(self, generator: np.random.Generator) -> dict[str, ScoredPairs]:
        pairs = replace(self, pairs=self.pairs[:1], distance=0.0, repeated=False).sample(generator)["0"]
        domains = {}
        for number, (level, distance) in enumerate(zip(self.levels(), self.distances(), strict=True)):
            labels = pairs.labels if number % 2 == 0 else 1 - pairs.labels
            domains[str(number)] = replace(
                pairs, scores=level + distance * labels + pairs.scores, labels=labels
            )
        return domains


WORLDS = {
    "seven domains of 100 pairs": World((100,) * 7),
    "no paper shared": World((100,) * 7, pairs_per_paper=0.5, effect=0.0),
    "well separated": World((100,) * 7, distance=2.2),
    "well separated, few pairs": World((80,) * 2, distance=2.2),
    "nearly perfect": World((100,) * 2, distance=3.0),
    "two domains of 20 pairs": World((20,) * 2),
    "domains of 40 to 300": World((40, 60, 80, 100, 150, 200, 300)),
    "hubs": World((200,) * 3, pairs_per_paper=3.0, hubs=True),
    "a fifth linked": World((150,) * 5, linked=0.2),
    "the same pairs under two routes": World((200,) * 2, repeated=True),
    "the same pairs, hardly learned": World((200,) * 2, distance=0.5, repeated=True),
    # Here a model often makes no error.
    "nearly perfect, 20 pairs": World((20,), distance=3.0),
    "nearly perfect, 40 pairs": World((40,), distance=3.0),
    "nearly perfect, four domains of 20 pairs": World((20,) * 4, distance=2.5),
    "nearly perfect, four domains of 100 pairs": World((100,) * 4, distance=4.0),
    # Here a sample may lack the one kind of error that there is.
    "a few wrong labels, nearly perfect, 120 pairs": World((120,), distance=4.0, rare=0.03),
    "a few wrong labels, nearly perfect, 240 pairs": World((240,), distance=4.0, rare=0.03),
    "a few wrong labels, 120 pairs": World((120,), rare=0.03),
    # Here the best threshold often calls all pairs linked.
    "a weak model, 60 pairs": World((60,), distance=0.55),
    "a weak model, 160 pairs": World((160,), distance=0.55),
    "no better than chance, 60 pairs": World((60,), distance=0.0),
    "articles": World((200,) * 4, article=0.2),
    "articles, unknown to the intervals": World((200,) * 4, article=0.2, by_article=False),
    # Headings, organisms or intents: intervals take them as given, here each world draws others.
    "labels with 5% of the variance, drawn anew": World((200,) * 2, article=0.05, by_article=False),
    "labels with 10% of the variance, drawn anew": World((200,) * 2, article=0.1, by_article=False),
}


def coverage(world: World, worlds: int, replicates: int) -> dict[str, dict[str, float]]:
    """ "pooled f1_max" and so on -> share of intervals with the true value, mean errors, standard errors."""
    truth = world.truth()
    held: dict[tuple[str, str], list[tuple[bool, float, float]]] = {key: [] for key in METRICS}
    for number in range(worlds):
        domains = world.sample(np.random.default_rng([1, number]))
        _, pooled, mean = runs_of(domains, replicates, number)
        for key in METRICS:
            found = estimate((pooled if key[0] == "pooled" else mean)[key[1]])
            assert found is not None
            interval = found.interval_of_area() if key[1] == "roc_auc" else found.interval(lowest=0.0)
            inside = interval.low <= truth[key] <= interval.high
            held[key].append((inside, found.value - truth[key], found.error))
    return {" ".join(key): _summary(np.array(rows, dtype=float)) for key, rows in held.items()}


def shares(world: World, worlds: int, replicates: int) -> dict[str, float]:
    """ "pooled f1_max" and so on -> share of intervals that hold the true value."""
    return {name: row["coverage"] for name, row in coverage(world, worlds, replicates).items()}


def _summary(rows: np.ndarray) -> dict[str, float]:
    inside, errors, standard_errors = rows.T
    return {
        "coverage": float(inside.mean()),
        "mean_error": float(errors.mean()),
        "standard_deviation": float(errors.std()),
        "standard_error": float(np.sqrt((standard_errors**2).mean())),
    }


class Training:
    """Pairs of one domain, and ways of training that score them equally well but for chance.

    `own` is the share of a way's variance that is its own, and the share that is that of a run.
    """

    def __init__(
        self,
        deviation: float,
        world: int,
        pairs: int = PAIRS,
        own: float = OWN_NOISE,
        distance: float = DISTANCE,
    ) -> None:
        self.own, self.distance = own, distance
        # The ROC-AUC of a run moves by this much for each unit of distance.
        slope = norm.pdf(distance / np.sqrt(2)) / np.sqrt(2)
        self.deviation = deviation / slope
        self.generator = np.random.default_rng([2, world])
        self.papers = pairs * PAPERS // PAIRS
        self.ends = _two_papers(pairs, np.ones(self.papers), self.generator)
        self.labels = np.arange(pairs) % 2
        self.common = self._noise() * np.sqrt(1 - 2 * own)

    def way(self, seeds: int, lead: float = 0.0) -> list[ScoredPairs]:
        """The runs of one way of training; `lead` moves its linked pairs farther from the others."""
        own = self.common + self._noise() * np.sqrt(self.own)
        runs = []
        for distance in self.distance + lead + self.deviation * self.generator.normal(size=seeds):
            scores = own + self._noise() * np.sqrt(self.own) + distance * self.labels
            runs.append(ScoredPairs(scores, self.labels, *_names(self.ends)))
        return runs

    def _noise(self) -> np.ndarray:
        effects = self.generator.normal(size=self.papers)
        pairs = self.generator.normal(size=len(self.labels))
        found: np.ndarray = effects[self.ends].sum(0) * np.sqrt(0.2) + pairs * np.sqrt(0.6)
        return found


def rejections(
    deviation: float, seeds: int, worlds: int, replicates: int, lead: float = 0.0
) -> dict[str, float]:
    """Shares of worlds in which ways of training differ "significantly": false positives without a lead.

    With one, the first way is better than the others, and the shares tell the power.
    """
    found: dict[str, list[bool]] = {name: [] for name in ("f1_max", "roc_auc", "any of three")}
    for number in range(worlds):
        world = Training(deviation, number)
        ways = [world.way(seeds, lead * (place == 0)) for place in range(3)]
        runs = [_joined([runs_of({"d": run}, replicates, number)[1] for run in way]) for way in ways]
        for metric in ("f1_max", "roc_auc"):
            found[metric].append(_p_value(runs[0], runs[1], metric) < LEVEL)
        p_values = [_p_value(*two, "roc_auc") for two in combinations(runs, 2)]
        found["any of three"].append(min(holm(p_values)) < LEVEL)
    return {name: float(np.mean(values)) for name, values in found.items()}


def equal_models(pairs: int, own: float, distance: float, worlds: int, replicates: int) -> dict[str, float]:
    """Shares of worlds in which two equally good models of one run differ with p < 0.05."""
    found: dict[str, list[bool]] = {name: [] for name in ("f1_max", "roc_auc")}
    for number in range(worlds):
        world = Training(0.0, number, pairs, own, distance)
        first, second = (runs_of({"d": world.way(1)[0]}, replicates, number)[1] for _ in range(2))
        for metric, differ in found.items():
            differ.append(_p_value(first, second, metric) < LEVEL)
    return {name: float(np.mean(values)) for name, values in found.items()}


def _joined(runs: Sequence[Mapping[str, Runs]]) -> dict[str, Runs]:
    return {metric: Runs.joined([run[metric] for run in runs]) for metric in runs[0]}


def _p_value(first: Mapping[str, Runs], second: Mapping[str, Runs], metric: str) -> float:
    found = estimate(*first[metric].minus(second[metric]))
    assert found is not None
    return found.p_value()


def _articles(
    labels: np.ndarray, domain: int, generator: np.random.Generator
) -> tuple[np.ndarray, list[list[str]]]:
    """The effect of its articles on each linked pair, and their names."""
    linked = np.flatnonzero(labels)
    count = max(1, len(linked) // PER_ARTICLE)
    effects, shift = generator.normal(size=count), np.zeros(len(labels))
    articles: list[list[str]] = [[] for _ in labels]
    for place, pair in enumerate(linked):
        own = generator.choice(count, 2 if place % 5 == 0 and count > 1 else 1, replace=False)
        shift[pair] = effects[own].sum() / np.sqrt(len(own))
        articles[pair] = [f"{domain}.{number}" for number in own]
    return shift, articles


def _two_papers(pairs: int, weights: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Two different papers of each pair, shape (2, pairs)."""
    first = generator.choice(len(weights), pairs, p=weights / weights.sum())
    second = first.copy()
    while (same := first == second).any():
        second[same] = generator.choice(len(weights), same.sum(), p=weights / weights.sum())
    return np.stack([first, second])


def _names(ends: np.ndarray, domain: int = 0) -> list[list[str]]:
    return [[f"{domain}.{paper}" for paper in side] for side in ends]


def report(found: Mapping[str, Mapping[str, Mapping[str, float]]], made: str) -> str:
    """The tables in Markdown."""

    def figures(kind: str, heads: list[str], names: list[str]) -> str:
        rows = [
            [*key.split(" | "), *(f"{row[name]:.3f}" for name in names)] for key, row in found[kind].items()
        ]
        return table([*heads, *names], rows)

    coverage = figures("coverage", ["domains"], [" ".join(key) for key in METRICS])
    differing = figures(
        "false_positives", ["SD between seeds", "seeds"], ["f1_max", "roc_auc", "any of three"]
    )
    models = figures("models", ["models", "pairs", "distance"], ["f1_max", "roc_auc"])
    return f"""# Coverage of the intervals of pair metrics, and false positives

{made}

## Share of 95% intervals that hold the true value

{coverage}

{COVERAGE_NOTE}

## Share of worlds in which equal ways of training differ with p < 0.05

{differing}

{FAMILY_NOTE}

## Share of worlds in which two equally good models of one run differ with p < 0.05

{models}

{MODELS_NOTE}
"""


def main() -> None:
    given = options(__doc__, worlds=2000, replicates=100)
    path = RESULTS / "interval_coverage.json"
    found: dict = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    found = {"coverage": {}, "false_positives": {}, "models": {}} | found

    def measured(kind: str, name: str, measure: Callable[[], dict[str, float]]) -> None:
        if name not in found[kind]:
            found[kind][name] = {key: round(value, 3) for key, value in measure().items()}
            path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            print(name, found[kind][name], flush=True)

    for name, world in WORLDS.items():
        measured("coverage", name, partial(shares, world, given.worlds, given.replicates))
    for seeds in SEEDS:
        for deviation in SEED_DEVIATIONS:
            settings = deviation, seeds, given.worlds // SHARES[seeds], given.replicates // 2
            name = f"{deviation} | {seeds}"
            measured("false_positives", name, partial(rejections, *settings))
    for kind, pairs, distance in product(MODELS, MODEL_PAIRS, MODEL_DISTANCES):
        measure = partial(equal_models, pairs, MODELS[kind], distance, given.worlds // 2, given.replicates)
        measured("models", f"{kind} | {pairs} | {distance}", measure)
    first, three, five = (np.sqrt(part * LEVEL * (1 - LEVEL) / given.worlds) for part in (1, 2, 4))
    made = (
        f"Made by `benchmarks/interval_coverage.py`: {given.worlds:,} simulated worlds for each coverage, "
        "half as many for each share of false positives with three seeds and a quarter with five, so that "
        f"the standard errors are {first:.3f}, {three:.3f} and {five:.3f}; "
        f"one of {os.cpu_count()} cores, {platform.machine()}."
    )
    path.with_suffix(".md").write_text(report(found, made), encoding="utf-8")


if __name__ == "__main__":
    main()
