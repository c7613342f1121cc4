"""Properties of the pairs of any corpus: random small citation graphs, counted again in plain Python."""

from __future__ import annotations

import tempfile
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from helpers.compile_pairs import link_graph
from helpers.samples import write_corpus
from sentence_experts.corpus.corpus_folder import CITATIONS_SCHEMA, CorpusFolder
from sentence_experts.errors import InputError
from sentence_experts.pairs.compile import compile_pairs
from sentence_experts.pairs.config import SPLITS, PairsConfig
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.storage import write_parquet

PAPERS = 14
# An example takes half a second: not made smaller when it fails.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
MANY = settings(max_examples=6, deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
Link = tuple[int, int]


def random_lists(rng: np.random.Generator, longest: int) -> list[list[int | None]]:
    """A reference list a paper, here and there with an entry twice or without identifier, or of itself."""
    lists = [rng.integers(0, PAPERS + 1, rng.integers(0, longest)).tolist() for _ in range(PAPERS)]
    return [[None if to == PAPERS else to for to in each] for each in lists]


def random_texts(rng: np.random.Generator) -> list[str | None]:
    """Paper i has text i, or that of paper i - 1, or none."""
    return [["own", "own", "own", "before", "before", None][kind] for kind in rng.integers(0, 6, PAPERS)]


seeds = st.integers(0, 10**6)
RULES = "several: each\ndomains: {a: {title: ['a*']}, b: {title: ['*b']}}\n"


class Graph:
    """A corpus, and what is true of it by definition."""

    def __init__(self, folder: Path, references: list, texts: list, domains: list) -> None:
        self.text: list[int | None] = []
        for paper, kind in enumerate(texts):
            before = self.text[-1] if self.text else None
            self.text.append(
                None if kind is None else before if kind == "before" and before is not None else paper
            )
        # One paper: all with the same text.
        self.name = [("no text", paper) if text is None else text for paper, text in enumerate(self.text)]
        self.domains = [set(word) & {"a", "b"} for word in domains]
        self.lengths = [len(each) for each in references]
        self.cites = [{to for to in each if to not in (None, paper)} for paper, each in enumerate(references)]
        self.rules = folder / "rules.yaml"
        self.rules.write_text(RULES)
        rows = [
            {"citing": f"p{paper:02d}", "cited": None if to is None else f"p{to:02d}"}
            for paper, each in enumerate(references)
            for to in each
        ]
        papers = [
            (
                f"p{paper:02d}",
                domains[paper],
                None if text is None else f"Text {'.' * (paper % 2)}of {text}",
                2000,
                False,
            )
            for paper, text in enumerate(self.text)
        ]
        written = write_corpus(folder / "corpus", papers)
        self.corpus = CorpusFolder(written.path, {**written.manifest, "counts": {}, "tables": {}})
        write_parquet(self.corpus.citations, pa.Table.from_pylist(rows, CITATIONS_SCHEMA))

    def links(self, relation: str, rare: int = 10**6, longest: int = 10**6) -> Counter[Link]:
        """Links of all papers, whatever their text and domain."""
        citing = [paper for paper in range(PAPERS) if self.lengths[paper] <= longest]
        times = Counter(to for each in self.cites for to in each)
        counts: Counter[Link] = Counter()
        if relation == "co-citation":
            for paper in citing:
                counts.update(combinations(sorted(self.cites[paper]), 2))
        elif relation == "coupling":
            for pair in combinations(citing, 2):
                shared = self.cites[pair[0]] & self.cites[pair[1]]
                counts[pair] += sum(times[to] <= rare for to in shared)
        else:
            counts.update((min(paper, to), max(paper, to)) for paper in citing for to in self.cites[paper])
        return +counts

    def pairs(self, links: Counter[Link]) -> dict[tuple[int, int, str], int]:
        """Links of two texts, in each domain of both."""
        return {
            (left, right, domain): count
            for (left, right), count in links.items()
            for domain in self.domains[left] & self.domains[right]
            if None not in (self.text[left], self.text[right]) and self.text[left] != self.text[right]
        }

    def citing_both(self, one: int, other: int) -> list[int]:
        return [paper for paper in range(PAPERS) if {one, other} <= self.cites[paper]]

    def linked_texts(self) -> set[frozenset]:
        """Texts that anything links, reprints of the linked, of the citing and of the cited included."""
        cites = {(self.name[paper], self.name[to]) for paper, each in enumerate(self.cites) for to in each}
        cites = {(one, other) for one, other in cites if one != other}
        found = {frozenset(pair) for pair in cites}
        for one, other in combinations(cites, 2):
            for same, end in ((0, 1), (1, 0)):
                if one[same] == other[same]:
                    found.add(frozenset((one[end], other[end])))
        return found


@given(
    seeds, st.sampled_from(["co-citation", "coupling", "citation"]),
    st.integers(2, 5), st.sampled_from([1, 1, 2]), st.sampled_from([None, 3, 6]),
)  # fmt: skip
@MANY
def test_pairs_and_their_counts_are_those_of_the_definition(
    seed: int, relation: str, rare: int, least: int, longest: int | None
) -> None:
    rng = np.random.default_rng(seed)
    references, texts = random_lists(rng, 10), random_texts(rng)
    domains = rng.choice(["a", "a", "b", "ab", "x"], PAPERS).tolist()
    with tempfile.TemporaryDirectory() as folder:
        graph = Graph(Path(folder), references, texts, domains)
        links = graph.links(relation, rare, longest or 10**6)
        expected = {pair: count for pair, count in graph.pairs(links).items() if count >= least}
        limit = {"rare": rare} if relation == "coupling" else {}
        chosen = PairsConfig(
            relation=relation, unit="abstract", min_count=least, max_references=longest, **limit
        )
        with_text = [graph.domains[paper] for paper in range(PAPERS) if graph.text[paper] is not None]
        if not expected or set().union(*with_text) != {"a", "b"}:
            with pytest.raises(InputError), link_graph(graph.corpus, chosen, graph.rules):
                pass
            return
        numbered = [p for p in range(PAPERS) if graph.text[p] is not None and graph.domains[p]]
        with link_graph(graph.corpus, chosen, graph.rules) as made:
            found = made.pairs
            rows = zip(found.left, found.right, found.domain, found.count, strict=True)
            assert {(numbered[a], numbered[b], domain): count for a, b, domain, count in rows} == expected
            received = Counter(to for each in graph.cites for to in each)
            assert made.works.times_cited.tolist() == [received[paper] for paper in numbered]
            linked = graph.linked_texts()
            ends = np.array(list(combinations(range(len(numbered)), 2)))
            of_two = [(graph.text[numbered[a]], graph.text[numbered[b]]) for a, b in ends]
            ends = ends[[one != other for one, other in of_two]]
            mask = made.links_among(np.arange(len(numbered)))(ends[:, 0], ends[:, 1])
            assert mask.tolist() == [frozenset(pair) in linked for pair in of_two if pair[0] != pair[1]]
            behind = made.citing_articles(found)
            for row, ends in enumerate(zip(found.left, found.right, strict=True)):
                citing = graph.citing_both(numbered[ends[0]], numbered[ends[1]])
                assert len(behind.article[behind.pair == row]) == len(citing)
                texts_behind = {graph.name[paper] for paper in citing}
                assert len(set(behind.same_text[behind.pair == row].tolist())) == len(texts_behind)


def texts_and_ids(graph: Graph, table: pa.Table) -> tuple[set[int], list[tuple[int, int]]]:
    ends = [
        (int(row["anchor_id"][1:]), int(row["positive_id"][1:]))
        for row in table.select(["anchor_id", "positive_id"]).to_pylist()
    ]
    return {graph.text[paper] for pair in ends for paper in pair}, ends


def compiled(graph: Graph, folder: Path, chosen: PairsConfig) -> Pairs | None:
    try:
        return compile_pairs(graph.corpus, chosen, folder / "pairs", domains=graph.rules)
    except InputError:
        return None


@given(seeds, st.sampled_from(["paper", "article", "random"]), st.sampled_from([None, 4]))
@settings(MANY, max_examples=3)
def test_splits_do_not_leak_and_negatives_are_unlinked(seed: int, split: str, longest: int | None) -> None:
    # Few citations, so that there are unlinked papers left for negatives.
    rng = np.random.default_rng(seed)
    references, texts = random_lists(rng, 4), random_texts(rng)
    references[0] = list(range(1, 7))
    with tempfile.TemporaryDirectory() as folder:
        # Every domain has a paper; b has no pair.
        texts[0] = "own"
        graph = Graph(Path(folder), references, texts, ["ab", *["a"] * (PAPERS - 1)])
        chosen = PairsConfig(
            unit="abstract",
            split=split,
            seed=seed % 7,
            fractions=(0.4, 0.3, 0.3),
            max_references=longest,
        )
        pairs = compiled(graph, Path(folder), chosen)
        assume(pairs is not None)
        assert pairs is not None
        linked, sets, articles = graph.linked_texts(), [], []
        for name in SPLITS:
            table = pairs.split(name)
            found, ends = texts_and_ids(graph, table)
            sets.append(found)
            labels = table["label"].to_pylist()
            behind = [pair for pair, label in zip(ends, labels, strict=True) if label]
            articles.append({graph.name[paper] for pair in behind for paper in graph.citing_both(*pair)})
            for (one, other), label in zip(ends, labels, strict=True):
                if not label:
                    assert frozenset((graph.text[one], graph.text[other])) not in linked
        for first, second in combinations(range(len(SPLITS)), 2):
            if split != "random":
                assert not sets[first] & sets[second]
            if split == "article":
                assert not articles[first] & articles[second]
