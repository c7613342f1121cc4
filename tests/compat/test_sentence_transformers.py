"""Fails where sentence-transformers no longer does what `compat.sentence_transformers` relies on."""

from __future__ import annotations

import inspect

import torch
from sentence_transformers import SentenceTransformerTrainer

from sentence_experts.compat.sentence_transformers import merged_columns


def test_columns_of_different_lengths_are_merged_one_after_the_other() -> None:
    def column(length: int) -> dict[str, torch.Tensor]:
        ones = torch.ones(2, length, dtype=torch.long)
        return {"input_ids": 7 * ones, "attention_mask": ones, "expert_ids": torch.tensor([length, length])}

    merged = merged_columns([column(3), column(5)])
    assert merged is not None
    assert merged["input_ids"].shape == (4, 5)
    assert merged["attention_mask"].sum(dim=1).tolist() == [3, 3, 5, 5]
    assert merged["expert_ids"].tolist() == [3, 3, 5, 5]


def test_checkpoints_are_saved_through_save_model() -> None:
    """`training.trainer.Trainer` overrides `save_model`, so that one process alone writes."""
    assert "self.save_model(output_dir, _internal_call=True)" in inspect.getsource(
        SentenceTransformerTrainer._save_checkpoint
    )
