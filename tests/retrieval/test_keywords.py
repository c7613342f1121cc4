from __future__ import annotations

import math
import unicodedata

import numpy as np
import pytest

from helpers.samples import PAPERS, write_corpus
from sentence_experts.errors import InputError
from sentence_experts.retrieval.build import CorpusIndex
from sentence_experts.retrieval.keywords import fused, keyword_index, telling_words, words_of_query
from sentence_experts.storage import RECORD

TEXTS = [
    ("a", "rice rice drought", None),
    ("b", "rice", None),
    ("c", "Wheat, rust!", None),
    ("d", None, "wheat"),
]


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path, [(*paper, 2000, False) for paper in TEXTS])


def test_scores_are_those_of_the_formula(corpus):
    index = keyword_index(corpus, "title+abstract")
    lengths, mean = [3, 1, 2, 1], 7 / 4
    rarity = math.log(1 + (4 - 2 + 0.5) / (2 + 0.5))
    expected = [
        rarity * count / (count + 1.5 * (1 - 0.75 + 0.75 * length / mean))
        for count, length in zip([2, 1, 0, 0], lengths, strict=True)
    ]
    assert index.scores("Rice?") == pytest.approx(expected)
    assert index.scores("rice rice unknown") == pytest.approx(expected)
    assert sorted(index.search("rice", 9)) == [0, 1]
    assert index.search("rice", 9, np.array([False, True, True, True])).tolist() == [1]
    assert index.search("drought wheat", 2).tolist() == [0, 3]


def test_common_words_count_in_queries_that_have_no_others(tmp_path):
    texts = [
        ("a", "The role of the sleep of rats", None),
        ("b", "Rice of the world", None),
        ("c", "Rust", None),
    ]
    index = keyword_index(write_corpus(tmp_path, [(*each, 2000, False) for each in texts]), "title")
    assert index.search("rust of the", 3).tolist() == [2]
    assert sorted(index.search("of the", 3).tolist()) == [0, 1]


def test_single_letters_and_names_in_capitals_count(tmp_path):
    texts = [f"Vitamin {letter} in cohorts" for letter in "ACDEIMOSTY"]
    index = keyword_index(
        write_corpus(tmp_path, [(str(n), text, None, 2000, False) for n, text in enumerate(texts)]), "title"
    )
    for row, text in enumerate(texts):
        assert index.search(text, 1).tolist() == [row]
    assert words_of_query("It's what I'd do, don't they've a dog's?") == ["dog"]
    assert words_of_query("WHAT DO WE KNOW OF HEPATITIS A") == ["know", "hepatitis", "a"]
    assert words_of_query("Zebrafish: A review AND NOT a book I should read") == [
        "zebrafish",
        "review",
        "book",
        "read",
    ]
    assert words_of_query("type I and II collagen") == ["type", "i", "ii", "collagen"]


def test_decomposed_letters_of_a_query_are_those_of_the_texts(tmp_path):
    title = "Ménière disease"
    index = keyword_index(
        write_corpus(tmp_path, [("a", title, None, 2000, False), ("b", "Rice", None, 2000, False)]), "title"
    )
    decomposed = unicodedata.normalize("NFD", title)
    assert decomposed != title
    assert index.scores(decomposed).tolist() == index.scores(title).tolist()
    assert index.search(decomposed.split()[0], 2).tolist() == [0]
    assert telling_words(decomposed) == telling_words(title) == title.split()


def test_words_of_an_older_corpus_are_counted_again(tmp_path, corpus):
    keyword_index(corpus, "title")
    again = keyword_index(write_corpus(tmp_path), "title")
    assert again.search("drought", 1).tolist() == [0]
    assert len(list((tmp_path / ".vectors").glob("words-*"))) == 1
    with pytest.raises(InputError, match="no words"):
        keyword_index(write_corpus(tmp_path / "none", PAPERS[3:4]), "title")


def test_damaged_words_are_collected_again(tmp_path, corpus):
    before = keyword_index(corpus, "title").scores("rice drought wheat")
    (folder,) = (tmp_path / ".vectors").glob("words-*")
    for file in sorted(folder.iterdir()):
        whole = file.read_bytes()
        damaged = [whole[:-1], b""] + [
            whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
            for place in {0, len(whole) // 2, len(whole) - 1}
        ]
        for content in damaged:
            file.write_bytes(content)
            assert keyword_index(corpus, "title").scores("rice drought wheat") == pytest.approx(before)
            assert file.name == RECORD or file.read_bytes() == whole
        file.unlink()
        assert keyword_index(corpus, "title").scores("rice drought wheat") == pytest.approx(before)
    assert CorpusIndex.open(corpus).parts == []


def test_fusion_sums_reciprocal_ranks():
    assert fused([np.array([5, 1, 2]), np.array([2, 7])], 3).tolist() == [2, 5, 1]
