"""Train the small language model with experts that the tests of `moee` read: OLMoE's, with 2M weights.

    python scripts/train_tiny_olmoe.py --archive elife_jats.tar.xz --work WORK --out tiny-olmoe

The text is that of the paragraphs of the articles in the archive; every fiftieth article is kept for
validation. The tokenizer (4,096 byte-level pairs) is trained on the rest. The weights are written as float16,
less than 5 MB, beside training.json: settings, versions, and the loss as it went. Stop it at any moment; the
same command goes on.
"""

from __future__ import annotations

import argparse
import json
import tarfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from lxml import etree
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    OlmoeConfig,
    OlmoeForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

BEGIN, END = "<s>", "</s>"
VALIDATION_EVERY = 50  # articles
VALIDATION_SEQUENCES = 256
LENGTH = 128  # tokens of a sequence
SIZES = {
    "vocab_size": 4096,
    "hidden_size": 128,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "router_aux_loss_coef": 0.01,
    "output_router_logits": True,
}


def paragraphs(archive: Path) -> Iterator[list[str]]:
    """The paragraphs of each article: abstract and body, in the archive's order."""
    with tarfile.open(archive) as files:
        for member in files:
            if not member.name.endswith((".xml", ".nxml")):
                continue
            content = files.extractfile(member)
            assert content is not None
            tree = etree.parse(content, etree.XMLParser(recover=True, huge_tree=True))
            found = tree.xpath("//abstract//p | //body//p")
            texts = (" ".join("".join(p.itertext()).split()) for p in found)
            yield [text for text in texts if len(text) > 40]


def read(archive: Path, work: Path) -> tuple[list[str], list[str]]:
    """The texts to train and to validate on, an article a text; kept in `work`."""
    kept = work / "texts.json"
    if not kept.exists():
        articles = ["\n".join(article) for article in paragraphs(archive)]
        kept.write_text(json.dumps([article for article in articles if article]), encoding="utf-8")
    articles = json.loads(kept.read_text(encoding="utf-8"))
    train = [text for place, text in enumerate(articles) if place % VALIDATION_EVERY]
    return train, articles[::VALIDATION_EVERY]


def train_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Byte-level pairs; a text begins with <s>."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZES["vocab_size"],
        special_tokens=[BEGIN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    begin = tokenizer.token_to_id(BEGIN)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, begin)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BEGIN, eos_token=END)


def sequences(tokenizer: PreTrainedTokenizerFast, texts: list[str], most: int) -> Dataset:
    """Paragraphs one after another, each behind <s>, cut into at most `most` sequences of equal length."""
    ids: list[int] = []
    for text in texts:
        ids += (number for row in tokenizer(text.split("\n"))["input_ids"] for number in row)
        if len(ids) >= most * LENGTH:
            break
    rows = np.array(ids, dtype=np.int32)[: min(most, len(ids) // LENGTH) * LENGTH].reshape(-1, LENGTH)
    return Dataset.from_dict({"input_ids": list(rows), "labels": list(rows)})


def main() -> None:
    """Train, go on where it was stopped, and write the fixture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--archive", type=Path, required=True, help="JATS articles, .tar.xz")
    parser.add_argument("--work", type=Path, required=True, help="folder for texts and checkpoints")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=32, help=f"sequences of {LENGTH} tokens")
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    set_seed(given.seed)
    train, validation = read(given.archive, given.work)
    tokenizer = train_tokenizer(train)
    config = OlmoeConfig(**SIZES, pad_token_id=None, bos_token_id=0, eos_token_id=1)
    model = OlmoeForCausalLM(config)
    arguments = TrainingArguments(
        output_dir=str(given.work / "checkpoints"),
        max_steps=given.steps,
        per_device_train_batch_size=given.batch_size,
        per_device_eval_batch_size=given.batch_size,
        learning_rate=given.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=given.steps // 20,
        weight_decay=0.1,
        adam_beta2=0.95,
        max_grad_norm=1.0,
        logging_steps=50,
        eval_strategy="steps",
        eval_steps=250,
        save_steps=250,
        save_total_limit=1,
        seed=given.seed,
        report_to="none",
    )
    trainer = Trainer(
        model,
        arguments,
        train_dataset=sequences(tokenizer, train, given.steps * given.batch_size),
        eval_dataset=sequences(tokenizer, validation, VALIDATION_SEQUENCES),
    )
    checkpoints = given.work / "checkpoints"
    last = get_last_checkpoint(str(checkpoints)) if checkpoints.is_dir() else None
    trainer.train(resume_from_checkpoint=last)
    model.to(torch.float16).save_pretrained(given.out)
    compute_in_float32(given.out / "config.json")
    tokenizer.save_pretrained(given.out)
    write_note(given, trainer, config)


def compute_in_float32(config: Path) -> None:
    """Stored as float16 to be small, read as float32 to be exact."""
    fields = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps({**fields, "dtype": "float32"}, indent=2) + "\n", encoding="utf-8")


def write_note(given: argparse.Namespace, trainer: Trainer, config: OlmoeConfig) -> None:
    """training.json: what the weights come from."""
    curve = [
        {key: round(value, 5) for key, value in row.items() if key in ("step", "loss", "eval_loss")}
        for row in trainer.state.log_history
        if {"loss", "eval_loss"} & set(row)
    ]
    note = {
        "made_by": "scripts/train_tiny_olmoe.py",
        "text": f"paragraphs of the articles in {given.archive.name}; every {VALIDATION_EVERY}th validates",
        "steps": given.steps,
        "batch_size": given.batch_size,
        "sequence_length": LENGTH,
        "learning_rate": given.learning_rate,
        "seed": given.seed,
        "parameters": sum(weight.numel() for weight in trainer.model.parameters()),
        "versions": {name: version(name) for name in ("torch", "transformers", "tokenizers")},
        "loss": curve,
    }
    (given.out / "training.json").write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
