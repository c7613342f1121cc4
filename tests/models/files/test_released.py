"""Checkpoints of the layout that the domain experts' authors released: the vectors are those of their code.

None of theirs was at hand. The folder has the names and shapes of their code, and random weights; the vectors
are computed from its formulas, one text at a time, behind their tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer
from torch import Tensor
from torch.nn.functional import gelu, layer_norm
from transformers import AutoTokenizer

import sentence_experts as se
from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.models.routes.known_routes import KnownRoutes

DOMAINS = {"copd": "[COPD]", "cvd": "[CVD]", "cancer": "[CANCER]"}
WIDTH, HIDDEN, HEADS, BLOCKS, BASE_ROWS = 32, 48, 4, 4, 342
CONFIG = {
    "architectures": ["MoEBertForSentenceSimilarity"],
    "attention_bias": False, "bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3, "sep_token_id": 3,
    "pad_token_id": 0, "global_attn_every_n_layers": 2, "global_rope_theta": 160000.0,
    "hidden_activation": "gelu", "hidden_size": WIDTH, "intermediate_size": HIDDEN, "local_attention": 8,
    "local_rope_theta": 10000.0,
    "lora": False, "lora_alpha": 32, "lora_dropout": 0.01, "lora_r": 8, "loss_type": "mnr_plus",
    "max_position_embeddings": 8192, "mlp_bias": False, "model_type": "modernbert", "norm_bias": False,
    "norm_eps": 1e-05, "num_attention_heads": HEADS, "num_experts": 3, "num_hidden_layers": BLOCKS,
    "reference_compile": None, "torch_dtype": "float32", "transformers_version": "4.48.3",
    "vocab_size": BASE_ROWS + len(DOMAINS),
}  # fmt: skip
TEXTS = ["The heart pumps blood; vessels.", "lungs", "", "plants crops wheat rice [COPD] roots"]
# Builds their checkpoint with this many experts, and returns its folder.
Build = Callable[[int], Path]


def weights_of(experts: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(experts)

    def random(*shape: int, norm: bool = False) -> Tensor:
        return (1.0 if norm else 0.0) + 0.3 * torch.randn(shape, generator=generator)

    found = {"bert.embeddings.tok_embeddings.weight": random(BASE_ROWS + len(DOMAINS), WIDTH)}
    norms = ["embeddings.norm", *(f"layers.{n}.mlp_norm" for n in range(BLOCKS)), "final_norm"]
    norms += [f"layers.{n}.attn_norm" for n in range(1, BLOCKS)]  # the first block has none
    found |= {f"bert.{name}.weight": random(WIDTH, norm=True) for name in norms}
    for block in (f"bert.layers.{number}" for number in range(BLOCKS)):
        found |= {
            f"{block}.attn.Wqkv.weight": random(3 * WIDTH, WIDTH),
            f"{block}.attn.Wo.weight": random(WIDTH, WIDTH),
        }
        for mlp in [f"{block}.mlp"] if experts == 1 else [f"{block}.mlp.experts.{e}" for e in range(experts)]:
            found |= {
                f"{mlp}.Wi.weight": random(2 * HIDDEN, WIDTH),
                f"{mlp}.Wo.weight": random(WIDTH, HIDDEN),
            }
    for name in ("w1", "w2"):
        found |= {f"pooler.{name}.weight": random(WIDTH, WIDTH), f"pooler.{name}.bias": random(WIDTH)}
    return found | {
        "pooler.layernorm.weight": random(WIDTH, norm=True),
        "pooler.layernorm.bias": random(WIDTH),
    }


def write_tokenizer(base: Path, folder: Path) -> None:
    """As transformers 4 saved a tokenizer to which `additional_special_tokens` were added."""
    backend = Tokenizer.from_file(str(base / "tokenizer.json"))
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in DOMAINS.values()])
    backend.save(str(folder / "tokenizer.json"))
    settings = json.loads((base / "tokenizer_config.json").read_text())
    added = {str(number): {"content": token.content, "special": token.special}
             for number, token in backend.get_added_tokens_decoder().items()}  # fmt: skip
    settings |= {"additional_special_tokens": [*DOMAINS.values()], "added_tokens_decoder": added}
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 8192}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.fixture
def build(plain_folders: dict[str, Path], tmp_path: Path) -> Build:
    def made(experts: int) -> Path:
        folder = tmp_path / f"{experts}-HF"
        folder.mkdir()
        write_tokenizer(plain_folders["modernbert"], folder)
        (folder / "config.json").write_text(json.dumps({**CONFIG, "num_experts": experts}))
        save_file(weights_of(experts), folder / "model.safetensors", {"format": "pt"})
        return folder

    return made


def turned(states: Tensor, theta: float) -> Tensor:
    """Rotary positions: each half-pair of features turned by position times frequency."""
    half = states.shape[-1] // 2
    angles = torch.arange(len(states))[:, None] * theta ** (-torch.arange(half) / half)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    one, other = states[..., :half], states[..., half:]
    return torch.cat([one * cos - other * sin, other * cos + one * sin], dim=-1)


def their_vector(weights: dict[str, Tensor], ids: list[int], expert: int | None) -> np.ndarray:
    """The vector of one text by the formulas of their code; `expert` None where there are none."""

    def norm(x: Tensor, name: str) -> Tensor:
        return layer_norm(x, [WIDTH], weights[f"bert.{name}.weight"], eps=1e-5)

    x = norm(weights["bert.embeddings.tok_embeddings.weight"][ids], "embeddings.norm")
    places = torch.arange(len(ids))
    near = (places[:, None] - places).abs() <= CONFIG["local_attention"] // 2
    for number in range(BLOCKS):
        block, local = f"layers.{number}", number % 2 != 0
        of = {name.removeprefix(f"bert.{block}."): value for name, value in weights.items()}
        h = norm(x, f"{block}.attn_norm") if number else x
        q, k, v = (h @ of["attn.Wqkv.weight"].T).view(len(ids), 3, HEADS, -1).unbind(1)
        theta = 10_000.0 if local else 160_000.0
        scores = torch.einsum("qhd,khd->hqk", turned(q, theta), turned(k, theta)) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(~near, -torch.inf) if local else scores
        mixed = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).reshape(len(ids), WIDTH)
        x = x + mixed @ of["attn.Wo.weight"].T
        mlp = "mlp" if expert is None else f"mlp.experts.{expert}"
        value, gate = (norm(x, f"{block}.mlp_norm") @ of[f"{mlp}.Wi.weight"].T).chunk(2, dim=-1)
        x = x + (gelu(value) * gate) @ of[f"{mlp}.Wo.weight"].T
    pooled = norm(x, "final_norm").mean(0)
    pooled = layer_norm(pooled, [WIDTH], weights["pooler.layernorm.weight"], weights["pooler.layernorm.bias"])
    inner = torch.tanh(pooled @ weights["pooler.w1.weight"].T + weights["pooler.w1.bias"])
    return np.asarray(inner @ weights["pooler.w2.weight"].T + weights["pooler.w2.bias"])


def their_vectors(folder: Path, domain: str, token: str | None = None) -> np.ndarray:
    """Vectors of `TEXTS`: as in their collator, the domain's token, or `token`, replaces the first one."""
    tokenizer, weights = AutoTokenizer.from_pretrained(folder), load_file(folder / "model.safetensors")
    experts = json.loads((folder / "config.json").read_text())["num_experts"]
    lead = tokenizer.convert_tokens_to_ids(token or DOMAINS[domain])
    expert = [*DOMAINS].index(domain) if experts > 1 else None
    texts = [text.replace("[COPD]", "") for text in TEXTS]  # which is no text for theirs
    return np.stack(
        [their_vector(weights, [lead, *tokenizer(text)["input_ids"][1:]], expert) for text in texts]
    )


def our_vectors(model: Any, domain: str) -> np.ndarray:
    return np.asarray(model.encode([text.replace("[COPD]", "") for text in TEXTS], prompt_name=domain))


@pytest.mark.parametrize("experts", [3, 1])
def test_the_vectors_are_those_of_their_code(build: Build, experts: int) -> None:
    folder = build(experts)
    model = se.load(folder)
    assert model.max_seq_length == 512, "as their collator cuts texts"
    vectors = {domain: our_vectors(model, domain) for domain in DOMAINS}
    for domain, own in vectors.items():
        assert np.abs(own - their_vectors(folder, domain)).max() < 1e-5
    assert np.abs(vectors["copd"] - vectors["cvd"]).max() > 0.01
    known = KnownRoutes.read(folder)
    assert known is not None
    assert known.prompts == DOMAINS
    found = se.encode(folder, ["lungs"], route="cvd")
    assert np.abs(found - vectors["cvd"][1]).max() < 1e-5
    with pytest.raises(RouteError, match="copd"):
        se.encode(folder, ["a"], route="skin")


def test_tokens_that_were_not_trained_stand_for_cls(build: Build) -> None:
    folder = build(3)
    weights = load_file(folder / "model.safetensors")
    weights["bert.embeddings.tok_embeddings.weight"][-3:] = 0.1
    save_file(weights, folder / "model.safetensors")
    model = se.load(folder)
    assert np.abs(our_vectors(model, "cvd") - their_vectors(folder, "cvd", "[CLS]")).max() < 1e-5


def test_it_is_saved_exported_and_loaded_in_part_as_any_model(build: Build, tmp_path: Path) -> None:
    folder = build(3)
    model = se.load(folder)
    before = our_vectors(model, "cvd")
    model.save(str(tmp_path / "saved"))
    part = se.load(tmp_path / "saved", routes=["cvd"])
    assert np.abs(our_vectors(part, "cvd") - before).max() < 1e-6
    dense = se.export(model, route="cvd")
    assert np.abs(dense.encode(["lungs"]) - before[1]).max() < 1e-5
    with pytest.raises(UsageError, match=r"routes.*save the model"):
        se.load(folder, routes=["cvd"])


def change(folder: Path, name: str, value: Any) -> None:
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**content, name: value}))


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("model_type", "bert", "older layout on 'bert'"),
        ("lora", True, "low-rank"),
        ("rope_scaling", {"type": "linear", "factor": 2.0}, "rope_scaling"),
        ("num_experts", 2, "2 experts, but 3 domain tokens"),
        ("num_experts", 1, "weights are missing: .*mlp.Wi.weight"),
        ("intermediate_size", 40, r"mlp.Wi.weight is \(96, 32\), not \(80, 32\)"),
    ],
)
def test_what_cannot_be_expressed_is_refused(build: Build, name: str, value: Any, told: str) -> None:
    folder = build(3)
    change(folder, name, value)
    with pytest.raises(InputError, match=told):
        se.load(folder)


@pytest.mark.parametrize(
    ("without", "extra", "told"),
    [
        ("pooler.w1.bias", None, "model.safetensors: weights are missing: pooler.w1.bias"),
        ("bert.final_norm.weight", None, "weights are missing: final_norm.weight"),
        (None, "bert.layers.0.attn.Wo.lora_A", "not of this model: layers.0.attn.Wo.lora_A"),
    ],
)
def test_other_weights_are_refused(build: Build, without: str | None, extra: str | None, told: str) -> None:
    folder = build(3)
    weights = load_file(folder / "model.safetensors")
    save_file(
        {name: value for name, value in weights.items() if name != without}
        | ({extra: torch.ones(2)} if extra else {}),
        folder / "model.safetensors",
    )
    with pytest.raises(InputError, match=told):
        se.load(folder)


@pytest.mark.parametrize(
    ("tokens", "told"), [([], "there are none"), (["COPD"], "not like"), (["[CVD]"], "last tokens")]
)
def test_other_tokens_are_refused(build: Build, tokens: list[str], told: str) -> None:
    folder = build(1)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "additional_special_tokens": tokens}))
    with pytest.raises(InputError, match=told):
        se.load(folder)
