"""The runs of `capacity.py` on one set of texts: heads of the base's vectors, trained blocks, their figures.

Of a run all is kept from which its figures can be computed anew: nDCG@10 of each query, and the cosines of
the pairs that two routes judge in opposite ways, as integers in units of 1 / `UNITS`.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

import sentence_experts as se
from capacity_data import DataSet, Folders, conflicts_of, few_pairs, pairs_of
from capacity_models import Arm, Known, RouteModel, Tokens, Vectors, half_precision, train_model
from measuring import BASE
from sentence_experts.evaluation.label_similarity import more_like_this
from sentence_experts.models.pooling import unit
from sentence_experts.pairs.conflicts import Conflicts
from sentence_experts.training.labelled_texts import TEST, TRAIN, VALIDATION, LabelledTexts
from sentence_experts.training.train_heads import LabelledVectors, train_head
from study import Row

TRAINED_TOKENS = 128  # at most, of a text in training; it is read whole where the arm says so
UNITS = 1000


@dataclass
class Bench:
    """A data set that is loaded, and what all runs on it share."""

    own: DataSet
    folders: Folders
    device: str
    _tokens: dict[tuple[str | int, ...], Tokens] = field(default_factory=dict)

    @cached_property
    def data(self) -> LabelledTexts:
        """The texts."""
        return self.own.load(self.folders)

    @cached_property
    def routes(self) -> list[str]:
        """The names of the routes."""
        return list(self.data.labels)

    @cached_property
    def conflicts(self) -> list[Conflicts]:
        """Test pairs that two routes judge in opposite ways."""
        return conflicts_of(self.data)

    def base_vectors(self, most: int | None = None) -> Vectors:
        """The base's pooled vectors of all texts, before scaling; kept in a file named after the texts.

        They are cut at so many tokens, or as those of the set.
        """
        tokens = most or self.own.tokens
        told = json.dumps([BASE, tokens, self.data.texts])
        kept = self.folders.work / f"base-{hashlib.sha256(told.encode()).hexdigest()[:16]}.npy"
        if not kept.exists():
            model = RouteModel(self.base, self.routes, Arm("base"))
            inputs = Tokens(model.encoder, self.data.texts, model.prompts, tokens)
            found = model.encode(inputs, self.routes[0], np.arange(len(self.data.texts)))
            part = kept.with_suffix(f".{os.getpid()}.npy")
            np.save(part, found)
            part.replace(kept)
        vectors: Vectors = np.load(kept)
        return vectors

    @cached_property
    def base(self) -> Any:
        """The untrained model."""
        return se.load(BASE, device=self.device)

    def model_of(self, arm: Arm) -> tuple[RouteModel, Tokens]:
        """A model to be trained, and the texts as it reads them."""
        model = RouteModel(self.base, self.routes, arm)
        return model, self.tokens_of(model, arm.tokens or self.own.tokens)

    def tokens_of(self, model: RouteModel, most: int) -> Tokens:
        """The texts behind a model's prompts, of so many tokens at most; made once for equal prompts."""
        key: tuple[str | int, ...] = (*model.prompts.values(), most)
        if key not in self._tokens:
            self._tokens[key] = Tokens(model.encoder, self.data.texts, model.prompts, most)
        return self._tokens[key]

    def run(self, arm: Arm, key: Row, rate: float | None, steps: int) -> Row:
        """Make a run with this key: at a rate, with so many steps at most, where the arm has them."""
        if arm.kind == "base":
            vectors = self.base_vectors(arm.tokens)[self.data.sets[TEST]]
            return self.tested(dict.fromkeys(self.routes, vectors))
        if arm.kind == "head":
            return self._run_heads(arm, key, steps)
        assert rate is not None
        return self._run_trained(arm, key, rate, steps)

    def known(self, key: Row) -> Known:
        """Knowledge that a training may use: all labels, or few pairs of each route."""
        rows = self.data.sets[TRAIN]
        groups = self.data.groups[rows]
        labels = {route: self.data.labels_of(route, TRAIN) for route in self.routes}
        if key.get("pairs"):
            labels = {r: few_pairs(own, groups, key["pairs"], key["seed"]) for r, own in labels.items()}
        return Known(rows, labels, groups)

    def _run_heads(self, arm: Arm, key: Row, steps: int) -> Row:
        known = self.known(key)
        every = self.base_vectors(arm.tokens)
        test, validation = (every[self.data.sets[part]] for part in (TEST, VALIDATION))
        seconds, vectors, chosen, figures = 0.0, {}, {}, []
        for route in self.routes:
            started = time.process_time()
            training = LabelledVectors(every[known.rows], known.labels[route], known.groups)
            own = self.data.labels_of(route, VALIDATION)
            chooses = LabelledVectors(validation, own, self.data.groups_of(VALIDATION))
            head = train_head(training, chooses, steps, arm.rank, key["seed"], rates=arm.rates)
            seconds += time.process_time() - started
            figures.append(chooses.ndcg(head))
            chosen[route] = [head.rate, head.steps]
            vectors[route] = test @ head.weight.T + head.bias
        width = test.shape[1]
        owned = width + (2 * width * arm.rank if arm.rank else width**2)
        return {
            **self.tested(vectors), "validation": round(float(np.nanmean(figures)), 4), "chosen": chosen,
            "seconds": round(seconds, 1), "weights": {"shared": 0, "owned": owned},
        }  # fmt: skip

    def _run_trained(self, arm: Arm, key: Row, rate: float, steps: int) -> Row:
        model, tokens = self.model_of(arm)
        curve: list[list[float]] = []
        weights, seconds, screening = model.trained(), 0.0, key["stage"] == "rate"

        def state() -> dict[str, Any]:
            return {name: weight.detach().cpu().clone() for name, weight in weights.items()}

        best, kept, highest = 0, {} if screening else state(), -1.0
        if not screening:
            highest = self.validation(model, tokens)
            curve.append([0, round(highest, 4)])
        learned = self.tokens_of(model, min(arm.tokens or self.own.tokens, TRAINED_TOKENS))
        started = time.perf_counter()
        for step, spent in train_model(model, learned, self.known(key), rate, key["seed"], steps, arm.mixed):
            seconds = spent
            if screening and step < steps:
                continue
            figure = self.validation(model, tokens)
            curve.append([step, round(figure, 4)])
            if figure > highest:
                best, highest = step, figure
                kept = {} if screening else state()
        found = {"rate": rate, "validation": round(highest, 4), "seconds": round(seconds, 1), "curve": curve}
        if self.device != "cpu":
            found["wall"] = round(time.perf_counter() - started, 1)
        if screening:
            return found
        model.load_state_dict(kept, strict=False)
        started = time.process_time()
        vectors = self.encoded(model, tokens, TEST)
        texts = sum(int(self.data.labels_of(route, TEST).labelled.sum()) for route in self.routes)
        # A text under all routes: one encoding for all heads, one for each route of the others.
        encodings = len(self.routes) if arm.kind != "joint" else 1
        milliseconds = 1000 * (time.process_time() - started) / texts * encodings
        found |= {"kept": best, "weights": model.counts(), "milliseconds": round(milliseconds, 2)}
        return found | self.tested(vectors)

    def encoded(self, model: RouteModel, tokens: Tokens, part: str) -> dict[str, Vectors]:
        """Vectors under each route of the texts of a set; those without a label of the route have none."""
        rows = self.data.sets[part]
        found = {}
        for route in self.routes:
            labelled = np.flatnonzero(self.data.labels_of(route, part).labelled)
            own = model.encode(tokens, route, rows[labelled])
            found[route] = np.zeros((len(rows), own.shape[1]), np.float32)
            found[route][labelled] = own
        return found

    def validation(self, model: RouteModel, tokens: Tokens) -> float:
        """The mean over the routes of nDCG@10 on validation texts."""
        with half_precision(self.device):
            vectors = self.encoded(model, tokens, VALIDATION)
        groups = self.data.groups_of(VALIDATION)
        found = [
            more_like_this(unit(own), self.data.labels_of(route, VALIDATION), groups).ndcg.mean()
            for route, own in vectors.items()
        ]
        return float(np.mean(found))

    def tested(self, vectors: Mapping[str, Vectors]) -> Row:
        """The figures of each test query, and the cosines of the conflicting pairs, by route."""
        scaled = {route: unit(own) for route, own in vectors.items()}
        groups = self.data.groups_of(TEST)
        ndcg = {
            route: more_like_this(own, self.data.labels_of(route, TEST), groups).ndcg
            for route, own in scaled.items()
        }
        cosines = {
            route: np.einsum("ij,ij->i", own[first], own[second])
            for route, own in scaled.items()
            if (sets := pairs_of(route, self.conflicts))
            for first, second in [np.concatenate([pairs for _, pairs, _ in sets]).T]
        }
        return {
            "mean": round(float(np.mean([own.mean() for own in ndcg.values()])), 4),
            "ndcg": {route: _whole(own) for route, own in ndcg.items()},
            "cosines": {route: _whole(own) for route, own in cosines.items()},
        }


def _whole(values: Any) -> list[int]:
    return [int(each) for each in np.rint(np.asarray(values, float) * UNITS)]
