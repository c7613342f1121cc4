"""The material of the small scale and of the demo: articles, real or simulated, and a language model."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentence_experts.errors import InputError
from sentence_experts.recipes import RECIPES
from sentence_experts.storage import output, sha256_file
from sentence_experts.yaml_files import read_settings

ARCHIVES = ("corpora/elife_jats.tar.xz", "corpora/pmc_crops_jats.tar.xz")
DEFAULT_DATA = Path("../shared/data")
DATA_VARIABLE = "SENTENCE_EXPERTS_DATA"
RATED_PAIRS = Path("eval", "sts12.jsonl.gz")
# OLMoE's architecture with 2 million weights.
SMALL_OLMOE: dict[str, Any] = {
    "vocab_size": 4096,
    "hidden_size": 128,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "pad_token_id": None,
    "bos_token_id": 0,
    "eos_token_id": 1,
}


@dataclass(frozen=True)
class Material:
    """Articles, and settings that suit them."""

    sources: tuple[Path, ...]  # sources for `import_corpus`
    simulated: bool  # whether `simulate_corpus` has to write them first
    name: str  # description in words
    rules: Path  # the domain rules
    pairs: dict[str, Any]  # settings of `compile_pairs`
    queries: dict[str, str]  # domain -> a search in its papers

    @classmethod
    def find(cls, folder: Path, data: Path | None) -> Material:
        """Return the real articles in `data`; without, simulated ones that belong in `folder`."""
        place = RECIPES / "material"
        content = read_settings(place / ("simulated.yaml" if data is None else "real.yaml"))
        sources = (folder,) if data is None else tuple(data / archive for archive in ARCHIVES)
        return cls(sources, data is None, **{**content, "rules": place / content["rules"]})

    @property
    def domains(self) -> list[str]:
        """The domains of the rules, in their order: one expert each."""
        return list(read_settings(self.rules)["domains"])


def data_folder() -> Path | None:
    """Return the folder with both archives: SENTENCE_EXPERTS_DATA, or ../shared/data; None without.

    Raises:
        InputError: SENTENCE_EXPERTS_DATA is set, but the archives are not there.
    """
    named = os.environ.get(DATA_VARIABLE)
    folder = Path(named) if named else DEFAULT_DATA
    missing = [archive for archive in ARCHIVES if not (folder / archive).is_file()]
    if named and missing:
        absent = folder / missing[0]
        raise InputError(
            f"{DATA_VARIABLE} is {named}, but {absent} is not there; unset it to use a simulated corpus"
        )
    return None if missing else folder


def find_rated_pairs(data: Path | None) -> Path:
    """Return the file of STS12 in the data folder; InputError if it is not there."""
    if data is None or not (data / RATED_PAIRS).is_file():
        raise InputError(
            f"this recipe measures on real texts: set {DATA_VARIABLE} to a folder with {RATED_PAIRS}"
        )
    return data / RATED_PAIRS


def draw_language_model(pairs: Path, out: Path) -> None:
    """Write a small language model with random weights, and a tokenizer of the words in the rated `pairs`."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import OlmoeConfig, OlmoeForCausalLM, PreTrainedTokenizerFast

    from sentence_experts.evaluation.moee.rated_pairs import RatedPairs
    from sentence_experts.models.sources import load_quietly

    load_quietly()
    with output(out, "language model") as place:
        hashes = {"rated pairs": lambda: sha256_file(pairs)}
        if place.begin({"pairs": str(pairs), "sizes": SMALL_OLMOE}, hashes) == "finished":
            return
        read = RatedPairs.read(pairs)
        words = Tokenizer(models.BPE())
        words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=SMALL_OLMOE["vocab_size"],
            special_tokens=["<s>", "</s>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        words.train_from_iterator([*read.first, *read.second], trainer)
        words.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = OlmoeForCausalLM(OlmoeConfig(**SMALL_OLMOE))
        with place.replacing() as folder:
            model.save_pretrained(folder)
            PreTrainedTokenizerFast(
                tokenizer_object=words, bos_token="<s>", eos_token="</s>"
            ).save_pretrained(folder)
