"""langchain-openai and curl, unmodified, against a running server."""

from __future__ import annotations

import json
import shutil
import subprocess

import numpy as np
import openai
import pytest
from langchain_openai import OpenAIEmbeddings

from helpers.running_server import RunningServer
from sentence_experts.models.encoder import ExpertEncoder


def test_langchain_with_texts(server: RunningServer, experts: ExpertEncoder) -> None:
    settings = {"base_url": f"{server.url}/v1", "api_key": "none", "check_embedding_ctx_length": False}
    embeddings = OpenAIEmbeddings(model="experts:neuro", **settings)
    found = embeddings.embed_documents(["Rice in drought", "Sleep"])
    expected = experts.encode(["Rice in drought", "Sleep"], prompt_name="neuro")
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(embeddings.embed_query("Sleep"), expected[1], atol=1e-6)


def test_the_error_for_langchain_with_token_ids_says_what_to_do(server: RunningServer) -> None:
    """What it sends by default, without the vocabulary that it would fetch for that."""
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
        client.embeddings.create(model="experts:neuro", input=[[9906, 1917]], encoding_format="base64")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl(server: RunningServer, experts: ExpertEncoder) -> None:
    def curl(*arguments: str) -> str:
        command = ["curl", "-s", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    body = json.dumps({"model": "experts", "input": "Sleep", "route": "neuro"})
    answer = json.loads(curl(f"{server.url}/v1/embeddings", "--json", body))
    expected = experts.encode("Sleep", prompt_name="neuro")
    np.testing.assert_allclose(answer["data"][0]["embedding"], expected, atol=1e-6)
    told = json.loads(curl(f"{server.url}/v1/embeddings", "-d", body))  # as a form, which is curl's default
    assert "Content-Type: application/json" in told["error"]["message"]
