"""Canaries for peft."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from sentence_experts.compat.peft import PEFT_PREFIX, forget_adapters, lora_layers

peft = pytest.importorskip("peft")


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(4, 4)
        self.other = nn.Linear(4, 4)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.other(self.query(value))


def test_layers_with_an_adapter_are_found_and_can_be_taken_out() -> None:
    model = Small()
    query = model.query
    peft.inject_adapter_in_model(peft.LoraConfig(r=2, target_modules="query"), model, "default")
    layers = lora_layers(model)
    assert list(layers) == ["query"]
    assert layers["query"].get_base_layer() is query
    model.query = query
    forget_adapters(model)
    assert not lora_layers(model)
    assert not hasattr(model, "peft_config")


def test_names_in_an_adapters_file_begin_with_the_wrappers_path(tmp_path) -> None:
    peft.get_peft_model(Small(), peft.LoraConfig(r=2, target_modules=["query"])).save_pretrained(tmp_path)
    names = load_file(tmp_path / "adapter_model.safetensors")
    assert all(name.startswith(f"{PEFT_PREFIX}query.") for name in names)
