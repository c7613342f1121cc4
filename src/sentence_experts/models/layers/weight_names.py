"""The grammar of weight names: parts that routes own, routers, and the names in the dense base.

encoder.layer.3.experts.1.intermediate.dense.weight     expert 1 of block 3
encoder.layer.3.adapters.0.output_dense.up              adapter 0 of block 3
heads.0.weight                                          head 0
encoder.layer.3.router.weight                           block 3's learned router
encoder.layer.3.attention.self.query.weight             shared by all routes
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sentence_experts.models.architectures.families import Family

EXPERTS, ADAPTERS, HEADS, ROUTERS = ".experts.", ".adapters.", ".heads.", ".router."
# Pattern of the weights of experts, for transformers' lists of keys to ignore.
EXPERT_PATTERN = r"\.experts\.\d+\."
_IN_EXPERT = re.compile(r"(?P<block>.*)\.experts\.(?P<number>\d+)\.(?P<inside>.*)")
_OWNED = re.compile(r"(?:.*\.)?(?P<kind>expert|adapter|head)s\.(?P<number>\d+)\..*")


def owner_of(name: str) -> tuple[str, int] | None:
    """Return the part of a model that a weight belongs to: ("expert", 1), ("head", 0); None for a shared one.

    >>> owner_of("heads.0.bias")
    ('head', 0)
    """
    match = _OWNED.fullmatch(name)
    return (match["kind"], int(match["number"])) if match else None


def expert_of(name: str) -> int | None:
    """Return the index of the expert that a weight or module belongs to; None for any other."""
    owner = owner_of(name)
    return owner[1] if owner is not None and owner[0] == "expert" else None


def is_expert(name: str) -> bool:
    """Return whether a weight or module belongs to an expert."""
    return expert_of(name) is not None


def is_router(name: str) -> bool:
    """Return whether a weight or module belongs to a block's learned router."""
    return ROUTERS in f"{name}."


def expert_prefix(number: int) -> str:
    """Return the part that the names of this expert's weights contain: ".experts.1."."""
    return f"{EXPERTS}{number}."


def of_expert(name: str, number: int) -> str:
    """Return the same weight of another expert.

    >>> of_expert("layers.3.experts.1.mlp.Wi.weight", 0)
    'layers.3.experts.0.mlp.Wi.weight'
    """
    return _IN_EXPERT.sub(rf"\g<block>.experts.{number}.\g<inside>", name)


def base_name(family: Family, name: str) -> str:
    """Return the name of a weight in the dense base.

    >>> from sentence_experts.models.architectures.families import FAMILIES
    >>> base_name(FAMILIES[1], "layers.3.experts.1.mlp.Wi.weight")
    'layers.3.mlp.Wi.weight'
    """
    match = _IN_EXPERT.fullmatch(name)
    if match is None:
        return name
    module, *rest = match["inside"].split(".")
    return ".".join([match["block"], family.owned(expert_norms=True)[module], *rest])
