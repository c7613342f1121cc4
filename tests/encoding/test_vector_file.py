from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from sentence_experts.encoding import vector_file
from sentence_experts.encoding.vector_file import VectorFile
from sentence_experts.errors import InputError

SETTINGS = {"fingerprint": "abc", "route": "copd", "pooling": "mean", "max_length": 128}


class Letters:
    """A text's vector: its length and first letter. Counts what it is asked for, and can stop in between."""

    def __init__(self, fails_at: str = "") -> None:
        self.seen: list[str] = []
        self.fails_at = fails_at

    def __call__(self, texts: list[str]) -> np.ndarray:
        if self.fails_at in texts:
            raise KeyboardInterrupt
        self.seen += texts
        return np.array([[len(text), ord(text[0])] for text in texts], dtype=np.float32)


@pytest.fixture(autouse=True)
def short_parts(monkeypatch):
    monkeypatch.setattr(vector_file, "TEXTS_OF_A_PART", 2)


def expected(texts: list[str]) -> np.ndarray:
    return Letters()(texts)


def test_only_missing_texts_are_encoded_and_all_come_in_the_order_asked(tmp_path: Path):
    encode, told = Letters(), []
    file = VectorFile(tmp_path, "org/model copd", SETTINGS)
    texts = ["aa", "b", "cccc", "dd", "e"]
    assert np.array_equal(file.vectors(texts, encode, lambda steps=1: told.append(steps)), expected(texts))
    assert (encode.seen, sum(told)) == (texts, 5)
    again = VectorFile(tmp_path, "org/model copd", dict(SETTINGS))
    assert np.array_equal(again.vectors(["new", "e", "aa"], encode), expected(["new", "e", "aa"]))
    assert encode.seen == [*texts, "new"]
    assert [path.name for path in tmp_path.iterdir()] == [file.path.name]
    assert pq.read_table(file.path)["vector"].type.value_type == "float"
    assert pq.read_metadata(file.path).num_rows == 6


@pytest.mark.parametrize("changed", SETTINGS)
def test_other_settings_never_meet_these_vectors(tmp_path: Path, changed: str):
    VectorFile(tmp_path, "model", SETTINGS).vectors(["aa"], Letters())
    encode = Letters()
    VectorFile(tmp_path, "model", SETTINGS | {changed: "other"}).vectors(["aa"], encode)
    assert encode.seen == ["aa"]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_under_anothers_name_and_a_broken_one_are_refused(tmp_path: Path):
    mine, other = VectorFile(tmp_path, "m", SETTINGS), VectorFile(tmp_path, "m", SETTINGS | {"route": None})
    mine.vectors(["aa"], Letters())
    mine.path.rename(other.path)
    with pytest.raises(InputError, match="another model"):
        other.vectors(["aa"], Letters())
    other.path.write_bytes(b"PAR1 broken")
    with pytest.raises(InputError, match="not readable"):
        other.vectors(["aa"], Letters())


def test_an_interrupted_encoding_keeps_its_finished_parts(tmp_path: Path):
    texts = ["aa", "b", "cccc", "dd", "e", "f"]
    file = VectorFile(tmp_path, "model", SETTINGS)
    with pytest.raises(KeyboardInterrupt):
        file.vectors(texts, Letters(fails_at="e"))
    assert not file.path.exists()
    encode = Letters()
    assert np.array_equal(file.vectors(texts, encode), expected(texts))
    assert encode.seen == ["e", "f"]
    assert [path.name for path in tmp_path.iterdir()] == [file.path.name]


def test_a_part_that_was_joined_but_not_removed_does_no_harm(tmp_path: Path):
    file = VectorFile(tmp_path, "model", SETTINGS)
    file.vectors(["aa", "b"], Letters())
    left = file.path.with_name(f"{file.path.name}.part-1-0")
    left.write_bytes(file.path.read_bytes())
    assert np.array_equal(file.vectors(["b", "c"], Letters()), expected(["b", "c"]))
    assert pq.read_metadata(file.path).num_rows == 3
    assert not left.exists()
