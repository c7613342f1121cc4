"""`import_pairs`: a table of your own to train, validation and test pairs, split by text."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from sentence_experts.config import with_settings
from sentence_experts.corpus.identifiers import SIMULATED_DOI
from sentence_experts.errors import InputError
from sentence_experts.pairs.config import ImportPairsConfig
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.pairs.negatives import draw_negatives, find_among, keys_between, keys_of
from sentence_experts.pairs.splits import (
    CROSSING,
    SPLITS,
    TEST,
    TRAIN,
    VALIDATION,
    Assignment,
    PairArrays,
    TooFewPairsError,
    WorkArrays,
    fold_texts,
    seen_in_training,
    split_by_paper,
    split_named,
)
from sentence_experts.pairs.user_tables import (
    NEGATIVE,
    PAIR_COLUMNS,
    links_of,
    pair_table,
    table_or_dataset,
)
from sentence_experts.storage import check_apart
from sentence_experts.tables import Table, name_of_table, texts

logger = logging.getLogger(__name__)
_SPLIT, _ROW = "split", "number of the row"
_COLUMNS = frozenset({*PAIR_COLUMNS, "score", NEGATIVE, _SPLIT})


@with_settings(ImportPairsConfig)
def import_pairs(
    source: Table,
    out: Path | str | None = None,
    config: ImportPairsConfig | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> Pairs:
    """Make a folder of pairs, which `train`, `evaluate` and `audit` take, from a table of your own.

    Args:
        source: a file (CSV, TSV, JSON lines, Parquet), a hub dataset (OWNER/NAME, or its folder) or a table
            in memory (pandas, polars, Arrow, `datasets.Dataset`, a list of dicts): two texts in each row
            (`anchor`, `positive`), and if known `label` (1 linked, 0 not), `domain` or `route`, `split`,
            `negative` (a text unlike the anchor), `anchor_id` and `positive_id`. Names of columns may be in
            any case.
        out: the folder to write to; without, the pairs stay in memory.
        config: the settings; `settings` override its fields, by name.
        overwrite: start over, replacing other pairs in `out`.

    Raises:
        InputError: a file cannot be read, a column or a text is missing, or the labels are scores.
        TooFewPairsError: a set is empty, or its texts give no negatives.
        UsageError: `out` holds something else.

    Example:
        >>> rows = [{"anchor": f"question {n}", "positive": f"answer {n}"} for n in range(20)]
        >>> import_pairs(rows)
        Pairs(train: 12, validation: 8, test: 8; domains: all; in memory)
    """
    config = ImportPairsConfig.of(config, **settings)
    check_apart(out, overwrite, source)
    table, split = _read(source, config)
    pairs = _imported(table, split, config)
    return pairs if out is None else pairs.save(out, overwrite)


def _read(source: Table, config: ImportPairsConfig) -> tuple[pa.Table, np.ndarray | None]:
    """All pairs in one table, one row for each, and the set of each if a column says it."""
    name = name_of_table(source)
    table = table_or_dataset(source, config.subset)
    folded = [column.strip().lower() for column in table.column_names]
    chosen = {config.anchor.lower(): "anchor", config.positive.lower(): "positive"}
    names = [chosen.get(column, column) for column in folded]
    if "domain" not in names:
        names = ["domain" if column == "route" else column for column in names]
    if twice := next((column for column in names if names.count(column) > 1), None):
        raise InputError(f"{name}: two columns are {twice!r}; rename or drop one")
    table = table.rename_columns(names)
    for column in ("anchor", "positive"):
        if column not in names:
            raise InputError(
                f"{name} lacks the column {getattr(config, column)}, a text of each pair; it has: "
                f"{', '.join(table.column_names)}; name it with `{column}`"
            )
    table = _usable_rows(name, table)
    pairs = pair_table(table, name)
    if not pc.any(pc.equal(pairs["label"], 1)).as_py():
        raise InputError(f"{name} holds no linked pair: a row of label 1, or without a column label")
    split = None
    if _SPLIT in names:
        given = texts(table[_SPLIT], f"{name}, column {_SPLIT}").to_pylist()
        split = np.array([SPLITS.index(split_named(each, name)) for each in given], dtype=np.int64)
    return pairs, split


def _usable_rows(name: str, table: pa.Table) -> pa.Table:
    """The rows with both texts, each once; what is left out, and columns that are not read, are logged.

    Raises:
        InputError: none is left.
    """
    if ignored := [column for column in table.column_names if column not in _COLUMNS]:
        logger.info(f"{name}: not read: the column{'s' * (len(ignored) > 1)} {', '.join(ignored)}")
    numbers = pa.array(np.arange(table.num_rows))
    numbered = table.select([column for column in table.column_names if column in _COLUMNS])
    numbered = numbered.append_column(_ROW, numbers)
    for end in ("anchor", "positive"):
        filled = pc.not_equal(pc.utf8_trim_whitespace(texts(numbered[end], f"{name}, column {end}")), "")
        numbered = numbered.filter(pc.fill_null(filled, False))
    for field in numbered.schema:
        if pa.types.is_nested(field.type):
            raise InputError(
                f"{name}, column {field.name}: one value per row is expected, not a column of {field.type}"
            )
    blank = np.setdiff1d(numbers.to_numpy(), numbered[_ROW].to_numpy())
    if not numbered.num_rows:
        raise InputError(f"{name} holds no row with both texts")
    if len(blank):
        first = ", ".join(str(number + 1) for number in blank[:5])
        more = " ..." * (len(blank) > 5)
        logger.warning(f"{name}: left out, as they lack a text: {len(blank):,} (row {first}{more})")
    columns = numbered.drop_columns([_ROW]).column_names
    once = numbered.group_by(columns, use_threads=False).aggregate([(_ROW, "min")])[f"{_ROW}_min"]
    if doubled := numbered.num_rows - len(once):
        logger.info(f"{name}: left out, as they repeat another row: {doubled:,}")
    return table.take(once.take(pc.array_sort_indices(once)))


class _Texts:
    """The texts of a table of pairs as numbers: what `draw_negatives` needs to know of works."""

    def __init__(self, table: pa.Table) -> None:
        ends = [table["anchor_id"], table["positive_id"]]
        ids = pa.chunked_array([chunk for column in ends for chunk in column.chunks], pa.string())
        self.ids, numbers = np.unique(ids.to_numpy(zero_copy_only=False).astype(object), return_inverse=True)
        self.ends = numbers.reshape(2, -1).T
        both = [*table["anchor"].to_pylist(), *table["positive"].to_pylist()]
        text_of: dict[int, str] = dict(zip(numbers.tolist(), both, strict=True))
        self._texts = [text_of[number] for number in range(len(self.ids))]
        folded = fold_texts(pa.chunked_array([pa.array(both, pa.string())])).to_numpy(zero_copy_only=False)
        _, text = np.unique(folded.astype(object), return_inverse=True)
        # One text under two ids is one, and so are the texts of one id.
        self.same_text = _components(numbers, text + len(self.ids), len(self.ids) + int(text.max()) + 1)
        self.same_text = self.same_text[: len(self.ids)]
        # 1 or -1 for a text of one column only, 0 for one of both.
        of_columns = [np.isin(np.arange(len(self.ids)), self.ends[:, column]) for column in (0, 1)]
        self.side = of_columns[0].astype(np.int64) - of_columns[1]
        unknown = np.full(len(self.ids), -1)
        self.works = WorkArrays(self.same_text, unknown, np.zeros_like(unknown))
        self._domains = table["domain"].to_numpy(zero_copy_only=False).astype(object)
        linked = table["label"].to_numpy() == 1
        self._linked = np.unique(keys_of(self.same_text[self.ends[linked]]))

    def in_domain(self, domain: str) -> np.ndarray:
        """A mask of shape (texts,) of those in a pair of the domain."""
        mask = np.zeros(len(self.ids), dtype=bool)
        mask[self.ends[self._domains == domain]] = True
        return mask

    def links_among(self, works: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Tells which two of the texts are linked by any row, or cannot be a pair, being of one column."""
        text, side = self.same_text, self.side

        def linked(left: np.ndarray, right: np.ndarray) -> np.ndarray:
            known = find_among(keys_between(text[left], text[right]), self._linked)
            # Two questions are not a negative where all linked pairs are a question and an answer.
            mask: np.ndarray = known | (side[left] * side[right] == 1)
            return mask

        return linked

    def texts(self, works: np.ndarray) -> list[str]:
        """The texts of these numbers."""
        return [self._texts[number] for number in works.tolist()]


def _components(left: np.ndarray, right: np.ndarray, size: int) -> np.ndarray:
    """The number of the connected part of each of `size` things: shape (size,)."""
    graph = coo_array((np.ones(len(left), np.int8), (left, right)), shape=(size, size))
    numbers: np.ndarray = connected_components(graph, directed=False)[1]
    return numbers


def _imported(table: pa.Table, split: np.ndarray | None, config: ImportPairsConfig) -> Pairs:
    rng = np.random.default_rng(config.seed)
    whole = _with_stated_negatives(table)
    known = _Texts(whole)
    # The count holds the row, so that pairs that get no negative can be told.
    pairs = PairArrays(
        known.ends[:, 0], known.ends[:, 1], np.arange(whole.num_rows),
        whole["domain"].to_numpy(zero_copy_only=False).astype(object),
    )  # fmt: skip
    if split is None:
        assignment = _assigned(pairs, known, whole["label"].to_numpy(), config, rng)
    else:
        assignment = _by_set(known, split[whole["row"].to_numpy()])
    tables = _with_negatives(whole, pairs, known, assignment, config, rng)
    # A stated negative of a training pair belongs to its row, and is not a row itself.
    of_rows = assignment.pairs[: table.num_rows]
    tables["train"] = table.take(np.flatnonzero(of_rows == TRAIN))
    left_out = int((of_rows == CROSSING).sum())
    seen = 0 if split is None else _seen(known, tables)
    if split is not None and (empty := [each for each in SPLITS if not tables[each].num_rows]):
        logger.warning(f"by the column `split`, there are no pairs for {' and '.join(empty)}")
    if left_out:
        logger.info(f"{left_out:,} of {table.num_rows:,} pairs were left out: their texts are in two sets")
    if seen:
        logger.warning(
            f"{seen:,} texts of test pairs are in training pairs too, by the column `split`: figures on them "
            "are optimistic; without the column the sets share no text"
        )
    made = {
        "split": "text" if split is None else "given",
        "left_out": left_out,
        "test_texts_seen_in_training": seen,
        "simulated": pc.sum(pc.starts_with(pa.array(known.ids, pa.string()), SIMULATED_DOI)).as_py(),
    }
    return Pairs.in_memory(tables, links_of(tables["train"]), {"imported": config.model_dump() | made})


def _with_stated_negatives(table: pa.Table) -> pa.Table:
    """The table with a row of label 0 for each anchor and its negative; `row` is the number of its pair."""
    whole = table.append_column("row", pa.array(np.arange(table.num_rows)))
    if NEGATIVE not in table.column_names:
        return whole
    texts = table[NEGATIVE].to_pylist()
    stated = whole.take([number for number, text in enumerate(texts) if text])
    zero = pa.array(np.zeros(stated.num_rows, np.int64))
    columns = {name: stated[name] for name in ("anchor", "domain", "anchor_id")}
    negatives = pair_table(pa.table({**columns, "positive": stated[NEGATIVE], "label": zero}), NEGATIVE)
    whole = whole.drop_columns([NEGATIVE])
    negatives = negatives.append_column("row", stated["row"])
    return pa.concat_tables([whole, negatives.select(whole.column_names)]).combine_chunks()


def _by_set(known: _Texts, sets: np.ndarray) -> Assignment:
    """Each row in the set of `sets`, whose negatives are made of its texts."""
    pools = {}
    for number in range(len(SPLITS)):
        pools[number] = np.zeros(len(known.ids), dtype=bool)
        pools[number][known.ends[sets == number]] = True
    return Assignment(sets, pools)


def _assigned(
    pairs: PairArrays, known: _Texts, labels: np.ndarray, config: ImportPairsConfig, rng: np.random.Generator
) -> Assignment:
    """Groups of pairs that share texts go to one set each; where one group is most pairs, papers are split as
    in `compile_pairs`, and pairs between two sets left out."""
    train, validation, test = config.fractions
    fractions = (train, validation, test)
    text = known.same_text
    group = _components(text[pairs.left], text[pairs.right], int(text.max()) + 1)[text[pairs.left]]
    split_of_group = np.zeros(int(group.max()) + 1, dtype=np.int64)
    sizes = np.bincount(group)
    groups, first = np.unique(group, return_index=True)
    home = pairs.domain[first]
    for domain in np.unique(home):
        mine = rng.permutation(groups[home == domain])
        middle = (np.cumsum(sizes[mine]) - sizes[mine] / 2) / sizes[mine].sum()
        split_of_group[mine] = np.searchsorted(np.cumsum(fractions)[:2], middle, side="right")
    by_group = split_of_group[group]
    if not _is_uneven(pairs, by_group, fractions):
        return _by_set(known, by_group)
    assignment = split_by_paper(pairs, known.works, fractions, rng)
    for domain in np.unique(pairs.domain):
        mine = pairs.domain == domain
        for number, share in enumerate(fractions):
            if share and not ((assignment.pairs == number) & mine & (labels == 1)).any():
                raise TooFewPairsError(
                    f"{domain}: the {SPLITS[number]} set got none of its {int(mine.sum()):,} pairs, which "
                    "share texts; give other `fractions`, another `seed`, more pairs, or a column `split`"
                )
    return assignment


def _is_uneven(pairs: PairArrays, split: np.ndarray, fractions: tuple[float, float, float]) -> bool:
    """Whether a domain has less than half or more than twice of what a set should have."""
    for domain in np.unique(pairs.domain):
        mine = split[pairs.domain == domain]
        shares = np.bincount(mine, minlength=len(SPLITS)) / len(mine)
        if any(not want / 2 <= share <= want * 2 for share, want in zip(shares, fractions, strict=True)):
            return True
    return False


def _with_negatives(
    whole: pa.Table, pairs: PairArrays, known: _Texts, assignment: Assignment, config: ImportPairsConfig,
    rng: np.random.Generator,
) -> dict[str, pa.Table]:  # fmt: skip
    """The tables of validation and test; a domain of a set that states no negative gets as many as linked
    pairs, and pairs for which there is none are left out."""
    labels = whole["label"].to_numpy()
    lacking = [pairs.take(np.empty(0, np.int64))] * len(SPLITS)
    for number in (VALIDATION, TEST):
        rows = np.flatnonzero(assignment.pairs == number)
        stated = np.unique(pairs.domain[rows[labels[rows] == 0]])
        lacking[number] = pairs.take(rows[(labels[rows] == 1) & ~np.isin(pairs.domain[rows], stated)])
    drawn = draw_negatives(known, lacking, assignment, config.negatives, 0, rng)
    tables = {}
    for number in (VALIDATION, TEST):
        without = np.setdiff1d(lacking[number].count, drawn.splits[number].count)
        rows = np.setdiff1d(np.flatnonzero(assignment.pairs == number), without)
        linked = whole.take(rows).drop_columns(["row"])
        negatives = _unlinked_table(drawn.negatives[number], known).select(linked.column_names)
        tables[SPLITS[number]] = pa.concat_tables([linked, negatives.cast(linked.schema)]).combine_chunks()
    return tables


def _unlinked_table(negatives: PairArrays, known: _Texts) -> pa.Table:
    """The rows of negatives; a text of only one column of the user's table stays in that column."""
    turned = known.side[negatives.left] < known.side[negatives.right]
    zeros = pa.array(np.zeros(len(negatives), np.int64))
    columns = {"domain": pa.array(negatives.domain.tolist(), pa.string()), "label": zeros, "count": zeros}
    for end, numbers in (
        ("anchor", np.where(turned, negatives.right, negatives.left)),
        ("positive", np.where(turned, negatives.left, negatives.right)),
    ):
        columns[end] = pa.array(known.texts(numbers), pa.string())
        columns[f"{end}_id"] = pa.array(known.ids[numbers].tolist(), pa.string())
    return pa.table(columns)


def _seen(known: _Texts, tables: dict[str, pa.Table]) -> int:
    """The number of texts of test pairs that are in training pairs."""

    def texts_in(table: pa.Table) -> np.ndarray:
        ids = pa.chunked_array([*table["anchor_id"].chunks, *table["positive_id"].chunks], pa.string())
        numbers = np.searchsorted(known.ids, ids.to_numpy(zero_copy_only=False).astype(object))
        texts: np.ndarray = known.same_text[numbers]
        return texts

    return seen_in_training(texts_in(tables["train"]), texts_in(tables["test"]))[0]
