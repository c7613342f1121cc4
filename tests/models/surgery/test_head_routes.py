"""Routes that own a head: a linear map of the pooled vector, which stock loaders load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

import sentence_experts
from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.models.architectures.packed_forward import use_packing
from sentence_experts.models.dense import export_route
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.files.fingerprint import fingerprint_of
from sentence_experts.models.files.saving import save
from sentence_experts.models.pooling import make_pooled_model
from sentence_experts.models.surgery.add_drop_routes import add_route, drop_route, with_heads

WIDTH = 32
ONE_FAMILY = pytest.mark.parametrize("family", ["bert"])
Heads = dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]


def random_heads(*names: str) -> Heads:
    generator = np.random.default_rng(3)
    draw = lambda *shape: generator.normal(size=shape).astype(np.float32)  # noqa: E731
    return {name: (draw(WIDTH, WIDTH) / 5, draw(WIDTH)) for name in names}


@pytest.fixture
def heads(base: SentenceTransformer) -> ExpertEncoder:
    """A model of two heads that differ, on the base."""
    return with_heads(base, random_heads("use", "works with"))


def vectors(encoder: SentenceTransformer, texts: list[str], name: str) -> torch.Tensor:
    return encoder.encode(texts, prompt_name=name, convert_to_tensor=True)


def test_new_heads_give_the_bases_vectors_to_the_bit(
    family: str, base_folders: dict[str, Path], texts: list[str]
) -> None:
    base = sentence_experts.load(base_folders[family], device="cpu")
    encoder = sentence_experts.extend(base, routes=["use", "works with"], kind="head")
    for name in ("use", "works with"):
        assert torch.equal(vectors(encoder, texts, name), base.encode(texts, convert_to_tensor=True))


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "cls", "lasttoken"])
def test_a_head_maps_the_pooled_vector(
    base: SentenceTransformer, texts: list[str], packed: bool, pooling: str
) -> None:
    dense = SentenceTransformer(modules=[base[0], Pooling(WIDTH, pooling), Normalize()])
    given = random_heads("use", "works with")
    encoder = with_heads(dense, given)
    use_packing(encoder, packed)
    pooled = make_pooled_model(dense).encode(texts)
    assert np.abs(np.linalg.norm(pooled, axis=1) - 1).min() > 0.01  # not yet of length 1
    for name, (weight, bias) in given.items():
        assert np.abs(encoder.without_heads().encode(texts, prompt_name=name) - pooled).max() <= 2e-6
        mapped = pooled @ weight.T + bias
        expected = mapped / np.linalg.norm(mapped, axis=1, keepdims=True)
        assert np.abs(encoder.encode(texts, prompt_name=name) - expected).max() <= 2e-6
        assert np.abs(encoder.finish(mapped) - expected).max() <= 2e-6


def test_mixed_batches_and_gradients(base: SentenceTransformer) -> None:
    grown = add_route(with_heads(base, random_heads("use", "works with")), "copd")
    routed = ["[USE]rice", "[COPD]lungs", "[WORKS_WITH]light water", "[USE]the heart", "[COPD]x"]
    together = grown.encode(routed)
    assert np.abs(together - np.stack([grown.encode(text) for text in routed])).max() <= 2e-6
    use_packing(grown, packed=False)
    assert np.abs(together - grown.encode(routed)).max() <= 2e-6
    grown.train()
    grown(grown.preprocess(routed[:2]))["sentence_embedding"].sum().backward()
    gradients = [head.weight.grad for head in grown.routed_model.heads]
    assert gradients[0].abs().sum() > 0
    assert gradients[1] is None  # no text of its route


def test_saved_with_a_file_per_head_and_opened_by_stock_loaders(
    heads: ExpertEncoder, texts: list[str], tmp_path: Path
) -> None:
    save(heads, tmp_path / "model")
    save(with_heads(heads, random_heads("works with")), tmp_path / "other")
    files = {file.name for file in (tmp_path / "model").glob("*.safetensors")}
    assert files == {
        "model-shared.safetensors",
        "model-head-000.safetensors",
        "model-head-001.safetensors",
    }
    one, other = (
        {name: (tmp_path / folder / name).read_bytes() for name in files} for folder in ("model", "other")
    )
    assert {name for name in files if one[name] != other[name]} == {"model-head-001.safetensors"}
    stock = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    for name in ("use", "works with"):
        assert torch.equal(vectors(stock, texts, name), vectors(heads, texts, name))
    again = sentence_experts.load(tmp_path / "model", device="cpu")
    for name, (weight, bias) in random_heads("use").items():
        assert np.array_equal(again.head_routes[name][0], weight)
        assert np.array_equal(again.head_routes[name][1], bias)
    with pytest.raises(RouteError, match="no known route"):
        again.encode(["heart"])


def test_other_routes_stay_when_one_comes_or_goes(
    heads: ExpertEncoder, texts: list[str], tmp_path: Path
) -> None:
    grown = add_route(add_route(heads, "new", kind="head"), "copd")
    fewer = drop_route(drop_route(grown, "use"), "new")
    assert [route.kind for route in grown.routes] == ["head", "head", "head", "expert"]
    assert fewer.head_routes.keys() == {"works with"}
    models = {"before": heads, "grown": grown, "fewer": fewer}
    for name, model in models.items():
        save(model, tmp_path / name)
        models[name] = sentence_experts.load(tmp_path / name, device="cpu")
    for name, routes in {"grown": ["use", "works with"], "fewer": ["works with"]}.items():
        for route in routes:
            assert torch.equal(vectors(models[name], texts, route), vectors(heads, texts, route))
            assert fingerprint_of(models[name], route) == fingerprint_of(models["before"], route)
    assert len({fingerprint_of(models["grown"], route.name) for route in grown.routes}) == 4


def test_heads_on_one_expert_share_what_they_map(
    heads: ExpertEncoder, scatter: Callable[..., ExpertEncoder], texts: list[str], tmp_path: Path
) -> None:
    """So an index needs one vector per text: equal, and of equal fingerprints, whatever was trained since."""
    model = scatter(add_route(add_route(heads, "copd"), "lungs", kind="head", on="copd"))
    save(model, tmp_path / "model")
    pooled = sentence_experts.load(tmp_path / "model", device="cpu").without_heads()
    shared = {route.name: vectors(pooled, texts, route.name) for route in model.routes}
    hashes = {route.name: fingerprint_of(pooled, route.name) for route in model.routes}
    for one, other, same in (
        ("use", "works with", True),
        ("copd", "lungs", True),
        ("use", "copd", False),
    ):
        assert torch.equal(shared[one], shared[other]) == same
        assert (hashes[one] == hashes[other]) == same
    whole = sentence_experts.load(tmp_path / "model", device="cpu")
    assert fingerprint_of(whole, "use") not in hashes.values()
    assert torch.equal(vectors(whole, texts, "copd"), vectors(whole, texts, "lungs"))
    dropped = drop_route(model, "copd")
    assert [route.name for route in dropped.routes] == ["use", "works with"]


def test_a_head_on_the_base_of_a_model_of_experts(
    mixed: ExpertEncoder, base: SentenceTransformer, texts: list[str]
) -> None:
    with pytest.raises(UsageError, match="give `on`, one of copd, cvd"):
        add_route(mixed, "use", kind="head")
    grown = add_route(add_route(mixed, "use", kind="head", base=base), "field", kind="head")
    assert grown.experts[-1] == "base"
    for name in ("use", "field"):
        assert np.abs(grown.encode(texts, prompt_name=name) - base.encode(texts)).max() <= 1e-6
    for name in mixed.experts:
        assert torch.equal(vectors(grown, texts, name), vectors(mixed, texts, name))


@pytest.mark.parametrize("kind", ["head", "adapter"])
def test_a_base_whose_shared_weights_were_trained_is_refused(
    mixed: ExpertEncoder, base: SentenceTransformer, kind: str
) -> None:
    with pytest.raises(UsageError, match="`on` and `base` both"):
        add_route(mixed, "use", kind=kind, base=base, on="copd")  # type: ignore[arg-type]
    grown = add_route(mixed, "use", kind=kind, base=base)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="the model has an expert named"):
        add_route(grown, "field", kind=kind, base=base)  # type: ignore[arg-type]
    weights = mixed.routed_model.named_parameters()
    shared = next(each for name, each in weights if "layer" in name and ".experts." not in name)
    with torch.no_grad():
        shared.view(-1)[0] += 1e-3
    with pytest.raises(UsageError, match="share are not those of the base"):
        add_route(mixed, "use", kind=kind, base=base)  # type: ignore[arg-type]
    assert "crops" in add_route(mixed, "crops", seed_from="base", base=base).experts


def test_exported_as_a_dense_module(heads: ExpertEncoder, texts: list[str], tmp_path: Path) -> None:
    dense = export_route(heads, "works with")
    dense.save(str(tmp_path))
    stock = SentenceTransformer(str(tmp_path), device="cpu")
    assert [type(module).__name__ for module in stock][1:] == ["Pooling", "Dense", "Normalize"]
    expected = heads.encode(texts, prompt_name="works with")
    assert np.abs(stock.encode(texts) - expected).max() <= 1e-6


def test_weights_that_require_gradients_are_taken(base: SentenceTransformer, texts: list[str]) -> None:
    given = random_heads("use")
    layers = {
        name: tuple(torch.nn.Parameter(torch.as_tensor(each)) for each in head)
        for name, head in given.items()
    }
    found, expected = (vectors(with_heads(base, heads), texts, "use") for heads in (layers, given))
    assert torch.equal(found, expected)


def test_heads_of_low_rank(heads: ExpertEncoder, texts: list[str], tmp_path: Path) -> None:
    generator = np.random.default_rng(5)
    down, up = (generator.normal(size=shape) for shape in ((3, WIDTH), (WIDTH, 3)))
    weight, bias = np.eye(WIDTH) + up @ down / WIDTH, generator.normal(size=WIDTH)
    grown = add_route(heads, "field", kind="head", rank=3)
    assert torch.equal(
        vectors(grown, texts, "field"), vectors(add_route(heads, "same", kind="head"), texts, "same")
    )
    model = with_heads(grown, {"field": (weight, bias)})
    assert sum(each.numel() for each in model.head("field").parameters()) == 2 * 3 * WIDTH + WIDTH
    full = with_heads(heads, {"field": (weight, bias)})
    assert (
        np.abs(model.encode(texts, prompt_name="field") - full.encode(texts, prompt_name="field")).max()
        <= 2e-6
    )
    save(model, tmp_path / "model")
    stock = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    for name in ("use", "works with"):
        assert torch.equal(vectors(stock, texts, name), vectors(heads, texts, name))
    assert torch.equal(vectors(stock, texts, "field"), vectors(model, texts, "field"))
    dense = export_route(model, "field")
    assert np.abs(dense.encode(texts) - model.encode(texts, prompt_name="field")).max() <= 2e-6
    with pytest.raises(UsageError, match="'field' differs from the identity by more than rank 3"):
        with_heads(model, random_heads("field"))
    with pytest.raises(UsageError, match="`rank` is not for `kind='expert'`"):
        add_route(model, "botany", rank=3)


def test_experts_come_and_go_below_heads(heads: ExpertEncoder, texts: list[str], tmp_path: Path) -> None:
    save(add_route(heads, "copd"), tmp_path / "model")
    whole = sentence_experts.load(tmp_path / "model", device="cpu")
    part = sentence_experts.load(tmp_path / "model", device="cpu", routes=["use"])
    assert part.loaded_routes == ("use", "works with")
    assert torch.equal(vectors(part, texts, "use"), vectors(whole, texts, "use"))
    (tmp_path / "model" / "model-expert-001.safetensors").unlink()
    part = sentence_experts.load(tmp_path / "model", device="cpu", routes=["use"])
    assert torch.equal(vectors(part, texts, "use"), vectors(whole, texts, "use"))
    limited = sentence_experts.load(tmp_path / "model", device="cpu", max_resident_experts=1)
    assert torch.equal(vectors(limited, texts, "works with"), vectors(whole, texts, "works with"))


@ONE_FAMILY
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layers": "0"}, "`layers` is for `kind='expert'`"),
        ({"route": "prefix"}, "`route` is for"),
        ({"routes": ["a", "a"]}, "named twice: 'a'"),
        ({"routes": ["base"]}, "cannot be named 'base'"),
        ({"routes": []}, "name at least one route"),
        ({"experts": ["a"]}, "name `routes` instead"),
        ({"kind": "lens"}, "kind"),
    ],
)
def test_wrong_heads(base: SentenceTransformer, arguments: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        sentence_experts.extend(base, **{"routes": ["a"], "kind": "head"} | arguments)


@ONE_FAMILY
def test_heads_that_do_not_fit(base: SentenceTransformer, heads: ExpertEncoder) -> None:
    largest = SentenceTransformer(modules=[base[0], Pooling(WIDTH, "max")])
    with pytest.raises(InputError, match=r"one pooling of mean.*this model's is max"):
        sentence_experts.extend(largest, routes=["a"], kind="head")
    with pytest.raises(UsageError, match=r"not \(32, 32\) and \(32,\)"):
        with_heads(base, {"a": (np.eye(3), np.zeros(3))})
    with pytest.raises(UsageError, match="not finite"):
        with_heads(base, {"a": (np.full((WIDTH, WIDTH), np.inf), np.zeros(WIDTH))})
    with pytest.raises(UsageError, match="a route 'copd' already"):
        with_heads(add_route(heads, "copd"), random_heads("copd"))
    learned = sentence_experts.extend(base, ["copd", "cvd"], route="none", router="learned")
    with pytest.raises(UsageError, match="routers choose the experts"):
        add_route(learned, "a", kind="head")
    with pytest.raises(UsageError, match="`prefix` is not for"):
        add_route(heads, "a", kind="head", prefix="a: ")
    with pytest.raises(UsageError, match="only one"):
        drop_route(drop_route(heads, "use"), "works with")
    with pytest.raises(UsageError, match="no route or expert 'c'"):
        drop_route(heads, "c")
