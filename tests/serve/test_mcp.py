"""`/mcp`: the SDK's own client over HTTP gets the answers of the search's paths, and their limits."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from helpers.running_server import RunningServer, running_server
from helpers.searched_corpus import QUERY, searched_papers
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.errors import SentenceExpertsError
from sentence_experts.serve.mcp import MAX_ABSTRACT, TOOLS, load_server

mcp = pytest.importorskip("mcp")
httpx2 = pytest.importorskip("httpx2")

KEY = {"Authorization": "Bearer secret"}
Call = tuple[str, dict[str, Any]]


@pytest.fixture(scope="module")
def server(
    experts_model: Path, corpus: CorpusFolder, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text("secret\n")
    arguments = ("--corpus", corpus.path, "--api-key-file", keys, "--no-base")
    with running_server(f"m={experts_model}", *arguments) as running:
        yield running


def call(server: RunningServer, *calls: Call, mode: str = "auto", profile: str = "default") -> list[Any]:
    """The results of tools, and at last the list of tools, by the SDK's client."""
    from mcp.client.streamable_http import streamable_http_client

    async def run() -> list[Any]:
        async with httpx2.AsyncClient(headers={**KEY, "X-Profile": profile}, timeout=60) as http:
            transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
            async with mcp.Client(transport, mode=mode) as client:
                results = [await client.call_tool(*each) for each in calls]
                return [*results, await client.list_tools()]

    return asyncio.run(run())


def texts(results: Sequence[Any]) -> list[Any]:
    return [each.content[0].text for each in results]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_tools_answer_as_the_paths_of_the_search(server: RunningServer, mode: str) -> None:
    fields = {"query": QUERY, "routes": ["m:crops=0.7,neuro=0.3", "m:neuro"], "top_k": 3, "year": "2003.."}
    paper = "10.5555/made-up.020"
    like = {"like": [paper], "routes": ["m:crops"], "journals": ["Annals of Invention"]}
    calls = [("search", fields), ("similar", like), ("paper", {"paper": paper}), ("routes", {})]
    *results, listed = call(server, *calls, mode=mode)
    assert not any(each.is_error for each in results)
    answers = [json.loads(text) for text in texts(results)]
    with httpx.Client(base_url=server.url, headers=KEY) as client:
        paths = ["/search", "/search", "/search/citations"]
        pairs = zip(paths, calls, strict=False)
        expected = [client.post(path, json=each).json() for path, (_, each) in pairs]
        expected.append(client.get("/search/corpus").json())
    for answer in answers[:2] + expected[:2]:
        assert answer.pop("seconds") >= 0
        assert answer["papers"]
    assert answers == expected
    assert answers[2]["paper"]["doi"] == paper
    assert answers[2]["cites"]
    assert [tool.name for tool in listed.tools] == list(TOOLS)
    assert all(tool.annotations.read_only_hint for tool in listed.tools)


def test_taught_routes_are_those_of_the_profile(server: RunningServer) -> None:
    papers = searched_papers()[:10]
    marks = [{"paper": each["doi"], "similar": each["subjects"] == ["crops"]} for each in papers]
    headers = {**KEY, "X-Profile": "ann"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=60) as client:
        client.post("/search/taught/marks", json={"marks": marks}).raise_for_status()
        client.post("/search/taught", json={"name": "mine"}).raise_for_status()
        expected = client.post("/search", json={"query": QUERY, "routes": ["m:mine"]}).json()["routes"]
    calls = [("search", {"query": QUERY, "routes": ["m:mine"]}), ("routes", {})]
    found, about = map(json.loads, texts(call(server, *calls, profile="ann")[:2]))
    assert found["routes"] == expected
    assert "m:mine" in [each["name"] for each in about["routes"]]
    refused, about, _ = call(server, *calls, profile="bob")
    assert (refused.is_error, "no route 'm:mine'" in texts([refused])[0]) == (True, True)
    assert "m:mine" not in texts([about])[0]


def test_what_a_path_refuses_a_tool_refuses(server: RunningServer) -> None:
    calls = [
        ("search", {"query": QUERY, "routes": ["m:rice"]}),
        ("search", {"query": QUERY, "top_k": 1000}),
        ("search", {"query": QUERY, "topk": 1}),
        ("similar", {"like": ["10.1/none"]}),
        ("paper", {}),
        ("delete", {}),
        ("routes", {"query": QUERY}),
    ]
    *results, _ = call(server, *calls)
    assert all(each.is_error for each in results)
    reasons = [
        "no route 'm:rice'; there are",
        "top_k: ",
        "topk: ",
        "10.1/none",
        "paper: ",
        "no tool 'delete'",
        "routes takes no arguments",
    ]
    for reason, text in zip(reasons, texts(results), strict=True):
        assert reason in text


def test_long_abstracts_are_cut_in_lists_only(server: RunningServer) -> None:
    found, whole, _ = call(server, ("search", {"query": QUERY, "top_k": 48}), ("paper", {"paper": "h:large"}))
    papers = {each["paper_id"]: each for each in json.loads(texts([found])[0])["papers"]}
    assert len(papers["h:large"]["abstract"]) == MAX_ABSTRACT + 1
    assert len(json.loads(texts([whole])[0])["paper"]["abstract"]) > MAX_ABSTRACT


def test_keys_sizes_and_methods_are_those_of_the_server(server: RunningServer) -> None:
    assert httpx.post(f"{server.url}/mcp", json={}).status_code == 401
    with httpx.Client(base_url=server.url, headers=KEY) as client:
        assert client.post("/mcp", content=b" " * 10_000_001).status_code == 413
        assert client.post("/mcp", content=b"{", headers={"Content-Type": "text/plain"}).status_code == 415
        assert client.get("/mcp").status_code == 405
        assert client.post("/mcp", content=b"{").status_code == 400


def test_without_the_sdk_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    load_server.cache_clear()
    with pytest.raises(SentenceExpertsError, match=r"sentence-experts\[mcp\]"):
        load_server()
