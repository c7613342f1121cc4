"""Assumptions of loading and of reading routers about other libraries."""

from __future__ import annotations

import inspect

import pytest
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, BertConfig, OlmoeConfig

from sentence_experts.compat.sentence_transformers import takes_sentences
from sentence_experts.compat.transformers import records_router_logits

SMALL = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}


def test_encode_takes_inputs_first_and_its_old_name() -> None:
    assert list(inspect.signature(SentenceTransformer.encode).parameters)[:2] == ["self", "inputs"]
    assert takes_sentences(lambda inputs: inputs)(sentences="x") == "x"


@pytest.mark.parametrize(("config", "records"), [(BertConfig, False), (OlmoeConfig, True)])
def test_which_models_record_their_routers(config, records) -> None:
    assert records_router_logits(AutoModel.from_config(config(**SMALL))) is records
