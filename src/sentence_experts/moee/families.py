"""How the routers of each model type are read: a table with one row per kind of router.

transformers records the routers of nearly every mixture-of-experts model (`output_router_logits`). The rows
say what differs: how a model turns the recorded numbers into scores, and which records belong to MLP routers.
A type without a row is read as most are: logits, scored by softmax.
"""

from __future__ import annotations

from dataclasses import dataclass

SOFTMAX, SIGMOID = "softmax", "sigmoid"
LOGITS, PROBABILITIES = "logits", "probabilities"
SCORES = "scores"


@dataclass(frozen=True)
class RouterFamily:
    """The routers of one or more model types.

    Attributes:
        model_types: as `config.model_type` has them.
        scoring: how the model scores its experts: "softmax" over all, or "sigmoid" of each.
        recorded: what transformers records: "logits", or "probabilities" (scores already).
        of_each: (n, m): of every m records only the n-th (from 0) is an MLP's. JetMoE also routes attention.
        gate: the class of the routers, for models whose own code records nothing: their logits are computed
            from its input and `weight`.
    """

    model_types: tuple[str, ...]
    scoring: str = SOFTMAX
    recorded: str = LOGITS
    of_each: tuple[int, int] = (0, 1)
    gate: str | None = None


FAMILIES = (
    RouterFamily((
        "olmoe", "flex_olmo", "qwen2_moe", "qwen3_moe", "qwen3_next", "qwen3_5_moe_text", "mixtral", "phimoe",
        "gpt_oss", "granitemoe", "granitemoeshared", "granitemoehybrid", "deepseek_v2", "mistral4", "dbrx",
        "jamba", "ernie4_5_moe", "hunyuan_v1_moe", "minimax", "longcat_flash", "aria_text",
    )),
    RouterFamily((
        "deepseek_v3", "deepseek_v32", "glm4_moe", "glm4_moe_lite", "dots1", "exaone_moe", "afmoe",
        "minimax_m2", "lfm2_moe", "llama4_text", "laguna", "hy_v3", "mimo_v2_flash", "nemotron_h",
        "solar_open", "kimi_linear",
    ), scoring=SIGMOID),
    RouterFamily(("gemma4_text", "gemma4"), recorded=PROBABILITIES),
    # Of each block three records: the attention's router, the same once more, the MLP's router.
    RouterFamily(("jetmoe",), of_each=(2, 3)),
    # DeepSeekMoE-16B has no class in transformers; the code that comes with its weights records no routers.
    RouterFamily(("deepseek",), gate="MoEGate"),
)  # fmt: skip
DEFAULT = RouterFamily(())


def family_of(model_type: str) -> RouterFamily:
    """The row of a model type, or the default."""
    return next((family for family in FAMILIES if model_type in family.model_types), DEFAULT)


def published_weights(model_type: str) -> str:
    """The routing weights of the published code: scores of DeepSeek's routers, logits of all others."""
    scores = model_type.startswith("deepseek") or family_of(model_type).recorded == PROBABILITIES
    return SCORES if scores else LOGITS


def is_known(model_type: str) -> bool:
    """Whether the type has a row."""
    return family_of(model_type) is not DEFAULT
