"""The language model as a sentence-transformers module: token ids in, hidden states and routing weights out.

sentence-transformers loads the blocks without the language-modelling head, in the precision and placement
that it is given. Added here: the prompt, padding that changes no vector, and the routers.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers.sentence_transformer.modules import Transformer
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from sentence_experts.compat.transformers import copy_without_recorders, records_router_logits
from sentence_experts.errors import InputError, SentenceExpertsError, brief, require
from sentence_experts.models.batching import batches_of_tokens
from sentence_experts.models.files.complete import check_weights
from sentence_experts.models.pooling import warn_of_length
from sentence_experts.models.sources import check_hub, load_quietly, model_folder
from sentence_experts.moee.moee_config import CODE, PAPER, UNQUANTIZED, MoeeConfig
from sentence_experts.moee.prompts import Prompt
from sentence_experts.moee.routing_weights import (
    SCORES,
    TOKENS,
    UNKNOWN,
    RouterFamily,
    family_of,
    published_weights,
    router_records,
    text_weights,
)
from sentence_experts.moee.vectors import States

logger = logging.getLogger(__name__)

TOKENS_PER_BATCH = 8192  # at most, with padding
_NO_MEMORY = ("out of memory", "can't allocate memory")
LAST, ALL = "last", "all"
NF4 = "nf4"
# Arguments of transformers' BitsAndBytesConfig in the published code.
_NF4: dict[str, Any] = {
    "load_in_4bit": True,
    "bnb_4bit_quant_type": NF4,
    "bnb_4bit_use_double_quant": True,
    "bnb_4bit_compute_dtype": torch.bfloat16,
}


class MoeTransformer(Transformer):
    """sentence-transformers' `Transformer` for a mixture-of-experts language model.

    `tokens`, `layers`, `weights` and `quantize` are as in `MoeeConfig`, with their defaults filled in.
    """

    def __init__(self, model_name_or_path: str, config: MoeeConfig) -> None:
        """Load the model."""
        self.quantize = _quantization(config)
        loading = _loading_options(config, self.quantize)
        place: str | Path = model_folder(model_name_or_path)
        if not Path(place).exists():
            place = check_hub(model_name_or_path, revision=config.revision) or place
        load_quietly()
        try:
            with check_weights(str(place)) as loaded:
                super().__init__(str(place), **loading)
                loaded.append(self.model)
        except SentenceExpertsError:
            raise
        except Exception as error:  # missing or broken files make the libraries raise anything
            raise InputError(f"{model_name_or_path}: cannot be loaded: {brief(error)}") from error
        if self.tokenizer is None or not self._tokenise("a"):  # without files some have an empty vocabulary
            raise InputError(f"{model_name_or_path}: no tokenizer beside the weights")
        self.name = model_name_or_path
        self.family = self._check_routers()
        self.prompt = Prompt.of(config.prompt, config.words_of == CODE)
        self.tokens, self.layers = config.tokens, config.layers
        published = published_weights(str(self.model.config.model_type)) if config.faithful else SCORES
        self.weights = config.weights or published
        warn_of_length(config.max_length, self.max_seq_length)
        if config.max_length is not None:
            self.max_seq_length = min(config.max_length, self.max_seq_length or config.max_length)

    def __getstate__(self) -> dict[str, Any]:
        children = {
            name: copy_without_recorders(each) if isinstance(each, PreTrainedModel) else each
            for name, each in self.named_children()
        }
        state: dict[str, Any] = super().__getstate__()
        return {**state, "_modules": children}

    @property
    def longest(self) -> int | None:
        """Maximum number of tokens per text; None for no limit."""
        length = self.max_seq_length
        return None if length is None or length > 10**9 else length  # a huge number means no limit

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text within the prompt, truncated to what the model reads."""
        find_ends = self._find_ends if getattr(self.tokenizer, "is_fast", False) else None
        rows = [self.prompt.token_ids(text, self._tokenise, self.longest, find_ends) for text in texts]
        if [] in rows:
            text = texts[rows.index([])]
            raise InputError(f"the tokenizer of {self.name} gives no token for the text {text[:40]!r}")
        return rows

    def preprocess(  # type: ignore[override]  # of all that could be embedded, texts
        self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any
    ) -> dict[str, Tensor]:
        """Return token ids, mask and positions of texts, with `prompt` directly before each text."""
        return self.padded(self.token_ids([f"{prompt or ''}{text}" for text in inputs]))

    def padded(self, rows: Sequence[Sequence[int]]) -> dict[str, Tensor]:
        """Return a batch: `input_ids`, `attention_mask`, `position_ids`, each (texts, longest)."""
        ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True)  # no token attends to 0s
        mask = pad_sequence([torch.ones(len(row), dtype=torch.long) for row in rows], batch_first=True)
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        return {"input_ids": ids, "attention_mask": mask, "position_ids": positions}

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Add `hidden` (batch, width) and `routing` (batch, experts of all blocks), float32."""
        mask, all_layers = features["attention_mask"], self.layers == ALL
        given = {name: features[name] for name in ("input_ids", "attention_mask", "position_ids")}
        given |= {"use_cache": False, "output_hidden_states": all_layers}
        read: list[Tensor] = []

        def read_gate(gate: torch.nn.Module, inputs: tuple[Tensor, ...], output: Any) -> None:
            """Collect the logits of a router that the model does not record, from its input."""
            states = inputs[0].reshape(-1, inputs[0].shape[-1])
            read.append(torch.nn.functional.linear(states.float(), gate.weight.float()))  # type: ignore[arg-type]

        with ExitStack() as hooks:
            for gate in self._gates(self.family):
                hooks.enter_context(gate.register_forward_hook(read_gate))
            output = self.model(**given, **({} if self.family.gate else {"output_router_logits": True}))
        recorded = read if self.family.gate else getattr(output, "router_logits", None)
        records = router_records(recorded, self.family, self.name)
        states = output.hidden_states[1:] if all_layers else [output.last_hidden_state]
        pooled = [TOKENS[self.tokens](layer, mask).float() for layer in states]
        features["hidden"] = torch.stack([each.to(pooled[0].device) for each in pooled]).mean(dim=0)
        records = records[-1:] if self.layers == LAST else records
        features["routing"] = text_weights(records, mask, self.family, self.tokens, self.weights)
        return features

    def settings(self) -> dict[str, Any]:
        """Return everything that decides a text's states beside the model's weights."""
        own = {name: getattr(self, name) for name in ("tokens", "layers", "weights", "quantize")}
        wording = CODE if self.prompt.published else PAPER
        return {"prompt": self.prompt.template, "wording": wording, **own, "max_length": self.longest}

    def _check_routers(self) -> RouterFamily:
        model_type = str(self.model.config.model_type)
        family = family_of(model_type)
        has_routers = bool(self._gates(family)) if family.gate else records_router_logits(self.model)
        if not has_routers or getattr(self.model.config, "is_encoder_decoder", False):
            raise InputError(
                f"{self.name} is a {model_type} model without routers; choose a mixture-of-experts language "
                "model, such as allenai/OLMoE-1B-7B-0924"
            )
        if family is UNKNOWN:
            logger.info(f"{self.name}: unknown model type {model_type!r}; its routers are scored by softmax")
        return family

    def _gates(self, family: RouterFamily) -> list[torch.nn.Module]:
        """Return the routers that are read by a hook; none if transformers records them."""
        return [module for module in self.model.modules() if type(module).__name__ == family.gate]

    def _tokenise(self, text: str) -> list[int]:
        tokenizer: Any = self.tokenizer
        ids: list[int] = tokenizer(text, truncation=False, verbose=False)["input_ids"]
        return ids

    def _find_ends(self, text: str) -> list[int]:
        """Return the number of characters up to the end of each token."""
        tokenizer: Any = self.tokenizer
        options = {"truncation": False, "verbose": False, "return_offsets_mapping": True}
        offsets: list[tuple[int, int]] = tokenizer(text, **options)["offset_mapping"]
        return [end for _, end in offsets]


def _quantization(config: MoeeConfig) -> str:
    """Return the quantization of the weights; as published, if the machine can."""
    if config.quantize is not None or not config.faithful:
        return config.quantize or UNQUANTIZED
    missing = "no GPU" if not torch.cuda.is_available() else "no bitsandbytes"
    if torch.cuda.is_available() and find_spec("bitsandbytes") is not None:
        return NF4
    logger.info(
        f"faithful, but for the number format: the published code loads in NF4, and there is {missing}"
    )
    return UNQUANTIZED


def _loading_options(config: MoeeConfig, quantize: str) -> dict[str, Any]:
    """Return arguments of sentence-transformers' `Transformer` for precision, placement and quantization."""
    shared: dict[str, Any] = {"trust_remote_code": config.trust_remote_code}
    if config.revision:
        shared["revision"] = config.revision
    model = dict(shared)
    if config.dtype is not None:
        model["dtype"] = getattr(require("torch", "models"), config.dtype)
    if config.device_map is not None:
        require("accelerate", "models")
        model["device_map"] = config.device_map
    if quantize != UNQUANTIZED:
        require("bitsandbytes", "quantize")
        transformers = require("transformers", "models")
        model["quantization_config"] = transformers.BitsAndBytesConfig(**_NF4)
        model.setdefault("device_map", "auto")
    return {"model_kwargs": model, "processor_kwargs": dict(shared), "config_kwargs": dict(shared)}


@torch.inference_mode()
def read_states(reader: MoeTransformer, texts: Sequence[str]) -> States:
    """Read the states of texts, in their order. Neither batch nor order changes a text's states."""
    device: Any = reader.model.get_input_embeddings().weight.device  # type: ignore[union-attr]
    rows = reader.token_ids(texts)
    batches = list(batches_of_tokens([len(row) for row in rows], TOKENS_PER_BATCH, padded=True))
    read = States.together([_read(reader, [rows[place] for place in batch], device) for batch in batches])
    whole = read[np.argsort(np.concatenate(batches))]
    good = np.isfinite(whole.hidden).all(axis=1) & np.isfinite(whole.routing).all(axis=1)
    if not good.all():
        start = texts[int(np.argmin(good))][:60]
        raise SentenceExpertsError(
            f"{reader.name} gives numbers that are not finite for the text {start!r}..."
        )
    return whole


def _read(reader: MoeTransformer, rows: list[list[int]], device: torch.device) -> States:
    try:
        features = {name: values.to(device) for name, values in reader.padded(rows).items()}
        read = reader(features)
        return States(read["hidden"].cpu().numpy(), read["routing"].cpu().numpy())
    except RuntimeError as error:  # torch.OutOfMemoryError is one; on a CPU it is a plain one
        if not any(sign in str(error).lower() for sign in _NO_MEMORY):
            raise
        if len(rows) == 1:
            raise SentenceExpertsError(
                f"{reader.name}: out of memory with a single text of {len(rows[0])} tokens; cut texts with "
                "`max_length`, or load the model with `dtype=bfloat16`, `quantize=nf4` or `device_map=auto`"
            ) from error
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    half = len(rows) // 2
    return States.together([_read(reader, part, device) for part in (rows[:half], rows[half:])])
