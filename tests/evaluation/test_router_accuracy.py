from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
import torch
from sentence_transformers import SentenceTransformer

import sentence_experts
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import RouteError
from sentence_experts.evaluation.evaluate import evaluate
from sentence_experts.evaluation.router_accuracy import router_accuracy
from sentence_experts.evaluation.scorers import texts_by_domain
from sentence_experts.models.loading import load
from sentence_experts.models.routes.sequence_router import SequenceRouter
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.report.content import html
from sentence_experts.report.write import report_of
from sentence_experts.training.validation import PairValidation, Validator

NO_PROMPTS = {"crops": None, "neuro": None}


@pytest.fixture(scope="module")
def choosing(plain_model):
    """Experts of the pairs' domains, chosen by routers with clear, if random, opinions."""
    base = SentenceTransformer(str(plain_model), device="cpu")
    encoder = sentence_experts.extend(base, ["crops", "neuro"], route="none", router="learned")
    generator = torch.Generator().manual_seed(4)
    for module in encoder.modules():
        if isinstance(module, SequenceRouter):
            module.weight.data = torch.randn(module.weight.shape, generator=generator)
    return encoder


@pytest.fixture
def table(pairs_folder):
    return Pairs.open(pairs_folder).split("test")


def test_accuracy_is_the_share_of_distinct_texts_sent_to_their_domain(choosing, table):
    found = router_accuracy(BatchEncoder(choosing, name="m"), table, NO_PROMPTS)
    right: dict[str, list[list[bool]]] = {}
    for number, domain in enumerate(NO_PROMPTS):
        rows = [row for row in table.to_pylist() if row["domain"] == domain]
        texts = {row[side] for row in rows for side in ("anchor", "positive")}
        chosen = (choosing.router_choices([text]).chosen[0].tolist() for text in texts)
        right[domain] = [[expert == number for expert in blocks] for blocks in chosen]
    every = np.array(right["crops"] + right["neuro"])
    assert found.texts == len(every) < 2 * table.num_rows
    assert found.by_block == {0: pytest.approx(every[:, 0].mean()), 1: pytest.approx(every[:, 1].mean())}
    assert found.by_domain == {name: pytest.approx(np.mean(rows)) for name, rows in right.items()}
    assert found.mean == pytest.approx(every.mean())
    assert len({*found.by_block.values(), *found.by_domain.values(), found.mean}) > 2  # else it tells nothing


def test_router_accuracy_uses_the_domain_token(plain_model, table):
    base = SentenceTransformer(str(plain_model), device="cpu")
    encoder = sentence_experts.extend(base, ["neuro", "crops"], router="learned")
    found = router_accuracy(BatchEncoder(encoder, name="m"), table, {"crops": "crops", "neuro": "neuro"})
    texts = texts_by_domain(table)["crops"]
    expected = (encoder.router_choices(texts, prompt_name="crops").chosen == 1).mean()
    assert found.by_domain["crops"] == pytest.approx(expected)


def test_sample_of_texts_is_fixed(choosing, table):
    part = router_accuracy(BatchEncoder(choosing, name="m"), table, NO_PROMPTS, max_texts=5)
    assert part.texts == 10
    shuffled = table.take(np.random.default_rng(0).permutation(table.num_rows))
    assert router_accuracy(BatchEncoder(choosing, name="m"), shuffled, NO_PROMPTS, max_texts=5) == part


def test_router_accuracy_is_none_without_learned_routers_or_domain_experts(choosing, experts_model, table):
    routed = BatchEncoder(load(experts_model, device="cpu"))
    assert router_accuracy(routed, table, {"crops": "crops", "neuro": "neuro"}) is None
    other = table.set_column(
        table.column_names.index("domain"), "domain", pa.array(["else"] * table.num_rows)
    )
    assert router_accuracy(BatchEncoder(choosing, name="m"), other, {"else": None}) is None


def test_validation_reports_router_accuracy(choosing, table):
    found = Validator([PairValidation(table)])(choosing)
    expected = router_accuracy(BatchEncoder(choosing, name="m"), table, NO_PROMPTS)
    assert found["validation_router_accuracy"] == expected.mean
    assert found["validation_router_accuracy_block_1"] == expected.by_block[1]


def test_evaluation_reports_router_accuracy_by_domain_and_block(
    choosing, plain_model, pairs_folder, table, tmp_path
):
    choosing.save(str(tmp_path / "learned"), create_model_card=False)
    found = evaluate([tmp_path / "learned", plain_model], pairs_folder, out=tmp_path / "out", bootstrap=0)
    expected = router_accuracy(BatchEncoder(choosing), table, NO_PROMPTS)
    assert found.routers == {"learned": expected}
    written = json.loads((tmp_path / "out" / "evaluation.json").read_text())["routers"]["learned"]
    assert written["by_block"] == {str(block): share for block, share in expected.by_block.items()}
    rows = dict(report_of(found).details["Learned routers"][0].rows)
    assert list(rows) == ["all", "domain crops", "domain neuro", "block 0", "block 1"]
    assert rows["all"] == f"{expected.mean:.3f}"
    assert "Learned routers: the share of" in html(report_of(found))


def test_model_without_routes_raises_for_a_route(choosing):
    with pytest.raises(RouteError, match="no route 'crops'; its routes: none, its learned routers choose"):
        BatchEncoder(choosing, name="m").known_routes.choose("crops")
    assert BatchEncoder(choosing, name="m").known_routes.choose(None) is None
