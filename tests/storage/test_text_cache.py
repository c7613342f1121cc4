from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sentence_experts.errors import InputError
from sentence_experts.storage import text_cache
from sentence_experts.storage.text_cache import TextCache

SETTINGS = {"fingerprint": "abc", "route": "copd", "pooling": "mean", "max_length": 128}


class Letters:
    """A text's vector: its length and first letter. Counts what it is asked for, and can stop in between."""

    def __init__(self, fails_at: str = "") -> None:
        self.seen: list[str] = []
        self.fails_at = fails_at

    def __call__(self, texts: list[str]) -> dict[str, np.ndarray]:
        if self.fails_at in texts:
            raise KeyboardInterrupt
        self.seen += texts
        return {"vector": np.array([[len(text), ord(text[0])] for text in texts], dtype=np.float32)}


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch):
    monkeypatch.setattr(text_cache, "TEXTS_PER_PART", 2)


def expected(texts: list[str]) -> np.ndarray:
    return Letters()(texts)["vector"]


def states(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {
        name: generator.normal(size=(count, width)).astype(np.float32)
        for name, width in (("hidden", 4), ("routing", 6))
    }


def test_only_missing_texts_are_computed(tmp_path: Path):
    encode, told = Letters(), []
    cache = TextCache(tmp_path, "org/model copd", SETTINGS)
    texts = ["aa", "b", "cccc", "dd", "e"]
    vectors = cache.fetch(texts, encode, lambda steps=1: told.append(steps))["vector"]
    assert np.array_equal(vectors, expected(texts))
    assert vectors.dtype == np.float32
    assert (encode.seen, sum(told)) == (texts, 5)
    again = TextCache(tmp_path, "org/model copd", dict(SETTINGS))
    assert np.array_equal(again.fetch(["new", "e", "aa"], encode)["vector"], expected(["new", "e", "aa"]))
    assert encode.seen == [*texts, "new"]
    assert [path.name for path in tmp_path.iterdir()] == [cache.folder.name]
    assert cache.folder.name.startswith("org-model-copd-")


def test_other_settings_have_their_own_cache(tmp_path: Path):
    TextCache(tmp_path, "model", SETTINGS).fetch(["aa"], Letters())
    encode = Letters()
    TextCache(tmp_path, "model", SETTINGS | {"route": "other"}).fetch(["aa"], encode)
    assert encode.seen == ["aa"]
    assert len(list(tmp_path.iterdir())) == 2


def test_interrupted_run_keeps_its_finished_parts(tmp_path: Path):
    texts = ["aa", "b", "cccc", "dd", "e", "f"]
    with pytest.raises(KeyboardInterrupt):
        TextCache(tmp_path, "model", SETTINGS).fetch(texts, Letters(fails_at="e"))
    encode = Letters()
    cache = TextCache(tmp_path, "model", SETTINGS)
    assert np.array_equal(cache.fetch(texts, encode)["vector"], expected(texts))
    assert encode.seen == ["e", "f"]


def test_several_arrays_come_back_in_any_order(tmp_path: Path):
    cache = TextCache(tmp_path, "", {"model": "m"}, np.float16)
    first, second = states(2, 1), states(1, 2)
    cache.add(["a", "b"], first)
    cache.add(["c"], second)
    again = TextCache(tmp_path, "", {"model": "m"}, np.float16)
    found = again.get(["c", "a", "c", "b"])
    for name in ("hidden", "routing"):
        a, b, c = (*first[name], *second[name])
        assert np.abs(found[name] - np.stack([c, a, c, b])).max() < 2e-3
    assert again.missing(["d", "a", "d", "e"]) == ["d", "e"]


@pytest.mark.parametrize("flipped", [False, True])
def test_broken_part_is_computed_again(tmp_path: Path, flipped: bool):
    cache = TextCache(tmp_path, "", {})
    cache.add(["text"], states(1))
    part = next(cache.folder.glob("0*.parquet"))
    content = bytearray(part.read_bytes())
    content[20] ^= 1
    part.write_bytes(content if flipped else content[:40])
    again = TextCache(tmp_path, "", {})
    assert again.missing(["text"]) == ["text"]
    again.add(["text"], states(1, 5))
    found = TextCache(tmp_path, "", {}).get(["text"])
    assert np.array_equal(found["hidden"], states(1, 5)["hidden"])


def test_number_beyond_float16_is_refused(tmp_path: Path):
    cache = TextCache(tmp_path, "", {}, np.float16)
    cache.add(["small"], states(1))
    large = states(2)
    large["hidden"][1, 2] = -7e4
    with pytest.raises(InputError, match=r"the text 'large'.* has a value of 70000, .*at most 65504"):
        cache.add(["b", "large"], large)
    assert TextCache(tmp_path, "", {}, np.float16).missing(["small", "b", "large"]) == ["b", "large"]


FILL = """
import sys, time
from pathlib import Path
import numpy as np
from sentence_experts.storage import text_cache
text_cache.TEXTS_PER_PART = 2
log = Path(sys.argv[2])
def compute(texts):
    with log.open("a") as file:
        file.writelines(text + "\\n" for text in texts)
    time.sleep(0.02)
    return {"vector": np.array([[len(text)] for text in texts], np.float32)}
texts = ["x" * n for n in range(1, 21)]
vectors = text_cache.TextCache(Path(sys.argv[1]), "m", {}).fetch(texts, compute)["vector"]
assert vectors[:, 0].tolist() == list(range(1, 21))
"""


@pytest.mark.slow
def test_processes_that_share_a_cache_compute_each_text_once(tmp_path: Path):
    log = tmp_path / "log"
    command = [sys.executable, "-c", FILL, str(tmp_path / "cache"), str(log)]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait() for process in processes] == [0] * 3
    assert sorted(map(len, log.read_text().split())) == list(range(1, 21))
