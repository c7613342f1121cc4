"""Fails where sentence-transformers no longer does what `compat.sentence_transformers` relies on."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.base.losses import CachedLossMixin, RandContext
from transformers import BertModel

from helpers.samples import make_tiny_encoder
from sentence_experts.compat.sentence_transformers import (
    merge_columns,
    prompt_of,
    share_all_but_tokenizer,
    transformer_of,
)
from sentence_experts.compat.torch import replace_forward
from sentence_experts.training.losses import ContrastiveLoss
from sentence_experts.training.trainer import Trainer


def test_columns_of_different_lengths_are_merged_one_after_the_other() -> None:
    def column(length: int) -> dict[str, torch.Tensor]:
        ones = torch.ones(2, length, dtype=torch.long)
        return {"input_ids": 7 * ones, "attention_mask": ones, "expert_ids": torch.tensor([length, length])}

    merged = merge_columns([column(3), column(5)])
    assert merged is not None
    assert merged["input_ids"].shape == (4, 5)
    assert merged["attention_mask"].sum(dim=1).tolist() == [3, 3, 5, 5]
    assert merged["expert_ids"].tolist() == [3, 3, 5, 5]


def test_checkpoints_are_saved_through_save_model() -> None:
    """`training.trainer.Trainer` overrides `save_model`, so that one process alone writes."""
    assert "self.save_model(output_dir, _internal_call=True)" in inspect.getsource(
        SentenceTransformerTrainer._save_checkpoint
    )


OVERRIDDEN = sorted(
    name
    for name, value in vars(Trainer).items()
    if inspect.isfunction(value) and name not in ("load_loss", "__init__")
)


def parameters(function: object) -> list[str]:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    signature = inspect.signature(function)  # type: ignore[arg-type]
    return [name for name, each in signature.parameters.items() if each.kind not in kinds]


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_the_library_calls_what_the_trainer_overrides(name: str) -> None:
    theirs = getattr(SentenceTransformerTrainer, name)
    ours = parameters(getattr(Trainer, name))
    assert parameters(theirs)[: len(ours)] == ours
    source = "".join(inspect.getsource(each) for each in SentenceTransformerTrainer.__mro__[:-1])
    assert f"self.{name}(" in source


def test_eight_methods_of_the_trainer_are_watched() -> None:
    assert len(OVERRIDDEN) == 8


def test_the_loss_embeds_and_caches_through_the_methods_it_overrides() -> None:
    assert "self.embed_minibatch(" in inspect.getsource(CachedLossMixin.embed_minibatch_iter)
    assert parameters(CachedLossMixin.embed_minibatch_iter)[:4] == [
        "self",
        "sentence_feature",
        "with_grad",
        "copy_random_state",
    ]
    assert parameters(ContrastiveLoss.calculate_loss) == parameters(CachedLossMixin.calculate_loss)
    assert parameters(CachedLossMixin.forward_cached)[:3] == ["self", "sentence_features", "labels"]
    source = inspect.getsource(CachedLossMixin)
    for name in ("calculate_loss(", "mini_batch_size"):
        assert f"self.{name}" in source
    assert isinstance(CachedLossMixin.uses_gradient_cache, bool)


def test_a_random_state_gives_the_same_dropout_again() -> None:
    ones = torch.ones(100)
    state = RandContext(ones)
    first = torch.nn.functional.dropout(ones)
    torch.rand(3)
    with state:
        assert torch.equal(torch.nn.functional.dropout(ones), first)


def test_the_transformer_of_a_model_is_found(tmp_path: Path, minilm: str) -> None:
    model = SentenceTransformer(str(make_tiny_encoder(tmp_path, minilm)), device="cpu")
    assert isinstance(transformer_of(model), BertModel)
    assert model.config.model_type == "bert"
    other = SentenceTransformer(modules=[torch.nn.Identity()])
    assert transformer_of(other) is other.config is None


def test_a_model_that_shares_weights_has_a_tokenizer_of_its_own(tmp_path: Path, minilm: str) -> None:
    model = SentenceTransformer(str(make_tiny_encoder(tmp_path, minilm)), device="cpu")
    length, texts = model.max_seq_length, ["one", "two words and many more " * 20]
    other = share_all_but_tokenizer(model)
    assert other.tokenizer is not model.tokenizer
    assert transformer_of(other) is transformer_of(model)
    assert (other.encode(texts) == model.encode(texts)).all()
    other.max_seq_length = 4
    assert model.max_seq_length == length != 4
    assert (other.encode(texts) != model.encode(texts)).any()


def test_a_prompt_is_found_as_encode_finds_it() -> None:
    model = SentenceTransformer(modules=[torch.nn.Identity()], prompts={"a": "A: ", "b": "B: "})
    assert prompt_of(model, None, None) == ""
    assert prompt_of(model, None, "b") == "B: "
    assert prompt_of(model, "own", None) == "own"
    model.default_prompt_name = "a"
    assert prompt_of(model, None, None) == "A: "
    assert prompt_of(model, "", None) == ""
    with pytest.raises(ValueError, match="c"):
        prompt_of(model, None, "c")


def test_encode_calls_the_methods_that_models_of_this_package_override(tmp_path: Path, minilm: str) -> None:
    calls: list[tuple[str, object]] = []

    class Watched(SentenceTransformer):
        def preprocess(self, inputs: Any, prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
            calls.append(("preprocess", prompt))
            return {**super().preprocess(inputs, prompt=prompt, **kwargs), "note": torch.ones(len(inputs))}

        def forward(self, input: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
            calls.append(("forward", input.pop("note").tolist()))
            return super().forward(input, **kwargs)

    model = Watched(str(make_tiny_encoder(tmp_path, minilm)), device="cpu", prompts={"a": "A: "})
    model.encode(["one", "two"], prompt_name="a")
    assert calls == [("preprocess", "A: "), ("forward", [1.0, 1.0])]


def test_a_replaced_forward_gets_named_inputs_and_only_those(tmp_path: Path, minilm: str) -> None:
    model = SentenceTransformer(str(make_tiny_encoder(tmp_path, minilm)), device="cpu")
    encoder, seen = transformer_of(model), []

    def forward(*args: Any, **kwargs: Any) -> Any:
        seen.append((args, kwargs))
        return type(encoder).forward(encoder, *args, **kwargs)

    before = model.encode(["one"])
    replace_forward(encoder, forward)
    assert (model.encode(["one"]) == before).all()
    ((args, kwargs),) = seen
    assert args == ()
    assert {"input_ids", "attention_mask"} <= kwargs.keys()
