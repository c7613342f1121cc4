from __future__ import annotations

import shutil

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from sentence_experts.encoding.encoder import BatchEncoder, cosines
from sentence_experts.errors import InputError, RouteError
from sentence_experts.models.files.fingerprint import folder_fingerprint, weights_fingerprint
from sentence_experts.models.loading import load

TEXTS = ["Rice yields fall in drought.", "", "Sleep helps memory " * 30, "One word"]


def test_vectors_are_those_of_stock_sentence_transformers(plain, experts, plain_model, experts_model):
    stock = SentenceTransformer(str(plain_model), device="cpu")
    assert np.abs(plain.encode(TEXTS) - stock.encode(TEXTS)).max() < 1e-6
    stock = SentenceTransformer(str(experts_model), device="cpu")
    there, elsewhere = (experts.encode(TEXTS, route) for route in ("crops", "neuro"))
    assert np.abs(there - stock.encode(TEXTS, prompt_name="crops")).max() < 1e-6
    assert np.abs(there - elsewhere).max() > 1e-4
    assert there.dtype == np.float32


def test_vectors_do_not_depend_on_batches_order_or_company(plain):
    together = plain.encode(TEXTS)
    alone = np.concatenate([plain.encode([text]) for text in TEXTS])
    assert np.abs(together - alone).max() < 1e-6
    assert np.abs(together[::-1] - plain.encode(TEXTS[::-1])).max() < 1e-6
    assert plain.encode([]).shape == (0, 32)


def test_routes_are_those_whose_experts_were_loaded(experts, experts_model):
    part = BatchEncoder(load(experts_model, device="cpu", routes=["neuro"]))
    assert list(part.routes) == ["neuro"]
    assert np.array_equal(part.encode(TEXTS, "neuro"), experts.encode(TEXTS, "neuro"))
    with pytest.raises(RouteError, match=r"without the expert of 'crops'; its routes: neuro"):
        part.known_routes.choose("crops")
    limited = BatchEncoder(load(experts_model, device="cpu", max_resident_experts=1))
    assert limited.routes == experts.routes


def test_texts_are_cut_to_max_length_or_what_the_model_reads(plain, plain_model):
    short = BatchEncoder(load(plain_model, device="cpu", max_length=8))
    long, start = "Sleep and memory " * 30, "Sleep and memory Sleep and memory "
    assert np.abs(short.encode([long]) - short.encode([long + "rice"])).max() < 1e-6
    assert np.abs(short.encode([start]) - plain.encode([start])).max() < 1e-6
    assert np.abs(short.encode([long]) - plain.encode([long])).max() > 1e-4
    assert short.cache_key(None) != plain.cache_key(None)
    unchanged = BatchEncoder(load(plain_model, device="cpu", max_length=10**6))
    assert unchanged.cache_key(None) == plain.cache_key(None)


def test_no_or_unknown_route_names_the_routes(plain, experts):
    with pytest.raises(RouteError, match="needs a route; its routes: crops, neuro"):
        experts.known_routes.choose(None)
    with pytest.raises(RouteError, match="no route 'x'; its routes: crops, neuro"):
        experts.known_routes.choose("x")
    with pytest.raises(RouteError, match="no route 'x'; its routes: none"):
        plain.known_routes.choose("x")
    assert plain.known_routes.choose(None) is None
    assert (plain.has_experts, experts.has_experts) == (False, True)


def test_fingerprint_depends_on_content_not_folder(plain_model, tmp_path):
    copy = tmp_path / "elsewhere"
    shutil.copytree(plain_model, copy)
    assert folder_fingerprint(copy) == folder_fingerprint(plain_model)
    (copy / "README.md").write_text("a card")
    assert folder_fingerprint(copy) == folder_fingerprint(plain_model)
    weights = copy / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert folder_fingerprint(copy) != folder_fingerprint(plain_model)


def test_weights_fingerprint_follows_weights_and_prompts(plain_model):
    model = SentenceTransformer(str(plain_model), device="cpu")
    before = weights_fingerprint(model)
    model.prompts = {"crops": "[CROPS]"}
    assert weights_fingerprint(model) != before
    model.prompts = SentenceTransformer(str(plain_model), device="cpu").prompts
    assert weights_fingerprint(model) == before
    next(model.parameters()).data[0, 0] += 1
    assert weights_fingerprint(model) != before


def test_a_vector_that_is_not_finite_names_the_text(plain_model):
    encoder = BatchEncoder(load(plain_model, device="cpu"))
    next(encoder.model.parameters()).data.fill_(float("nan"))
    with pytest.raises(InputError, match="not finite for the text 'One word'"):
        encoder.encode(["One word"])


def test_cosine_of_a_zero_vector_is_zero():
    a = np.array([[1, 0], [0, 0], [3, 4]], dtype=np.float32)
    assert cosines(a, a).tolist() == pytest.approx([1, 0, 1])


def test_texts_that_begin_with_a_prompt_are_told_once(experts, caplog):
    encoder = BatchEncoder(experts.model)
    encoder.encode(TEXTS, "crops")
    assert not caplog.messages
    for _ in range(2):
        encoder.encode([*TEXTS, "[NEURO]Sleep"], "crops")
    [message] = caplog.messages
    assert "texts begin with '[NEURO]', the prompt of 'neuro'; they are encoded as 'crops'" in message
