"""Texts with labels: read from a table, without near duplicates, divided into sets by groups."""

from __future__ import annotations

import itertools
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np

from sentence_experts.cells import BadRowError, as_text, strip_text
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.corpus.formats.mesh import MeshTree
from sentence_experts.errors import InputError, UsageError
from sentence_experts.evaluation.near_duplicates import near_duplicates, signatures
from sentence_experts.names import check_route_names
from sentence_experts.pairs.config import UNSEEN
from sentence_experts.pairs.domains import descriptor_of
from sentence_experts.pairs.labels import LabelColumn, Labels, Rows, read_labels, split_groups
from sentence_experts.tables import Table, is_path, name_of_table, read_columns, read_rows
from sentence_experts.training.config import FitConfig

_MANY = 0.1  # share of near duplicates that is told

logger = logging.getLogger(__name__)

TRAIN, VALIDATION, TEST = "train", "validation", "test"
FRACTIONS = {TRAIN: 0.7, VALIDATION: 0.1, TEST: 0.2}
NEAR_DUPLICATE = 0.8  # Jaccard similarity of two texts of which one is left out
_OF_CORPUS = ("title", "abstract")
_ROWS_LOOKED_AT = 1000  # number of rows, for the column of a branch


@dataclass(frozen=True)
class LabelledTexts:
    """Texts of a table that have a label under at least one route.

    Attributes:
        texts: the texts.
        rows: the row of the table that each text is from, counted from 0, (texts,).
        labels: route -> labels of the texts.
        groups: the group of each text, (texts,).
        sets: train, validation, test -> rows, each group in one of them.
        left_out: reason -> number of rows of the table that are not among the texts.
    """

    texts: Sequence[str]
    rows: Rows
    labels: Mapping[str, Labels]
    groups: Rows
    sets: Mapping[str, Rows]
    left_out: Mapping[str, int]

    @classmethod
    def read(cls, table: Table, config: FitConfig) -> LabelledTexts:
        """Read a table of any form, or the papers of a corpus.

        Raises:
            InputError: the table or a column cannot be read, or a label column is of no use.
            UsageError: no columns are named, or two routes have one name.
        """
        cells, numbers, bad = _read_cells(table, config)
        text_columns, columns = _find_text_columns(config, cells), _find_label_columns(config, cells)
        texts = [_join(parts) for parts in zip(*(cells[name] for name in text_columns), strict=True)]
        chosen = {config.group, *text_columns, *(each.column for each in columns)}
        for name in (name for name in cells if name.strip().lower() == "split" and name not in chosen):
            logger.warning(
                f"the column {name} is not read: texts are divided anew (`group` keeps some together)"
            )
        tree = MeshTree.read(config.mesh_descriptors) if config.mesh_descriptors else None
        labels = {}
        for each in columns:
            if each.column in text_columns:
                logger.warning(
                    f"column {each.column!r} is text and label: its labels can be read in the texts"
                )
            values, is_corpus = cells[each.column], _is_corpus(table)  # corpora have "Mouse" and "mouse"
            if is_corpus and each.column == "mesh":  # a qualifier or star makes no other heading
                values = [[descriptor_of(heading) for heading in headings or ()] for headings in values]
            labels[each.route] = read_labels(values, each, config.separator, config.bins, tree, is_corpus)
        written = np.array([bool(text) for text in texts])
        labelled = np.any([each.labelled for each in labels.values()], axis=0)
        kept = np.flatnonzero(written & labelled)
        if not len(kept):
            raise InputError(f"{name_of_table(table)}: no row has both a text and a label")
        # A text without a group is a group by itself.
        given = cells[config.group] if config.group else [None] * len(texts)
        try:
            named = [as_text(given[row]) for row in kept]
        except BadRowError as error:
            raise UsageError(f"`group`: column {config.group!r}: {error}") from error
        if config.group and 2 * (empty := sum(not strip_text(name or "") for name in named)) > len(named):
            logger.warning(
                f"`group`: column {config.group!r} is empty in {empty:,} of {len(named):,} rows; they may be "
                "in any set"
            )
        keys = [
            ("group", group) if (group := _fold_group(strip_text(name or ""))) else ("row", row)
            for name, row in zip(named, kept, strict=True)
        ]
        known: dict[Any, int] = {}
        groups = np.array([known.setdefault(key, len(known)) for key in keys])
        first = _drop_near_duplicates([texts[row] for row in kept])
        left_out = {
            "unreadable": bad,
            "without a text": int((~written).sum()),
            "without a label": int((written & ~labelled).sum()),
            "near duplicates": len(kept) - len(first),
        }
        kept, groups = kept[first], groups[first]
        for own in labels.values():
            _warn_of_single_labels(own.rows(kept))
        return cls(
            [texts[row] for row in kept],
            numbers[kept],
            {route: each.rows(kept) for route, each in labels.items()},
            groups,
            split_groups(groups, FRACTIONS, config.seed),
            {reason: count for reason, count in left_out.items() if count},
        )

    def labels_of(self, route: str, part: str) -> Labels:
        """Return the labels of a route in one of the sets."""
        return self.labels[route].rows(self.sets[part])

    def groups_of(self, part: str) -> Rows:
        """Return the groups of the texts in one of the sets."""
        return self.groups[self.sets[part]]


def check_columns(table: Table, config: FitConfig) -> None:
    """Check that the columns which the settings name are there, by the table's first rows.

    Raises:
        InputError: the table cannot be read, or lacks one.
        UsageError: no columns are named, or two routes have one name.
    """
    cells, _, _ = _read_cells(table, config, _ROWS_LOOKED_AT)
    _find_text_columns(config, cells)
    _find_label_columns(config, cells)


def _is_corpus(table: Table) -> bool:
    return isinstance(table, CorpusFolder) or (is_path(table) and Path(table).is_dir())


def _read_cells(
    table: Table, config: FitConfig, limit: int | None = None
) -> tuple[dict[str, list[Any]], Rows, int]:
    """Return the columns of a table or its first rows, the number of each row from 0, and how many rows could
    not be read."""
    if _is_corpus(table):
        table = (table if isinstance(table, CorpusFolder) else CorpusFolder.open(table)).papers
    names = read_columns(table)
    if not names:
        raise InputError(f"{name_of_table(table)}: no rows")
    for name in filter(None, [*config.text, config.group]):
        if name not in names:
            setting = "group" if name == config.group else "text"
            raise InputError(f"`{setting}`: no column {name!r}; the columns are {', '.join(names)}")
    cells: dict[str, list[Any]] = {name: [] for name in names}
    numbers, bad_rows = [], []
    for number, row in enumerate(itertools.islice(read_rows(table), limit), start=1):
        try:
            if isinstance(row, BadRowError):
                raise row
            for value in row.values():  # refuses texts and labels that no file can hold
                for part in value if isinstance(value, list) else [value]:
                    as_text(part if isinstance(part, str) else None)
        except BadRowError as error:
            bad_rows.append(f"row {number}: {error}")
            continue
        numbers.append(number - 1)
        for name, values in cells.items():
            values.append(row.get(name))
    if bad_rows and limit is None:
        logger.warning(f"{name_of_table(table)}: rows left out ({len(bad_rows):,}), the first: {bad_rows[0]}")
    return cells, np.array(numbers, int), len(bad_rows)


def _find_text_columns(config: FitConfig, cells: Mapping[str, Any]) -> Sequence[str]:
    if config.text:
        return config.text
    if all(name in cells for name in _OF_CORPUS):
        return _OF_CORPUS
    if "text" in cells:
        return ["text"]
    raise UsageError(f"`text`: name the columns with the texts; the columns are {', '.join(cells)}")


def _find_label_columns(config: FitConfig, cells: Mapping[str, list[Any]]) -> list[LabelColumn]:
    if not config.by:
        raise UsageError(f"`by`: name at least one label column; the columns are {', '.join(cells)}")
    some = {name: values[:_ROWS_LOOKED_AT] for name, values in cells.items()}
    columns = [LabelColumn.parse(name, some) for name in config.by]
    twice = [route for route, count in Counter(each.route for each in columns).items() if count > 1]
    if twice:
        raise UsageError(f"`by`: two routes are named {twice[0]!r}; name one: ROUTE=COLUMN")
    try:
        check_route_names([each.route for each in columns])
    except ValueError as error:
        raise UsageError(f"`by`: {error}; give another one: ROUTE=COLUMN") from error
    if config.mesh_descriptors and not any(each.branch for each in columns):
        raise UsageError(
            "`mesh_descriptors`: no branch is named that needs it; name one in `by`, such as mesh:C"
        )
    return columns


def _join(parts: Sequence[Any]) -> str:
    """Return the texts, and numbers, of a row; a list is as in a cell of CSV.

    Raises:
        InputError: a cell holds something else, such as an object.
    """
    joined = []
    for part in (each.tolist() if isinstance(each, np.ndarray) else each for each in parts):
        try:
            words = [as_text(each) for each in (part if isinstance(part, list | tuple) else [part])]
        except BadRowError as error:
            raise InputError(f"`text`: {error}") from error
        joined.append("; ".join(filter(None, (strip_text(word or "") for word in words))))
    return "\n".join(filter(None, joined))


def _fold_group(name: str) -> str:
    """Return a group without what should not divide it: case, white space, and the ".0" of whole numbers."""
    seen = normalize("NFKC", name).translate(dict.fromkeys(map(ord, UNSEEN)))
    return re.sub(r"^(-?\d+)\.0$", r"\1", " ".join(seen.casefold().split()))


def _warn_of_single_labels(labels: Labels) -> None:
    """Warn if many texts share their labels with no other text."""
    labelled = int(labels.labelled.sum())
    alone = labelled - int((labels.matrix[:, labels.counts > 1].sum(axis=1) > 0).sum())
    if 3 * alone > labelled:
        logger.warning(
            f"route {labels.route!r}: {alone:,} of {labelled:,} texts with a label share it with no other "
            "text: nothing is learned from them"
        )


def _drop_near_duplicates(texts: Sequence[str]) -> Rows:
    """Return the texts of which no earlier one that stays is a near duplicate.

    Not the connected ones: texts of one template would be linked in chains, and one of them would stay.
    """
    bands = signatures(texts)
    one, other, _ = near_duplicates(texts, texts, NEAR_DUPLICATE, bands, bands, min_bands=3)
    earlier: dict[int, list[int]] = {}
    for row, before in zip(one.tolist(), other.tolist(), strict=True):
        if before < row:
            earlier.setdefault(row, []).append(before)
    stays = np.ones(len(texts), bool)
    for row in sorted(earlier):
        stays[row] = not stays[earlier[row]].any()
    if (repeats := int((~stays).sum())) > _MANY * len(texts):
        logger.warning(
            f"{repeats:,} of {len(texts):,} texts are near duplicates of others, and left out, even if their "
            "labels differ; a text is one row, with all of its labels"
        )
    return np.flatnonzero(stays)
