"""Decoder language models as encoders: tiny random ones, against a computation on each text alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import (
    AutoModel,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from helpers.byte_level import byte_level_tokenizer
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.loading import load
from sentence_experts.models.pooling import pooling_of

TEXTS = ["lungs", "the heart pumps blood", "skin cancer grows slowly in the light", "a"]
VOCABULARY = 300  # of the tokenizer; some classes add more tokens
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"vocab_size": VOCABULARY + 8, "num_key_value_heads": 2, "bos_token_id": 0, "eos_token_id": 0}
MAKERS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES)),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY + 8,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=64,
            bos_token_id=0,
            eos_token_id=0,
        )
    ),
}


def save_decoder(folder: Path, family: str, padding_side: str = "left") -> Path:
    """A checkpoint as the hub has them: with the head, without a padding token, often padding on the left."""
    tokenizer = byte_level_tokenizer(TEXTS, VOCABULARY, ["<|end|>"])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|end|>", padding_side=padding_side, model_max_length=64
    ).save_pretrained(folder)
    torch.manual_seed(0)
    MAKERS[family]().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=MAKERS)
def decoder(request, tmp_path_factory) -> Path:
    return save_decoder(tmp_path_factory.mktemp(request.param), request.param)


def by_hand(folder: Path, text: str, pooling: str) -> np.ndarray:
    """The text alone, no padding, from transformers itself."""
    ids = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        states = AutoModel.from_pretrained(folder).eval()(input_ids=ids).last_hidden_state[0]
    return {"mean": states.mean(0), "last": states[-1], "cls": states[0]}[pooling].numpy()


@pytest.mark.parametrize("pooling", ["mean", "last", "cls"])
def test_vectors_are_those_of_each_text_alone_in_any_batch(decoder, pooling):
    encoder = BatchEncoder(load(decoder, device="cpu", pooling=pooling), batch_size=4)
    assert encoder.pooling == pooling
    expected = np.stack([by_hand(decoder, text, pooling) for text in TEXTS])
    assert encoder.encode(TEXTS) == pytest.approx(expected, abs=1e-5)
    assert encoder.encode(TEXTS[::-1])[::-1] == pytest.approx(expected, abs=1e-5)
    encoder.batch_size = 1
    assert encoder.encode(TEXTS) == pytest.approx(expected, abs=1e-5)


def test_mean_pooling_by_default_is_logged(decoder, capsys):
    encoder = BatchEncoder(load(decoder, device="cpu"))
    assert "decoder language model; its vectors are the mean over the tokens" in capsys.readouterr().err
    assert encoder.encode(TEXTS)[2] == pytest.approx(by_hand(decoder, TEXTS[2], "mean"), abs=1e-5)


def test_the_language_modelling_head_is_not_loaded(decoder):
    names = [name for name, _ in load(decoder, device="cpu").named_parameters()]
    assert not [name for name in names if "lm_head" in name]


def test_a_text_without_tokens_has_the_zero_vector(decoder):
    encoder = BatchEncoder(load(decoder, device="cpu"))
    assert not encoder.encode([""]).any()
    both = encoder.encode(["", TEXTS[1]])
    assert not both[0].any()
    assert both[1] == pytest.approx(encoder.encode([TEXTS[1]])[0], abs=1e-5)


def test_each_pooling_has_settings_of_its_own(decoder):
    found = [BatchEncoder(load(decoder, device="cpu", pooling=pooling)) for pooling in ("mean", "last")]
    assert found[0].cache_key(None) != found[1].cache_key(None)
    assert found[1].settings()["pooling"] == "last"


def test_encoders_keep_theirs_unless_another_is_named(base_folders, plain_folders):
    own = load(base_folders["bert"], device="cpu")
    assert pooling_of(own) == "mean"
    first = load(base_folders["bert"], device="cpu", pooling="cls")
    assert (pooling_of(first), [type(module) for module in first]) == (
        "cls",
        [type(module) for module in own],
    )
    text = [TEXTS[1]]
    assert np.abs(first.encode(text) - own.encode(text)).max() > 1e-3
    assert pooling_of(load(plain_folders["bert"], device="cpu")) == "mean"
    with pytest.raises(UsageError, match="`pooling`: Input should be 'mean', 'last' or 'cls'"):
        load(base_folders["bert"], device="cpu", pooling="max")


def test_a_model_without_pooling_has_none_to_replace(tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    tokenizer = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    static = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=4)], device="cpu")
    static.save(str(tmp_path), create_model_card=False)
    assert pooling_of(load(tmp_path, device="cpu")) is None
    with pytest.raises(InputError, match="no pooling of tokens"):
        load(tmp_path, device="cpu", pooling="mean")
