"""Read states in batches with a number of tokens; a batch that does not fit into memory is halved."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from sentence_experts.encoding.batches import batches_of_tokens
from sentence_experts.errors import SentenceExpertsError
from sentence_experts.moee.transformer import MoeTransformer
from sentence_experts.moee.vectors import States

TOKENS_AT_ONCE = 8192
_NO_MEMORY = ("out of memory", "can't allocate memory")


@torch.inference_mode()
def read_states(
    reader: MoeTransformer, texts: Sequence[str], device: torch.device, budget: int = TOKENS_AT_ONCE
) -> States:
    """Read the states of texts, in their order. Neither batch nor order changes a text's states.

    Raises:
        InputError: a text cannot be read.
        SentenceExpertsError: one text alone does not fit into memory, or its states are not finite.
    """
    rows = reader.token_ids(texts)
    batches = list(batches_of_tokens([len(row) for row in rows], budget, padded=True))
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
                "`max_length`, or load the model with `dtype=bfloat16`, `quantize=4bit` or `device_map=auto`"
            ) from error
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    half = len(rows) // 2
    return States.together([_read(reader, part, device) for part in (rows[:half], rows[half:])])
