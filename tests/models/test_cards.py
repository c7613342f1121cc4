"""The model card of every kind of saved model has a snippet that runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import sentence_experts
from sentence_experts.models.files.saving import save

Save = Callable[[Path], None]


def run_snippet(folder: Path) -> np.ndarray:
    """The vectors that the code in a folder's card makes."""
    _, _, rest = (folder / "README.md").read_text(encoding="utf-8").partition("```python\n")
    code, fence, _ = rest.partition("```")
    assert fence, "the card has no snippet"
    assert code.count("path/to/this/folder") == 1
    found: dict[str, np.ndarray] = {}
    exec(code.replace("path/to/this/folder", str(folder)), found)
    return found["vectors"]


def by_method(model: SentenceTransformer) -> Save:
    return lambda folder: model.save_pretrained(str(folder))


@pytest.fixture(scope="module")
def ways(bases: dict[str, SentenceTransformer]) -> dict[str, Save]:
    """Ways by which a model comes to lie in a folder."""
    base = bases["bert"]
    tokens = sentence_experts.extend(base, ["copd", "cvd"])
    prefixes = sentence_experts.extend(base, ["query", "passage"], route="prefix")
    bare = sentence_experts.extend(base, ["copd", "cvd"])
    bare.prompts = {}
    return {
        "domain tokens": by_method(tokens),
        "instructions": by_method(prefixes),
        "no prompts": by_method(bare),
        "dense control": by_method(sentence_experts.extend(base, ["copd", "cvd"], layers="none")),
        "learned": by_method(sentence_experts.extend(base, ["a", "b"], route="none", router="learned")),
        "per token": by_method(sentence_experts.extend(base, ["a", "b"], route="none", router="token")),
        "saved by the package": lambda folder: save(tokens, folder),
        "a route": lambda folder: sentence_experts.export(tokens, folder, route="cvd"),
        "an instruction": lambda folder: sentence_experts.export(prefixes, folder, route="passage"),
        "average": lambda folder: sentence_experts.export(prefixes, folder, average=True),
    }


WAYS = (
    *("domain tokens", "instructions", "no prompts", "dense control", "learned", "per token"),
    *("saved by the package", "a route", "an instruction", "average"),
)


@pytest.mark.parametrize("way", WAYS)
def test_the_snippet_of_a_saved_model_runs(ways: dict[str, Save], tmp_path: Path, way: str) -> None:
    ways[way](tmp_path / "model")
    vectors = run_snippet(tmp_path / "model")
    assert vectors.shape == (2, 32)
    assert np.isfinite(vectors).all()


@pytest.mark.parametrize("route", ["query", "passage"])
def test_an_exported_route_puts_its_instruction_before_texts_of_any_role(
    bases: dict[str, SentenceTransformer],
    scatter: Callable[..., SentenceTransformer],
    tmp_path: Path,
    route: str,
) -> None:
    encoder = scatter(sentence_experts.extend(bases["bert"], ["query", "passage"], route="prefix"))
    sentence_experts.export(encoder, tmp_path / "dense", route=route)
    dense = SentenceTransformer(str(tmp_path / "dense"), device="cpu")
    expected = encoder.encode(["heart"], prompt_name=route)
    calls = (
        dense.encode(["heart"]),
        dense.encode_query(["heart"]),
        dense.encode_document(["heart"]),
        *(dense.encode(["heart"], prompt_name=name) for name in ("query", "document", route)),
    )
    for found in calls:
        assert np.abs(found - expected).max() <= 1e-6
    with pytest.raises(ValueError, match="not found"):
        dense.encode(["heart"], prompt_name="clustering")
