"""One route, or the mean of all experts, as a dense encoder of the base's family."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import sentence_experts
from helpers.fresh_process import run_fresh
from sentence_experts.errors import RouteError
from sentence_experts.models.architectures.families import family_of_base
from sentence_experts.models.dense import average_experts, export_route
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.files.saving import save
from sentence_experts.storage import RECORD

NAMES = ["copd", "cvd", "skin cancer"]
# The package may lie on the path; whoever imports it fails.
WITHOUT_PACKAGE = """
import sys
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "sentence_experts":
            raise ImportError("sentence_experts is not here")
sys.meta_path.insert(0, Refused())
import json, numpy as np, torch
torch.set_num_threads(1)
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer
texts = json.loads(sys.argv[1])
for folder in sys.argv[2:]:
    np.save(folder + ".npy", SentenceTransformer(folder, device="cpu").encode(texts))
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    outputs = model(**tokenizer(texts[:3], padding=True, truncation=True, return_tensors="pt"))
    assert torch.isfinite(outputs.last_hidden_state).all()
    print(type(model).__name__, model.num_parameters())
"""


ONE_FAMILY = pytest.mark.parametrize("family", ["bert"])


def parameters(encoder: SentenceTransformer) -> int:
    return sum(parameter.numel() for parameter in encoder.parameters())


def test_it_gives_the_routes_vectors(
    mixed: ExpertEncoder, base: SentenceTransformer, texts: list[str]
) -> None:
    texts = [*texts, "[SEP]", "[COPD]", "[CVD]typed by hand", "[copd] as typed", "x [MASK] y", "[PAD]"]
    for name in NAMES:
        dense = export_route(mixed, name)
        expected = mixed.encode(texts, expert_ids=NAMES.index(name))
        assert np.abs(dense.encode(texts) - expected).max() <= 1e-6
        assert not np.allclose(dense.encode(texts), base.encode(texts), atol=1e-3)


def test_merged_model_has_the_type_of_its_base(
    mixed: ExpertEncoder, base: SentenceTransformer, texts: list[str]
) -> None:
    dense = export_route(mixed, "cvd")
    assert type(dense) is SentenceTransformer
    assert type(dense[0].auto_model) is type(base[0].auto_model)
    assert parameters(dense) == parameters(base)
    assert dense[0].auto_model.config.vocab_size == base[0].auto_model.config.vocab_size
    assert len(dense.tokenizer) == len(base.tokenizer)
    for text in [*texts, "[CLS]", "[CVD]", "a [CLS] b"]:
        assert dense.tokenizer(text)["input_ids"] == base.tokenizer(text)["input_ids"]
        assert dense.tokenizer(text, "b")["input_ids"] == base.tokenizer(text, "b")["input_ids"]
    assert dense.prompts.get("cvd", "") == ""
    assert dense.max_seq_length == mixed.max_seq_length


def test_files_name_no_experts(mixed: ExpertEncoder, tmp_path: Path, family: str) -> None:
    save(export_route(mixed, "copd"), tmp_path / "dense")
    config = json.loads((tmp_path / "dense" / "config.json").read_text())
    assert config["model_type"] == family
    assert "auto_map" not in config
    for file in (tmp_path / "dense").rglob("*.json"):
        if file.name == RECORD:
            continue  # it names the package
        assert "expert" not in file.read_text().lower(), file.name
        assert "[SKIN_CANCER]" not in file.read_text(), file.name


def test_without_the_package(
    bases: dict[str, SentenceTransformer],
    scatter: Callable[..., ExpertEncoder],
    texts: list[str],
    tmp_path: Path,
) -> None:
    expected, sizes = {}, []
    for family, base in bases.items():
        encoder = scatter(sentence_experts.extend(base, NAMES, expert_norms=True))
        save(export_route(encoder, "cvd"), tmp_path / family)
        expected[family] = encoder.encode(texts, prompt_name="cvd")
        sizes.append(f"{type(base[0].auto_model).__name__} {base[0].auto_model.num_parameters()}")
    folders = [str(tmp_path / family) for family in bases]
    done = run_fresh(WITHOUT_PACKAGE, json.dumps(texts), *folders)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split("\n")[:-1] == sizes
    for family, vectors in expected.items():
        assert np.abs(np.load(tmp_path / f"{family}.npy") - vectors).max() <= 1e-6


def test_an_instruction_becomes_the_default_prompt(
    base: SentenceTransformer, scatter: Callable[..., ExpertEncoder], texts: list[str]
) -> None:
    encoder = scatter(sentence_experts.extend(base, ["query", "passage"], route="prefix", layers="alternate"))
    dense = export_route(encoder, "passage")
    assert (dense.prompts["passage"], dense.default_prompt_name) == ("passage: ", "passage")
    assert np.abs(dense.encode(texts) - encoder.encode(texts, prompt_name="passage")).max() <= 1e-6
    assert parameters(dense) == parameters(base)


def test_the_bases_own_prompt_stays(
    base_folders: dict[str, Path], family: str, scatter: Callable[..., ExpertEncoder]
) -> None:
    base = SentenceTransformer(
        str(base_folders[family]), device="cpu", prompts={"q": "query: "}, default_prompt_name="q"
    )
    encoder = scatter(sentence_experts.extend(base, ["copd", "cvd"]))
    expected = encoder.encode(["heart"], prompt_name="cvd")
    assert np.abs(export_route(encoder, "cvd").encode(["heart"]) - expected).max() <= 1e-6
    assert average_experts(encoder).default_prompt_name is not None


@pytest.mark.parametrize("fields", [{"router": "learned", "route": "none"}, {"kind": "head"}])
def test_the_bases_prompts_stay_without_a_route(
    base_folders: dict[str, Path], fields: dict[str, str]
) -> None:
    base = SentenceTransformer(
        str(base_folders["bert"]), device="cpu", prompts={"query": "query: "}, default_prompt_name="query"
    )
    names = {"routes": ["a", "b"]} if "kind" in fields else {"experts": ["a", "b"]}
    encoder = sentence_experts.extend(base, **names, **fields)
    made = [export_route(encoder, "base" if "kind" in fields else "a")]
    made += [] if "kind" in fields else [average_experts(encoder)]
    for dense in made:
        assert np.abs(dense.encode(["heart"]) - base.encode(["heart"])).max() <= 1e-6


def test_a_dense_model_with_tokens(
    base: SentenceTransformer, scatter: Callable[..., ExpertEncoder], texts: list[str]
) -> None:
    encoder = scatter(sentence_experts.extend(base, NAMES, layers="none"))
    expected = encoder.encode(texts, prompt_name="skin cancer")
    assert np.abs(export_route(encoder, "skin cancer").encode(texts) - expected).max() <= 1e-6


@ONE_FAMILY
def test_leaving_out_a_learned_router_is_logged(
    mixed: ExpertEncoder, base: SentenceTransformer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "sentence_experts")
    export_route(mixed, "cvd")
    assert "every block" not in caplog.text
    export_route(sentence_experts.extend(base, NAMES, route="none", router="learned"), "cvd")
    assert "uses the expert 'cvd' in every block" in caplog.text


@ONE_FAMILY
def test_no_such_route(mixed: ExpertEncoder) -> None:
    with pytest.raises(RouteError, match=r"'cancer'; known routes are copd"):
        export_route(mixed, "cancer")


def mean_by_hand(encoder: ExpertEncoder, base: SentenceTransformer) -> SentenceTransformer:
    """A copy of the base with each expert-owned weight, and [CLS]'s row, set to the mean."""
    weights = [1 / len(encoder.experts)] * len(encoder.experts)
    family = family_of_base(base[0].auto_model.config.model_type)
    routed, made = encoder[0].auto_model, export_route(encoder, encoder.experts[0])
    dense = made[0].auto_model
    with torch.no_grad():
        for block, experts_block in zip(
            dense.get_submodule(family.blocks), routed.get_submodule(family.blocks), strict=True
        ):
            for inside, path in family.owned(expert_norms=True).items():
                for name, parameter in block.get_submodule(path).named_parameters():
                    parts = [expert[inside].get_parameter(name) for expert in experts_block.experts]
                    parameter.copy_(sum(w * part for w, part in zip(weights, parts, strict=True)))
        rows = routed.get_input_embeddings().weight[[route.token_ids[0] for route in encoder.routes]]
        dense.get_input_embeddings().weight[base.tokenizer.cls_token_id] = torch.tensor(weights) @ rows
    return made


def test_the_average_is_the_mean_of_the_experts(
    mixed: ExpertEncoder, base: SentenceTransformer, texts: list[str]
) -> None:
    averaged = average_experts(mixed)
    expected = mean_by_hand(mixed, base).encode(texts)
    assert np.abs(averaged.encode(texts) - expected).max() <= 1e-5
    assert parameters(averaged) == parameters(base)


@ONE_FAMILY
def test_the_average_weighs_tokens_as_the_experts_that_they_lead_to(
    mixed: ExpertEncoder, base: SentenceTransformer
) -> None:
    names = mixed.experts
    grown = sentence_experts.add_route(mixed, "use", kind="adapter", on=names[1])
    parts = [dict(export_route(mixed, name)[0].model.named_parameters()) for name in names]
    mean = dict(average_experts(grown)[0].model.named_parameters())
    weights = [0.25, 0.5, 0.25]  # of the routes: two of four sit on the second expert
    for name, weight in mean.items():
        expected = sum(share * part[name] for share, part in zip(weights, parts, strict=True))
        assert torch.allclose(weight, expected, atol=1e-6), name


def test_the_average_before_training_is_the_base(base: SentenceTransformer, texts: list[str]) -> None:
    averaged = average_experts(sentence_experts.extend(base, NAMES))
    assert np.abs(averaged.encode(texts) - base.encode(texts)).max() <= 1e-6


def test_the_average_of_heads_is_the_mean_of_the_mapped_vectors(
    base: SentenceTransformer, texts: list[str]
) -> None:
    rng, width = np.random.default_rng(0), base.get_embedding_dimension()
    maps = {name: (rng.normal(size=(width, width)), rng.normal(size=width)) for name in ("use", "field")}
    encoder = sentence_experts.with_heads(base, maps)
    pooled = encoder.without_heads().encode(texts, prompt_name="use")
    mapped = sum((pooled @ weight.T + bias) / 2 for weight, bias in maps.values())
    assert np.abs(average_experts(encoder).encode(texts) - encoder.finish(mapped)).max() <= 1e-5


@ONE_FAMILY
def test_the_average_of_adapters_is_the_mean_of_their_changes(
    base: SentenceTransformer,
) -> None:
    encoder = sentence_experts.extend(base, routes=["use", "field"], kind="adapter", rank=2)
    for name, weight in encoder.named_parameters():
        if ".adapters." in name:
            torch.nn.init.normal_(weight, std=0.1)
    one, other, mean = (
        dict(each[0].model.named_parameters())
        for each in (*(export_route(encoder, name) for name in ("use", "field")), average_experts(encoder))
    )
    changed = [name for name in mean if not torch.equal(one[name], other[name])]
    assert changed
    for name, weight in mean.items():
        assert torch.allclose(weight, (one[name] + other[name]) / 2, atol=1e-6)
