"""Pairs by proximity and negatives of the same article, against their definitions in plain Python."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.mentioned_works import Place, mentioned_corpus, random_mentions
from helpers.sql import columns, run_query
from sentence_experts.cli.main import main
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.errors import InputError, UsageError
from sentence_experts.pairs.compile import compile_pairs
from sentence_experts.pairs.proximity import LEVELS, co_cited_within, far_in_one_article
from sentence_experts.pairs.splits import SPLITS

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


def by_definition(mentions: list[Place], within: str) -> dict[tuple[str, str], tuple[int, int, int]]:
    """(work, work) -> number of articles, number of the closest level, weight."""
    closest: dict[tuple[str, str, str], tuple[int, int]] = {}
    for number in range(LEVELS.index(within), len(LEVELS)):  # type: ignore[arg-type]
        for key, places in places_shared(mentions, LEVELS[number]).items():
            closest[key] = number, places * 2**number
    found: dict[tuple[str, str], tuple[int, int, int]] = {}
    for (_, *works), (level, weight) in closest.items():
        count, before, total = found.get((works[0], works[1]), (0, 0, 0))
        found[works[0], works[1]] = count + 1, max(before, level), total + weight
    return found


@pytest.fixture(scope="module")
def mentioned(tmp_path_factory: pytest.TempPathFactory) -> CorpusFolder:
    return mentioned_corpus(tmp_path_factory.mktemp("mentioned") / "corpus")


@pytest.mark.parametrize("within", LEVELS)
def test_counts_levels_and_weights(within: Any) -> None:
    mentions = random_mentions(1, articles=8, works=25, each=14)
    works = [f"w{number:02d}" for number in range(3, 25)]
    members = {"paper_id": works, "domain_number": [0] * len(works), "member": list(range(3, 25))}
    table = columns(NAMES, mentions)
    pairs = run_query(lambda places, works: co_cited_within(places, places, works, within), table, members)
    found = {
        (f"w{row['one']:02d}", f"w{row['other']:02d}"): (row["count"], row["level"], row["weight"])
        for row in pairs
    }
    assert found == by_definition([place for place in mentions if place[1] in works], within)
    assert {level for _, level, _ in found.values()} >= {4, LEVELS.index(within)}


def test_far_in_one_article() -> None:
    mentions = random_mentions(2, articles=12, works=20, each=9)
    near = {key[1:] for key in places_shared(mentions, "paragraph")}
    near |= {(two, one) for one, two in near}
    in_article = defaultdict(set)
    for citing, cited, *_ in mentions:
        in_article[citing].add(cited)
    listed = {citing: works | {"w00", "w01"} for citing, works in in_article.items()}
    asked = sorted(near)
    wanted = set()
    for number, (anchor, other) in enumerate(asked):
        for citing in in_article:
            if (citing, *sorted((anchor, other))) in places_shared(mentions, "paragraph"):
                wanted |= {
                    (number, far)
                    for far in in_article[citing] - {anchor}
                    if (anchor, far) not in near
                    and not any(
                        {anchor, far} <= listed[a] and not {anchor, far} <= in_article[a] for a in listed
                    )
                }
    rows = {(place[0], place[3], int(place[1][1:])) for place in mentions}
    cited = sorted({(citing, int(work[1:])) for citing, works in listed.items() for work in works})
    pairs = [(number, int(one[1:]), int(two[1:])) for number, (one, two) in enumerate(asked)]
    found = run_query(
        far_in_one_article,
        columns(("pair", "anchor", "near"), pairs),
        columns(("citing", "paragraph", "text"), sorted(rows)),
        columns(("citing", "text"), cited),
    )
    assert {(row["pair"], f"w{row['other']:02d}") for row in found} == wanted
    assert len(found) == len(wanted) > 20


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
                assert (row["count"], LEVELS.index(row["within"])) == expected[one, two][:2]
                levels[row["within"]] += 1
            else:
                assert row["within"] is None
                assert (one, two) not in by_definition(mentions, "article")  # type: ignore[arg-type]
        counted = Counter()
        for counts in pairs.manifest["closest_levels"].values():
            counted.update(counts)
        assert +counted == levels


def test_proximity_prefers_near_pairs(mentioned: CorpusFolder) -> None:
    drawn = {}
    for frequency in ("sampling", "proximity"):
        pairs = compile_pairs(
            mentioned, within="section", frequency=frequency, max_train_per_domain=100,
            max_eval_per_domain=5, **LOOSE,
        )  # fmt: skip
        levels = pairs.split("train")["within"].to_pylist()
        drawn[frequency] = sum(level in ("sentence", "bracket") for level in levels)
    assert drawn["proximity"] > 1.3 * drawn["sampling"]


@pytest.mark.parametrize("split", ["random", "paper"])
def test_negatives_of_the_same_article(mentioned: CorpusFolder, split: str) -> None:
    settings = LOOSE | {"split": split}
    pairs = compile_pairs(mentioned, within="sentence", negatives="same-article", **settings)
    rows = pq.read_table(mentioned.path / "mentions.parquet").to_pylist()
    paragraphs, articles = defaultdict(set), defaultdict(set)
    for row in rows:
        paragraphs[row["cited"]].add((row["citing"], row["paragraph"]))
        articles[row["cited"]].add(row["citing"])
    for name in ("validation", "test"):
        table = pairs.split(name).to_pylist()
        linked = [row for row in table if row["label"]]
        far = [row for row in table if not row["label"]]
        assert Counter(row["anchor_id"] for row in linked) == Counter(row["anchor_id"] for row in far)
        assert len({frozenset((row["anchor_id"], row["positive_id"])) for row in far}) == len(far) > 5
        for row in far:
            ends = row["anchor_id"], row["positive_id"]
            assert articles[ends[0]] & articles[ends[1]]
            assert not paragraphs[ends[0]] & paragraphs[ends[1]]
            assert row["within"] == "article"
            # Listed by the article without its text, or by another that does not mention both.
            assert not {"w00", "w07"} <= set(ends)
        left_out = pairs.manifest["positives_without_negative"][name]
        assert len(linked) + left_out == pairs.manifest["pairs_before_drawing"][name]
    if split == "paper":
        ids = [
            set(pairs.split(name)["anchor_id"].to_pylist())
            | set(pairs.split(name)["positive_id"].to_pylist())
            for name in ("validation", "test")
        ]
        assert not ids[0] & ids[1]


def test_a_corpus_without_texts_says_so() -> None:
    tables = pa.table({"paper_id": ["a", "b"]}), pa.table({"citing": ["a"], "cited": ["b"]})
    with pytest.raises(InputError, match="does not record where papers are cited in a text"):
        compile_pairs(tables, within="sentence")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"within": "sentence", "relation": "coupling"}, "relation=co-citation"),
        ({"frequency": "proximity", "relation": "citation"}, "relation=co-citation"),
        ({"negatives": "same-article"}, "needs `within` paragraph"),
        ({"negatives": "same-article", "within": "section"}, "needs `within` paragraph"),
    ],
)
def test_settings_that_cannot_be(mentioned: CorpusFolder, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        compile_pairs(mentioned, **settings)


def test_the_card_says_it(mentioned: CorpusFolder, tmp_path: Path) -> None:
    pairs = compile_pairs(
        mentioned, out=tmp_path / "pairs", within="sentence", negatives="same-article", **LOOSE
    )
    card = " ".join((pairs.path / "README.md").read_text().split())  # type: ignore[operator]
    assert "within one sentence of it" in card
    assert "never in the same paragraph" in card
    assert "| bracket |" in card


def test_the_command_line_counts_pairs_by_level(
    mentioned: CorpusFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--unit title --split random --fractions 0.4,0.3,0.3 --within sentence --negatives same-article"
    with pytest.raises(SystemExit) as ended:
        main(["pairs", "compile", str(mentioned.path), "--out", str(tmp_path / "pairs"), *options.split()])
    assert not ended.value.code
    printed = " ".join(capsys.readouterr().out.split())
    assert "closest place that mentions both papers of a pair: sentence" in printed


def test_training_pairs_are_of_the_nearest_level_with_enough(
    mentioned: CorpusFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = compile_pairs(mentioned, **LOOSE)  # no level has enough
    counts = Counter(every.split("train")["within"].to_pylist())
    enough = counts["bracket"] + 1
    monkeypatch.setattr("sentence_experts.pairs.sets.ENOUGH_TO_TRAIN", enough)
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
