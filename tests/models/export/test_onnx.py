"""Exported graphs: the vectors of torch under every route, by ONNX Runtime alone and by `load`."""

from __future__ import annotations

import copy
import json
import pickle
import re
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import sentence_experts as se
from helpers.samples import make_tiny_encoder
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import InputError, RouteError, SentenceExpertsError, UsageError
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.export.onnx import check_graph, write_graph
from sentence_experts.models.files.saving import save
from sentence_experts.models.loading import LoadConfig, load
from sentence_experts.models.onnx_encoder import MODEL_FILE, OnnxEncoder, open_minilm
from sentence_experts.models.routes.known_routes import KnownRoutes
from sentence_experts.models.sources import notes_of, set_notes
from sentence_experts.storage import RECORD

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
FILES = ["README.md", "graph.json", "model.onnx", "tokenizer.json"]


def loader_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str], str], np.ndarray]:
    """The function `encode` of the snippet in the folder's README, which it runs."""
    snippet = re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    assert snippet is not None
    names: dict = {}
    monkeypatch.chdir(folder)
    exec(snippet[1], names)
    assert len(names["vectors"]) == 2
    loader: Callable[[list[str], str], np.ndarray] = names["encode"]
    return loader


def largest(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).max() / np.abs(other).max())


@pytest.fixture(scope="module")
def small_folder(tmp_path_factory: pytest.TempPathFactory, minilm: str) -> Path:
    """A base of one block: tracing takes seconds for each. Slow tests export bases of several."""
    return make_tiny_encoder(tmp_path_factory.mktemp("base") / "base", minilm, blocks=1)


@pytest.fixture(scope="module")
def small(small_folder: Path) -> SentenceTransformer:
    return SentenceTransformer(str(small_folder), device="cpu")


@pytest.fixture(scope="module")
def folder(small: SentenceTransformer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return se.export(small, tmp_path_factory.mktemp("graph") / "graph", format="onnx").out


@pytest.fixture(
    scope="module",
    params=["heads", pytest.param("all", marks=pytest.mark.slow)],  # tracing all takes half a minute
)
def all_kinds(small: SentenceTransformer, request: pytest.FixtureRequest) -> ExpertEncoder:
    """A model with two heads, or these, an adapter and an expert, whose vectors all differ."""
    generator = np.random.default_rng(0)
    heads = {
        name: (generator.normal(size=(32, 32)) / 5, generator.normal(size=32)) for name in ("use", "field")
    }
    model = se.with_heads(small, heads)
    if request.param == "all":
        model = se.add_route(se.add_route(model, "low", kind="adapter"), "copd")
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".adapters." in name or ".experts.1." in name:
                weight += torch.randn(weight.shape, generator=draw) * 0.1
    set_notes(model, {"unit": "title", "untrained": True})
    return model


@pytest.fixture(scope="module")
def saved(all_kinds: ExpertEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kinds") / "model"
    save(all_kinds, folder)
    return folder


@pytest.fixture(scope="module")
def of_all_kinds(saved: Path) -> Path:
    """The folder of its graph."""
    return se.export(saved, saved.with_name("graph"), format="onnx").out


@pytest.mark.slow
def test_each_route_has_its_vectors(mixed: ExpertEncoder, texts: list[str], tmp_path: Path) -> None:
    assert write_graph(mixed, tmp_path) <= 1e-5
    assert sorted(file.name for file in tmp_path.iterdir()) == FILES
    graph = OnnxEncoder(tmp_path)
    for route in ("copd", "cvd", "skin cancer"):
        expected = mixed.encode(texts, prompt_name=route)
        assert largest(graph.encode(texts, route=route), expected) <= 1e-5


def test_onnxruntime_alone_gives_the_vectors_of_each_route(
    all_kinds: ExpertEncoder, of_all_kinds: Path, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = loader_of(of_all_kinds, monkeypatch)
    for route in (each.name for each in all_kinds.routes):
        expected = all_kinds.encode(texts, prompt_name=route)
        for batch in (slice(None), slice(1), slice(3, 5)):
            assert largest(encode(texts[batch], route), expected[batch]) <= 1e-5
    weights = onnx.load(str(of_all_kinds / "model.onnx")).graph.initializer
    parameters = sum(parameter.numel() for parameter in all_kinds.parameters())
    assert sum(int(np.prod(each.dims)) for each in weights) < 1.05 * parameters + 2000


def test_heads_adapters_and_experts_in_one_batch(
    all_kinds: ExpertEncoder, of_all_kinds: Path, texts: list[str]
) -> None:
    graph: OnnxEncoder = se.load(of_all_kinds)
    assert list(graph.prompts) == [route.name for route in all_kinds.routes]
    leads = [route.text for route in all_kinds.routes]
    routed = [leads[number % len(leads)] + text for number, text in enumerate(texts)]
    expected = all_kinds.encode(routed)
    assert largest(graph.encode(routed), expected) <= 1e-5
    assert largest(np.stack([graph.encode(text) for text in routed]), expected) <= 1e-5
    plain = [text for text in texts if text.strip()]
    for one, other in pairwise(leads):  # the routes do differ
        first, second = (graph.encode([lead + text for text in plain]) for lead in (one, other))
        assert np.abs(first - second).max() > 1e-3
    pooled, whole = graph.without_heads(), all_kinds.without_heads()
    assert largest(pooled.encode(texts, route="use"), whole.encode(texts, prompt_name="use")) <= 1e-5
    for name, pair in graph.head_routes.items():
        for one, other in zip(pair, all_kinds.head_routes[name], strict=True):
            assert np.array_equal(one, other)


def test_a_graph_stands_for_its_model_in_stored_vectors(saved: Path, of_all_kinds: Path) -> None:
    torch_model = BatchEncoder(se.load(saved, device="cpu"))
    graph = BatchEncoder.open(of_all_kinds)
    for route in torch_model.routes:
        assert graph.cache_key(route) == torch_model.cache_key(route)
    assert graph.rounding_settings != torch_model.rounding_settings
    assert graph.known_routes.prompts == torch_model.known_routes.prompts


def test_routes_are_asked_for_and_checked(all_kinds: ExpertEncoder, of_all_kinds: Path) -> None:
    known = ", ".join(route.name for route in all_kinds.routes)
    graph = se.load(of_all_kinds)
    with pytest.raises(RouteError, match=f"begins with no known route; known routes: {known}"):
        graph.encode(["no route here"])
    with pytest.raises(RouteError, match="no route is named 'skin'"):
        graph.encode("text", route="skin")
    with pytest.raises(RouteError, match="needs a route"):
        se.encode(of_all_kinds, ["text"])
    assert se.encode(of_all_kinds, ["text", "", "more"], route="use", normalize=True).shape == (3, 32)


@pytest.mark.slow
def test_one_route(all_kinds: ExpertEncoder, texts: list[str], tmp_path: Path) -> None:
    route = all_kinds.routes[-1].name
    one = se.load(se.export(all_kinds, tmp_path / "one", route=route, format="onnx").out)
    assert largest(one.encode(texts), all_kinds.encode(texts, prompt_name=route)) <= 1e-5


@pytest.mark.slow
def test_a_dense_model_and_a_maximum_length(
    small: SentenceTransformer, folder: Path, texts: list[str]
) -> None:
    for length in (None, 8):
        dense, model = se.load(folder, max_length=length), se.load(small, max_length=length)
        assert largest(dense.encode(texts), model.encode(texts)) <= 1e-5


@pytest.mark.slow
def test_instructions_may_share_an_expert(
    bases: dict[str, SentenceTransformer],
    scatter: Callable[..., ExpertEncoder],
    texts: list[str],
    tmp_path: Path,
) -> None:
    prefixes = {"query": "search query: ", "passage": "search document: ", "other": "classification: "}
    model = se.extend(bases["modernbert"], list(prefixes), route="prefix", prefixes=prefixes)
    config = model.routed_model.config
    config.routes = [{**route, "expert": min(route["expert"], 1)} for route in config.routes]
    assert write_graph(scatter(model), tmp_path) <= 1e-5
    graph = OnnxEncoder(tmp_path)
    for route in prefixes:
        assert largest(graph.encode(texts, route=route), model.encode(texts, prompt_name=route)) <= 1e-5


def test_what_has_no_graph_is_refused(small: SentenceTransformer, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SentenceExpertsError, match=r"differ from torch's by .* not written"):
        check_graph(small, folder, [[""]], tolerance=1e-12)
    learned = se.extend(small, ["copd", "cvd"], router="learned")
    with pytest.raises(UsageError, match="needs routes that choose"):
        write_graph(learned, tmp_path)
    with pytest.raises(UsageError, match="`format=onnx` needs `out`"):
        se.export(small, format="onnx")
    without_prompts = copy.deepcopy(small)
    without_prompts.set_pooling_include_prompt(False)
    without_prompts.prompts = {"query": "question: "}
    with pytest.raises(UsageError, match="leaves prompts out"):
        write_graph(without_prompts, tmp_path)


def changed(folder: Path, to: Path, **fields: object) -> Path:
    """A copy of the graph's folder without its record and with other fields; None leaves one out."""
    to.mkdir()
    for name in FILES:
        (to / name).write_bytes((folder / name).read_bytes())
    record = {**json.loads((to / "graph.json").read_text()), **fields}
    (to / "graph.json").write_text(
        json.dumps({name: each for name, each in record.items() if each is not None})
    )
    return to


def test_damaged_folders_are_refused_in_a_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="newer"):
        se.load(changed(folder, tmp_path / "newer", format_version=99))
    with pytest.raises(InputError, match="`fingerprints` is None; export the model again"):
        se.load(changed(folder, tmp_path / "less", fingerprints=None))
    without = changed(folder, tmp_path / "without")
    (without / "model.onnx").unlink()
    with pytest.raises(InputError, match=r"model\.onnx: no such file"):
        se.load(without)
    cut = changed(folder, tmp_path / "cut")
    (cut / "model.onnx").write_bytes((cut / "model.onnx").read_bytes()[:1000])
    with pytest.raises(InputError, match=r"model\.onnx: onnxruntime .* does not open it"):
        se.load(cut)
    other = changed(folder, tmp_path / "other")
    graph = onnx.load(str(other / "model.onnx"))
    for node in graph.graph.node:
        node.output[:] = ["other" if name == "sentence_embedding" else name for name in node.output]
    graph.graph.output[0].name = "other"
    onnx.save(graph, str(other / "model.onnx"))
    with pytest.raises(InputError, match="to other, not of"):
        se.load(other)


def test_settings_that_a_graph_cannot_follow_are_refused(folder: Path) -> None:
    for setting in ({"device": "cuda"}, {"dtype": "float16"}, {"pooling": "cls"}, {"routes": ["a"]}):
        with pytest.raises(UsageError, match=f"`{next(iter(setting))}"):
            se.load(folder, **setting)
    with pytest.raises(UsageError, match="no room for text"):
        se.load(folder, max_length=2)


@pytest.mark.slow
def test_the_default_route_is_for_texts_without_one_and_texts_are_cut_as_the_model_cuts(
    small: SentenceTransformer, folder: Path, tmp_path: Path
) -> None:
    model = copy.deepcopy(small)
    model.prompts = {"query": "query: ", "Retrieval-query": "query: "}
    model.default_prompt_name = "Retrieval-query"
    model.tokenizer.truncation_side = "left"
    model.max_seq_length = 32
    with pytest.raises(UsageError, match="another"):  # a model that was changed in memory
        se.export(model, folder, format="onnx")
    graph = se.load(se.export(model, tmp_path / "graph", format="onnx").out)
    assert graph.route_fingerprint() != se.load(folder).route_fingerprint()
    assert largest(graph.encode(["query: x", "y"]), model.encode(["query: x", "y"])) <= 1e-5
    long = "heart " * 40 + "lungs"
    assert largest(graph.encode(long), model.encode(long)) <= 1e-5
    assert largest(graph.encode(long), graph.encode("heart " * 41)) > 1e-3


@pytest.mark.slow
def test_the_default_route_of_a_model_with_routes(
    all_kinds: ExpertEncoder, texts: list[str], tmp_path: Path
) -> None:
    model = copy.deepcopy(all_kinds)
    model.default_prompt_name = "field"
    graph = se.load(se.export(model, tmp_path / "graph", format="onnx").out)
    some = [*texts, "[USE]heart", "[use] heart", "[COPD] lungs"]
    some = some if "copd" in model.prompts else some[:-1]
    assert largest(graph.encode(some), model.encode(some)) <= 1e-5


def test_an_open_graph_follows_settings_and_can_be_copied(folder: Path, texts: list[str], caplog) -> None:
    graph = se.load(folder)
    se.load(graph, max_length=1000)
    assert "`max_length=1000`: the model reads" in caplog.text
    assert se.load(graph) is graph
    with pytest.raises(UsageError, match="`device=cuda` has no effect here"):
        se.load(graph, device="cuda")
    short = se.load(graph, max_length=8)
    assert largest(short.encode(texts), se.load(folder, max_length=8).encode(texts)) <= 1e-6
    for twin in (copy.deepcopy(short), pickle.loads(pickle.dumps(short))):
        assert largest(twin.encode(texts), short.encode(texts)) <= 1e-6
    (folder / "notes.txt").write_text("Not read.")
    assert largest(copy.deepcopy(short).encode(texts), short.encode(texts)) <= 1e-6
    (folder / "notes.txt").unlink()
    with pytest.raises(UsageError, match="`batch_size` has no effect here"):
        se.encode(folder, ["a"], batch_size=3)
    with pytest.raises(UsageError, match="encodes texts, not tuple"):
        graph.encode([("a", "b")])


def test_facts_of_a_graph_are_read_from_its_folder(
    all_kinds: ExpertEncoder, of_all_kinds: Path, tmp_path: Path
) -> None:
    graph = shutil.copytree(of_all_kinds, tmp_path / "graph")
    assert notes_of(str(graph)) == {"unit": "title", "untrained": True}
    known = KnownRoutes.read(graph)
    assert known is not None
    assert (known.heads, list(known.prompts)) == (
        ("use", "field"),
        [route.name for route in all_kinds.routes],
    )
    (graph / "heads.npz").write_bytes(b"no")
    with pytest.raises(InputError, match=r"changed|not the heads of use, field"):
        se.load(graph)


def test_a_graph_refuses_settings_that_it_cannot_follow(folder: Path) -> None:
    graph: OnnxEncoder = se.load(folder, max_length=12)
    for name in ("max_seq_length", "truncate_dim"):
        with pytest.raises(UsageError, match=f"`{name}` of an ONNX graph cannot change"):
            setattr(graph, name, 8)
    for again in (copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert (again.max_seq_length, again.truncate_dim) == (12, None)


def test_other_prompts_of_a_graph_have_other_hashes(of_all_kinds: Path) -> None:
    graph: OnnxEncoder = se.load(of_all_kinds)
    before = {route: graph.route_fingerprint(route) for route in (None, "use", "field")}
    graph.prompts["use"] += "Find: "
    after = {route: graph.route_fingerprint(route) for route in before}
    assert after["field"] == before["field"]
    assert {after["use"], after[None]}.isdisjoint(before.values())
    assert graph.with_settings(LoadConfig()).route_fingerprint("use") == after["use"]


@pytest.mark.slow
def test_a_route_with_spaces_in_it_is_a_route(small: SentenceTransformer, tmp_path: Path) -> None:
    model = se.extend(small, ["query", "passage"], route="prefix", default_route="passage")
    save(model, tmp_path / "model")
    graph = se.load(se.export(tmp_path / "model", tmp_path / "graph", format="onnx").out)
    text = f"query{' ' * 40}: leaves"
    for encoder in (model, graph):
        expected = encoder.encode("leaves", prompt_name="query")
        assert largest(encoder.encode(text), expected) <= 1e-5
        assert largest(encoder.encode("leaves"), expected) > 1e-3


def test_what_changes_a_model_refuses_a_graph(folder: Path, tmp_path: Path) -> None:
    for change in (
        lambda: se.extend(str(folder), ["a"]),
        lambda: se.add_route(str(folder), "a"),
        lambda: se.export(folder, tmp_path / "out", route="a"),
        lambda: se.export(folder, tmp_path / "out", format="onnx"),
        lambda: se.with_heads(str(folder), {"a": (np.eye(32), np.zeros(32))}),
    ):
        with pytest.raises(UsageError, match="is an ONNX graph, which only encodes"):
            change()


@pytest.mark.realdata
def test_minilm_needs_no_torch(minilm: str, texts: list[str]) -> None:
    graph = open_minilm(LoadConfig())
    base = SentenceTransformer(minilm, device="cpu")
    assert largest(graph.encode(texts), base.encode(texts)) <= 1e-5
    one, other = BatchEncoder.open("minilm"), BatchEncoder(se.load("minilm", device="cpu"))
    assert one.model.__class__ is OnnxEncoder
    assert one.cache_key(None) == other.cache_key(None)
    assert (one.name, one.dimension, one.pooling) == (other.name, other.dimension, other.pooling)


def test_a_graph_without_a_record_is_known_by_its_bytes(folder: Path, tmp_path: Path) -> None:
    """Its owner may have made 8 bits of it with another tool, and removed the record as a message says."""
    graph = tmp_path / "graph"
    shutil.copytree(folder, graph)
    hashes = [OnnxEncoder(graph).route_fingerprint()]
    (graph / RECORD).unlink()
    hashes.append(OnnxEncoder(graph).route_fingerprint())
    model = onnx.load(graph / MODEL_FILE)
    model.doc_string = "changed"
    onnx.save(model, graph / MODEL_FILE)
    hashes += [OnnxEncoder(graph).route_fingerprint(), load(graph).route_fingerprint()]
    assert len(set(hashes)) == 3
    assert hashes[2] == hashes[3]
