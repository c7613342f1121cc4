"""Many texts on every core: the vectors of sentence-transformers' own encode, whatever the batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.models.batching import ParallelCpuEncoder, batches_of_tokens
from sentence_experts.models.loading import load
from sentence_experts.models.torch_runtime import TorchRuntime

TEXTS = [
    "",
    "rice",
    "maize in the rain",
    "neurons fire in sleep " * 9,
    *[f"gene {n} " * (n % 7) for n in range(60)],
]


@pytest.fixture(scope="module")
def dense(plain_model) -> SentenceTransformer:
    return SentenceTransformer(str(plain_model), device="cpu")


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(TorchRuntime, "tokens_per_batch", (40, 90))


@pytest.mark.parametrize(("prompt", "normalize"), [("", False), ("query: ", True)])
def test_vectors_are_those_of_encode(dense, prompt, normalize):
    found = ParallelCpuEncoder(TorchRuntime(dense)).encode(TEXTS, prompt, normalize)
    expected = dense.encode(TEXTS, prompt=prompt, normalize_embeddings=normalize, batch_size=5)
    assert found.dtype == np.float32
    assert found == pytest.approx(expected, abs=1e-6)


def test_a_batch_calls_few_experts(experts_model):
    encoder = BatchEncoder(load(experts_model, device="cpu"))
    model = encoder.model
    routed: Any = model[0].auto_model
    texts = [prompt + text for text in TEXTS for prompt in encoder.routes.values()]
    called: list[int] = []
    run = routed._run_by_owner

    def watched(inputs, kwargs, keys, given):
        called.append(len(keys.unique()))
        return run(inputs, kwargs, keys, given)

    routed._run_by_owner = watched
    try:
        ParallelCpuEncoder(TorchRuntime(model), 1).encode(texts)
    finally:
        del routed._run_by_owner
    assert len(called) > 3
    assert sum(number > 1 for number in called) <= 1


def test_each_batch_counts_as_progress(dense):
    counted: list[int] = []
    BatchEncoder(dense).encode(TEXTS, advance=counted.append)
    assert len(counted) > 3
    assert sum(counted) == len(TEXTS)


def test_any_number_of_cores_gives_the_same_bytes(dense):
    one, three = (ParallelCpuEncoder(TorchRuntime(dense), workers).encode(TEXTS) for workers in (1, 3))
    assert one.tobytes() == three.tobytes()


def test_a_shorter_vector_is_cut(dense):
    dense.truncate_dim = 4
    try:
        assert ParallelCpuEncoder(TorchRuntime(dense)).encode(TEXTS).shape == (len(TEXTS), 4)
    finally:
        dense.truncate_dim = None


def test_number_of_torch_threads_is_restored(dense):
    before = torch.get_num_threads()
    ParallelCpuEncoder(TorchRuntime(dense), 2).encode(TEXTS)
    assert torch.get_num_threads() == before


def test_an_error_in_one_batch_ends_the_others(dense, monkeypatch):
    def broken(texts, prompt=None):
        raise ValueError("no such token")

    monkeypatch.setattr(dense, "preprocess", broken)
    with pytest.raises(ValueError, match="no such token"):
        ParallelCpuEncoder(TorchRuntime(dense), 2).encode(TEXTS)


def test_texts_of_several_routes_in_one_call(experts_model):
    encoder = BatchEncoder(load(experts_model, device="cpu"))
    routes = list(encoder.routes.values())
    texts = [routes[number % len(routes)] + text for number, text in enumerate(TEXTS)]
    found = ParallelCpuEncoder(TorchRuntime(encoder.model), 2).encode(texts)
    alone = np.stack([encoder.model.encode(text, prompt="") for text in texts])
    assert found == pytest.approx(alone, abs=1e-6)


@pytest.mark.parametrize(("batch_size", "packed"), [(4, True), (None, False), (4, False)])
def test_the_plain_ways_give_the_same_vectors(plain_model, batch_size, packed):
    fast = BatchEncoder(load(plain_model, device="cpu"))
    plain = BatchEncoder(load(plain_model, device="cpu", packed=packed), batch_size)
    assert fast.encode(TEXTS) == pytest.approx(plain.encode(TEXTS), abs=1e-6)
    assert fast.cache_key(None) == plain.cache_key(None)
    assert fast.rounding_settings != plain.rounding_settings


LENGTHS = [3, 90, 1, 7, 7, 200, 5, 40]


def test_batches_hold_every_text_once_and_keep_to_their_tokens():
    batches = list(batches_of_tokens(LENGTHS, 90))
    assert sorted(place for batch in batches for place in batch) == list(range(len(LENGTHS)))
    assert batches[0] == [5]
    assert all(sum(LENGTHS[place] for place in batch) <= 90 for batch in batches[1:])
    assert len(batches) == 3  # 200; 90; the rest
    longest = [LENGTHS[place] for batch in batches for place in batch]
    assert longest == sorted(LENGTHS, reverse=True)


def test_one_group_comes_after_another():
    groups = [0, 1, 0, 1, 0, 1, 0, 1]
    grouped = [place for batch in batches_of_tokens(LENGTHS, 90, groups) for place in batch]
    assert [groups[place] for place in grouped] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [LENGTHS[place] for place in grouped] == [7, 5, 3, 1, 200, 90, 40, 7]


def test_padding_is_counted_where_it_is_computed():
    for groups in (None, [0, 1, 0, 1, 0, 1, 0, 1]):
        batches = list(batches_of_tokens(LENGTHS, 90, groups, padded=True))
        assert sorted(place for batch in batches for place in batch) == list(range(len(LENGTHS)))
        padded = [len(batch) * max(LENGTHS[place] for place in batch) for batch in batches]
        assert all(tokens <= 90 or len(batch) == 1 for tokens, batch in zip(padded, batches, strict=True)), (
            padded
        )
    lengths = [6, 6, 6, 2, 2, 2]
    assert [len(batch) for batch in batches_of_tokens(lengths, 12, padded=True)] == [2, 2, 2]
    assert [len(batch) for batch in batches_of_tokens(lengths, 12)] == [2, 4]
