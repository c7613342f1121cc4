"""The sets of texts of `capacity.py`: each text has labels under several routes, which ask for other things.

Debian packages by facets of their tags, eLife articles by subject and by organism, glosses of WordNet by
topic and by kind of thing, questions of Banking77 put side by side, of which each route asks for one place;
and, as a control, four subjects of eLife as routes with one criterion, the organism, where no route
contradicts another.

WordNet's topic is the domain that a synset points to (`;c`), and its kind of thing the lexicographer file.
(The file and the hypernym would not be two criteria: each file holds the synsets below a few hypernyms.)
Marks such as "(law)" at the beginning of a gloss name the topic and are cut off, examples too.
"""

from __future__ import annotations

import json
import lzma
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

import conflict_control
import real_conflict
from measuring import DATA
from sentence_experts.pairs.conflicts import Conflicts
from sentence_experts.pairs.labels import LabelColumn, Labels, Rows, read_labels
from sentence_experts.training.config import FitConfig
from sentence_experts.training.labelled_texts import TEST, TRAIN, VALIDATION, LabelledTexts

FACETS = ("use", "works-with", "implemented-in", "uitoolkit")
VALIDATION_TEXTS, TEST_TEXTS = 240, 720  # at most
DOMAINS = 4
CONFLICTS = 300  # test pairs of each kind that a route judges, over all other routes
LEAST_CONFLICTS = 16  # test pairs of two routes
LEAST_LABEL = 8  # texts that a label of WordNet has
COMPOSED = 2400  # texts for training that are made of questions
VALIDATION_SHARE = 0.2  # of the questions for training
SYNSETS = "data.noun"

Cells = dict[str, Any]


@dataclass(frozen=True)
class Folders:
    """Places of the data: what the study keeps between runs, and the files of Debian's `wordnet-base`."""

    work: Path
    wordnet: Path


@dataclass(frozen=True)
class DataSet:
    """A set of texts, by a function of the folders, and the size of a training.

    Attributes:
        name: of the set.
        read: gives the texts, their labels, and the sets for training, validation and test.
        routes: number of routes.
        tokens: of a text; what is longer is cut, for training and test.
        mean_tokens: of the texts, as they are cut.
        steps: of a training, all routes together, at most.
        opposed: whether routes contradict each other.
    """

    name: str
    read: Callable[[Folders], LabelledTexts]
    routes: int
    tokens: int
    mean_tokens: int
    steps: int
    opposed: bool = True

    def load(self, folders: Folders) -> LabelledTexts:
        """The texts, with no more for validation and test than are measured."""
        data = self.read(folders)
        sizes = {VALIDATION: VALIDATION_TEXTS, TEST: TEST_TEXTS}
        sets = {
            part: np.sort(np.random.default_rng(0).permutation(rows)[: sizes.get(part, len(rows))])
            for part, rows in data.sets.items()
        }
        return replace(data, sets=sets)


def debian(folders: Folders, facets: Sequence[str]) -> LabelledTexts:
    """Programs with at least two of the four facets, or both of two; one package of a source."""
    rows: list[Cells] = []
    seen: set[str] = set()
    with lzma.open(DATA / "facets" / "debian_packages_tagged.jsonl.xz", "rt", encoding="utf-8") as lines:
        for each in map(json.loads, lines):
            labels = {facet: _values(each["tags"], facet) for facet in facets}
            labelled = sum(bool(own) for own in labels.values())
            if "role::program" in each["tags"] and labelled > 1 and each["source"] not in seen:
                seen.add(each["source"])
                rows.append({"text": each["description"], "group": each["source"], **labels})
    return _read(rows, facets)


def _values(tags: Sequence[str], facet: str) -> list[str]:
    parts = (tag.partition("::") for tag in tags)
    return sorted({value.partition(":")[0] for name, _, value in parts if name == facet})


def elife(folders: Folders, masked: bool) -> LabelledTexts:
    """Articles of one organism, by heading and by organism; masked: without the words for organisms."""
    found = real_conflict.articles(folders.work)
    articles = [one.masked() if masked else one for one in found]
    rows = [{"text": one.text, **{name: [*one.labels(name)] for name in ("subject", "organism")}}
            for one in articles]  # fmt: skip
    return _read(rows, ("subject", "organism"))


def elife_domains(folders: Folders) -> LabelledTexts:
    """Articles of the commonest headings, which are the routes; alike by organism under each."""
    articles = real_conflict.articles(folders.work)
    headings = Counter(heading for one in articles for heading in one.subjects)
    common = {heading: re.sub(r"\W+", "-", heading) for heading, _ in headings.most_common(DOMAINS)}
    rows = [
        {"text": one.text} | {route: [one.organism] if heading in one.subjects else []
                              for heading, route in common.items()}
        for one in articles
    ]  # fmt: skip
    return _read(rows, tuple(common.values()))


def wordnet(folders: Folders) -> LabelledTexts:
    """Glosses of nouns with a topic; those whose first word is the same are in one set."""
    path = folders.wordnet / SYNSETS
    if not path.is_file():
        raise SystemExit(f"{path}: not found; install Debian's package wordnet-base, or give --wordnet")
    synsets = dict(_synsets(path.read_text(encoding="utf-8").splitlines()))
    topics = {
        number: [synsets[to][1] for kind, to in pointers if kind == ";c" and to in synsets]
        for number, (_, _, pointers, _) in synsets.items()
    }
    counts = Counter(topic for each in topics.values() for topic in each)
    rows = []
    for number, (file, word, _, gloss) in synsets.items():
        own = sorted({topic for topic in topics[number] if counts[topic] >= LEAST_LABEL})
        if own and gloss:
            rows.append({"text": gloss, "group": word, "topic": own, "kind": [f"file {file}"]})
    return _read(rows, ("topic", "kind"))


def _synsets(lines: Iterable[str]) -> Iterable[tuple[str, tuple[str, str, list[tuple[str, str]], str]]]:
    """Number of a synset -> its file, its first word, its pointers to nouns, and its definition."""
    for line in lines:
        if line.startswith(" "):  # the licence
            continue
        fields, _, gloss = line.partition(" | ")
        number, file, _, words, *rest = fields.split()
        first, count_at = rest[0].lower(), 2 * int(words, 16)
        pointers = [
            (rest[at], rest[at + 1]) for at in range(count_at + 1, len(rest), 4) if rest[at + 2] == "n"
        ]
        yield number, (file, first, pointers, definition(gloss))


def definition(gloss: str) -> str:
    """The gloss without its marks of topics at the beginning, and without its examples.

    >>> definition('(golf) a handicap of zero; "a scratch golfer"')
    'a handicap of zero'
    """
    return re.sub(r"^(\([^)]*\)\s*)+", "", gloss.split('; "')[0].strip())


def banking(folders: Folders, routes: int) -> LabelledTexts:
    """Questions side by side; a route asks for the intent of one place. Tests use a question once."""
    train, test = conflict_control.questions()
    cut = {intent: round(len(own) * VALIDATION_SHARE) for intent, own in train.items()}
    pools = {
        TRAIN: {intent: own[cut[intent] :] for intent, own in train.items()},
        VALIDATION: {intent: own[: cut[intent]] for intent, own in train.items()},
        TEST: test,
    }
    texts: list[str] = []
    intents: list[list[str]] = []
    sets: dict[str, Rows] = {}
    for part, questions in pools.items():
        rng = np.random.default_rng([routes, len(part)])
        pool = [(text, intent) for intent, own in questions.items() for text in own]
        rounds = -(-COMPOSED * routes // len(pool)) if part == TRAIN else 1
        drawn = [pool[n] for _ in range(rounds) for n in rng.permutation(len(pool))]
        rows = [drawn[at : at + routes] for at in range(0, len(drawn) - routes + 1, routes)][:COMPOSED]
        sets[part] = np.arange(len(texts), len(texts) + len(rows))
        texts += [" ".join(text for text, _ in row) for row in rows]
        intents += [[intent for _, intent in row] for row in rows]
    names = conflict_control.NAMES[:routes]
    columns = dict(zip(names, zip(*intents, strict=True), strict=True))
    labels = {
        name: read_labels([[cell] for cell in cells], LabelColumn(name, None, name))
        for name, cells in columns.items()
    }
    return LabelledTexts(texts, np.arange(len(texts)), labels, np.arange(len(texts)), sets, {})


def _read(rows: Sequence[Cells], routes: Sequence[str]) -> LabelledTexts:
    """Texts without near duplicates, split by group as `fit` does."""
    group = "group" if "group" in rows[0] else None
    return LabelledTexts.read(rows, FitConfig.of(None, by=[*routes], text=["text"], group=group))


SETS = {
    each.name: each
    for each in (
        DataSet("debian4", partial(debian, facets=FACETS), 4, 32, 32, 600),
        DataSet("debian2", partial(debian, facets=FACETS[:2]), 2, 32, 32, 300),
        DataSet("elife", partial(elife, masked=False), 2, 48, 47, 240),
        DataSet("elife masked", partial(elife, masked=True), 2, 48, 47, 240),
        DataSet("wordnet", wordnet, 2, 32, 18, 400),
        DataSet("banking2", partial(banking, routes=2), 2, 32, 19, 400),
        DataSet("banking4", partial(banking, routes=4), 4, 48, 36, 600),
        DataSet("banking8", partial(banking, routes=8), 8, 80, 70, 320),
        DataSet("domains", elife_domains, DOMAINS, 48, 47, 160, opposed=False),
    )
}


def conflicts_of(data: LabelledTexts) -> list[Conflicts]:
    """Test pairs that two routes judge in opposite ways; about as many for each, however many routes.

    A text is in as many pairs alike by one route as by the other, so that no text by itself tells of a pair.
    """
    rows, groups = np.arange(len(data.sets[TEST])), data.groups_of(TEST)
    apart = groups[:, None] != groups
    labels = {route: data.labels_of(route, TEST) for route in data.labels}
    sharing = {route: own.sharing(rows, rows) for route, own in labels.items()}
    found = []
    for one, other in combinations(labels, 2):
        both = labels[one].labelled & labels[other].labelled
        only = (sharing[one] != sharing[other]) & apart & both[:, None] & both
        alike = {
            route: [{*np.flatnonzero(row).tolist()} for row in only & sharing[route]]
            for route in (one, other)
        }
        rng = np.random.default_rng(0)
        sides = real_conflict.sides_of_rectangles(alike, CONFLICTS // (len(labels) - 1), rng)
        by = [[side[:2] for side in sides if side[2] == route] for route in (one, other)]
        if len(sides) >= LEAST_CONFLICTS:
            found.append(Conflicts(one, other, *map(np.array, by)))
    return found


def pairs_of(route: str, conflicts: Sequence[Conflicts]) -> list[tuple[str, Rows, Rows]]:
    """For each other route: its name, conflicting pairs, (pairs, 2), and whether `route` has them alike."""
    found = []
    for each in conflicts:
        if route in (each.one, each.other):
            alike = np.repeat([int(each.one == route), int(each.other == route)], len(each.by_one))
            other = each.other if each.one == route else each.one
            found.append((other, np.concatenate([each.by_one, each.by_other]), alike))
    return found


def few_pairs(labels: Labels, groups: Rows, number: int, seed: int) -> Labels:
    """Labels that know `number` different alike pairs and nothing more: each pair is a label of two texts."""
    from scipy.sparse import csr_array

    drawn = labels.draw_pairs(40 * number, np.random.default_rng([seed, number]), groups).T
    pairs = list(dict.fromkeys(map(tuple, np.sort(drawn).tolist())))[:number]
    ends = np.array(pairs).ravel()
    ones = np.ones(len(ends), np.float32)
    matrix = csr_array((ones, (ends, np.repeat(np.arange(len(pairs)), 2))), shape=(len(groups), len(pairs)))
    return Labels(labels.route, tuple(f"pair {n}" for n in range(len(pairs))), matrix)


def share_named(data: LabelledTexts, route: str) -> float:
    """The share of labelled test texts in which one of their labels under the route stands as a word."""
    labels = data.labels_of(route, TEST)
    texts = [data.texts[row].lower() for row in data.sets[TEST]]
    named = []
    for row, text in enumerate(texts):
        own = [labels.names[n] for n in labels.matrix[[row]].indices]
        words = [re.escape(name.lower()).replace("_", "[_ ]") for name in own]
        if own:
            named.append(any(re.search(rf"(?<!\w){word}(?!\w)", text) for word in words))
    return float(np.mean(named))


def sizes(data: LabelledTexts) -> Mapping[str, str]:
    """Describe a set in a table: texts for training, validation and test, and labels."""
    counts = "/".join(f"{len(data.sets[part]):,}" for part in (TRAIN, VALIDATION, TEST))
    return {"texts": counts, "labels": ", ".join(f"{r} {len(own.names)}" for r, own in data.labels.items())}
