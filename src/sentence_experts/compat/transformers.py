"""Uses of transformers that its documentation does not promise."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock, get_ident
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)
from transformers.utils.loading_report import LoadStateDictInfo
from transformers.utils.output_capturing import install_all_output_capturing_hooks

from sentence_experts.compat.values import (
    Known,
    describe_config,
    describe_tensor,
    describe_values,
    is_installed,
)
from sentence_experts.errors import UsageError

# The functions behind the attention "sdpa" and its mask, which transformers documents under that name only.
padded_attention, padded_mask = sdpa_attention_forward, sdpa_mask
# Their classes change with their versions alone.
_LIBRARIES = {"accelerate", "torch", "transformers", "sentence_transformers", "sentence_experts", "peft"}
# Attributes of layers that change by use.
_BY_USE = {
    *("training", "gradient_checkpointing", "max_seq_len_cached", "name_or_path", "warnings_issued"),
    *("compute_type_is_set", "support_avx512bf16_for_cpu"),  # of bitsandbytes
}
_FEW = 4096  # elements of a buffer that are compared: frequencies, and no masks
_REMOTE = "transformers_modules"  # code that came with a model, and is hashed with its files


def attention_of(config: Any) -> str | None:
    """Return the attention that a model with this config runs ("sdpa", "eager", ...).

    transformers takes the choice as `attn_implementation` but gives it back under a private name only.
    """
    chosen: str | None = getattr(config, "_attn_implementation", None)
    return chosen


def set_attention(config: Any, name: str | None) -> None:
    """Choose the attention of a model with this config, without the checks of `set_attn_implementation`.

    Inside a model's `__init__` the public method would choose for the blocks that are about to be replaced.
    """
    config._attn_implementation = name


def describe_layers(model: Any) -> list[list[Any]]:
    """Return the config of a model's transformer, and the name, class, settings and hooks of each layer.

    None of it is a weight. Of classes and functions of the user's own, all that they hold and their code
    count (`describe_values`).
    """
    peft = any(getattr(getattr(module, "auto_model", None), "peft_config", None) for module in model)
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    described = [["config", describe_config(config) if isinstance(config, PreTrainedConfig) else {}]]
    every = dict(_name_layers(model))
    layers: Known = {id(each): (number, each) for number, each in enumerate([config, *every.values()])}
    for name, layer in every.items():
        adapters = _describe_adapters(layer) if peft else []
        try:
            hooks, own = _describe_hooks(layer, layers), _describe_own(layer, layers)
        except RecursionError as error:
            raise UsageError(
                f"what the layer {name!r} ({type(layer)}) holds is too deep to be told"
            ) from error
        kind, settings = type(layer).__qualname__, _list_settings(layer)
        described.append([name, kind, layer.extra_repr(), hooks, *adapters, *own, *settings])
    return described


def _name_layers(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the layers of a model by name, also those of experts that wait without weights."""
    for name, layer in model.named_modules():
        waiting = vars(layer).get("expert") if is_of_library_name(type(layer).__module__) else None
        yield from [(name, layer)] if waiting is None else waiting.named_modules(prefix=name)


def _describe_own(layer: torch.nn.Module, layers: Known) -> list[Any]:
    """Describe what a layer has of the user's own: its class with all that it holds, or replaced functions.

    `layers` are the model's layers, by their ids, which are described by themselves.
    """
    kind = type(layer)
    if not is_of_library(kind, _REMOTE):
        if is_installed(kind):  # such as a quantized layer, which keeps states
            settings = _plain_settings(layer)
            replaced = [describe_values(vars(layer)[name], {**layers}) for name in _list_replaced(layer)]
            return [settings, *replaced] if settings or replaced else []
        others = {key: each for key, each in layers.items() if key != id(layer)}
        return [describe_values(layer, others, weights=False), describe_values(dict(_list_buffers(layer)))]
    return [describe_values(vars(layer)[name], {**layers}) for name in _list_replaced(layer)]


def _describe_hooks(layer: torch.nn.Module, layers: Known) -> list[Any]:
    """Return the names of the hooks of a layer, and of the user's own what they do."""
    hooks = (*layer._forward_pre_hooks.values(), *layer._forward_hooks.values())
    own = (each for each in hooks if not is_of_library(each, _REMOTE))
    return [*_list_hooks(layer), *(describe_values(each, {**layers}) for each in own)]


def _list_replaced(layer: torch.nn.Module) -> list[str]:
    """Return the names of a layer's functions that the user has put there, or in the place of another."""
    found = []
    for name, each in vars(layer).items():
        function = getattr(each, "func", each)  # of a partial
        code = getattr(getattr(function, "__func__", function), "__globals__", None)
        if code is not None:
            names = (
                code.get("__name__"),
                getattr(function, "__module__", None),
            )  # of a decorator, and below it
            is_own = not all(is_of_library_name(each, _REMOTE) for each in names)
        else:
            is_own = callable(getattr(type(layer), name, None)) and not (
                inspect.isbuiltin(function) or is_of_library(type(function), _REMOTE)
            )
        if is_own:
            found.append(name)
    return found


def _list_buffers(layer: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the buffers of a layer that are not saved."""
    for name in sorted(layer._non_persistent_buffers_set):
        if (buffer := layer._buffers.get(name)) is not None:
            yield name, buffer


def is_of_library(kind: Any, *others: str) -> bool:
    """Return whether a class or function is of the libraries that models are made of, or of `others`."""
    return is_of_library_name(getattr(kind, "__module__", None), *others)


def is_of_library_name(module: Any, *others: str) -> bool:
    """Return whether a module is of the libraries that models are made of, or of `others`."""
    return str(module).partition(".")[0] in {*_LIBRARIES, *others}


def _list_settings(layer: torch.nn.Module) -> list[list[Any]]:
    """Return what a layer of transformers keeps beside its config and weights: `top_k`, frequencies of rotary
    positions."""
    if not type(layer).__module__.startswith("transformers."):
        return []
    kept = _plain_settings(layer)
    if getattr(layer, "rope_type", None) not in ("dynamic", "longrope"):  # which change by use
        kept |= {name: describe_tensor(each) for name, each in _list_buffers(layer) if each.numel() <= _FEW}
    return [[name, kept[name]] for name in sorted(kept)]


def _plain_settings(layer: torch.nn.Module) -> dict[str, Any]:
    kept = {name: value for name, value in vars(layer).items() if isinstance(value, int | float | str)}
    return {name: kept[name] for name in kept.keys() - _BY_USE if not name.startswith("_")}


def check_settings_kept(old: Any, new: Any) -> None:
    """Check that a model which was built of another one's config has the settings of its layers.

    Raises:
        UsageError: one was changed in memory, such as `eps` of a LayerNorm, and the config says otherwise.
    """
    before = dict(old.named_modules())
    for name, layer in new.named_modules():
        known = before.get(name, layer)
        if type(known) is not type(layer) or isinstance(layer, torch.nn.Embedding | torch.nn.Dropout):
            continue
        if (known.extra_repr(), _plain_settings(known)) != (layer.extra_repr(), _plain_settings(layer)):
            raise UsageError(
                f"the layer {name!r} ({known}) was set otherwise than the model's config says, by which "
                f"the new model is built ({layer}): change the config, too, or take the model before that"
            )


def _list_hooks(layer: Any) -> list[str]:
    """Return the names of the hooks of a layer; those of transformers, for outputs and gradients, aside."""
    return [
        f"{hook.__module__}.{getattr(hook, '__qualname__', type(hook).__qualname__)}"
        for hook in (*layer._forward_pre_hooks.values(), *layer._forward_hooks.values())
        if not str(hook.__module__).startswith("transformers.")
    ]


def _describe_adapters(layer: Any) -> list[Any]:
    """Return which adapters of peft a layer applies, and how strongly."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    if not isinstance(layer, BaseTunerLayer):
        return []
    scales = {name: str(scale) for name, scale in getattr(layer, "scaling", {}).items()}
    return [layer.disable_adapters, [*layer.active_adapters], [*layer.merged_adapters], scales]


def _list_own_functions(kind: type) -> list[str]:
    """Return the functions of SentenceTransformer that a class replaces, also by other things to call."""
    if kind in SentenceTransformer.__mro__ or is_of_library(kind, *sys.stdlib_module_names):
        return []
    names = [name for name in vars(kind) if not name.startswith("__") or name in _CALLED]
    values = {name: vars(kind)[name] for name in names if hasattr(SentenceTransformer, name)}
    return [name for name, each in values.items() if callable(each) or hasattr(each, "__get__")]


_CALLED = ("__call__", "__getattr__", "__getattribute__")


def check_plain_layers(encoder: Any, transformer: Any) -> None:
    """Check that a copy of a model's weights is the model.

    Hooks are not copied, and peft, `torch.compile` and `torch.nn.utils.parametrize` rename weights.

    Raises:
        UsageError: the encoder, or its transformer, has such layers.
    """
    for kind in type(encoder).__mro__:
        if own := _list_own_functions(kind):
            raise UsageError(
                f"the model's class {kind.__qualname__} replaces functions ({own[0]}), which the new model "
                "would not have: take a SentenceTransformer of the same modules"
            )
    for module in encoder:
        if not is_of_library(type(module), _REMOTE):
            raise UsageError(
                f"the model has a module of another class ({type(module).__qualname__}), with which it could "
                "not be loaded again: take the model without it"
            )
    for name, layer in encoder.named_modules():
        if hooks := _list_hooks(layer):
            raise UsageError(
                f"the layer {name!r} has hooks ({', '.join(hooks)}): take the model without them"
            )
        if replaced := _list_replaced(layer):
            whose = f"of the layer {name!r}" if name else "of the model"
            raise UsageError(f"`{replaced[0]}` {whose} was replaced: take the model before that")
        if hasattr(layer, "_orig_mod") or torch.nn.utils.parametrize.is_parametrized(layer):
            raise UsageError(f"the layer {name!r} is compiled or parametrized: take the model before that")
    calls = getattr(encoder[0], "processing_kwargs", None) or {}
    if any(isinstance(each, dict) and each.get("add_special_tokens") is False for each in calls.values()):
        raise UsageError(
            "the model leaves out special tokens (`processing_kwargs`), as which routes are read"
        )
    if names := getattr(transformer, "peft_config", None):
        raise UsageError(
            f"adapters of peft are in the model ({', '.join(names)}): take the model without them; "
            "`add_route` makes a route of a folder in which peft saved a LoRA (`adapter`)"
        )


def ignore_on_load(model: Any, pattern: str) -> None:
    """Let `from_pretrained` skip weights of a checkpoint whose names match `pattern`, without a report."""
    ignored = set(model._keys_to_ignore_on_load_unexpected or ())
    model._keys_to_ignore_on_load_unexpected = ignored | {pattern}


def copy_without_recorders(model: PreTrainedModel) -> PreTrainedModel:
    """Copy a model, whose weights are shared, without the hooks that record its outputs.

    transformers registers them at the first text and again where they are missing; pickle takes no functions
    like them.
    """
    weights = {id(each): each for each in (*model.parameters(), *model.buffers())}
    copied = copy.deepcopy(model, weights)
    for module in copied.modules():
        for number, hook in list(module._forward_hooks.items()):
            if getattr(hook, "__module__", "") == install_all_output_capturing_hooks.__module__:
                del module._forward_hooks[number]
        vars(module).pop("_output_capturing_hooks_installed", None)
    return copied


_loading = RLock()


@contextmanager
def collect_loading_reports() -> Iterator[list[LoadStateDictInfo]]:
    """Collect what `from_pretrained` finds wrong with a checkpoint's weights, in place of its printed table.

    The public `output_loading_info` does not reach a model that sentence-transformers loads, and covers only
    the adapter where there is one. Missing weights are random after loading, so the caller must look.
    """
    reports: list[LoadStateDictInfo] = []
    thread, table = get_ident(), LoadStateDictInfo.create_loading_report

    def collect(report: LoadStateDictInfo, *args: Any, **kwargs: Any) -> str | None:
        if get_ident() != thread:
            return table(report, *args, **kwargs)
        reports.append(report)
        return None

    with _loading:
        LoadStateDictInfo.create_loading_report = collect  # type: ignore[assignment,method-assign]
        try:
            yield reports
        finally:
            LoadStateDictInfo.create_loading_report = table  # type: ignore[method-assign]


def is_causal_only(model_type: str | None) -> bool:
    """Return whether models of this type have the head of a causal language model, not of a masked one.

    transformers lists which heads a type has for its `AutoModelFor...` classes alone.
    """
    return model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and (
        model_type not in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    )


def records_router_logits(model: Any) -> bool:
    """Return whether `output_router_logits` gives the routers' logits of a model of this class.

    A class lists the outputs that it can record under a private name; a class that cannot ignores the
    option silently.
    """
    return "router_logits" in (getattr(type(model), "_can_record_outputs", None) or {})
