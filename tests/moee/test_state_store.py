from __future__ import annotations

import numpy as np
import pytest

from sentence_experts.errors import InputError
from sentence_experts.moee.states import States
from sentence_experts.moee.store import StateStore


def states(count: int, seed: int = 0) -> States:
    generator = np.random.default_rng(seed)
    return States(*(generator.normal(size=(count, width)).astype(np.float32) for width in (4, 6)))


def test_parts_come_back_in_any_order(tmp_path):
    store = StateStore(tmp_path, {"model": "m"})
    first, second = states(2, 1), states(1, 2)
    store.add(["a", "b"], first)
    store.add(["c"], second)
    again = StateStore(tmp_path, {"model": "m"})
    found = again.get(["c", "a", "c", "b"])
    for part in ("hidden", "routing"):
        a, b, c = (*getattr(first, part), *getattr(second, part))
        assert np.abs(getattr(found, part) - np.stack([c, a, c, b])).max() < 2e-3
    assert again.missing(["d", "a", "d", "e"]) == ["d", "e"]


def test_other_settings_are_another_store(tmp_path):
    StateStore(tmp_path, {"prompt": "a"}).add(["text"], states(1))
    assert StateStore(tmp_path, {"prompt": "b"}).missing(["text"]) == ["text"]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_new_part_takes_no_other_ones_place(tmp_path):
    store = StateStore(tmp_path, {})
    for number in range(3):
        store.add([f"text {number}"], states(1, number))
    (store.folder / "part-000001.parquet").unlink()
    again = StateStore(tmp_path, {})
    assert again.missing(["text 0", "text 1", "text 2"]) == ["text 1"]
    again.add(["text 1"], states(1, 7))
    for text, seed in (("text 0", 0), ("text 1", 7), ("text 2", 2)):
        assert np.abs(StateStore(tmp_path, {}).get([text]).hidden - states(1, seed).hidden).max() < 2e-3


def test_a_broken_part_is_named(tmp_path):
    store = StateStore(tmp_path, {})
    store.add(["text"], states(1))
    part = next(store.folder.glob("part-*"))
    part.write_bytes(part.read_bytes()[:40])
    with pytest.raises(InputError, match=r"cannot be read .* delete the file"):
        StateStore(tmp_path, {})


def test_what_float16_cannot_hold_is_not_kept(tmp_path):
    store = StateStore(tmp_path, {})
    store.add(["small"], states(1))
    large = states(2)
    large.hidden[1, 2] = -7e4
    with pytest.raises(InputError, match=r"the text 'large'.* has a state of 70000, .*at most 65504"):
        store.add(["b", "large"], large)
    assert StateStore(tmp_path, {}).missing(["small", "b", "large"]) == ["b", "large"]
