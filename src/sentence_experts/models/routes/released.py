"""The checkpoints that the domain experts' authors released, known by their JSON: without torch.

Their code is github.com/Gleghorn-Lab/Mixture-of-Experts-Sentence-Similarity, the class
`MoEBertForSentenceSimilarity`. `models.files.released` opens them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentence_experts.errors import InputError
from sentence_experts.storage import read_json

ARCHITECTURE = "MoEBertForSentenceSimilarity"
TOKENS = ("additional_special_tokens", "extra_special_tokens")  # names of one key, old and new


def is_released(config: Any) -> bool:
    """Return whether a model's config.json is one of these checkpoints."""
    return isinstance(config, Mapping) and ARCHITECTURE in (config.get("architectures") or ())


def read_domains(folder: Path) -> dict[str, str]:
    """Read the domains and their tokens from a checkpoint's tokenizer, in the order of the experts.

    Raises:
        InputError: it has none, or one that is not a name in brackets.

    >>> read_domains(Path("moe_tokensHF"))  # doctest: +SKIP
    {'copd': '[COPD]', 'cvd': '[CVD]'}
    """
    file = folder / "tokenizer_config.json"
    settings = read_json(file) if file.is_file() else {}
    given: list[Any] = next((settings[name] for name in TOKENS if settings.get(name)), [])
    tokens = [token if isinstance(token, str) else token["content"] for token in given]
    domains = {token[1:-1].lower(): token for token in tokens}
    strange = [token for name, token in domains.items() if token != f"[{name.upper()}]"]
    if strange or not domains:
        found = f"{strange[0]!r} is not like [COPD]" if strange else "there are none"
        raise InputError(f"{file}: the domain tokens are missing from {TOKENS[0]}: {found}")
    return domains
