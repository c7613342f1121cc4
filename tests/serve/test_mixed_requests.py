"""Clients of all kinds at once: every vector, count and refusal is the one that the text alone gives."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import uvicorn
from sentence_transformers import SentenceTransformer

import sentence_experts
from helpers.running_server import EXPERTS
from sentence_experts.models.loading import load

CLIENTS = 6
WORDS = ["wheat", "rust", "leaf", "memory", "sleep", "neuron", "cortex", "drought"]
READ = 128  # tokens: the model could read 512, so it gives a vector of a text that was not cut
LENGTHS = (3, 40, 150, 300, 450, 450)  # words


class Expected:
    """Texts, and the right answers about them."""

    def __init__(self, model: SentenceTransformer) -> None:
        generator = random.Random(0)
        self.texts = [" ".join(generator.choices(WORDS, k=length)) for length in LENGTHS * 3]
        self.vectors = {route: model.encode(self.texts, prompt_name=route) for route in EXPERTS}
        self.ids = {
            route: [model.tokenizer(model.prompts[route] + text)["input_ids"] for text in self.texts]
            for route in EXPERTS
        }

    def check(self, client: httpx.Client, generator: random.Random) -> str:
        """Send one request, check its answer, and return the kind of the request."""
        kind = generator.choice(("openai", "tei", "tei whole", "tokenize"))
        route = generator.choice(EXPERTS)
        numbers = generator.sample(range(len(self.texts)), 6)
        texts, vectors = [self.texts[n] for n in numbers], self.vectors[route][numbers]
        ids = [self.ids[route][n] for n in numbers]
        if kind == "tokenize":
            answer = client.post("/tokenize", json={"inputs": texts, "route": route})
            assert [[token["id"] for token in each] for each in answer.json()] == ids
            return kind
        whole = kind.endswith("whole")
        path, request = "/v1/embeddings", {"input": texts, "route": route}
        if kind.startswith("tei"):
            path = "/embed"
            request = {"inputs": texts, "route": route, "normalize": False, "truncate": not whole}
        answer = client.post(path, json=request)
        if whole and any(len(each) > READ for each in ids):
            assert answer.status_code == 413, answer.text
            return kind
        assert answer.status_code == 200, answer.text
        body = answer.json()
        found = [item["embedding"] for item in body["data"]] if kind == "openai" else body
        np.testing.assert_allclose(found, vectors, atol=1e-5)
        if kind == "openai":
            assert body["usage"]["prompt_tokens"] == sum(min(len(each), READ) for each in ids)
        return kind


@pytest.fixture(scope="module")
def model(experts_model: Path) -> SentenceTransformer:
    model = load(experts_model, device="cpu")
    model.max_seq_length = READ
    return model


@pytest.fixture(scope="module")
def expected(model: SentenceTransformer) -> Expected:
    return Expected(model)


@pytest.fixture
def url(model: SentenceTransformer, expected: Expected) -> Iterator[str]:
    """A server in this process, whose threads take turns a thousand times as often as usual."""
    app = sentence_experts.create_app({"m": model}, watch=False, workers=2)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None))
    thread, usual = threading.Thread(target=server.run), sys.getswitchinterval()
    thread.start()
    while not server.started:
        time.sleep(0.05)
    sys.setswitchinterval(usual / 1000)
    yield "http://{}:{}".format(*server.servers[0].sockets[0].getsockname())
    sys.setswitchinterval(usual)
    server.should_exit = True
    thread.join()


@pytest.mark.parametrize("seconds", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_mixed_requests_get_the_vectors_of_encode(url: str, expected: Expected, seconds: float) -> None:
    kinds, wrong, until = Counter[str](), list[str](), time.monotonic() + seconds

    def ask(seed: int) -> None:
        generator = random.Random(seed)
        with httpx.Client(base_url=url, timeout=60) as client:
            while time.monotonic() < until:
                try:
                    kinds[expected.check(client, generator)] += 1
                except AssertionError as error:
                    wrong.append(str(error))

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, f"{len(wrong)} of {len(wrong) + kinds.total()}: {wrong[0][:500]}"
    assert len(kinds) == 4, kinds
