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
    learned = sentence_experts.extend(bases["bert"], ["copd", "cvd"], router="learned")
    with pytest.raises(UsageError, match="needs routes that choose"):
        write_routed_onnx(learned, tmp_path)
    with pytest.raises(UsageError, match="`all_routes` needs `out`"):
        sentence_experts.export(model, all_routes=True)
