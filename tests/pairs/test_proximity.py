"""Pairs by proximity, against their definition in plain Python."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from helpers import mentioned_works
from helpers.compile_pairs import link_graph, tables_corpus
from helpers.mentioned_works import Place, mentioned_corpus, random_mentions
from helpers.sql import columns, run_query
from sentence_experts.cli.main import main
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.errors import InputError, UsageError
from sentence_experts.pairs.compile import compile_pairs
from sentence_experts.pairs.config import LEVELS, SPLITS, PairsConfig
from sentence_experts.pairs.links import co_cited_within
from sentence_experts.pairs.splits import TooFewPairsError

NAMES = ("citing", "cited", "section", "paragraph", "sentence", "bracket")
LOOSE: dict[str, Any] = {"unit": "title", "split": "random", "fractions": (0.4, 0.3, 0.3)}


def place_of(level: str, place: Place) -> tuple[object, ...]:
    citing, _, section, paragraph, sentence, bracket = place
    return {
        "article": (citing,),
        "section": (citing, section),
        "paragraph": (citing, paragraph),
        "sentence": (citing, paragraph, sentence),
        "bracket": (citing, paragraph, bracket),
    }[level]


def places_shared(mentions: list[Place], level: str) -> Counter[tuple[str, str, str]]:
    """(article, work, work) -> the number of places of a level that both share in the article."""
    together = defaultdict(set)
    for place in mentions:
        together[place_of(level, place)].add(place[1])
    shared: Counter[tuple[str, str, str]] = Counter()
    for where, works in together.items():
        shared.update((str(where[0]), *two) for two in combinations(sorted(works), 2))
    return shared


def by_definition(mentions: list[Place], within: str) -> dict[tuple[str, str], tuple[int, int]]:
    """(work, work) -> number of articles, number of the closest level."""
    closest: dict[tuple[str, str, str], int] = {}
    for number in range(LEVELS.index(within), len(LEVELS)):  # type: ignore[arg-type]
        closest.update(dict.fromkeys(places_shared(mentions, LEVELS[number]), number))
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for (_, *works), level in closest.items():
        count, before = found.get((works[0], works[1]), (0, 0))
        found[works[0], works[1]] = count + 1, max(before, level)
    return found


@pytest.fixture(scope="module")
def mentioned(tmp_path_factory: pytest.TempPathFactory) -> CorpusFolder:
    return mentioned_corpus(tmp_path_factory.mktemp("mentioned") / "corpus")


@pytest.mark.parametrize("within", LEVELS)
def test_counts_and_levels(within: Any) -> None:
    mentions = random_mentions(1, articles=8, works=25, each=14)
    works = [f"w{number:02d}" for number in range(3, 25)]
    members = {"paper_id": works, "domain_number": [0] * len(works), "member": list(range(3, 25))}
    table = columns(NAMES, mentions)
    pairs = run_query(lambda places, works: co_cited_within(places, places, works, within), table, members)
    found = {(f"w{row['one']:02d}", f"w{row['other']:02d}"): (row["count"], row["level"]) for row in pairs}
    assert found == by_definition([place for place in mentions if place[1] in works], within)
    assert {level for _, level in found.values()} >= {4, LEVELS.index(within)}


def test_within_keeps_the_nearer_pairs_and_counts_levels(mentioned: CorpusFolder) -> None:
    mentions = [
        tuple(row[name] for name in NAMES)
        for row in pq.read_table(mentioned.path / "mentions.parquet").to_pylist()
    ]
    for within in ("section", "sentence"):
        pairs = compile_pairs(mentioned, within=within, max_eval_per_domain=20, **LOOSE)
        expected = by_definition(mentions, within)  # type: ignore[arg-type]
        assert pairs.manifest["link_counts"]["1"] == len(expected)
        levels: Counter[str] = Counter()
        for row in [row for name in SPLITS for row in pairs.split(name).to_pylist()]:
            one, two = sorted((row["anchor_id"], row["positive_id"]))
            if row["label"]:
                assert (row["count"], LEVELS.index(row["within"])) == expected[one, two]
                levels[row["within"]] += 1
            else:
                assert row["within"] is None
                assert (one, two) not in by_definition(mentions, "article")  # type: ignore[arg-type]
        counted = Counter()
        for counts in pairs.manifest["closest_levels"].values():
            counted.update(counts)
        assert +counted == levels


def test_papers_without_text_are_told(
    mentioned: CorpusFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(mentioned.path, tmp_path / "corpus")
    corpus, mentions = CorpusFolder.open(tmp_path / "corpus"), tmp_path / "corpus" / "mentions.parquet"
    every, citing = pq.read_table(mentions), pc.unique(pq.read_table(corpus.citations)["citing"])
    for without in (0, len(citing) // 2):
        some = pc.is_in(every["citing"], value_set=citing[without:])
        pq.write_table(every.filter(some), mentions)
        for within in ("article", "section"):
            with link_graph(corpus, PairsConfig(unit="title", within=within)):
                told = f"{without:,} of {len(citing):,} papers that cite came without their text: they link"
                assert (told in caplog.text) is (without > 0 and within == "section")


def test_a_corpus_without_texts_says_so() -> None:
    papers = [{"id": name, "title": name} for name in "ab"]
    corpus = tables_corpus(papers, [{"citing": "a", "cited": "b"}])
    with pytest.raises(InputError, match="does not record where papers are cited in a text"):
        compile_pairs(corpus, within="sentence")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"within": "sentence", "relation": "coupling"}, "relation=co-citation"),
    ],
)
def test_settings_that_cannot_be(mentioned: CorpusFolder, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        compile_pairs(mentioned, **settings)


def test_the_card_and_the_command_count_pairs_by_level(
    mentioned: CorpusFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--unit title --split random --fractions 0.4,0.3,0.3 --within sentence"
    with pytest.raises(SystemExit) as ended:
        main(["pairs", "compile", str(mentioned.path), "--out", str(tmp_path / "pairs"), *options.split()])
    assert not ended.value.code
    printed = " ".join(capsys.readouterr().out.split())
    assert "closest place that mentions both papers of a pair: sentence" in printed
    card = " ".join((tmp_path / "pairs" / "README.md").read_text().split())
    assert "within one sentence of it" in card
    assert "| bracket |" in card


@pytest.mark.slow
def test_training_pairs_are_of_the_nearest_level_with_enough(
    mentioned: CorpusFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = compile_pairs(mentioned, **LOOSE)  # no level has enough
    counts = Counter(every.split("train")["within"].to_pylist())
    enough = counts["bracket"] + 1
    monkeypatch.setattr("sentence_experts.pairs.compile.ENOUGH_TO_TRAIN", enough)
    near = compile_pairs(mentioned, **LOOSE)
    expected = {level: counts[level] for level in ("sentence", "bracket")}
    assert Counter(near.split("train")["within"].to_pylist()) == expected
    (trained,) = near.manifest["trained_within"].values()
    assert trained == {"level": "sentence", "pairs": sum(expected.values()), "of": counts.total()}
    for name in ("validation", "test"):
        columns = ["anchor_id", "positive_id", "label"]
        one, other = (pairs.split(name).select(columns).to_pylist() for pairs in (every, near))
        one, other = (
            {(frozenset(list(row.values())[:2]), row["label"]) for row in rows} for rows in (one, other)
        )
        assert one == other


def test_the_card_says_how_near_pairs_are_that_were_made_near(
    mentioned: CorpusFolder, tmp_path: Path
) -> None:
    pairs = compile_pairs(mentioned, out=tmp_path / "pairs", **LOOSE, within="sentence")
    (trained,) = pairs.manifest["trained_within"].values()
    assert (trained["level"], trained["pairs"]) == ("sentence", trained["of"])
    assert f"all {trained['pairs']} of one sentence." in (tmp_path / "pairs/README.md").read_text()


def test_training_pairs_of_a_corpus_without_texts_are_of_whole_articles(corpus: CorpusFolder) -> None:
    pairs = compile_pairs(corpus, unit="title", max_eval_per_domain=20)
    assert pairs.manifest["trained_within"] is None
    with pytest.raises(InputError, match="does not record where papers are cited"):
        compile_pairs(corpus, unit="title", train_within="bracket")


@pytest.mark.parametrize(
    "settings",
    [{"train_within": "article", "within": "sentence"}, {"train_within": "bracket", "relation": "coupling"}],
)
def test_levels_of_training_that_cannot_be(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="`train_within"):
        compile_pairs("nowhere", **settings)


@pytest.mark.slow
def test_a_level_that_no_training_pair_has_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = [(*place[:4], number, number) for number, place in enumerate(random_mentions(0, 30, 60, 16))]
    monkeypatch.setattr(mentioned_works, "random_mentions", lambda *_: alone)
    corpus = mentioned_corpus(tmp_path)
    assert compile_pairs(corpus, **LOOSE).split("train").num_rows
    with pytest.raises(TooFewPairsError, match=r"no training pair of all is `train_within=bracket`"):
        compile_pairs(corpus, **LOOSE, train_within="bracket")
