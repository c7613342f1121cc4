"""Unmodified clients of OpenAI's protocol against a running server."""

from __future__ import annotations

import base64

import numpy as np
import openai
import pytest

from helpers.running_server import EXPERTS, TEXTS, RunningServer
from sentence_experts.models.encoder import ExpertEncoder

CLOSE = {"atol": 1e-6, "rtol": 0}


@pytest.fixture(scope="module")
def client(server: RunningServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


@pytest.mark.parametrize("encoding", ["float", "base64", "default", None])
@pytest.mark.parametrize("route", EXPERTS)
def test_vectors_of_a_route_in_the_models_name(
    client: openai.OpenAI, experts: ExpertEncoder, route: str, encoding: str | None
) -> None:
    given = {} if encoding == "default" else {"encoding_format": encoding}
    answer = client.embeddings.create(model=f"experts:{route}", input=TEXTS, **given)
    vectors = [item.embedding for item in answer.data]
    if encoding == "base64":  # a client that asks for it by name decodes it by itself
        found = np.array([np.frombuffer(base64.b64decode(vector), "<f4") for vector in vectors])
    else:
        found = np.array(vectors)
    np.testing.assert_allclose(found, experts.encode(TEXTS, prompt_name=route), **CLOSE)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > len(TEXTS)


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["experts", "dense"]
    assert client.models.retrieve("experts").model_extra["routes"] == list(EXPERTS)


def test_errors_reach_the_client_in_one_sentence(client: openai.OpenAI) -> None:
    with pytest.raises(openai.UnprocessableEntityError, match="routes: crops, neuro"):
        client.embeddings.create(model="experts", input="a text")
    with pytest.raises(openai.NotFoundError, match=r"no model 'expert' \(did you mean 'experts'"):
        client.embeddings.create(model="expert", input="a text")
    with pytest.raises(openai.BadRequestError, match="another model's vocabulary: send texts"):
        client.embeddings.create(model="dense", input=[1, 2, 3])
