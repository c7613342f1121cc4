"""`MoeEmbedder`: a mixture-of-experts language model as a `SentenceTransformer`, without training (MoEE)."""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import quantize_embeddings

from sentence_experts.compat.sentence_transformers import prompt_of
from sentence_experts.compat.torch import KnownWeights, share_weights
from sentence_experts.compat.transformers import describe_layers
from sentence_experts.encoding.encoder import cosines
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.files.fingerprint import source_fingerprint, weights_fingerprint
from sentence_experts.models.sources import file_states, hub_commit, model_folder
from sentence_experts.moee import (
    CHOSEN,
    DEFAULT,
    FILE,
    FITTED,
    FORMAT,
    MIN_PAIRS,
    PROMPTS,
    STANDARD,
    TRUNCATE,
    is_embedder,
)
from sentence_experts.moee.moee_config import FAITHFUL, UNQUANTIZED, MoeeConfig
from sentence_experts.moee.prompts import Prompt
from sentence_experts.moee.transformer import MoeTransformer, read_states
from sentence_experts.moee.vectors import (
    HIDDEN,
    SUM,
    Rows,
    Standard,
    States,
    batch_scores,
    check_parts,
    joined,
)
from sentence_experts.progress import progress
from sentence_experts.storage import Output, output, sha256_text, write_json
from sentence_experts.storage.text_cache import TextCache

logger = logging.getLogger(__name__)

TEXTS_PER_PART = 1024  # read between two writes to the cache
CACHE_DTYPE = np.float16
_VECTOR = "sentence_embedding"  # the only `output_value`
EMBEDDER = "embedder"  # name of this kind of output
# Values of alpha to try; 0 ignores the routing weights.
GRID = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)


class AlphaChoice(NamedTuple):
    """The chosen alpha, and what was tried: alpha -> Spearman's correlation with the scores."""

    alpha: float
    tried: dict[float, float]


class MoeEmbedder(SentenceTransformer):
    """Hidden state (HS), routing weights (RW) or both as a text's vector.

    It can be used like any `SentenceTransformer`. `similarity` is the cosine, except for "sum", where it is
    the paper's cos_HS + alpha * cos_RW: the dot product of the vectors.

    Attributes:
        parts: "hs", "rw", "concat" or "sum".
        alpha: the weight of the routing weights' cosine in "sum".
        chosen_on: hash of the language model for which `make_embedder` chose alpha, if it did.
        fitted: standard scores that `fit_standard` fitted, or None.
        settings: the other arguments that it was made with, with the defaults that depend on the model or the
            machine filled in.

    Example:
        >>> embedder = MoeEmbedder("language-model", parts="rw", device="cpu")
        >>> vectors = embedder.encode(["rice and wheat", "neurons"])
        >>> embedder.similarity(vectors, vectors).shape
        torch.Size([2, 2])
    """

    takes_empty = False
    chosen_on: str | None = None
    _files: Mapping[str, tuple[int, ...]] | None = None  # the language model's, before they were read
    _opened: tuple[tuple[str, dict[str, Any]], TextCache] | None = None  # the store, and what it is made for

    def __init__(
        self,
        model: str | Path,
        config: MoeeConfig | None = None,
        *,
        fitted: Standard | None = None,
        **settings: Any,
    ) -> None:
        """Load a language model.

        Args:
            model: folder or hub id of a mixture-of-experts language model.
            config: the settings; `settings` override its fields, by name.
            fitted: standard scores that were fitted before.

        Raises:
            UsageError: an unknown choice, or standard scores both fitted and of each batch.
            SentenceExpertsError: a library that the settings need is not installed.
            InputError: the model cannot be loaded, or has no routers.
        """
        config = MoeeConfig.of(config, **settings)
        _check_standard(config.standard, fitted)
        if config.standard is not None:
            logger.info(
                f"{config.standard}: standard scores of each batch; a text's vector depends on its neighbours"
            )
        model = str(Path(model).resolve()) if Path(model).is_dir() else model_folder(str(model))
        files = file_states(model)
        reader = MoeTransformer(model, config)
        placed = config.device_map is not None or reader.quantize != UNQUANTIZED
        super().__init__(modules=[reader], device=None if placed else config.device)
        self.settings = {
            "model": model,
            **config.model_dump(mode="json", exclude={"parts", "alpha", "device"}),
            "cache": None if config.cache is None else str(Path(config.cache).resolve()),
            "wording": config.words_of,
            "weights": reader.weights,
            "quantize": reader.quantize,
        }
        self._files, self.fitted = files, fitted
        # Of weights that wait elsewhere, or were quantized, none is there to compare.
        self._loaded = None if placed else (describe_layers(self), KnownWeights(self._parameters_here()))
        self._dtype = self.dtype
        self._set_parts(config.parts, config.alpha)
        self.eval()

    def save(self, path: str, *args: Any, **kwargs: Any) -> None:
        """Write the settings and standard scores; the language model's weights stay where they are.

        Raises:
            UsageError: the folder holds something else, or the language model was changed in memory.
        """
        out = Path(path)
        if out.exists() and not is_embedder(out) and (not out.is_dir() or any(out.iterdir())):
            raise UsageError(f"{out} exists and holds no embedder; choose another folder")
        fingerprint = self.fingerprint
        with output(out, EMBEDDER, overwrite=True) as place:
            place.begin({"model": fingerprint})
            self.save_to(place)

    def save_to(self, place: Output) -> None:
        """Write to an output of this kind."""
        settings = {**self.settings, "parts": self.parts, "alpha": self.alpha}
        settings |= {
            "max_length": self.reader.longest,
            FITTED: self.fitted is not None and self.base_fingerprint,
            PROMPTS: dict(self.prompts),
            DEFAULT: self.default_prompt_name,
        }
        if self.truncate_dim is not None:
            settings[TRUNCATE] = self.truncate_dim
        if self.chosen_on:
            settings[CHOSEN] = self.chosen_on
        with place.replacing() as folder:
            if self.fitted is not None:
                self.fitted.write(folder / STANDARD)
            write_json(folder / FILE, {"kind": "moee", "format": FORMAT, **settings})

    @property
    def reader(self) -> MoeTransformer:
        """The language model."""
        return self[0]  # type: ignore[return-value]

    @property
    def standard(self) -> str | None:
        """The standard scores of each batch that the vectors have: "faithful", "batch" or None."""
        standard: str | None = self.settings["standard"]
        return standard

    @property
    def store(self) -> TextCache | None:
        """The cached states, if `cache` was given: those of the settings and precision as they are now."""
        cache = self.settings["cache"]
        if cache is None:
            return None
        settings = {"model": self.base_fingerprint, **self._reading()}
        if self._opened is None or self._opened[0] != (cache, settings):
            self._opened = (cache, settings), TextCache(Path(cache), "states", settings, CACHE_DTYPE)
        return self._opened[1]

    @property
    def base_fingerprint(self) -> str:
        """The hash of the language model's folder, or of its commit on the hub.

        Raises:
            UsageError: the language model was changed in memory.
            InputError: the folder is another one than that which was loaded.
        """
        if not self._is_as_loaded():
            raise UsageError(
                f"the language model {self.settings['model']} was changed in memory, and results, caches and "
                "an embedder's folder only name it: save the language model, and make an embedder of that; "
                "or load it with another `dtype`"
            )
        return self._source_fingerprint

    def _is_as_loaded(self) -> bool:
        """Return whether the weights and layers are those that were loaded, as far as can be seen."""
        if self._loaded is None:
            return True
        layers, weights = self._loaded
        is_same = self.dtype == self._dtype and layers == describe_layers(self)
        return is_same and weights.are(self._parameters_here())

    def _parameters_here(self) -> dict[str, torch.Tensor]:
        return {name: weight for name, weight in self.named_parameters() if not weight.is_meta}

    @cached_property
    def _source_fingerprint(self) -> str:
        place = self.reader.name
        commit = hub_commit(place, self.settings["revision"])
        if commit is None and not Path(place).is_dir():
            return weights_fingerprint(self)
        fingerprint = source_fingerprint(place, commit)
        if commit is None and self._files is not None and file_states(place) != self._files:
            raise InputError(f"{place} has changed since it was loaded: load it again")
        return fingerprint

    @property
    def fingerprint(self) -> str:
        """A hash of everything that decides a vector."""
        scores: Any = self.standard and (self.standard, self.settings["standard_batch"])
        if self.fitted is not None:
            scores = sha256_text(self.fitted.hidden.tobytes().hex(), self.fitted.routing.tobytes().hex())
        detail = self.alpha if self.parts == SUM else None
        made = f"{self._reading()} {self.parts} {detail} {scores}"
        prompts = [f"{name}={text}" for name, text in self.prompts.items() if text]
        if self.default_prompt_name is not None and self.prompts.get(self.default_prompt_name):
            prompts.append(f"by default {self.default_prompt_name}")
        if self.truncate_dim is not None:
            prompts.append(f"the first {self.truncate_dim} numbers")
        return sha256_text(self.base_fingerprint, made, str(self.settings["cache"] is not None), *prompts)

    def _reading(self) -> dict[str, Any]:
        """Return the settings that states depend on besides the weights, the cache's precision included."""
        return {**self.reader.settings(), "dtype": str(self.dtype), "kept_as": np.dtype(CACHE_DTYPE).name}

    def with_parts(self, parts: str, alpha: float | None = None) -> MoeEmbedder:
        """Return the same model and cache, another vector; `alpha` stays as it is by default.

        Raises:
            InputError: that alpha was chosen for other weights than there are now.
        """
        chosen_on = self.chosen_on if alpha is None else None
        alpha = self.alpha if alpha is None else alpha
        check_parts(parts, alpha)
        other = self._share()
        other._set_parts(parts, alpha)
        other.chosen_on = chosen_on
        other.check_alpha()
        return other

    def check_alpha(self) -> None:
        """Refuse an alpha, if it is used, that was chosen for other weights of the language model."""
        if self.parts == SUM and self.chosen_on and self.chosen_on != self.base_fingerprint:
            model = self.settings["model"]
            raise InputError(
                f"{model} has changed since alpha was chosen for it: "
                "make the embedder again, with `develop` or `alpha`"
            )

    def with_prompt(self, prompt: str) -> MoeEmbedder:
        """Return the same model with another prompt, and so without standard scores that were fitted."""
        reader = copy.copy(self.reader)
        reader.prompt = Prompt.of(prompt, reader.prompt.published)
        other = self._share(**{"0": reader})
        other.fitted = self.fitted if prompt == self.settings["prompt"] else None
        other.settings = {**self.settings, "prompt": prompt}
        return other

    def _share(self, **changed: torch.nn.Module) -> MoeEmbedder:
        other = share_weights(self, **changed)
        if "_source_fingerprint" in self.__dict__:  # the same for all parts and prompts
            other._source_fingerprint = self._source_fingerprint
        return other

    def with_cache(self, cache: Path) -> MoeEmbedder:
        """Return the same model, whose states are cached in this folder unless they have a cache already."""
        other = self.with_parts(self.parts)
        other.settings = {**self.settings, "cache": self.settings["cache"] or str(cache.resolve())}
        return other

    def _set_parts(self, parts: str, alpha: float) -> None:
        self.parts, self.alpha = parts, alpha
        self.similarity_fn_name = "dot" if parts == SUM else "cosine"

    def states(self, texts: Sequence[str], what: str = "reading") -> States:
        """Return hidden states and routing weights of texts, in their order, float32.

        With a cache, cached states are not computed again, and new ones are written part by part, so that an
        interrupted run can resume; they have the cache's precision from the first time on.

        Raises:
            InputError: a text is empty, or no text.
            UsageError: there are no texts.
            SentenceExpertsError: a text does not fit into memory.
        """
        texts = [texts] if isinstance(texts, str) else texts
        _check_texts(texts)
        if not len(texts):
            raise UsageError("`texts`: none are given")
        distinct = list(dict.fromkeys(texts))
        read = partial(read_states, self.reader)
        with progress(what, len(distinct)) as advance:
            if (store := self.store) is not None:
                return States(**store.fetch(texts, lambda some: vars(read(some)), advance, TEXTS_PER_PART))
            parts = []
            for start in range(0, len(distinct), TEXTS_PER_PART):
                parts.append(read(distinct[start : start + TEXTS_PER_PART]))
                advance(len(parts[-1]))
        rows = {text: row for row, text in enumerate(distinct)}
        return States.together(parts)[[rows[text] for text in texts]]

    def encode(  # type: ignore[override]  # of sentence-transformers' many forms, those that texts have
        self,
        inputs: str | Sequence[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        *,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool = False,
        precision: str | None = "float32",
        truncate_dim: int | None = None,
        **others: Any,
    ) -> Any:
        """Return vectors of shape (texts, dimensions), float32, or (dimensions,) for one text.

        Arguments as `SentenceTransformer.encode`, but for `batch_size`, which has no effect: batches hold a
        fixed number of tokens, or, for standard scores, `standard_batch` texts. A `prompt` comes before
        each text, inside the embedder's own prompt.

        Raises:
            InputError: a text is empty, or no text.
            UsageError: an argument that `SentenceTransformer.encode` does not have, or vectors of tokens.
            SentenceExpertsError: a text does not fit into memory.
        """
        known = {*inspect.signature(SentenceTransformer.encode).parameters, "task"}  # of `encode_query`
        if unknown := others.keys() - known:
            raise UsageError(
                f"`{min(unknown)}` is no argument of an embedder's `encode`; a route is a `prompt_name`"
            )
        if (kind := others.get("output_value", _VECTOR)) != _VECTOR:
            raise UsageError(f"`output_value={kind!r}`: an embedder gives vectors of texts alone")
        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        lead = prompt_of(self, prompt, prompt_name)
        _check_texts(texts)
        if not texts:
            return np.zeros((0, self.get_embedding_dimension() or 0), np.float32)
        length = self.truncate_dim if truncate_dim is None else truncate_dim
        rows = self.combined(self.states([lead + text for text in texts]))[:, :length]
        vectors: Any = torch.from_numpy(rows)
        if normalize_embeddings:
            vectors = torch.nn.functional.normalize(vectors, dim=1)
        if precision not in (None, "float32"):
            vectors = torch.as_tensor(quantize_embeddings(vectors, precision=precision))  # type: ignore[arg-type]
        if not convert_to_tensor:
            vectors = vectors.numpy() if convert_to_numpy else list(vectors)
        return vectors[0] if isinstance(inputs, str) else vectors

    def combined(self, states: States) -> Rows:
        """Return the vectors of texts with these states, (texts, dimensions)."""
        states = self.standardized(states)
        return joined(states.hidden, states.routing, self.parts, self.alpha)

    def standardized(self, states: States) -> States:
        """Return the states as standard scores, if the embedder's vectors have them."""
        if self.fitted is not None:
            return self.fitted.apply(states)
        # The published code leaves hidden states as they are where nothing is joined to them.
        if self.standard is None or (self.standard == FAITHFUL and self.parts == HIDDEN):
            return states
        return batch_scores(states, self.settings["standard_batch"], published=self.standard == FAITHFUL)

    def fit_standard(self, texts: Sequence[str]) -> Standard:
        """Fit standard scores on calibration texts, read with the default prompt, and use them from now on.

        Raises:
            UsageError: too few texts, or the embedder has standard scores of each batch.
        """
        lead = prompt_of(self, None, None)
        fitted = Standard.fit(self.states([lead + text for text in texts], "calibrating"))
        _check_standard(self.standard, fitted)
        self.fitted = fitted
        return fitted

    def choose_alpha(
        self, first: Sequence[str], second: Sequence[str], scores: Sequence[float]
    ) -> AlphaChoice:
        """Try values of alpha on pairs of texts that people have scored; `with_parts` then takes the best.

        The paper tunes alpha (MoEE, section 3.3) and does not say on what data: take pairs that no result is
        reported on. Of equally good values the smallest is chosen.

        Raises:
            UsageError: too few pairs, all pairs have one score, or no correlation is a number.
        """
        if len(scores) < MIN_PAIRS or len(set(scores)) < 2:
            raise UsageError(
                f"{len(scores)} development pairs with {len(set(scores))} different scores: alpha needs "
                f"{MIN_PAIRS} pairs and two scores"
            )
        embedder = self.with_parts(SUM, self.alpha)
        lead = prompt_of(self, None, None)
        left, right = (
            embedder.standardized(self.states([lead + text for text in texts])) for texts in (first, second)
        )
        hidden, routing = cosines(left.hidden, right.hidden), cosines(left.routing, right.routing)
        tried = {alpha: float(spearmanr(hidden + alpha * routing, scores).statistic) for alpha in GRID}
        tried = {alpha: value for alpha, value in tried.items() if np.isfinite(value)}
        if not tried:
            raise UsageError("no alpha can be chosen: a score is not a number, or all pairs have one cosine")
        return AlphaChoice(max(tried, key=lambda alpha: round(tried[alpha], 6)), tried)

    def get_embedding_dimension(self) -> int | None:
        """Return the length of a vector."""
        return int(self.encode("one").shape[0])


def _check_standard(standard: str | None, fitted: Standard | None) -> None:
    if standard is not None and fitted is not None:
        raise UsageError(
            f"`standard={standard}` takes standard scores of each batch: leave it out to use fitted ones"
        )


def _check_texts(texts: Sequence[Any]) -> None:
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str) or not text.strip():
            what = "is empty" if isinstance(text, str) else f"is {text!r}, not a text"
            raise InputError(f"text {number} {what}; remove it")
