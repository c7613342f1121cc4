"""`fit`: routes learned from the label columns of a table."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from sentence_transformers import SentenceTransformer

from sentence_experts.config import with_settings
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.errors import InputError, UsageError
from sentence_experts.evaluation.estimates import Estimate
from sentence_experts.evaluation.label_similarity import RouteGain, measure_gains
from sentence_experts.models.card import make_usage_card
from sentence_experts.models.encoder import ExpertEncoder, check_experts
from sentence_experts.models.files.fingerprint import fingerprint_with_settings
from sentence_experts.models.files.saving import model_output, write_model
from sentence_experts.models.loading import load
from sentence_experts.models.pooling import warn_of_length
from sentence_experts.models.sources import CARD, SETS_FILE, name_of, notes_of, set_notes
from sentence_experts.models.surgery.extend_config import BASE
from sentence_experts.pairs.conflicts import find_conflicts
from sentence_experts.pairs.labels import MIN_PAIRS
from sentence_experts.storage import (
    check_apart,
    hidden_beside,
    read_json,
    sha256_file,
    write_json,
    write_text,
)
from sentence_experts.tables import Table, fingerprint, is_path
from sentence_experts.training.config import FitConfig
from sentence_experts.training.labelled_texts import TEST, TRAIN, VALIDATION, LabelledTexts
from sentence_experts.training.route_candidates import choose_kind
from sentence_experts.training.trainable import as_float32

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

FIGURES = ("tried", "verdict", "left_out", "refused")  # kept with a model, beside the gains

TITLE = 'nDCG@10 of "more like this" and ROC-AUC of conflicting pairs, on test texts'
HEADINGS = ("route", "texts", "chance", "base", "learned", "gain", "conflicts: base", "learned")
RECALL_TITLE = 'recall@10 of "more like this", of at most 10 alike texts'
RECALL = ("route", "base", "learned")
TRIED = (
    *("kind", "validation", "pairs per route", "seconds", "bytes per route", "encodings of a query"),
    "chosen",
)


@dataclass(frozen=True, repr=False)
class FitResult:
    """Routes that were learned from labels.

    Attributes:
        model: the model with these routes.
        gains: the figures of each route on test texts, beside the base's.
        tried: for each kind of route that was learned: kind, nDCG@10 on validation texts, training pairs per
            route and learning rate, seconds, bytes per route, encodings of a query, and the chosen steps and
            rates.
        verdict: reason for keeping the last kind but one, or the last one; empty if only one was asked for.
        sets: set (train, validation, test) -> the places of its rows in the table, from 0 (`frame.iloc`), so
            that the test texts can be measured again, or with another model.
        left_out: reason -> number of rows of the table that were not used.
        refused: route -> why it was not learned.
        out: the model's folder; None if it is in memory only.
    """

    model: ExpertEncoder
    gains: Sequence[RouteGain]
    tried: Sequence[Mapping[str, Any]]
    verdict: str
    sets: Mapping[str, Sequence[int]]
    left_out: Mapping[str, int]
    refused: Mapping[str, str]
    out: Path | None = None

    def __repr__(self) -> str:
        where = "" if self.out is None else f", out={str(self.out)!r}"
        return f"FitResult({self.summary}{where})"

    @property
    def summary(self) -> str:
        """The mean gains, in a sentence."""
        if not self.gains:
            return "no test text has another one like it, so nothing was measured"
        base, own = (np.mean([getattr(each, name) for each in self.gains]) for name in ("base_ndcg", "ndcg"))
        text = f'nDCG@10 of "more like this" {own:.3f}, of the base {base:.3f} ({own - base:+.3f})'
        known = [(each.auc.value, each.conflicts) for each in self.gains if each.auc is not None]
        if known:
            values, pairs = zip(*known, strict=True)
            auc = np.average(values, weights=pairs)  # so that a blind model has exactly 0.5
            text += f"; ROC-AUC of conflicting pairs {auc:.3f}, of a model blind to the route 0.500"
        return text

    def rows(self) -> list[list[str]]:
        """Return a row of cells per route, as `HEADINGS` names them; ± is half of a 95% interval."""
        return [
            [
                each.route,
                f"{each.queries:,}",
                *(f"{value:.3f}" for value in (each.chance, each.base_ndcg, each.ndcg)),
                _with_half(each.gain, "+.3f"),
                *(_with_half(value) for value in (each.base_auc, each.auc)),
            ]
            for each in self.gains
        ]

    def recall_rows(self) -> list[list[str]]:
        """Return a row of cells per route, as `RECALL` names them."""
        return [[each.route, f"{each.base_recall:.3f}", f"{each.recall:.3f}"] for each in self.gains]

    def tried_rows(self) -> list[list[str]]:
        """Return a row of cells per kind of route that was learned, as `TRIED` names them."""
        forms = {"validation": ".3f", "pairs_per_route": ",", "seconds": ".0f", "bytes_per_route": ","}
        return [[f"{value:{forms.get(name, '')}}" for name, value in each.items()] for each in self.tried]

    def to_pandas(self) -> pd.DataFrame:
        """Return a row per route: its figures on test texts, the base's, and the ends of 95% intervals."""
        import pandas as pd

        rows = []
        for each in self.gains:
            row = {name: value for name, value in asdict(each).items() if not isinstance(value, dict)}
            for name in ("gain", "base_auc", "auc"):
                if (known := getattr(each, name)) is not None:
                    ends = known.interval() if name == "gain" else known.interval_of_area()
                    row |= {name: known.value, f"{name}_low": ends.low, f"{name}_high": ends.high}
            rows.append(row)
        return pd.DataFrame(rows)


def _with_half(value: Estimate | None, form: str = ".3f") -> str:
    if value is None:
        return "–"
    ends = value.interval(-np.inf, np.inf)
    return f"{value.value:{form}} ±{(ends.high - ends.low) / 2:.3f}"


@with_settings(FitConfig)
def fit(
    base: str | Path | SentenceTransformer,
    table: Table,
    config: FitConfig | None = None,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> FitResult:
    """Teach a model kinds of similarity: a route for each label column of a table.

    Texts that share a label of a column are alike under its route. The groups of texts are divided: most are
    for learning, some choose the learning rate and the step, a fifth is the test; near duplicates are left
    out. Heads are learned from the vectors of the frozen base, which are computed once.

    Args:
        base: "minilm", a folder or hub id of a dense encoder or of a model with routes, or one in memory; it
            stays unchanged.
        table: the path of a table (CSV, TSV, JSON lines, Parquet; optionally gzipped), a data frame, rows, or
            a corpus or its folder, whose columns subjects, keywords, mesh, journal, ... are labels.
        config: the settings; see `FitConfig`.
        out: folder to save the model in; a finished model there that was made in the same way is returned.
        overwrite: start over, replacing another model in `out`.
        **settings: fields of `FitConfig`, in place of the config's.

    Raises:
        UsageError: columns are not named, a route's name is taken or not allowed, or `out` holds something
            else.
        InputError: the table cannot be read, a label column is of no use, or all routes have too few pairs.

    Example:
        >>> kinds = ("cat", "tree", "star") * 40
        >>> rows = [{"text": f"{kind} {number}", "kind": kind} for number, kind in enumerate(kinds)]
        >>> fit("base", rows, by=["kind"], steps=2).model.head_routes["kind"][0].shape
        (32, 32)
    """
    chosen = FitConfig.of(config, **settings)
    if out is None:
        return _Fit(base, table, chosen).run()
    check_apart(out, overwrite, base, table if is_path(table) else None)
    with model_output(out, overwrite) as place:
        job = _Fit(base, table, chosen)
        identity = {
            "model": fingerprint_with_settings(job.base),
            "config": job.config.model_dump(mode="json"),
        }
        if place.begin(identity, _hashes_of_inputs(table, chosen)) == "finished":
            gains = [RouteGain.from_json(each) for each in place.result["gains"]]
            model = check_experts(load(place.path))
            sets = read_json(place.path / SETS_FILE)
            figures = {name: place.result[name] for name in FIGURES}
            return FitResult(model, gains, sets=sets, **figures, out=place.final)
        result = replace(job.run(hidden_beside(place.final, ".vectors")), out=place.final)
        place.result = {name: getattr(result, name) for name in FIGURES}
        place.result["gains"] = [asdict(each) for each in result.gains]
        with place.replacing() as folder:
            write_model(result.model, folder)
            write_json(folder / SETS_FILE, result.sets, sort=False)
            write_text(folder / CARD, make_usage_card(result.model) + _write_card_section(result, job.config))
        shutil.rmtree(hidden_beside(place.final, ".vectors"), ignore_errors=True)
    return result


def _hashes_of_inputs(table: Table, config: FitConfig) -> dict[str, Callable[[], str]]:
    """Return the hash of the table, and of the file of MeSH descriptors if there is one."""
    mesh = config.mesh_descriptors
    own = {} if mesh is None else {"mesh_descriptors": lambda: sha256_file(mesh)}
    return {"table": lambda: _hash_table(table), **own}


def _hash_table(table: Table) -> str:
    if is_path(table) and Path(str(table)).is_dir():
        table = CorpusFolder.open(str(table))
    return table.fingerprint() if isinstance(table, CorpusFolder) else fingerprint(table)[1]


class _Fit:
    """One call of `fit`: the data are read and checked before the model is loaded."""

    def __init__(self, base: str | Path | SentenceTransformer, table: Table, config: FitConfig) -> None:
        self.config = config
        self.data = LabelledTexts.read(table, config)
        self.refused = {}
        for route in self.data.labels:
            if reason := self._reason_against(route):
                logger.warning(f"route {route!r} is not learned: {reason}")
                self.refused[route] = reason
        self.routes = [route for route in self.data.labels if route not in self.refused]
        if not self.routes:
            raise InputError(f"no route can be learned: {'; '.join(self.refused.values())}")
        self.name = str(base) if isinstance(base, str | Path) and not Path(base).exists() else None
        self.base = base if isinstance(base, SentenceTransformer) else load(base)
        if config.kind != "head":
            self.base = as_float32(self.base)
        grown = self.base if isinstance(self.base, ExpertEncoder) else None
        there = {route.name for route in grown.routes} if grown else set()
        if taken := sorted(there & {*self.data.labels}):
            raise UsageError(
                f"`by`: the model has a route {taken[0]!r} already; give the new one another name, "
                "ROUTE=COLUMN, or drop the old one first"
            )
        if grown and BASE not in grown.experts:
            raise UsageError(
                f"`base`: {name_of(grown)} has experts alone ({', '.join(grown.experts)}), and heads "
                "are learned on a base: give the model that it was made from, or one with a head or adapter"
            )
        cut, width = self.base.truncate_dim, getattr(self.base.config, "hidden_size", 0)
        if config.kind in ("head", "auto") and cut is not None and cut < width:
            raise UsageError(
                f"`base`: its vectors are cut to {cut} numbers, and heads are learned on whole ones: give "
                "the model in memory, with `truncate_dim = None`"
            )
        longest = self.base.max_seq_length
        if config.max_length is not None and longest is not None:
            if grown and config.max_length < longest:
                raise UsageError(
                    f"`max_length`: the model reads {longest} tokens, and its other routes would change: "
                    "leave it out"
                )
            warn_of_length(config.max_length, longest)
            self.config = config.model_copy(update={"max_length": min(config.max_length, longest)})

    def _reason_against(self, route: str) -> str | None:
        """Return why a route cannot be learned, or measured, from the texts that are left."""
        pairs = self.data.labels_of(route, TRAIN).count_pairs(self.data.groups_of(TRAIN))
        if pairs < MIN_PAIRS:
            return f"{pairs} pairs of alike texts to learn from, and it needs {MIN_PAIRS}"
        for part in (TRAIN, TEST):
            labels = self.data.labels_of(route, part)
            count = int(labels.labelled.sum())
            if count and (common := np.flatnonzero(labels.counts == count)).size:
                duplicates = self.data.left_out.get("near duplicates", 0)
                without = f", without {duplicates:,} near duplicates" if duplicates else ""
                return f"all {count:,} {part} texts have the label {labels.names[common[0]]!r}{without}"
        for part in (VALIDATION, TEST):
            if not self.data.labels_of(route, part).count_pairs(self.data.groups_of(part)):
                return f"no two {part} texts of different groups share a label"
        return None

    def run(self, cache: Path | None = None) -> FitResult:
        """Learn the routes and measure them; vectors of the base are kept in the folder `cache`."""
        data = self.data
        chosen, tried, verdict = choose_kind(self.base, data, self.routes, self.config, cache)
        if self.name is not None and "base" not in notes_of(chosen.model):
            set_notes(chosen.model, notes_of(chosen.model) | {"base": self.name})
        rows, groups = data.sets[TEST], data.groups_of(TEST)
        labels = {route: data.labels_of(route, TEST) for route in self.routes}
        conflicts = find_conflicts(list(labels.values()), groups, seed=self.config.seed)
        gains = measure_gains(chosen.base_vectors(rows), chosen.vectors(rows), labels, groups, conflicts)
        sets = {name: data.rows[rows].tolist() for name, rows in data.sets.items()}
        kinds = [each.row() for each in tried]
        return FitResult(chosen.model, gains, kinds, verdict, sets, data.left_out, self.refused)


def _write_card_section(result: FitResult, config: FitConfig) -> str:
    """Return the part of the model's card about labels, training and figures."""
    counts = ", ".join(f"{len(rows):,} {name}" for name, rows in result.sets.items())
    return f"""
## Routes from labels

Learned from texts that share a label: {counts} ({SETS_FILE} has their rows in the table, from 0). Texts
of one group, and near duplicates, are in one set. The figures are of test texts and hold for these labels.
nDCG@10 is that of "more like this": all test texts with a label are ranked by cosine, and those that share
one with the query are right; chance is a random order. Conflicts are pairs alike by this route and unlike
by another, against as many the other way around: ROC-AUC, where a model that is blind to the route has 0.5
on average. ± is half of a 95% interval.

{_format_table(HEADINGS, result.rows())}

{RECALL_TITLE}:

{_format_table(RECALL, result.recall_rows())}

Chosen on the validation texts: {result.verdict or "the learning rate and the step"}. Rates and steps of heads
are chosen by nDCG@10, those of adapters and experts by the ROC-AUC of alike and unlike texts.

{_format_table(TRIED, result.tried_rows())}

Settings:

```yaml
{yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)}```
"""


def _format_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
