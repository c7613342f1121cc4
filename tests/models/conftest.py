"""Tiny random checkpoints of the three families, each with a real small tokenizer, built offline."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizer,
    ModernBertConfig,
    ModernBertModel,
    NomicBertConfig,
    NomicBertModel,
    PreTrainedTokenizerFast,
)

from helpers.byte_level import byte_level_tokenizer
from helpers.odd_texts import TEXTS

# Tiny models spend more time on handing work to threads than on the work.
torch.set_num_threads(1)

FAMILIES = ("bert", "modernbert", "nomic_bert")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
NAMED = {f"{token[1:-1].lower()}_token": token for token in SPECIAL}
MAX_LENGTH = 24


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Families differ in `architectures` and in what stock libraries load; else one is enough every time."""
    for item in items:
        family = getattr(item, "callspec", None) and item.callspec.params.get("family")
        everywhere = item.path.parent.name == "architectures" or item.name.startswith("test_stock_")
        if family in FAMILIES[1:] and not everywhere:
            item.add_marker(pytest.mark.slow)


CORPUS = [
    "Chronic obstructive pulmonary disease limits the flow of air in the lungs.",
    "The heart pumps blood; vessels carry it. Search query: document, classification: cluster.",
    "Skin cancer grows [slowly] or (fast) -- see figures 1, 2 and 3.",
    "plants crops wheat rice maize barley roots leaves seeds soil water light",
    "copd cvd COPD CVD [COPD] [CVD] query: passage: naïve café Ünïcode 中文 text",
]


def _template() -> TemplateProcessing:
    return TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )


def _pieces(normalizer: normalizers.Normalizer, size: int) -> dict[str, int]:
    """A WordPiece vocabulary of exactly `size`: every character, begun and continued, then whole words.

    Not trained: the trainer of `tokenizers` breaks ties differently in every process.
    """
    split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    words = sorted({word for line in CORPUS for word, _ in split(normalizer.normalize_str(line))})
    characters = sorted({character for word in words for character in word})
    continued = [f"##{character}" for character in characters if character.isalpha()]
    prefixes = sorted({word[:length] for word in words for length in range(2, len(word))})
    pieces = dict.fromkeys([*SPECIAL, *characters, *continued, *words, *prefixes])
    assert len(pieces) >= size
    return {piece: number for number, piece in enumerate(list(pieces)[:size])}


def _wordpiece(folder: Path) -> None:
    """An uncased BERT tokenizer as its own class saves it, with the padding that MiniLM's file carries."""
    vocabulary = _pieces(normalizers.BertNormalizer(lowercase=True), size=220)
    tokenizer = BertTokenizer(vocab=vocabulary, model_max_length=MAX_LENGTH)
    tokenizer.backend_tokenizer.enable_truncation(16)
    tokenizer.backend_tokenizer.enable_padding(length=16, pad_id=0, pad_token="[PAD]")
    tokenizer.save_pretrained(folder)


def _cased_wordpiece(folder: Path) -> None:
    normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer = Tokenizer(models.WordPiece(_pieces(normalizer, size=240), unk_token="[UNK]"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = _template()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=MAX_LENGTH, **NAMED).save_pretrained(
        folder
    )


def _byte_bpe(folder: Path) -> None:
    """As ModernBERT's: byte-level, NFC, white space kept, runs of spaces as added tokens, no token types."""
    tokenizer = byte_level_tokenizer([unicodedata.normalize("NFC", text) for text in CORPUS], 340, SPECIAL)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_tokens([AddedToken("    ", normalized=True), AddedToken("  ", normalized=True)])
    tokenizer.post_processor = _template()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=MAX_LENGTH,
        model_input_names=["input_ids", "attention_mask"],
        **NAMED,
    ).save_pretrained(folder)


WIDTH = 32
SIZES = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "pad_token_id": 0,
}


def _model(family: str) -> torch.nn.Module:
    torch.manual_seed(0)
    # BERT's vocabulary is exactly the tokenizer's; NomicBERT's has rows to spare, as the real one.
    if family == "bert":
        return BertModel(BertConfig(vocab_size=220, max_position_embeddings=64, **SIZES))
    if family == "modernbert":
        config = ModernBertConfig(
            vocab_size=342,
            max_position_embeddings=64,
            local_attention=8,
            global_attn_every_n_layers=2,
            bos_token_id=2,
            eos_token_id=3,
            cls_token_id=2,
            sep_token_id=3,
            **SIZES,
        )
        return ModernBertModel(config)
    return NomicBertModel(NomicBertConfig(vocab_size=256, max_position_embeddings=64, **SIZES))


def _with_scattered_weights(model: torch.nn.Module) -> torch.nn.Module:
    """Norms and biases start as ones and zeros, which hides a norm that is skipped or swapped."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


TOKENIZERS = {"bert": _wordpiece, "modernbert": _byte_bpe, "nomic_bert": _cased_wordpiece}


@pytest.fixture(scope="session")
def plain_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Family -> a plain transformers checkpoint."""
    folders = {}
    for family in FAMILIES:
        folders[family] = tmp_path_factory.mktemp(family)
        _with_scattered_weights(_model(family)).save_pretrained(folders[family])
        TOKENIZERS[family](folders[family])
    return folders


@pytest.fixture(scope="session")
def base_folders(plain_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Family -> a sentence-transformers checkpoint with mean pooling and normalisation."""
    folders = {}
    for family, plain in plain_folders.items():
        transformer = Transformer(str(plain))
        pooling = Pooling(WIDTH, "mean")
        encoder = SentenceTransformer(modules=[transformer, pooling, Normalize()], device="cpu")
        folders[family] = tmp_path_factory.mktemp(f"base-{family}")
        encoder.save(str(folders[family]), create_model_card=False)
    return folders


@pytest.fixture(scope="session")
def bases(base_folders: dict[str, Path]) -> dict[str, SentenceTransformer]:
    """Family -> the base encoder, not to be changed."""
    return {family: SentenceTransformer(str(folder), device="cpu") for family, folder in base_folders.items()}


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def base(family: str, bases: dict[str, SentenceTransformer]) -> SentenceTransformer:
    return bases[family]


def scatter_experts(encoder: SentenceTransformer, seed: int = 2) -> SentenceTransformer:
    """Make the experts, and the route tokens, differ."""
    generator = torch.Generator().manual_seed(seed)
    model = encoder[0].auto_model
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".experts." in name:
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
        if model.config.has_domain_tokens and all(len(route.token_ids) == 1 for route in model.routes):
            rows = [route.token_ids[0] for route in model.routes]
            embeddings = model.get_input_embeddings().weight
            embeddings[rows] += torch.randn(len(rows), embeddings.shape[1], generator=generator)
    return encoder


@pytest.fixture(scope="session")
def scatter() -> Callable[..., SentenceTransformer]:
    return scatter_experts


@pytest.fixture
def texts() -> list[str]:
    return list(TEXTS)


@pytest.fixture
def mixed(base: SentenceTransformer) -> SentenceTransformer:
    """Three experts that differ, norms included, reached by token routes."""
    import sentence_experts

    names = ["copd", "cvd", "skin cancer"]
    return scatter_experts(sentence_experts.extend(base, names, expert_norms=True))
