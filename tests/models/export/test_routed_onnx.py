"""One ONNX graph of all routes: the vectors of `encode`, with the shared weights once."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import sentence_experts
from sentence_experts.errors import SentenceExpertsError, UsageError
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.export import routed_onnx
from sentence_experts.models.export.routed_onnx import write_routed_onnx

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
PREFIXES = {"query": "search query: ", "passage": "search document: ", "other": "classification: "}


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


def run_plainly(folder: Path, texts: list[str]) -> np.ndarray:
    """Vectors by onnxruntime and tokenizers alone, from the text as it is."""
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

    rows = Tokenizer.from_file(str(folder / "tokenizer.json")).encode_batch(texts)
    session = InferenceSession(str(folder / "model.onnx"))
    columns = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    names = [each.name for each in session.get_inputs()]
    inputs = {name: np.array([getattr(row, columns[name]) for row in rows]) for name in names}
    vectors: np.ndarray = session.run(["sentence_embedding"], inputs)[0]
    return vectors


def numbers_in(file: Path) -> int:
    return sum(int(np.prod(each.dims)) for each in onnx.load(str(file)).graph.initializer)


@pytest.mark.parametrize(
    "family", ["bert", *(pytest.param(name, marks=pytest.mark.slow) for name in ("modernbert", "nomic_bert"))]
)
def test_each_route_has_its_vectors(
    family: str, mixed: ExpertEncoder, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert write_routed_onnx(mixed, tmp_path) <= 1e-5
    names = ["README.md", "model.onnx", "routes.json", "tokenizer.json"]
    assert sorted(file.name for file in tmp_path.iterdir()) == names
    encode = loader_of(tmp_path, monkeypatch)
    for route in ("copd", "cvd", "skin cancer"):
        expected = mixed.encode(texts, prompt_name=route)
        for batch in (slice(None), slice(1), slice(3, 5)):
            assert np.abs(encode(texts[batch], route) - expected[batch]).max() <= 1e-5
    mixed_texts = [f"[{('COPD', 'SKIN_CANCER', 'CVD')[n % 3]}]{text}" for n, text in enumerate(texts)]
    assert np.abs(run_plainly(tmp_path, mixed_texts) - mixed.encode(mixed_texts)).max() <= 1e-5
    unknown = run_plainly(tmp_path, ["[COPD]lungs", "lungs"])
    assert np.isfinite(unknown[0]).all()
    assert np.isnan(unknown[1]).all()
    parameters = sum(parameter.numel() for parameter in mixed.parameters())
    assert numbers_in(tmp_path / "model.onnx") < 1.05 * parameters + 2000


@pytest.mark.slow
def test_instructions_stay_in_front_of_the_text_and_may_share_an_expert(
    bases: dict[str, SentenceTransformer],
    scatter: Callable[..., ExpertEncoder],
    texts: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = sentence_experts.extend(
        bases["modernbert"], ["query", "other"], route="prefix", prefixes=PREFIXES, share={"passage": "query"}
    )
    assert len(model.experts) == 2
    assert write_routed_onnx(scatter(model), tmp_path) <= 1e-5
    encode = loader_of(tmp_path, monkeypatch)
    for route in PREFIXES:
        assert np.abs(encode(texts, route) - model.encode(texts, prompt_name=route)).max() <= 1e-5


def test_heads_beside_experts(
    bases: dict[str, SentenceTransformer], texts: list[str], tmp_path: Path
) -> None:
    generator = np.random.default_rng(0)
    heads = {
        name: (generator.normal(size=(32, 32)) / 5, generator.normal(size=32)) for name in ("use", "field")
    }
    model = sentence_experts.add_route(sentence_experts.with_heads(bases["bert"], heads), "copd")
    for each in (sentence_experts.with_heads(bases["bert"], heads), model):
        assert write_routed_onnx(each, tmp_path) <= 1e-5
    routed = [f"[{('USE', 'COPD', 'FIELD')[n % 3]}]{text}" for n, text in enumerate(texts)]
    assert np.abs(run_plainly(tmp_path, routed) - model.encode(routed)).max() <= 1e-5
    assert np.abs(run_plainly(tmp_path, routed[:1]) - model.encode(routed[:1])).max() <= 1e-5


def test_what_has_no_graph_is_refused(
    bases: dict[str, SentenceTransformer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = sentence_experts.extend(bases["bert"], ["copd", "cvd"])
    with monkeypatch.context() as patched:
        patched.setattr(routed_onnx, "traced", lambda *_: Mock())
        patched.setattr(routed_onnx, "largest_difference", lambda *_: 1.0)
        with pytest.raises(SentenceExpertsError, match="not written"):
            write_routed_onnx(model, tmp_path)
    assert not list(tmp_path.iterdir())
    adapters = sentence_experts.extend(bases["bert"], routes=["a"], kind="adapter")
    with pytest.raises(UsageError, match="own adapters"):
        write_routed_onnx(adapters, tmp_path)
    learned = sentence_experts.extend(bases["bert"], ["copd", "cvd"], router="learned")
    with pytest.raises(UsageError, match="needs routes that choose"):
        write_routed_onnx(learned, tmp_path)
    with pytest.raises(UsageError, match="`all_routes` needs `out`"):
        sentence_experts.export(model, all_routes=True)
