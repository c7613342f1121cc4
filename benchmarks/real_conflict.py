"""A conflict between real criteria: eLife abstracts by subject heading against by research organism.

    nice python benchmarks/real_conflict.py --out FOLDER [--data plain|masked] [--arms ...] [--seeds 5]

Articles with exactly one research organism, split by article. Two routes: under `subject` texts of a heading
belong together, under `organism` those of an organism. A test pair shares a heading but not the organism, or
the organism but no heading, and each article is in as many pairs of both kinds. A pair is alike under one
route and unlike under the other, so a model blind to the route has a mean ROC-AUC over the routes of exactly
0.5, whatever it has learned.

First the upper bounds: one dense model per route, with as many steps in all as the other arms, with twice as
many (60 for each model, as in the pilot), and at three times the rate. If all of them stay below `WORTH` no
way of sharing can pay, and the study ends there. The other arms take the same batches: dense (instructions,
all weights shared), experts (MoTE: an expert per instruction) and experts, tokens (route tokens, no
instructions). Every model is also measured with the words for organisms masked in the test texts. A run takes
50 CPU seconds, with twice as many steps 90.

`--data masked`: the same, with those words masked in the training texts too, so that no model can rely on
them; a study of its own, which ends with its upper bounds if they are near 0.5.

In the first version names of organisms were only put in lower case, fewer words were masked, the upper bound
had neither more steps nor the higher rate, and test pairs were drawn at random, so that some articles stood
mostly in pairs of one kind. All of it was run anew.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import sentence_experts as se
from measuring import DATA, ELIFE, table
from sentence_experts.evaluation.statistics import Runs, ScoredPairs
from study import (
    Difference,
    Row,
    RunFile,
    Test,
    arguments,
    auc_of,
    blind_table,
    by_route,
    difference_table,
    differences,
    mean_auc,
    packed,
    with_interval,
    write_study,
)
from study_models import Batch, cosines, first_blocks, train_steps

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

NAME = "real_conflict"
ROUTES = ("subject", "organism")
BLOCKS, BATCH, STEPS, MAX_LENGTH, RATE = 3, 12, 60, 64, 1e-4
MIN_ARTICLES, TEST_SHARE, TEST_PAIRS = 12, 0.35, 200  # articles of a label
MAX_RECTANGLES, MAX_DRAWN = 4, 100_000  # of one article, and tried in all
# Fixed before any run: the primary figure is the mean ROC-AUC over the routes, experts minus dense;
# differences within the margin count as equal. The study ends if the upper bound is below WORTH.
PRIMARY, MARGIN, WORTH, UPPER = ("experts", "dense"), 0.01, 0.55, "separate"
HIGH_RATE = 3e-4


@dataclass(frozen=True)
class Arm:
    """Settings of `extend` (None: a dense model per route), the learning rate, the steps of both routes."""

    extend: Mapping[str, Any] | None
    rate: float = RATE
    steps: int = STEPS


DENSE, EXPERTS = {"route": "prefix", "layers": "none"}, {"route": "prefix", "expert_norms": True}
UPPER_BOUNDS = {
    UPPER: Arm(None),
    "separate, 60 steps each": Arm(None, steps=2 * STEPS),
    "separate, 3x rate": Arm(None, HIGH_RATE),
}
ARMS = {
    **UPPER_BOUNDS,
    "dense": Arm(DENSE),
    "experts": Arm(EXPERTS),
    "experts, tokens": Arm({"route": "token"}),
    "dense, 3x rate": Arm(DENSE, HIGH_RATE),
    "experts, 3x rate": Arm(EXPERTS, HIGH_RATE),
}
PLANNED = [
    (one, other)
    for one in ("dense", "experts", "experts, tokens")
    for other in ("dense", UPPER)
    if one != other
]
# Added after the first results of the first version, a family of tests of their own: would a higher rate do
# what experts do, and is more to be had than separate models at the lower rate and their few steps show?
ADDED = (
    ("experts, 3x rate", "dense, 3x rate"),
    ("experts", "dense, 3x rate"),
    ("experts, 3x rate", "separate, 3x rate"),
    ("experts", "separate, 60 steps each"),
)
SETTINGS = {
    "blocks": BLOCKS, "batch": BATCH, "steps": STEPS, "max_length": MAX_LENGTH, "rates": [RATE, HIGH_RATE],
    "test": [MIN_ARTICLES, TEST_SHARE, TEST_PAIRS], "organisms": "normalised",
    "test_pairs": "rectangles",
}  # fmt: skip


# Articles name their organisms by keywords from a list that the journal offers, in either case. About twenty
# of 1,489 have names of their own: those that mean an organism of the list are here.
SAME = {
    "drosophila": "d. melanogaster",
    "drosophila melanogaster": "d. melanogaster",
    "fruit fly": "d. melanogaster",
    "s.cerevisae": "s. cerevisiae",
    "a. thaliana": "arabidopsis",
    "macaque monkey": "macaca mulatta",
    "n. crassa": "neurospora",
}

_PHRASES = (
    r"(?:budding|fission|baker's|brewer's) yeasts?|fruit fl(?:y|ies)|homo sapiens|mus musculus|"
    r"rattus norvegicus|gallus gallus|macaca \w+|thale cress|"
    r"[A-Z]\. ?(?:elegans|melanogaster|coli|cerevisi?ae|pombe|subtilis|thaliana|"
    r"laevis|tropicalis|rerio|musculus|sapiens|norvegicus|crassa|mulatta)"
)
_WORDS = (
    "mouse|mice|murine|rodents?|human|humans|patients?|people|participants|volunteers|men|women|drosophila|"
    "drosophilids?|melanogaster|fly|flies|insects?|yeasts?|cerevisiae|saccharomyces|pombe|"
    "schizosaccharomyces|fung(?:us|i|al)|coli|escherichia|bacteri(?:a|um|al)|bacillus|subtilis|salmonella|"
    "zebrafish|fish|fishes|teleosts?|danio|rerio|elegans|caenorhabditis|worms?|nematodes?|arabidopsis|"
    r"thaliana|plants?|\w*virus|\w*viruses|\w*viral|virions?|\w*phages?|hiv|hiv-\d|influenza|xenopus|frogs?|"
    "amphibians?|laevis|tropicalis|rats?|chickens?|chicks?|avian|birds?|macaques?|monkeys?|rhesus|primates?|"
    "dictyostelium|neurospora|plasmodium|malaria|mammals?|mammalian|vertebrates?|invertebrates?"
)
_ORGANISMS = re.compile(rf"\b(?:{_PHRASES}|{_WORDS})\b", re.IGNORECASE)


def normalised(name: str) -> str:
    """The name that stands for all names of an organism: in lower case, without doubled spaces."""
    lower = " ".join(name.split()).lower()
    return SAME.get(lower, lower)


def without_organisms(text: str) -> str:
    """The text with each word for an organism replaced by "organism"."""
    return _ORGANISMS.sub("organism", text)


@dataclass(frozen=True)
class Article:
    """An abstract with its headings, its only organism, its year and its number of references."""

    text: str
    subjects: tuple[str, ...]
    organism: str
    year: int | None = None
    references: int = 0

    def labels(self, route: str) -> tuple[str, ...]:
        """What it is by this route."""
        return self.subjects if route == ROUTES[0] else (self.organism,)

    def masked(self) -> Article:
        """The article without the words for organisms in its text."""
        return replace(self, text=without_organisms(self.text))


def articles(folder: Path) -> list[Article]:
    """The articles that have a heading, an abstract and exactly one organism; read once, then from a file."""
    cache = folder / "elife_articles.json"
    if not cache.exists():
        folder.mkdir(parents=True, exist_ok=True)
        cache.write_text(json.dumps(list(_read())), encoding="utf-8")
    found = [
        Article(text, tuple(own), organism, *others)
        for text, own, organism, *others in json.loads(cache.read_text("utf-8"))
    ]
    common = {route: Counter(label for one in found for label in one.labels(route)) for route in ROUTES}
    kept = []
    for one in found:
        headings = tuple(name for name in one.subjects if common["subject"][name] >= MIN_ARTICLES)
        if headings and common["organism"][one.organism] >= MIN_ARTICLES:
            kept.append(replace(one, subjects=headings))
    return kept


def _read() -> Iterator[tuple[str, list[str], str, int | None, int]]:
    """The fields of `Article`. The package's import has headings, but no organisms."""
    from lxml import etree

    from sentence_experts.corpus.formats.articles import read_articles
    from sentence_experts.corpus.paper import Paper

    with tarfile.open(DATA / ELIFE) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith(".xml") else None
            content = re.sub(rb"(?s)<body.*?</body>", b"", file.read()) if file else b""
            for paper in read_articles(content) if content else ():
                if not isinstance(paper, Paper) or not paper.title or not paper.abstract:
                    continue
                root = etree.fromstring(content, etree.XMLParser(resolve_entities=False, recover=True))
                named = _labels(root, 'kwd-group[@kwd-group-type="research-organism"]/kwd')
                headings = _labels(root, 'subj-group[@subj-group-type="heading"]/subject')
                organisms = {normalised(name) for name in named} - {"none"}
                if headings and len(organisms) == 1 and "other" not in organisms:
                    text = f"{paper.title} {paper.abstract}"
                    yield text, headings, organisms.pop(), paper.year, len(paper.citations)


def _labels(root: Any, path: str) -> list[str]:
    """The texts at a path, in lower case and without markup."""
    return sorted({" ".join("".join(one.itertext()).split()).lower() for one in root.findall(f".//{path}")})


def rectangles(test: Sequence[Article], random: np.random.Generator) -> list[tuple[int, int, str]]:
    """Test pairs: sides of rectangles of four articles, in turn alike by heading alone and by organism alone.

    So each article is in as many pairs of one kind as of the other, and what a text says of itself tells
    nothing about the kind of its pairs.
    """
    alike: dict[str, list[set[int]]] = {route: [set() for _ in test] for route in ROUTES}
    for one in range(len(test)):
        for other in range(one):
            agree = [route for route in ROUTES if {*test[one].labels(route)} & {*test[other].labels(route)}]
            if len(agree) == 1:
                alike[agree[0]][one].add(other)
                alike[agree[0]][other].add(one)
    found = sides_of_rectangles(alike, TEST_PAIRS, random)
    if len(found) < 2 * TEST_PAIRS:
        raise SystemExit(f"only {len(found)} of {2 * TEST_PAIRS} test pairs")
    return found


def sides_of_rectangles(
    alike: Mapping[str, Sequence[set[int]]], number: int, random: np.random.Generator
) -> list[tuple[int, int, str]]:
    """Pairs alike by one of two routes alone, as many by each and for each text: at most `number` by each.

    Args:
        alike: route -> for each text, those alike by this route alone.
        number: of pairs of a route.
        random: source of the drawing.
    """
    routes = list(alike)
    subject, organism = alike.values()
    times: Counter[int] = Counter()
    found: set[tuple[int, int, str]] = set()
    for _ in range(MAX_DRAWN):
        first = int(random.integers(len(subject)))
        corners = [first]
        for near in (subject, organism):
            corners += random.permutation(sorted(near[corners[-1]]))[:1].tolist()
        closing = organism[first] & subject[corners[-1]] - {*corners}
        corners += random.permutation(sorted(closing))[:1].tolist()
        if len(corners) < 4 or any(times[corner] >= MAX_RECTANGLES for corner in corners):
            continue
        ends = zip(corners, [*corners[1:], first], [*routes, *routes], strict=True)
        sides = {(min(one, other), max(one, other), route) for one, other, route in ends}
        if sides & found:
            continue
        found |= sides
        times.update(corners)
        if len(found) >= 2 * number:
            break
    return sorted(found)


@dataclass(frozen=True)
class Data:
    """Articles for training and test; pairs of test articles (their numbers) and the route they agree in."""

    train: Sequence[Article]
    test: Sequence[Article]
    pairs: Sequence[tuple[int, int, str]]

    @classmethod
    def of(cls, found: Sequence[Article]) -> Data:
        """Split by article; test pairs from rectangles, as many of each kind."""
        random = np.random.default_rng(0)
        order = random.permutation(len(found)).tolist()
        cut = round(len(order) * TEST_SHARE)
        test, train = [found[n] for n in order[:cut]], [found[n] for n in order[cut:]]
        return cls(train, test, rectangles(test, random))

    def by_route(self) -> dict[str, ScoredPairs]:
        """Route -> all test pairs with the labels of that route."""
        first, second = ([str(pair[side]) for pair in self.pairs] for side in (0, 1))
        zeros = np.zeros(len(self.pairs))
        return {
            route: ScoredPairs(zeros, np.array([int(pair[2] == route) for pair in self.pairs]), first, second)
            for route in ROUTES
        }

    def texts(self) -> dict[str, Test]:
        """Route -> all test pairs with their texts."""
        first = [self.test[one].text for one, _, _ in self.pairs]
        second = [self.test[other].text for _, other, _ in self.pairs]
        return {route: Test(first, second, pairs) for route, pairs in self.by_route().items()}

    def works(self) -> pa.Table:
        """What is known of the test articles: one journal, and too young to be cited by each other."""
        columns: dict[str, list[Any]] = {"paper_id": [str(number) for number in range(len(self.test))]}
        columns |= {
            "references": [one.references for one in self.test],
            "year": [one.year for one in self.test],
        }
        columns |= {name: [None] * len(self.test) for name in ("times_cited", "journal")}
        return pa.table(columns)

    def score(
        self, model: SentenceTransformer, prompt: str = "", masked: bool = False
    ) -> np.ndarray[Any, Any]:
        """Cosines of the test pairs under one route."""
        texts = [(one.masked() if masked else one).text for one in self.test]
        first, second = (
            [texts[one] for one in numbers]
            for numbers in ([first for first, _, _ in self.pairs], [second for _, second, _ in self.pairs])
        )
        return cosines(model, first, second, prompt, MAX_LENGTH)

    def batches(self, seed: int, prompts: Mapping[str, str], steps: int) -> Iterator[Batch]:
        """Batches of one route, the routes in turn; labels evenly, and none is a negative of itself."""
        random = np.random.default_rng(seed)
        of_label: dict[str, dict[str, list[str]]] = {route: {} for route in ROUTES}
        for one in self.train:
            for route in ROUTES:
                for label in one.labels(route):
                    of_label[route].setdefault(label, []).append(one.text)
        for step in range(steps):
            route = ROUTES[step % len(ROUTES)]
            known = sorted(label for label, own in of_label[route].items() if len(own) > 1)
            labels = random.choice(len(known), BATCH).tolist()
            couples = [random.choice(of_label[route][known[n]], 2, replace=False).tolist() for n in labels]
            prompt = prompts[route]
            yield Batch(
                [prompt + one for one, _ in couples], [prompt + other for _, other in couples], labels
            )


def run(data: Data, arm: Arm, seed: int) -> Row:
    """One run: the cosines of the last step, of the texts as they are and masked."""
    scores: dict[str, dict[str, Any]] = {"scores": {}, "masked": {}}
    seconds = 0.0

    def measure(model: SentenceTransformer, route: str, prompt: str) -> None:
        for what, own in scores.items():
            own[route] = data.score(model, prompt, masked=what == "masked")

    if arm.extend is None:
        for route in ROUTES:
            model: SentenceTransformer = first_blocks(BLOCKS)
            both = enumerate(data.batches(seed, dict.fromkeys(ROUTES, ""), arm.steps))
            own = [batch for step, batch in both if ROUTES[step % len(ROUTES)] == route]
            seconds += train_steps(model, own, arm.rate, seed, max_length=MAX_LENGTH)
            measure(model, route, "")
    else:
        model = se.extend(first_blocks(BLOCKS), list(ROUTES), **arm.extend)
        prompts = {route: model.prompts[route] or "" for route in ROUTES}
        batches = data.batches(seed, prompts, arm.steps)
        seconds = train_steps(model, batches, arm.rate, seed, max_length=MAX_LENGTH)
        for route in ROUTES:
            measure(model, route, prompts[route])
    auc = float(auc_of(data.by_route(), scores["scores"]).values[0])
    packed = {what: packed(own) for what, own in scores.items()}
    return {"auc": round(auc, 5), "seconds": round(seconds, 1), **packed}


def report(runs: RunFile, data: Data) -> None:
    """Write the tables of what is finished."""
    test = data.by_route()
    found = {arm: rows for arm in ARMS if (rows := runs.find(arm=arm))}
    arms, masked = (
        {arm: mean_auc(test, rows, scores) for arm, rows in found.items()} for scores in ("scores", "masked")
    )
    base = dict.fromkeys(ROUTES, data.score(first_blocks(BLOCKS)).tolist())
    blind = auc_of(test, base).values[0]
    lines = []
    for arm, rows in found.items():
        figures = [with_interval(arms[arm]), *by_route(test, rows), with_interval(masked[arm])]
        seconds = np.mean([row["seconds"] for row in rows])
        lines.append([arm, str(len(rows)), *figures, f"{seconds:.0f}"])
    header = ["arm", "seeds", "mean of routes", *ROUTES, "organisms masked in the test", "seconds"]
    told = differences(arms, PLANNED, MARGIN) + differences(arms, ADDED, MARGIN)
    labels = [len({label for one in data.train for label in one.labels(route)}) for route in ROUTES]
    option = " with `--data masked`: words for organisms masked in all texts" * (runs.name != NAME)
    text = (
        "# A real conflict: subject heading against research organism\n\n"
        f"Made by `benchmarks/{NAME}.py`{option}. {len(data.train)} eLife articles for training, "
        f"{len(data.test)} others for the test, {labels[0]} headings, {labels[1]} organisms; title and "
        f"abstract, {MAX_LENGTH} tokens; {BLOCKS} blocks of MiniLM, {STEPS} steps of {BATCH} pairs in all "
        f"({STEPS // 2} for each route), learning rate {RATE:g} (3x rate: {HIGH_RATE:g}). "
        f"{TEST_PAIRS} test pairs of each kind. Intervals allow for articles in several pairs and for seeds. "
        f"The base, blind to the route: {blind:.3f} (pairs of one subject above those of one organism: "
        f"{by_route(test, [{'scores': base}])[0]}). Primary figure, "
        f"fixed beforehand: mean over the routes, experts minus dense; margin {MARGIN:g}.\n\n"
        f"**Verdict**: {sentence(arms, told)}"
    )
    parts = [text, table(header, lines)]
    parts += [difference_table(told)] if told else []
    missing = [arm for arm in ARMS if arm not in found]
    parts += [f"Did not run: {'; '.join(missing)}."] if missing else []
    parts += [blind_table(data.texts(), data.works())]
    write_study({"made_by": f"benchmarks/{NAME}.py"}, runs, "\n\n".join(parts))


def sentence(arms: Mapping[str, Runs], told: Sequence[Difference]) -> str:
    """The verdict."""
    bounds = [arm for arm in UPPER_BOUNDS if arm in arms]
    if not bounds:
        return "no upper bound did run."
    reached = "; ".join(f"{arm}: {with_interval(arms[arm])}" for arm in bounds)
    upper = f"two separate models reach (a route-blind model has 0.5): {reached}"
    if max(arms[arm].values.mean() for arm in bounds) < WORTH:
        return f"{upper}. None reaches {WORTH}: no way of sharing can pay at this size, and the study ends."
    primary = next((one for one in told if (one.first, one.second) == PRIMARY), None)
    if primary is None:
        return f"{upper}; the primary comparison did not run."
    words = {"better": "better than", "worse": "worse than"}.get(primary.verdict, f"{primary.verdict}:")
    return f"{upper}. Experts are {words} the dense model with instructions: {primary.told()}."


def main() -> None:
    """Make the runs that are missing, the upper bounds first, then write the tables."""
    given = arguments(__doc__, arms=tuple(ARMS), data=("plain", "masked"))
    found, name, settings = articles(given.out), NAME, SETTINGS
    if given.data == "masked":
        found, name = [one.masked() for one in found], f"{NAME}_masked"
        settings = {**SETTINGS, "texts": "masked"}
    runs, data = RunFile(given.out, name, settings), Data.of(found)
    for arms in () if given.report else (UPPER_BOUNDS, ARMS):
        bounds = [float(np.mean([row["auc"] for row in rows])) for arm in UPPER_BOUNDS
                  if (rows := runs.find(arm=arm))]  # fmt: skip
        if arms is UPPER_BOUNDS or max(bounds, default=1.0) >= WORTH:
            keys = [
                {"arm": arm, "seed": seed} for seed in range(given.seeds) for arm in arms if arm in given.arms
            ]
            runs.make(keys, lambda arm, seed: run(data, ARMS[arm], seed))
    report(runs, data)


if __name__ == "__main__":
    main()
