"""A server from its start to its end: models replaced, clients that leave, signals."""

from __future__ import annotations

import json
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from helpers.running_server import EXPERTS, RunningServer, running_server
from helpers.samples import make_tiny_encoder
from helpers.searched_corpus import write_searched_corpus
from sentence_experts.cli.main import main
from sentence_experts.errors import InputError
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.layers.weight_files import WeightFiles
from sentence_experts.models.loading import LoadConfig, load
from sentence_experts.serve.models import Models

PATH = "/v1/embeddings"
LONG = ["wheat " * 500] * 60


@pytest.fixture(scope="module")
def other_folder(tmp_path_factory: pytest.TempPathFactory, minilm: str) -> Path:
    return make_tiny_encoder(tmp_path_factory.mktemp("models") / "other", minilm, EXPERTS, seed=7)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, experts_model: Path) -> Path:
    """A copy, which tests replace."""
    return Path(shutil.copytree(experts_model, tmp_path_factory.mktemp("served") / "model"))


@pytest.fixture(scope="module")
def own(folder: Path) -> Iterator[RunningServer]:
    """A server whose model's experts come from the folder when they are called."""
    with running_server(f"m={folder}", "--max-resident-experts", "1", "--workers", "1") as running:
        yield running


def eventually(condition: Callable[[], Any], seconds: float = 60) -> Any:
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.05)
    return found


def queue_tokens(url: str) -> float:
    page = httpx.get(f"{url}/metrics", timeout=60).text
    return float(page.split("\nsentence_experts_queue_tokens ")[1].split()[0])


def replace(folder: Path, by: Path) -> None:
    """Put another folder in its place, as atomically as file systems allow."""
    new, old = folder.with_name("new"), folder.with_name("old")
    shutil.copytree(by, new)
    folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old)


class Traffic:
    """Asks for vectors of every route until it is told to stop."""

    def __init__(self, url: str) -> None:
        self.url, self.answers, self.stop = url, list[tuple[str, httpx.Response]](), threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        with httpx.Client(base_url=self.url, timeout=60) as client:
            while not self.stop.is_set():
                for route in EXPERTS:
                    answer = client.post(PATH, json={"model": f"m:{route}", "input": "a text"})
                    self.answers.append((route, answer))

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._thread.join()

    def vector(self, number: int = -1) -> Any:
        return self.answers[number][1].json()["data"][0]["embedding"]


@pytest.mark.parametrize("way", ["signal", "watch"])
def test_a_replaced_model_takes_over_without_a_failed_request(
    own: RunningServer, folder: Path, experts_model: Path, other_folder: Path, way: str
) -> None:
    before, after = (experts_model, other_folder) if way == "signal" else (other_folder, experts_model)
    models: dict[str, ExpertEncoder] = {
        name: load(each, device="cpu") for name, each in (("0", before), ("1", after))
    }
    vectors = {
        (n, route): model.encode("a text", prompt_name=route)
        for n, model in models.items()
        for route in EXPERTS
    }

    def which(route: str, answer: httpx.Response) -> str:
        found = answer.json()["data"][0]["embedding"]
        return next(n for n in models if np.allclose(found, vectors[n, route], atol=1e-6))

    with Traffic(own.url) as traffic:
        eventually(lambda: len(traffic.answers) > 4)
        replace(folder, after)
        if way == "signal":
            own.send(signal.SIGHUP)
        eventually(lambda: which(*traffic.answers[-1]) == "1")
    assert {answer.status_code for _, answer in traffic.answers} == {200}
    kinds = [which(*each) for each in traffic.answers]
    assert kinds == sorted(kinds)
    assert "m: loaded again" in own.log


@pytest.mark.slow  # 15 replacements, a second apart on average
def test_no_answer_is_of_two_models(experts_model: Path, other_folder: Path, tmp_path: Path) -> None:
    """An expert and the other weights are read at two times, and a file is opened by its path."""
    vectors = {
        (path, route): load(path, device="cpu").encode("a text", prompt_name=route)
        for path in (experts_model, other_folder)
        for route in EXPERTS
    }
    place, generator = Path(shutil.copytree(experts_model, tmp_path / "served")), random.Random(0)
    with (
        running_server(f"m={place}", "--max-resident-experts", "1", "--workers", "1") as server,
        Traffic(server.url) as one,
        Traffic(server.url) as two,
    ):
        for number in range(15):
            time.sleep(2 * generator.random())
            replace(place, experts_model if number % 2 else other_folder)
            if number % 3 == 0:
                server.send(signal.SIGHUP)
        done = len(one.answers)
        eventually(lambda: len(one.answers) > done + 20)
    answers = [*one.answers, *two.answers]
    good = [(route, answer) for route, answer in answers if answer.status_code == 200]
    assert len(good) > 0.9 * len(answers), "a model that is replaced before it could be read is no model"
    assert one.answers[-1] in good
    for route, answer in good:
        found = answer.json()["data"][0]["embedding"]
        assert any(
            np.allclose(found, vectors[path, route], atol=1e-6) for path in (experts_model, other_folder)
        )


def test_a_model_that_is_replaced_while_it_is_loaded_is_loaded_again(
    experts_model: Path, other_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its experts would come from another folder than its other weights."""
    place = shutil.copytree(experts_model, tmp_path / "model")
    options = {"max_resident_experts": 1, "device": "cpu"}
    expected = load(other_folder, **options).encode("a text", prompt_name=EXPERTS[0])
    find, found = WeightFiles.find.__func__, list[str]()

    def find_late(kind: type[WeightFiles], source: str, **hub: Any) -> WeightFiles:
        if not found:
            replace(place, other_folder)
        found.append(source)
        return find(kind, source, **hub)

    monkeypatch.setattr(WeightFiles, "find", classmethod(find_late))
    [served] = Models({"m": str(place)}, LoadConfig.of(**options))
    model = served.model
    assert np.allclose(model.encode("a text", prompt_name=EXPERTS[0]), expected, atol=1e-6)
    assert len(found) == 2


@pytest.mark.parametrize("as_link", [True, False])
def test_a_folder_that_leaves_and_returns_while_it_is_loaded(
    experts_model: Path, other_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_link: bool
) -> None:
    """Its files are the same before and after, and those that were read may be another model's."""
    folders = [shutil.copytree(each, tmp_path / each.name) for each in (experts_model, other_folder)]
    place = tmp_path / "served"
    options = {"max_resident_experts": 1, "device": "cpu"}
    expected = load(experts_model, **options).encode("a text", prompt_name=EXPERTS[0])

    def put(folder: Path) -> None:
        if as_link:
            (tmp_path / "next").symlink_to(folder)
            (tmp_path / "next").rename(place)
        else:
            folder.rename(place)

    def take() -> None:
        if not as_link:
            place.rename(folders[turns[0]])

    turns, find, found = [0], WeightFiles.find.__func__, list[str]()

    def find_late(kind: type[WeightFiles], source: str, **hub: Any) -> WeightFiles:
        found.append(source)
        if len(found) > 1:
            return find(kind, source, **hub)
        for turn in (1, 0):
            take()
            turns[0] = turn
            put(folders[turn])
            if turn:
                files = find(kind, source, **hub)
        return files

    put(folders[0])
    monkeypatch.setattr(WeightFiles, "find", classmethod(find_late))
    [served] = Models({"m": str(place)}, LoadConfig.of(**options))
    assert np.allclose(served.model.encode("a text", prompt_name=EXPERTS[0]), expected, atol=1e-6)


def test_a_model_that_changes_whenever_it_is_loaded_is_not_served(
    experts_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = shutil.copytree(experts_model, tmp_path / "model")
    find = WeightFiles.find.__func__

    def find_late(kind: type[WeightFiles], source: str, **hub: Any) -> WeightFiles:
        replace(place, experts_model)
        return find(kind, source, **hub)

    monkeypatch.setattr(WeightFiles, "find", classmethod(find_late))
    with pytest.raises(InputError, match="changed whenever it was loaded; wait until it is written"):
        Models({"m": str(place)}, LoadConfig.of(max_resident_experts=1, device="cpu"))


def test_a_model_that_cannot_be_loaded_leaves_the_one_before(own: RunningServer, folder: Path) -> None:
    content = (folder / "config.json").read_text()
    (folder / "config.json").write_text("{")
    own.send(signal.SIGHUP)
    eventually(lambda: "m: not loaded again, the model before it stays" in own.log)
    (folder / "config.json").write_text(content)
    answer = httpx.post(own.url + PATH, json={"model": "m:crops", "input": "a text"}, timeout=60)
    assert answer.status_code == 200


def test_keys_are_read_again_on_sighup(experts_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("old\n")
    arguments = (f"m={experts_model}", "--api-key-file", file, "--workers", "1")
    with running_server(*arguments) as server, httpx.Client(base_url=server.url, timeout=60) as client:

        def status_of(key: str) -> int:
            headers = {"Authorization": f"Bearer {key}"}
            return client.get("/v1/models", headers=headers).status_code

        assert (status_of("old"), status_of("new")) == (200, 401)
        file.write_text("new\n")
        server.send(signal.SIGHUP)
        eventually(lambda: status_of("new") == 200)
        assert status_of("old") == 401
        file.unlink()
        server.send(signal.SIGHUP)
        eventually(lambda: "the keys before stay" in server.log)
        assert (status_of("old"), status_of("new")) == (401, 200)


def test_a_terminal_that_closes_ends_no_server_that_starts() -> None:
    script = """
import os, signal
from sentence_experts.serve import run

def create(*given, **settings):
    os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGIO)  # as the kernel sends where a program opens a file under a lease
    raise SystemExit(7)

run.create_app = create
run.serve({"m": "."}, port=0)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 7


def test_a_client_that_leaves_frees_its_place(own: RunningServer) -> None:
    body = json.dumps({"model": "m:crops", "input": LONG * 5}).encode()
    host, _, port = own.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        head = [f"POST {PATH} HTTP/1.1", f"Host: {host}", "Content-Type: application/json"]
        head += [f"Content-Length: {len(body)}", "", ""]
        connection.sendall("\r\n".join(head).encode() + body)
        eventually(lambda: queue_tokens(own.url) > 0)
    eventually(lambda: queue_tokens(own.url) == 0)
    eventually(lambda: f"POST {PATH} 499" in own.log)


def test_sigterm_finishes_what_was_accepted(own: RunningServer) -> None:
    answers: list[httpx.Response] = []
    request = {"model": "m:neuro", "input": LONG}
    asking = threading.Thread(
        target=lambda: answers.append(httpx.post(own.url + PATH, json=request, timeout=60))
    )
    asking.start()
    eventually(lambda: queue_tokens(own.url) > 0)
    own.send(signal.SIGTERM)
    asking.join()
    assert (answers[0].status_code, len(answers[0].json()["data"])) == (200, len(LONG))
    own.process.join(60)
    assert own.process.exitcode == 0
    assert "wheat" not in own.log
    assert "Traceback" not in own.log


@pytest.mark.slow  # a new process
def test_nothing_is_said_at_the_end(plain_model: Path, tmp_path: Path) -> None:
    """DuckDB complains about its objects that are left when Python ends."""
    corpus = write_searched_corpus(tmp_path / "corpus").path
    code = "import sys; from sentence_experts.cli.main import main; main(sys.argv[1:])"
    arguments = ["serve", plain_model, "--corpus", corpus, "--port", "0", "--device", "cpu"]
    log = tmp_path / "log"
    with log.open("w") as file:
        server = subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stderr=file)
    eventually(lambda: "serving" in log.read_text())
    server.terminate()
    assert server.wait(60) == 0
    assert "nanobind" not in log.read_text()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 2, "give at least one model to serve"),
        (["a/b=minilm", "a/b=minilm"], 2, "two models are called 'a/b'"),
        (["minilm", "--passages"], 2, "without --corpus"),
        (["minilm", "--unit", "title"], 2, "without --corpus"),
        (["minilm", "--host", "0.0.0.0"], 2, "--api-key-file"),
        (["minilm", "--host", "no.such.host.invalid", "--no-auth"], 2, "cannot listen on"),
        (["minilm", "--api-key-file", "no-such-file"], 1, "no-such-file: the keys cannot be read"),
        (["./no-such-model"], 1, "no such model folder"),
    ],
)
def test_what_cannot_be_served_ends_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--port", "0", *arguments])
    assert ended.value.code == status
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_a_port_that_is_taken_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SystemExit) as ended:
        main(["serve", "minilm", "--port", str(taken.getsockname()[1])])
    assert (ended.value.code, "--port" in capsys.readouterr().err) == (2, True)
