"""`standard="faithful"`: the published code (tianyi-lab/MoE-Embedding), as a whole and part by part."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from helpers.small_language_models import make_language_model
from sentence_experts.encoding.encoder import cosines
from sentence_experts.errors import UsageError
from sentence_experts.moee import transformer
from sentence_experts.moee.embedder import MoeEmbedder
from sentence_experts.moee.prompts import PUBLISHED, Prompt, as_published
from sentence_experts.moee.routing_weights import published_weights

# Word for word, with its names of the two prompts that are called otherwise here.
PROMPTS_OF_THE_CODE = {
    "prompteol": 'This sentence : "*sent 0*" means in one word:"',
    "none": '"*sent 0*"',
    "style": 'In one word, describe the style of the following sentence - "*sent 0*" :"',
    "sentiment": "In one word, describe the sentiment of the following sentence (positive, neutral, or "
    'negative) - "*sent 0*" :',
    "tone": 'In one word, describe the tone of the following sentence - "*sent 0*" (e.g., formal, informal, '
    "humorous, serious):",
    "intent": "In one word, describe the intent behind the following sentence (e.g., request, suggestion, "
    'command) - "*sent 0*" :',
    "complexity": "In one word, rate the complexity of the following sentence (simple, moderate, complex) "
    '- "*sent 0*" :',
    "subjectivity": "In one word, describe whether the following sentence is subjective or objective "
    '- "*sent 0*" :',
    "language": "In one word, describe the language style of the following sentence (e.g., academic, "
    'conversational, literary) - "*sent 0*" :',
    "grammar": "In one word, describe the grammatical structure of the following sentence (simple, compound, "
    'complex) - "*sent 0*" :',
}
BATCH = 3
pytestmark = pytest.mark.filterwarnings("ignore:std")  # of a batch of one, as in the published code


@pytest.fixture(scope="module")
def many(texts: list[str]) -> list[str]:
    return [*texts, 'a "red" cortex_cell', "is rice green?", "old fire fire -"]


def published(folder: Path, texts: list[str], prompt: str, part: str) -> np.ndarray:
    """Compute as the published code, line by line: left padding, the last token, scores of each batch."""
    words, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    words.pad_token_id, words.padding_side = 0, "left"
    rows = []
    for start in range(0, len(texts), BATCH):
        prompts = []
        for sent in texts[start : start + BATCH]:
            if len(sent) > 0 and sent[-1] not in ".?!\"'":
                sent += "."
            sent = sent.replace('"', "'")
            prompts.append(PROMPTS_OF_THE_CODE[prompt].replace("*sent 0*", sent).replace("_", " ").strip())
        inputs = words(prompts, padding=True, return_tensors="pt")
        inputs.pop("token_type_ids", None)
        with torch.no_grad():
            outputs = model(**inputs, output_router_logits=True)
        hidden = outputs.last_hidden_state[:, -1, :]
        by_text = [logits.reshape(*inputs["input_ids"].shape, -1) for logits in outputs.router_logits]
        routing = torch.cat([logits[:, -1, :] for logits in by_text], dim=1)
        found = {"hs": hidden, "rw": routing, "concat": torch.cat([hidden, routing], dim=1)}[part]
        if part != "hs":
            mean, std = found.mean(dim=0, keepdim=True), found.std(dim=0, keepdim=True)
            found = (found - mean) / (std + 1e-8)
        rows.append(torch.where(torch.isnan(found), torch.zeros_like(found), found).numpy())
    return np.concatenate(rows)


@pytest.mark.parametrize("model_type", ["olmoe", "qwen2_moe"])
@pytest.mark.parametrize("part", ["hs", "rw", "concat"])
def test_faithful_vectors_are_those_of_the_published_code(model_type, part, many, tmp_path):
    folder = make_language_model(tmp_path / "model", model_type)
    settings = {"standard": "faithful", "standard_batch": BATCH, "prompt": "style", "device": "cpu"}
    found = MoeEmbedder(str(folder), parts=part, **settings).encode(many)
    expected = published(folder, many, "style", part)
    assert np.abs(found - expected).max() < 2e-3 * np.abs(expected).max()
    if part != "hs":
        assert not found[-1].any()  # a batch of one


def test_the_sum_weighs_the_cosines_of_standard_scores(olmoe, many):
    settings = {"standard": "faithful", "standard_batch": BATCH, "alpha": 0.4, "device": "cpu"}
    embedder = MoeEmbedder(str(olmoe), **settings)
    expected = {part: published(olmoe, many, "prompteol", part) for part in ("rw", "concat")}
    hidden, routing = expected["concat"][:, :16], expected["rw"]
    vectors = embedder.encode(many)
    found = np.einsum("ij,ij->i", vectors[:2], vectors[2:4])
    wanted = cosines(hidden[:2], hidden[2:4]) + 0.4 * cosines(routing[:2], routing[2:4])
    assert found == pytest.approx(wanted, abs=2e-3)


def test_each_part_of_it_can_be_had_alone(olmoe, texts):
    plain = MoeEmbedder(str(olmoe), device="cpu")
    states = plain.states(texts)
    for settings in ({"wording": "code"}, {"weights": "logits"}, {"standard": "batch"}):
        other = MoeEmbedder(str(olmoe), device="cpu", **settings)
        ((name, value),) = settings.items()
        assert other.settings == {**plain.settings, name: value}
        own = other.states(texts)
        assert np.array_equal(own.hidden, states.hidden) == (name != "wording")
        assert np.array_equal(own.routing, states.routing) == (name not in ("wording", "weights"))
    batch = MoeEmbedder(str(olmoe), parts="hs", standard="batch", standard_batch=2, device="cpu").encode(
        texts
    )
    assert batch[:2] == pytest.approx(-batch[1::-1], abs=1e-5)  # two texts lie on either side of their mean


def test_it_is_named_and_its_cost_is_reported(olmoe, texts, tmp_path, capsys):
    embedder = MoeEmbedder(str(olmoe), standard="faithful", device="cpu")
    said = " ".join(capsys.readouterr().err.split())
    assert "depends on its neighbours" in said
    assert "the published code loads in NF4, and there is no" in said
    together, alone = embedder.encode(texts), embedder.encode(texts[:2])
    assert np.abs(together[:2] - alone).max() > 0.1
    embedder.save(str(tmp_path / "saved"))
    saved = json.loads((tmp_path / "saved" / "moee.json").read_text())
    chosen = {"standard": "faithful", "wording": "code", "weights": "logits", "quantize": "none"}
    assert {name: saved[name] for name in chosen} == chosen
    with pytest.raises(UsageError, match="`standard=faithful` takes standard scores of each batch"):
        embedder.fit_standard(texts)


@pytest.mark.parametrize(
    ("model_type", "weights"),
    [("olmoe", "logits"), ("qwen2_moe", "logits"), ("deepseek", "scores"), ("deepseek_v2", "scores"),
     ("mixtral", "logits"), ("gemma4", "scores")],
)  # fmt: skip
def test_scores_of_deepseek_and_logits_of_the_others(model_type, weights):
    """gemma4 records no logits."""
    assert published_weights(model_type) == weights


def test_prompts_are_word_for_word_those_of_the_code():
    assert {name: prompt.replace("{text}", "*sent 0*") for name, prompt in PUBLISHED.items()} == (
        PROMPTS_OF_THE_CODE
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [("rice", "rice."), ("rice?", "rice?"), ("rice.", "rice."), ("rice!", "rice!"), ("it's'", "it's'"),
     ('"rice"', "'rice'"), ("rice_wheat", "rice wheat."), ("rice ", "rice ."), ("rice:", "rice:.")],
)  # fmt: skip
def test_texts_are_changed_as_the_code_does(text, expected):
    assert as_published(text) == expected
    seen = []
    Prompt.of("none", published=True).token_ids(text, lambda whole: seen.append(whole) or [1], None)
    assert seen == [f'"{expected}"']
    assert Prompt.of("style {text}", published=True).template == "style {text}"


def loaded_with(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Any:
    """The quantization that a machine with a GPU and bitsandbytes would load with."""
    monkeypatch.setattr(transformer.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(transformer, "find_spec", lambda name: object())
    modules = {"transformers": SimpleNamespace(BitsAndBytesConfig=dict), "bitsandbytes": None}
    monkeypatch.setattr(transformer, "require", lambda module, extra: modules[module])
    config = transformer.MoeeConfig(**settings)
    options = transformer._loading_options(config, transformer._quantization(config))
    return options["model_kwargs"].get("quantization_config")


def test_weights_are_in_nf4_where_the_machine_can(monkeypatch, olmoe):
    nf4 = {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": True,
        "bnb_4bit_compute_dtype": torch.bfloat16,
    }
    assert loaded_with(monkeypatch, standard="faithful") == nf4
    assert loaded_with(monkeypatch, quantize="nf4") == nf4
    assert loaded_with(monkeypatch, standard="faithful", quantize="none") is None
    assert loaded_with(monkeypatch) is None
