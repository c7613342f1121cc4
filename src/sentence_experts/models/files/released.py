"""Opening the checkpoints that the domain experts' authors released: rewritten in this package's layout.

The layout is as in their code (see `routes.released`), as its class saves it; no released file was at hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from sentence_transformers.base.modules import Dense, Module, Transformer
from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from sentence_experts.errors import InputError, brief
from sentence_experts.models.architectures.families import NOT_INHERITED, family_of_base
from sentence_experts.models.architectures.registration import config_class_of, model_class_of
from sentence_experts.models.layers.weight_files import REMEDY, WEIGHTS, check_names
from sentence_experts.models.routes.known_routes import SETTINGS
from sentence_experts.models.routes.released import TOKENS, read_domains
from sentence_experts.models.routes.route_tokens import with_domain_tokens
from sentence_experts.storage import read_json, temporary_folder, write_json

BASE_TYPE = "modernbert"
MAX_LENGTH = 512  # their data collator cuts texts there
# Fields of their config that no weight or vector depends on, or that are read here.
THEIRS = ("num_experts", "lora", "lora_r", "lora_alpha", "lora_dropout", "loss_type", "reference_compile")
GLOBAL_ROPE_THETA = 160_000.0  # of a config that does not name it
HEAD = "pooler."


@contextmanager
def rewritten(folder: Path, config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a temporary folder with the same model in this package's layout.

    Args:
        folder: their checkpoint.
        config: content of its config.json.

    Raises:
        InputError: the checkpoint holds what this package's models cannot, or weights are missing.
    """
    _refuse(folder, config)
    domains = read_domains(folder)
    experts = int(config.get("num_experts", 1))
    if experts not in (1, len(domains)):
        tokens = ", ".join(domains.values())
        raise InputError(f"{folder}: {experts} experts, but {len(domains)} domain tokens ({tokens})")
    weights = _read(folder / WEIGHTS)
    with temporary_folder() as place:
        tokenizer = _load_tokenizer(folder, domains, Path(place))
        lead = tokenizer.cls_token_id
        tokenizer, routes = with_domain_tokens(tokenizer, [*domains])
        blocks = range(int(config["num_hidden_layers"])) if experts > 1 else ()
        values: dict[str, Any] = {
            name: value for name, value in config.items() if name not in (*THEIRS, *NOT_INHERITED)
        }
        if values.get("local_rope_theta", 0) is None:  # theirs then takes the other one
            values["local_rope_theta"] = values.get("global_rope_theta", GLOBAL_ROPE_THETA)
        family = family_of_base(BASE_TYPE)
        ours = config_class_of(family)(
            **values,
            experts=[*domains],
            routes=[route.to_json() for route in routes],
            expert_layers=[*blocks],
            inner_route_token_id=tokenizer.unk_token_id or lead,
            base_vocab_size=len(tokenizer) - len(domains),
        )
        modules, head = _make_modules(ours.hidden_size)
        with torch.device("meta"):
            expected = model_class_of(family)(ours).state_dict()
        expected |= {f"{HEAD}{name}": value for name, value in head.state_dict().items()}
        state = {_translate_name(name): value for name, value in weights.items()}
        _check(folder / WEIGHTS, expected, state)
        head.load_state_dict({name: state.pop(f"{HEAD}{name}") for name in head.state_dict()})
        table = state["embeddings.tok_embeddings.weight"]
        # All alike: trained by numbers of experts, behind [CLS], which domains then stand for.
        if (own := table[-len(domains) :]).shape[0] > 1 and bool((own == own[0]).all()):
            own[:] = table[lead]
        _write(Path(place), state, modules)
        ours.save_pretrained(place)
        tokenizer.save_pretrained(place)
        write_json(Path(place) / SETTINGS, {"prompts": domains, "default_prompt_name": None})
        yield place


def _refuse(folder: Path, config: Mapping[str, Any]) -> None:
    """Refuse what this package's models have no place for."""
    if (kind := config.get("model_type")) != BASE_TYPE:
        raise InputError(
            f"{folder}: the authors' older layout on {kind!r}, whose experts are gated one by one, cannot "
            f"be opened; only the layout on {BASE_TYPE!r} can"
        )
    if config.get("lora"):
        raise InputError(f"{folder}: its low-rank matrices (`lora`) are not merged; merge them first")
    if config.get("rope_scaling"):
        raise InputError(f"{folder}: `rope_scaling` is {config['rope_scaling']!r}, which is not supported")


def _read(file: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    if not file.is_file():
        raise InputError(f"{file}: no such file; the checkpoint must have its weights in it")
    try:
        weights: dict[str, Tensor] = load_file(file)
    except Exception as error:  # a broken file can make the library raise any error
        raise InputError(f"{file}: cannot be read ({brief(error)}); {REMEDY}") from error
    return weights


def _load_tokenizer(folder: Path, domains: Mapping[str, str], place: Path) -> PreTrainedTokenizerBase:
    """Load their tokenizer without the domain tokens, which must be the last ones."""
    content: Any = read_json(folder / "tokenizer.json")
    added = {token["content"]: token["id"] for token in content["added_tokens"]}
    settings = read_json(folder / "tokenizer_config.json")
    kept = [token for token in content["added_tokens"] if token["content"] not in domains.values()]
    write_json(place / "tokenizer.json", {**content, "added_tokens": kept}, sort=False)
    left_out = (*TOKENS, "added_tokens_decoder")
    write_json(
        place / "tokenizer_config.json",
        {name: value for name, value in settings.items() if name not in left_out},
    )
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(place)
    tokenizer.model_max_length = min(tokenizer.model_max_length, MAX_LENGTH)
    numbers = [added.get(token) for token in domains.values()]
    if numbers != [*range(len(tokenizer), len(tokenizer) + len(domains))]:
        raise InputError(f"{folder / 'tokenizer.json'}: the domain tokens are not its last tokens, in order")
    return tokenizer


def _translate_name(name: str) -> str:
    """Return the name of a weight here; the head's weights keep theirs."""
    block, _, expert = name.removeprefix("bert.").partition(".mlp.experts.")
    number, _, inside = expert.partition(".")
    return f"{block}.experts.{number}.mlp.{inside}" if expert else block


def _check(file: Path, expected: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    check_names(file, expected.keys() - state.keys(), state.keys() - expected.keys())
    for name, value in expected.items():
        if value.shape != state[name].shape:
            shapes = f"{tuple(state[name].shape)}, not {tuple(value.shape)}"
            raise InputError(f"{file}: {name} is {shapes}, as config.json and the tokenizer say")


def _make_modules(width: int) -> tuple[list[Module], nn.ModuleDict]:
    """Make the mean over the tokens, a layer norm and two linear layers; and these three by their names."""
    norm = LayerNorm(width)
    first, second = (
        Dense(width, width, activation_function=activation()) for activation in (nn.Tanh, nn.Identity)
    )
    head = nn.ModuleDict({"layernorm": norm.norm, "w1": first.linear, "w2": second.linear})
    return [Pooling(width, "mean"), norm, first, second], head


def _write(place: Path, state: Mapping[str, Tensor], modules: Sequence[Module]) -> None:
    """Write the weights of the transformer, and the modules that follow it."""
    from safetensors.torch import save_file

    save_file({name: value.contiguous() for name, value in state.items()}, place / WEIGHTS, {"format": "pt"})
    listed = [{"idx": 0, "name": "0", "path": "", "type": f"{Transformer.__module__}.{Transformer.__name__}"}]
    for number, module in enumerate(modules, 1):
        kind = type(module)
        path = f"{number}_{kind.__name__}"
        (place / path).mkdir()
        module.save(str(place / path))
        kind_name = f"{kind.__module__}.{kind.__name__}"
        listed.append({"idx": number, "name": str(number), "path": path, "type": kind_name})
    write_json(place / "modules.json", listed)
