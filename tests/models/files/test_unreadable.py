"""Saved models that cannot be read are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer

import sentence_experts
from sentence_experts.errors import InputError
from sentence_experts.models.files.saving import save
from sentence_experts.models.loading import load
from sentence_experts.models.routes.known_routes import KnownRoutes
from sentence_experts.storage import RECORD


def test_a_model_of_a_newer_format_is_refused_by_name(base: SentenceTransformer, tmp_path: Path) -> None:
    save(sentence_experts.extend(base, ["a", "b"]), tmp_path / "model")
    (tmp_path / "model" / RECORD).unlink()
    config = tmp_path / "model" / "config.json"
    settings = json.loads(config.read_text())
    assert settings["format_version"] == 1
    config.write_text(json.dumps(settings | {"format_version": 99}))
    for opening in (sentence_experts.load, KnownRoutes.read, lambda place: SentenceTransformer(str(place))):
        with pytest.raises(InputError, match=r"config\.json: written by a newer sentence-experts"):
            opening(tmp_path / "model")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"prompts": {"a": 5}}, "'a' is 5, not a text"),
        ({"prompts": ["a"]}, "`prompts` is .* not names with their texts"),
        ({"prompts": {}, "default_prompt_name": 5}, "'default_prompt_name' is 5, not a text"),
        (["a"], "not a JSON object"),
    ],
)
def test_prompts_that_are_no_texts_are_named(tmp_path: Path, settings: Any, said: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(settings))
    with pytest.raises(InputError, match=rf"config_sentence_transformers\.json: {said}"):
        load(tmp_path)
