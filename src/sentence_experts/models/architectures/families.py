"""The encoder families that can hold experts, with the paths of their blocks, attention, MLP and norms.

It imports neither torch nor transformers, so that this package's import can register the model types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sentence_experts.errors import InputError

# The Python file in saved folders that imports the classes from this package.
MODELING = "modeling_sentence_experts"


@dataclass(frozen=True)
class Family:
    """A row of the table that turns a base model type into a model type with experts.

    `class_name` begins the names of the base's classes, and of ours. `attention` names the linear projections
    of the attention inside a block (a low-rank adapter adapts them). `mlp` and `norms` map the name that a
    module has inside an expert to its path inside the block of the base model; the last of `mlp` gives its
    output. An expert always owns the MLP; with `expert_norms` it owns the norms too.
    """

    name: str
    base_model_type: str
    class_name: str
    blocks: str
    attention: tuple[str, ...]
    mlp: Mapping[str, str]
    norms: Mapping[str, str]

    def owned(self, expert_norms: bool) -> dict[str, str]:
        """Return the modules that an expert owns: name inside the expert -> path inside the base block."""
        return {**self.mlp, **(self.norms if expert_norms else {})}

    @property
    def model_type(self) -> str:
        """Model type with experts."""
        return f"{self.base_model_type}_experts"

    @property
    def config_class(self) -> str:
        """Name of the config class with experts."""
        return f"{self.class_name}ExpertsConfig"

    @property
    def model_class(self) -> str:
        """Name of the model class with experts."""
        return f"{self.class_name}ExpertsModel"


FAMILIES = (
    Family(
        name="BERT",
        base_model_type="bert",
        class_name="Bert",
        blocks="encoder.layer",
        attention=(
            *(f"attention.self.{name}" for name in ("query", "key", "value")),
            "attention.output.dense",
        ),
        mlp={"intermediate": "intermediate", "output": "output.dense"},
        norms={"attention_norm": "attention.output.LayerNorm", "output_norm": "output.LayerNorm"},
    ),
    Family(
        name="ModernBERT",
        base_model_type="modernbert",
        class_name="ModernBert",
        blocks="layers",
        attention=("attn.Wqkv", "attn.Wo"),
        mlp={"mlp": "mlp"},
        norms={"attn_norm": "attn_norm", "mlp_norm": "mlp_norm"},
    ),
    Family(
        name="NomicBERT",
        base_model_type="nomic_bert",
        class_name="NomicBert",
        blocks="layers",
        attention=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
        mlp={"mlp": "mlp"},
        norms={"attention_norm": "post_attention_layernorm", "output_norm": "post_mlp_layernorm"},
    ),
)

# Fields of a config that belong to its class, not to the model.
NOT_INHERITED = ("model_type", "architectures", "transformers_version", "tokenizer_class", "auto_map")

MODEL_TYPES = tuple(family.model_type for family in FAMILIES)


def inherited_values(config: Any) -> dict[str, Any]:
    """Return the values of a config that a config of another class can take over."""
    return {name: value for name, value in config.to_dict().items() if name not in NOT_INHERITED}


def family_of_base(model_type: str) -> Family:
    """Return the family whose pretrained checkpoints have this `model_type`."""
    for family in FAMILIES:
        if model_type == family.base_model_type:
            return family
        if model_type == family.model_type:
            raise InputError(
                f"the base has routes already (model type {model_type!r}); extend its dense base, or add "
                "one with `add_route`"
            )
    known = ", ".join(f"{family.name} ({family.base_model_type})" for family in FAMILIES)
    raise InputError(f"the base's model type {model_type!r} cannot be extended; supported: {known}")


def family_of(model_type: str) -> Family:
    """Return the family whose models with experts have this `model_type`; another one is a KeyError."""
    return {family.model_type: family for family in FAMILIES}[model_type]
