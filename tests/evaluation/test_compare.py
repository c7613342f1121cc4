"""What a change did to each route."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import sentence_experts
from helpers.samples import TOPICS, make_pairs_folder, make_tiny_encoder
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.evaluation.compare import compare, measured_by_domain, route_changes
from sentence_experts.evaluation.pairs import checked_table
from sentence_experts.models.loading import load
from sentence_experts.models.surgery.add_drop_routes import add_route, drop_route
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.report.write import report_of


@pytest.fixture(scope="module")
def before(experts_model: Path) -> BatchEncoder:
    return BatchEncoder(load(experts_model, device="cpu"))


def wrapped(model: sentence_experts.ExpertEncoder) -> BatchEncoder:
    return BatchEncoder(model, name="changed")


def test_unchanged_routes_are_bit_equal(before: BatchEncoder, experts_model: Path) -> None:
    grown = wrapped(add_route(sentence_experts.load(experts_model, device="cpu"), "marine"))
    changes = route_changes(before, grown)
    assert [(change.route, change.bit_equal) for change in changes] == [("crops", True), ("neuro", True)]
    assert all(change.largest_difference == 0 for change in changes)


def test_changed_route_is_reported(before: BatchEncoder, experts_model: Path) -> None:
    model = sentence_experts.load(experts_model, device="cpu")
    token = next(route.token_ids[0] for route in model.routes if route.name == "neuro")
    with torch.no_grad():
        model[0].auto_model.get_input_embeddings().weight[token] += 0.5
    crops, neuro = route_changes(before, wrapped(model))
    assert (crops.bit_equal, neuro.bit_equal) == (True, False)
    expected = before.encode(["leaves"], "neuro"), wrapped(model).encode(["leaves"], "neuro")
    (one,) = [each for each in route_changes(before, wrapped(model), ["leaves"]) if each.route == "neuro"]
    assert one.largest_difference == pytest.approx(float(abs(expected[0] - expected[1]).max()))
    assert neuro.smallest_cosine <= one.smallest_cosine < 1


def test_metrics_of_a_removed_route_are_none(
    before: BatchEncoder, experts_model: Path, tmp_path: Path
) -> None:
    table = checked_table(Pairs.open(make_pairs_folder(tmp_path / "pairs")).split("test"))
    dropped = wrapped(drop_route(sentence_experts.load(experts_model, device="cpu"), "crops"))
    first, second = measured_by_domain(before, table), measured_by_domain(dropped, table)
    assert second["crops"] is None
    assert first["crops"] is not None
    assert second["neuro"].figures == first["neuro"].figures


def test_a_verdict_says_which_domains_became_worse(experts_model: Path, tmp_path: Path) -> None:
    pairs = make_pairs_folder(tmp_path / "pairs", pairs=60)
    changed = sentence_experts.load(experts_model, device="cpu")
    with torch.no_grad():  # the first expert answers everything alike
        for name, weight in changed.named_parameters():
            if ".experts.0." in name:
                weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))
    found = compare(str(experts_model), changed, pairs=pairs)
    assert {each.view.domain for each in found.differences} == {"crops"}  # the other is unchanged
    assert all(each.interval.low <= each.value <= each.interval.high for each in found.differences)
    assert all(each.p_holm >= each.p_value for each in found.differences)
    verdict = report_of(found).verdict
    assert "2 routes" in verdict.compared
    assert sum(each.startswith(("crops: ", "neuro: ")) for each in verdict.findings) == 1


def test_a_base_is_compared_with_each_route_made_of_it(minilm: str, tmp_path: Path) -> None:
    base = str(make_tiny_encoder(tmp_path / "base", minilm))
    model = sentence_experts.extend(base, experts=list(TOPICS))
    for one, other in ((base, model), (model, base)):
        found = compare(one, other, texts=["leaves", "roots take up water"])
        assert {each.route for each in found.changes} == set(TOPICS)
        assert all(each.smallest_cosine == pytest.approx(1, abs=1e-5) for each in found.changes)
        assert found.only_before == found.only_after == ()


def test_the_same_model_is_named_so_and_encoded_once(
    experts_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    encode = BatchEncoder.encode
    monkeypatch.setattr(
        BatchEncoder,
        "encode",
        lambda encoder, texts, *args, **kwargs: (
            encoded.append(len(texts)) or encode(encoder, texts, *args, **kwargs)
        ),
    )
    copy = shutil.copytree(experts_model, tmp_path / "copy")
    comparison = compare(experts_model, copy, texts=["leaves"], pairs=make_pairs_folder(tmp_path / "pairs"))
    assert encoded[:2] == [1, 1]  # once for each of two routes
    assert comparison.same
    assert not comparison.differences
    assert (
        report_of(comparison).verdict.findings[0] == "Before and after are the same model (one fingerprint)."
    )
    note = "---\nsentence_experts:\n  untrained: true\n---\n# A model\n"
    (copy / "README.md").write_text(note)
    later = report_of(compare(experts_model, copy, texts=["leaves"])).verdict
    assert "The model after is UNTRAINED: identical to the base." in later.findings
