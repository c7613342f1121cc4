"""Canaries for transformers: what the package takes over from it still is what it runs."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    BertConfig,
    BertModel,
    TrainerState,
)
from transformers.integrations import TensorBoardCallback, WandbCallback  # type: ignore[attr-defined]
from transformers.models.bert.modeling_bert import BertLayer
from transformers.models.modernbert.modeling_modernbert import ModernBertEncoderLayer
from transformers.models.nomic_bert.modeling_nomic_bert import NomicBertLayer

from sentence_experts.compat.transformers import (
    attention_of,
    collect_loading_reports,
    ignore_on_load,
    is_causal_only,
    padded_attention,
    padded_mask,
    set_attention,
)
from sentence_experts.models.layers.packing import PACKED

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}


def test_the_blocks_take_the_arguments_that_are_handed_on() -> None:
    assert list(inspect.signature(BertLayer.forward).parameters)[1:3] == ["hidden_states", "attention_mask"]
    for block in (ModernBertEncoderLayer, NomicBertLayer):
        assert next(iter(list(inspect.signature(block.forward).parameters)[1:])) == "hidden_states"


def test_the_attention_of_a_config_can_be_read_and_set() -> None:
    model = BertModel._from_config(BertConfig(vocab_size=40, **SIZES), attn_implementation="eager")
    assert attention_of(model.config) == "eager"
    set_attention(model.config, PACKED)
    assert attention_of(model.config) == PACKED
    assert model(torch.ones(1, 3, dtype=torch.long)).last_hidden_state.shape == (1, 3, 16)


def test_weights_can_be_left_out_without_a_report(tmp_path, capfd: pytest.CaptureFixture[str]) -> None:
    model = BertModel(BertConfig(vocab_size=40, **SIZES))
    model.add_module("of", nn.ModuleDict({"experts": nn.ModuleList([nn.Linear(1, 1)])}))
    model.save_pretrained(tmp_path)

    class Quiet(BertModel):
        def __init__(self, config: BertConfig) -> None:
            super().__init__(config)
            ignore_on_load(self, r"\.experts\.\d+\.")

    _, loaded = Quiet.from_pretrained(tmp_path, output_loading_info=True)
    assert not loaded["unexpected_keys"]
    _, loaded = BertModel.from_pretrained(tmp_path, output_loading_info=True)
    assert loaded["unexpected_keys"]


def test_the_padded_attention_is_the_librarys_own() -> None:
    assert AttentionInterface()["sdpa"] is padded_attention
    assert AttentionMaskInterface()["sdpa"] is padded_mask


def test_what_loading_finds_wrong_is_collected_and_not_printed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = BertModel(BertConfig(vocab_size=40, **SIZES))
    weights = model.state_dict()
    lost = weights.pop("encoder.layer.0.output.dense.bias")
    weights["encoder.layer.1.output.dense.bias"] = lost[1:].clone()
    model.save_pretrained(tmp_path, state_dict={**weights, "cls.bias": lost})
    with collect_loading_reports() as reports:
        BertModel.from_pretrained(tmp_path)
    (report,) = reports
    assert report.missing_keys == {"encoder.layer.0.output.dense.bias"}
    assert report.unexpected_keys == {"cls.bias"}
    assert [key for key, *_ in report.mismatched_keys] == ["encoder.layer.1.output.dense.bias"]
    assert "LOAD REPORT" not in caplog.text
    with pytest.raises(RuntimeError):  # outside, all is as it was
        BertModel.from_pretrained(tmp_path)


def test_decoders_are_distinguished_from_encoders() -> None:
    decoders = {"llama", "qwen2", "gpt2", "mistral", "olmoe"}
    encoders = {"bert", "modernbert", "nomic_bert", "roberta", "xlm-roberta", "mpnet", None}
    assert {name for name in decoders | encoders if is_causal_only(name)} == decoders


def test_the_loggers_take_a_writer_or_nothing_and_answer_the_trainer() -> None:
    written: list[tuple[str, float, int]] = []

    class Writer:
        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append((name, value, step))

        def flush(self) -> None:
            pass

    callback = TensorBoardCallback(Writer())
    state = TrainerState(global_step=3, is_world_process_zero=True)
    callback.on_log(None, state, None, logs={"loss": 0.5})
    assert written == [("train/loss", 0.5, 3)]
    assert not list(inspect.signature(WandbCallback).parameters)
