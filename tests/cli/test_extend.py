"""`sentence-experts extend`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import BertConfig, BertModel, BertTokenizer

from sentence_experts.cli.main import main

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "[", "]", ":", "heart", "lungs", "query", "search", "copd"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tiny-bert")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(WORDS), max_position_embeddings=16, **sizes)).save_pretrained(folder)
    BertTokenizer(vocab={word: index for index, word in enumerate(WORDS)}).save_pretrained(folder)
    return str(folder)


def run(*arguments: str, verb: str = "extend") -> int:
    with pytest.raises(SystemExit) as stop:
        main([verb, *arguments])
    return int(stop.value.code or 0)


def test_extend_writes_model(tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "model"
    assert run(tiny, "--experts", "copd, skin cancer", "--out", str(out), "--expert-norms") == 0
    shown = capsys.readouterr().out
    for part in ("[COPD]", "[SKIN_CANCER]", "parameters", "active", 'prompt_name="copd"'):
        assert part in shown
    base = SentenceTransformer(tiny, device="cpu")
    encoder = SentenceTransformer(str(out), device="cpu")
    expected = base.encode(["heart", "lungs"])
    assert np.abs(encoder.encode(["heart", "lungs"], prompt_name="skin cancer") - expected).max() <= 1e-6


def test_extend_with_sequence_router(tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "model"
    routing = ["--experts", "copd,cvd", "--router", "learned", "--route", "none"]
    vectors = ["--pooling", "pooler", "--head", "tanh", "--seed", "4"]
    assert run(tiny, "--out", str(out), *routing, *vectors) == 0
    captured = capsys.readouterr()
    for part in ("copd, cvd; each block chooses", "cls pooling, Dense (Tanh), LayerNorm", ".encode(texts)"):
        assert part in captured.out
    assert "begin with" not in captured.out
    assert "seed 4" in captured.err
    assert SentenceTransformer(str(out), device="cpu").encode(["heart", "lungs"]).shape == (2, 16)
