"""Real datasets: Banking77, tweet emotion, 20 Newsgroups by thread, titles and abstracts of eLife."""

from __future__ import annotations

import gzip
import itertools
import json
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from helpers.small_tasks import compiled
from sentence_experts.corpus.importing import import_corpus
from sentence_experts.tasks.dataset import Tasks
from sentence_experts.tasks.rows import text_key, thread
from sentence_experts.tasks.split import SPLITS

pytestmark = pytest.mark.realdata


ARTICLES = 40


def _some_articles(archive: Path, folder: Path) -> Path:
    """The first articles of an archive, unpacked."""
    folder.mkdir()
    with tarfile.open(archive, "r|xz") as packed:
        articles = (member for member in packed if member.isfile() and member.name.endswith(".xml"))
        for number, member in enumerate(itertools.islice(articles, ARTICLES)):
            content = packed.extractfile(member)
            assert content is not None
            (folder / f"{number}.xml").write_bytes(content.read())
    return folder


@pytest.fixture(scope="module")
def real_tasks(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Tasks:
    folder = tmp_path_factory.mktemp("real-tasks")
    articles = _some_articles(real_data / "corpora" / "elife_jats.tar.xz", folder / "articles")
    import_corpus([articles], folder / "elife", workers=1)

    def files(name: str) -> dict[str, str]:
        return {split: str(real_data / "eval" / f"{name}_{split}.jsonl.gz") for split in ("train", "test")}

    elife = {"corpus": "elife", "anchor": "title", "positive": "abstract"}
    emotion = {"files": files("tweet_emotion"), "label": "label_name"}
    news = {"file": files("twentynewsgroups")["test"], "text": ["subject", "body"], "group": "subject"}
    classification = {"banking77": {"files": files("banking77")}, "tweet_emotion": emotion}
    return compiled(
        folder,
        {
            "retrieval": {"kind": "retrieval", "datasets": {"elife": elife}},
            "classification": {"kind": "classification", "datasets": classification},
            "clustering": {"kind": "clustering", "datasets": {"news": news}},
        },
    )


@pytest.mark.slow
def test_sizes_and_classes(real_tasks: Tasks) -> None:
    entries = real_tasks.manifest["datasets"]
    banking = entries["classification"]["banking77"]
    assert banking["classes"] == 77
    assert banking["texts"]["test"] == 3080
    lost = sum(banking["removed"].values())
    assert banking["texts"]["train"] + banking["texts"]["validation"] + lost == 10003
    assert entries["classification"]["tweet_emotion"]["classes"] == 4
    assert entries["classification"]["tweet_emotion"]["texts"]["test"] == 1421
    news = entries["clustering"]["news"]
    assert news["classes"] == 20
    assert sum(news["texts"].values()) == 7532
    assert not news["set_aside"]


def test_titles_find_abstracts(real_tasks: Tasks) -> None:
    tables = [real_tasks.pairs("retrieval", "elife", split) for split in SPLITS]
    assert ARTICLES - 8 <= sum(table.num_rows for table in tables) <= ARTICLES  # corrections have no abstract
    for table in tables:
        for row in table.to_pylist():
            assert len(row["anchor"]) < len(row["positive"])


def test_no_thread_and_no_text_in_two_sets(real_tasks: Tasks, real_data: Path) -> None:
    split_of: dict[str, str] = {}
    for split in SPLITS:
        for text in real_tasks.texts("clustering", "news", split)["text"].to_pylist():
            assert split_of.setdefault(text_key(text), split) == split
    splits: dict[str, set[str]] = {}
    posts: Counter[str] = Counter()
    with gzip.open(real_data / "eval" / "twentynewsgroups_test.jsonl.gz", "rt", encoding="utf-8") as file:
        for post in map(json.loads, file):
            subject = thread(post["subject"])
            posts[subject] += 1
            splits.setdefault(subject, set()).add(split_of[text_key(f"{post['subject']} {post['body']}")])
    assert all(len(homes) == 1 for homes in splits.values())
    assert sum(count for count in posts.values() if count > 1) > 3000  # most threads have several posts
    shares = Counter(split_of.values())
    assert 0.5 < shares["train"] / shares.total() < 0.7


def test_banking_questions_that_differ_in_punctuation_are_removed(real_tasks: Tasks) -> None:
    train, test = (
        set(map(text_key, real_tasks.texts("classification", "banking77", split)["text"].to_pylist()))
        for split in ("train", "test")
    )
    assert not train & test
    assert real_tasks.manifest["datasets"]["classification"]["banking77"]["removed"]
