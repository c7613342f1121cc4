"""eLife abstracts by subject heading and by research organism, and pairs alike by one of the two alone.

The study of these two as conflicting routes is done (`results/real_conflict.md`).
"""

from __future__ import annotations

import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from measuring import DATA, ELIFE

ROUTES = ("subject", "organism")
MIN_ARTICLES = 12  # articles of a label
MAX_RECTANGLES, MAX_DRAWN = 4, 100_000  # of one article, and tried in all

# Articles name their organisms by keywords from a list that the journal offers, in either case. About twenty
# of 1,489 have separate names: those that mean an organism of the list are here.
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
        """Return its labels by this route."""
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
