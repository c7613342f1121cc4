"""`load`: the one way to open a model of any kind."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from sentence_experts.config import Config, Device, Dtype, MaxLength, Revision, TrustRemoteCode, with_settings
from sentence_experts.errors import InputError, SentenceExpertsError, UsageError, brief, require
from sentence_experts.models.architectures.families import MODEL_TYPES
from sentence_experts.models.layers.weight_files import EXPERT_FILES
from sentence_experts.models.pooling import settings_of, warn_of_length
from sentence_experts.models.routes.known_routes import KnownRoutes
from sentence_experts.models.routes.released import is_released
from sentence_experts.models.sources import (
    GRAPH_FILE,
    NAME,
    NAMING_A_BASE,
    OPENERS,
    ModelOrigin,
    check_hub,
    file_states,
    hub_commit,
    load_quietly,
    model_folder,
    notes_of,
    origin_of,
    source_name,
)
from sentence_experts.progress import announce
from sentence_experts.storage import check_unchanged, read_json

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.getLogger(__name__)

LIMITS = ("routes", "max_resident_experts")  # settings that keep experts on disk


class LoadConfig(Config):
    """Settings of `load`."""

    device: Device = None
    dtype: Dtype = None
    max_length: MaxLength = None
    pooling: Literal["mean", "last", "cls"] | None = Field(
        None, description="Pooling of the token vectors, instead of the model's own"
    )
    packed: bool = Field(True, description="Leave out the padding on a CPU; the vectors stay the same")
    routes: list[str] | None = Field(
        None, description="Load only the experts of these routes; the other experts' files are not read"
    )
    max_resident_experts: int | None = Field(
        None,
        ge=1,
        description="Maximum number of experts in memory: an expert is read when a text needs it, and the "
        "least recently used one is unloaded",
    )
    revision: Revision = None
    trust_remote_code: TrustRemoteCode = False

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        if self.routes is not None and self.max_resident_experts is not None:
            raise ValueError("`routes` and `max_resident_experts`: give one of them")
        return self

    @property
    def hub(self) -> dict[str, Any]:
        """Keyword of libraries for the revision of a hub model, if one is given."""
        return {"revision": self.revision} if self.revision else {}

    def refuse(self, names: Sequence[str], reason: str) -> None:
        """Stop if one of these settings is not at its default.

        Raises:
            UsageError: a setting is not at its default; the message ends with `reason`.
        """
        for name in names:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise UsageError(f"`{name}` has no effect here: {reason}")

    @property
    def partial(self) -> bool:
        """Whether some experts stay out of memory."""
        return any(getattr(self, name) is not None for name in LIMITS)


@with_settings(LoadConfig)
def load(
    source: str | Path | SentenceTransformer, config: LoadConfig | None = None, **settings: Any
) -> SentenceTransformer:
    """Open a model.

    Args:
        source: a folder, a hub id, "minilm" (the packaged all-MiniLM-L6-v2), or a model in memory. Folders
            and hub models are sentence-transformers or plain transformers checkpoints, models with experts
            (which come as `ExpertEncoder`; also a folder of one that the domain experts' authors released),
            and saved `MoeEmbedder`s. A plain checkpoint gets the mean over tokens as its pooling, decoders
            too (as the 2025 paper pools its own models; it does not say how it pools Llama). A
            mixture-of-experts language model comes as a plain decoder too; `MoeEmbedder(source)` reads its
            routing weights.
        config: the settings (`LoadConfig`).
        **settings: fields of `LoadConfig`, in place of the config's.

    Returns:
        The model, ready to encode. It can be pickled and copied. A model in memory stays as it is: it is
        returned itself if it is as the settings want it; another `pooling` or `max_length` gives a model that
        shares its weights, any other change a copy.

    Raises:
        UsageError: settings that do not fit the model, such as `routes` where learned routers choose experts,
            or that it cannot follow, such as `revision` if it is in memory; or `source` is not a model.
        RouteError: a route that the model does not have.
        InputError: there is no such model, or it cannot be loaded.

    Example:
        >>> load("minilm", max_length=64).encode("a text").shape
        (384,)
    """
    chosen = LoadConfig.of(config, **settings)
    if hasattr(source, "route_fingerprint"):  # an exported graph, opened already
        graph: Any = source
        return graph.with_settings(chosen)  # type: ignore[no-any-return]
    if isinstance(source, str | Path):
        model = load_files(str(source), chosen)
        if check := getattr(model, "check_alpha", None):  # an embedder's
            check()
        return model
    if not isinstance(source, require("sentence_transformers", "models").SentenceTransformer):
        raise UsageError(f"a model is a path, a hub id or a SentenceTransformer, not {type(source).__name__}")
    chosen.refuse(("revision", "trust_remote_code"), "the model is in memory already")
    return _with_settings(source, chosen, chosen.model_fields_set)


def load_files(source: str, config: LoadConfig) -> SentenceTransformer:
    """Return the model of a folder or hub id, which remembers where it comes from.

    An embedder's alpha may have been chosen for other weights than there are now.
    """
    place, name = model_folder(source), source_name(source)
    known = KnownRoutes.read(place)
    if config.routes and known is not None:
        known.check_loadable(config.routes)
    cached = commit = None
    if is_folder := Path(place).exists():
        config.refuse(["revision"], f"{name} is a folder")
        check_unchanged(Path(place), but=EXPERT_FILES if config.partial else "")
    else:
        cached = check_hub(place, config.revision)
    is_graph = (Path(place) / GRAPH_FILE).is_file()
    if is_graph or (place != source == NAME and find_spec("sentence_transformers") is None):
        from sentence_experts.models import onnx_encoder  # needs no torch

        return onnx_encoder.open_graph(place, config) if is_graph else onnx_encoder.open_minilm(config)  # type: ignore[return-value]
    load_quietly()
    origin = ModelOrigin.of_files(name, place)
    before = _states_of_model(place) if is_folder else {}
    opener = next((OPENERS[file] for file in OPENERS if (Path(place) / file).is_file()), _open)
    try:
        with announce(f"loading {name}"):
            if cached is None:
                model: SentenceTransformer = opener(place, config)
            else:  # so that no library asks a hub that does not answer, many times over
                model = _open(str(cached), config.model_copy(update={"revision": None}))
    except SentenceExpertsError:
        raise
    except Exception as error:  # any error that a broken file or a missing device makes the libraries raise
        where = f" on {config.device}" if config.device else ""
        raise InputError(f"{source}: this model cannot be loaded{where}: {brief(error)}") from error
    if is_folder and _states_of_model(place) != before:  # with files of two models
        raise InputError(f"{place}: changed while it was read; give the same command again")
    if not is_folder:
        commit = hub_commit(place, config.revision)
    origin = replace(origin, commit=commit, notes=notes_of(place), settings=settings_of(model))
    if opener is _open:
        model = _with_settings(model, config, {*config.model_fields_set, "packed"}, in_place=True)
    origin.set(model)
    return model


def _states_of_model(place: str) -> dict[str, tuple[int, ...]]:
    """Return the states of the files that a model is read from; a program may write its log beside them."""
    kinds = (".safetensors", ".bin", ".json", ".txt", ".model", ".pt")
    return {file: state for file, state in file_states(place).items() if file.endswith(kinds)}


def _open(place: str, config: LoadConfig) -> SentenceTransformer:
    """Return the model of a folder or hub id, of the class that fits it."""
    require("sentence_transformers", "models")
    from sentence_transformers import SentenceTransformer
    from transformers import PreTrainedConfig

    from sentence_experts.compat.torch import LightMeta
    from sentence_experts.models.files.complete import check_weights, transformers_of
    from sentence_experts.models.layers.weight_files import (
        INDEX,
        WEIGHTS,
        WeightFiles,
        hash_record,
        shared_part,
    )

    try:
        content, _ = PreTrainedConfig.get_config_dict(place, **config.hub)
    except OSError:
        content = {}
    if not content:  # as in a folder without a transformer
        content = _read_config_under_adapters(place, config)
    if is_released(content):
        return _open_released(place, content, config)
    has_experts = content.get("model_type") in MODEL_TYPES
    if has_experts and Path(place).exists() and not (Path(place) / "modules.json").is_file():
        raise InputError(f"{place}: not a sentence-transformers directory (no modules.json)")
    in_part = has_experts and config.partial
    options: dict[str, Any] = {"config_kwargs": {"experts_on_disk": True}} if in_part else {}
    if not has_experts:
        options["trust_remote_code"] = config.trust_remote_code
    files = shared_part(place, **config.hub) if in_part else nullcontext(place)
    kind: Any = SentenceTransformer
    if has_experts:  # the classes of models with experts are imported for these alone
        from sentence_experts.models.encoder import ExpertEncoder

        kind = ExpertEncoder
    record = hash_record(place)  # before anything is read
    with check_weights(place) as loaded, LightMeta(), files as folder:
        model = kind(folder, device=config.device, **options, **config.hub)
        loaded += transformers_of(model)
    if not has_experts:
        if is_decoder(model):
            _prepare_decoder(model, place, config)
    elif config.partial or any((Path(place) / name).is_file() for name in (WEIGHTS, INDEX)):
        residency = model.routed_model.residency
        residency.files = WeightFiles.find(place, **config.hub)
        residency.files.record = record
        if config.partial:
            residency.check_files()
    return model  # type: ignore[no-any-return]


def _read_config_under_adapters(place: str, config: LoadConfig) -> dict[str, Any]:
    """Return the config of the model with experts on which a folder's LoRA was trained; else empty."""
    from transformers import PreTrainedConfig
    from transformers.utils.peft_utils import find_adapter_config_file

    try:
        if (file := find_adapter_config_file(place, **config.hub)) is None:
            return {}
        content, _ = PreTrainedConfig.get_config_dict(read_json(Path(file))[NAMING_A_BASE[Path(file).name]])
    except (OSError, KeyError, TypeError):  # no base, or none that is named
        return {}
    if content.get("model_type") not in MODEL_TYPES:
        return {}
    config.refuse(LIMITS, f"{place} is a LoRA of a model with experts, which is loaded whole")
    return content


def _open_released(place: str, content: dict[str, Any], config: LoadConfig) -> SentenceTransformer:
    """Return the model of a folder that the domain experts' authors released."""
    from sentence_experts.models.files.released import rewritten

    config.refuse(LIMITS, f"{place} has all experts in one file; save the model, and load that")
    if not Path(place).is_dir():
        raise InputError(f"{place}: checkpoints of this layout are opened from a folder: download it first")
    with rewritten(Path(place), content) as folder:
        model: Any = _open(folder, config)
    model.routed_model.residency.files = None  # they are gone
    return model  # type: ignore[no-any-return]


def is_decoder(model: SentenceTransformer) -> bool:
    """Return whether the model's blocks belong to a causal language model, not to a masked one."""
    from sentence_experts.compat.transformers import is_causal_only

    return is_causal_only(getattr(model.config, "model_type", None))


def _prepare_decoder(model: SentenceTransformer, place: str, config: LoadConfig) -> None:
    """Give a decoder the padding, after the last token, and the pooling that its checkpoint lacks.

    No token attends to later ones, so this padding changes nothing. On the left it would shift positions,
    which matters with absolute position embeddings (GPT-2).
    """
    from sentence_transformers.util import is_sentence_transformer_model

    from sentence_experts.models.pooling import set_pooling

    tokenizer = model.tokenizer
    tokenizer.padding_side = "right"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token or tokenizer.convert_ids_to_tokens(0)
    if config.pooling is None and not is_sentence_transformer_model(place, **config.hub):
        set_pooling(model, "mean")
        logger.info(f"{place}: a decoder language model; its vectors are the mean over the tokens")


def _with_settings(
    model: SentenceTransformer, config: LoadConfig, given: set[str], in_place: bool = False
) -> SentenceTransformer:
    """Return the model as the settings want it: itself, if it is so already or may be changed in place."""
    from sentence_experts.compat.sentence_transformers import check_one_way, share_all_but_tokenizer

    check_one_way(model)
    has_experts = getattr(model.config, "model_type", None) in MODEL_TYPES
    if config.partial and not has_experts:
        name = next(name for name in LIMITS if getattr(config, name) is not None)
        raise UsageError(f"`{name}` has no effect here: this model has no experts")
    if config.partial:
        from sentence_experts.models.encoder import check_experts

        check_experts(model)
    changes = _find_changes(model, config, given)
    if changes and not in_place:
        shares = changes.keys() <= {"pooling", "max_length"}
        origin = origin_of(model)
        model = share_all_but_tokenizer(model) if shares else copy.deepcopy(model)
        if origin is not None:
            origin.set(model)
    for change in changes.values():
        change(model)
    return model


def _find_changes(
    model: SentenceTransformer, config: LoadConfig, given: set[str]
) -> dict[str, Callable[[Any], object]]:
    """Return the changes that bring a model to the settings, without those that it has already."""
    import torch

    from sentence_experts.models.architectures.packed_forward import is_packed, use_packing
    from sentence_experts.models.pooling import pooling_of, set_pooling

    changes: dict[str, Callable[[Any], object]] = {}
    if (routes := config.routes) is not None:
        changes["routes"] = lambda model: model.use_routes(routes)
    if (limit := config.max_resident_experts) is not None:
        changes["limits"] = lambda model: model.limit_experts(limit)
    device = torch.device(config.device or model.device)
    if model.device.type != device.type or device.index not in (None, model.device.index):
        changes["device"] = lambda model: model.to(device)
    if config.dtype is not None and str(model.dtype) != f"torch.{config.dtype}":
        dtype = getattr(torch, config.dtype)
        changes["dtype"] = lambda model: model.to(dtype=dtype)
    if "packed" in given and is_packed(model) is (not config.packed):
        changes["packed"] = lambda model: use_packing(model, config.packed)
    if (pooling := config.pooling) not in (None, pooling_of(model)):
        changes["pooling"] = lambda model: set_pooling(model, str(pooling))
    if config.max_length is not None:
        special = getattr(model.tokenizer, "num_special_tokens_to_add", int)()
        if config.max_length <= special:
            setting = f"`max_length={config.max_length}`"
            raise UsageError(f"{setting}: no room for text beside the {special} tokens of the model")
        warn_of_length(config.max_length, model.max_seq_length)
        if model.max_seq_length is None or model.max_seq_length > config.max_length:
            changes["max_length"] = lambda model: setattr(model, "max_seq_length", config.max_length)
    return changes
