from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import sentence_experts
from helpers.samples import PAPERS, make_tiny_encoder, write_corpus
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import InputError, RouteError
from sentence_experts.models.files.fingerprint import folder_fingerprint
from sentence_experts.models.loading import load
from sentence_experts.retrieval import index as index_module
from sentence_experts.retrieval.build import CorpusIndex, build_index
from sentence_experts.retrieval.index import route_vectors
from sentence_experts.retrieval.search import SearchConfig, search
from sentence_experts.storage import update_json


def refuse(*args, **options):
    pytest.fail("encoded again")


@pytest.mark.parametrize("prefix", [False, True])
def test_an_index_outlives_another_expert_and_automatic_routes(
    tmp_path, experts_model, minilm, prefix, monkeypatch
):
    source = experts_model
    if prefix:
        source = tmp_path / "prefix"
        plain = make_tiny_encoder(tmp_path / "plain", minilm)
        sentence_experts.extend(plain, ["crops", "neuro"], route="prefix").save(str(source))
    corpus = write_corpus(tmp_path / "corpus")
    encoder = BatchEncoder(load(source, device="cpu"), batch_size=4)
    before = np.array(route_vectors(encoder, corpus, "neuro").vectors)
    grown = tmp_path / "grown"
    sentence_experts.add_route(source, "skin", out=grown)
    (grown / "made_from.json").unlink()
    update_json(grown / "config.json", {"auto_map": {}})
    (grown / "README.md").write_text("Another card.")
    monkeypatch.setattr(index_module, "_build", refuse)
    larger = BatchEncoder(load(grown, device="cpu"), batch_size=4)
    assert larger.routes.keys() > encoder.routes.keys()
    assert np.array_equal(route_vectors(larger, corpus, "neuro").vectors, before)
    monkeypatch.undo()
    fresh = write_corpus(tmp_path / "fresh")
    assert np.array_equal(route_vectors(larger, fresh, "neuro").vectors, before)
    for route in ("crops", "neuro"):
        assert folder_fingerprint(Path(source), route) == folder_fingerprint(grown, route)
    smaller = tmp_path / "smaller"
    sentence_experts.drop_route(source, "crops", out=smaller)
    assert folder_fingerprint(smaller, "neuro") == folder_fingerprint(Path(source), "neuro")


@pytest.mark.parametrize(
    ("name", "routes"),
    [("experts.0.", ["crops"]), ("experts.1.", ["neuro"]), ("attention", ["crops", "neuro"])],
)
def test_trained_weights_change_the_routes_that_meet_them(tmp_path, experts_model, name, routes):
    model = load(experts_model, device="cpu")
    weight = next(each for key, each in model.named_parameters() if name in key)
    weight.data += 1
    model.save(str(tmp_path / "trained"))
    for route in ("crops", "neuro"):
        same = folder_fingerprint(tmp_path / "trained", route) == folder_fingerprint(experts_model, route)
        assert same == (route not in routes)


def test_all_routes_are_built_and_listed(tmp_path, experts, monkeypatch):
    corpus = write_corpus(tmp_path)
    assert CorpusIndex.open(tmp_path).parts == []
    assert "no vectors" in repr(CorpusIndex.open(tmp_path))
    built = build_index(experts, tmp_path, route=["all"], unit="title").to_pandas()
    assert sorted(built["route"]) == ["crops", "neuro"]
    assert built["texts"].tolist() == [4, 4]
    assert set(built["state"]) == {"whole"}
    (Path(built["folder"][0]) / "more").mkdir()
    (Path(built["folder"][0]) / "more" / "part").write_bytes(b"0" * 1_000_000)
    assert CorpusIndex.open(tmp_path).to_pandas()["megabytes"][0] == built["megabytes"][0] + 1
    monkeypatch.setattr(index_module, "_build", refuse)
    search(experts, corpus, "rice", route="neuro", unit="title")
    write_corpus(tmp_path, PAPERS[:2])
    assert set(CorpusIndex.open(tmp_path).to_pandas()["state"]) == {"of an older corpus"}
    next(tmp_path.rglob("vectors.npy")).write_bytes(b"")
    assert "damaged" in set(CorpusIndex.open(tmp_path).to_pandas()["state"])
    for file in tmp_path.rglob("vectors.npy"):
        update_json(file.with_name("made_from.json"), {"settings": "x"})
    assert {part["state"] for part in CorpusIndex.open(tmp_path).parts} == {"damaged"}
    with pytest.raises(RouteError, match="no route 'x'"):
        build_index(experts, tmp_path, route=["x"])


def test_a_corpus_that_was_replaced_meanwhile_is_not_called_damaged(tmp_path, experts_model):
    opened = write_corpus(tmp_path)
    write_corpus(tmp_path, PAPERS[:3])
    with pytest.raises(InputError, match="was replaced since it was opened: open it again"):
        build_index(load(experts_model, device="cpu"), opened, route=["crops"])
    opened = CorpusFolder.open(tmp_path)
    opened.papers.write_bytes(opened.papers.read_bytes() + b"x")
    with pytest.raises(InputError, match="has changed since it was written: make the corpus"):
        build_index(load(experts_model, device="cpu"), opened, route=["crops"])


def test_a_model_is_searched_on_the_text_that_it_was_trained_on(tmp_path, plain_model, caplog):
    model = shutil.copytree(plain_model, tmp_path / "model")
    (model / "README.md").write_text("---\nsentence_experts:\n  unit: title\n---\n# A model\n")
    corpus = write_corpus(tmp_path / "corpus")
    assert [part["unit"] for part in build_index(model, corpus).parts] == ["title"]
    search(model, corpus, "rice", sentences=False)
    assert "was trained on" not in caplog.text
    search(model, corpus, "rice", sentences=False, unit="abstract")
    assert "model was trained on the text 'title' of papers, and is used on 'abstract'" in caplog.text
    both = SearchConfig().texts_for({"model": model, "other": plain_model})
    (model / "README.md").write_text("# A model\n")
    assert (both, SearchConfig().texts_for({"model": model})) == ("title", "title+abstract")
