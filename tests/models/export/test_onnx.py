"""Dense exports as ONNX graphs: the same vectors, for any batch and length."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import sentence_experts
from sentence_experts.errors import InputError, SentenceExpertsError
from sentence_experts.models.dense import export_route
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.export.onnx import write_onnx

onnxruntime = pytest.importorskip("onnxruntime")
NAMES = ["copd", "cvd"]


def run_graph(file: Path, encoder: SentenceTransformer, texts: list[str]) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(file))
    features = encoder.preprocess(texts)
    inputs = {each.name: features[each.name].numpy() for each in session.get_inputs()}
    tokens, vectors = session.run(["token_embeddings", "sentence_embedding"], inputs)
    assert tokens.shape == (*features["input_ids"].shape, vectors.shape[1])
    return vectors


@pytest.mark.parametrize(
    "family", ["modernbert", *(pytest.param(name, marks=pytest.mark.slow) for name in ("bert", "nomic_bert"))]
)
def test_the_graph_gives_the_routes_vectors(
    family: str, mixed: ExpertEncoder, texts: list[str], tmp_path: Path
) -> None:
    dense = export_route(mixed, "cvd")
    difference = write_onnx(dense, tmp_path)
    assert difference <= 1e-5
    expected = mixed.encode(texts, prompt_name="cvd")
    for batch in (slice(None), slice(1), slice(3, 5)):
        vectors = run_graph(tmp_path / "model.onnx", dense, texts[batch])
        assert np.abs(vectors - expected[batch]).max() <= 1e-5
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


def test_a_graph_that_differs_is_not_written(bases: dict[str, SentenceTransformer], tmp_path: Path) -> None:
    dense = export_route(sentence_experts.extend(bases["bert"], NAMES), "cvd")
    with pytest.raises(SentenceExpertsError, match=r"differ from torch's by .* not written"):
        write_onnx(dense, tmp_path, tolerance=1e-12)
    assert not list(tmp_path.iterdir())


def test_a_model_with_experts_has_no_graph(bases: dict[str, SentenceTransformer], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="export one route"):
        write_onnx(sentence_experts.extend(bases["bert"], NAMES), tmp_path)


@pytest.mark.realdata
def test_exported_minilm_gives_the_same_vectors(
    minilm: str, scatter: Callable[..., ExpertEncoder], texts: list[str], tmp_path: Path
) -> None:
    base = SentenceTransformer(minilm, device="cpu")
    bert = base[0].auto_model
    bert.encoder.layer, bert.config.num_hidden_layers = bert.encoder.layer[:2], 2
    dense = export_route(scatter(sentence_experts.extend(base, NAMES)), "copd")
    assert write_onnx(dense, tmp_path) <= 1e-5
    assert np.abs(run_graph(tmp_path / "model.onnx", dense, texts) - dense.encode(texts)).max() <= 1e-5
