"""`import_pairs`: train, validation and test pairs from a user's table, split by text."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_experts.config import with_settings
from sentence_experts.corpus.identifiers import SIMULATED_DOI
from sentence_experts.errors import InputError, UsageError
from sentence_experts.pairs.card import describe_shortfall
from sentence_experts.pairs.config import SPLITS, ImportPairsConfig
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.pairs.hub_datasets import load_hub_dataset, read_released
from sentence_experts.pairs.labels import warn_of_case
from sentence_experts.pairs.negatives import PairTest, draw_negatives, find_among, keys_of
from sentence_experts.pairs.pair_tables import (
    NEGATIVE,
    append_stated_negatives,
    find_contradicted,
    is_one_table,
    join_ids,
    join_texts,
    leave_out_negatives,
    links_of,
    name_of_split,
    number_texts,
    pair_table,
    read_tables,
    read_texts,
    split_column,
)
from sentence_experts.pairs.splits import (
    CROSSING,
    TEST,
    TRAIN,
    VALIDATION,
    Assignment,
    PairArrays,
    TooFewPairsError,
    WorkArrays,
    find_components,
    fold_texts,
    seen_in_training,
    split_by_paper,
)
from sentence_experts.pairs.table_folder import kind_of
from sentence_experts.storage import check_apart
from sentence_experts.tables import Table, name_of_table

logger = logging.getLogger(__name__)
_ENDS = ["anchor", "positive", "anchor_id", "positive_id"]


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
            any case. Or the published datasets of the domain experts, each a domain: a folder
            `abstract_domain_copd`, or a folder of several.
        out: the folder to write to; without, the pairs stay in memory.
        config: the settings; `settings` override its fields, by name.
        overwrite: whether to start over, replacing other pairs in `out`.

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
    if isinstance(source, Pairs) or (kind_of(source) == Pairs.kind and config.subset is None):
        where = "these are pairs" if isinstance(source, Pairs) else f"{source} is a folder of pairs"
        raise UsageError(f"{where} already, which `train`, `evaluate` and `audit` take as they are")
    table, split, disputed = _read(source, config)
    pairs = _split_pairs(table, split, disputed, config)
    return pairs if out is None else pairs.save(out, overwrite)


def _read(source: Table, config: ImportPairsConfig) -> tuple[pa.Table, np.ndarray | None, pa.Table]:
    """Read all pairs with both texts, without repetition, and their sets if a column names them.

    Also returns the pairs that are left out because rows contradict each other.
    """
    name = name_of_table(source)
    chosen = {config.anchor: "anchor", config.positive: "positive"}
    if len(chosen) < 2:
        raise UsageError(f"`anchor` and `positive` are one column, {config.anchor!r}: name both")
    for column, end in [*chosen.items()]:
        if (other := column.strip().lower()) in ("anchor", "positive") and other != end:
            chosen[f"{other}_id"] = f"{end}_id"  # the id goes with the text
            chosen.setdefault(f"{end}_id", f"{end}_id of another text")
    given = read_released(source, config.subset)
    if not given:
        given = {name: read_tables(load_hub_dataset(source, config.subset), name, chosen)}
    is_split = not all(is_one_table(tables) for tables in given.values())
    parts = [
        _complete(table, name_of_split(each, split), SPLITS.index(split) if is_split and split else None)
        for each, tables in given.items()
        for split, table in tables.items()
    ]
    pairs = pa.concat_tables([each for each, _ in parts], promote_options="default").combine_chunks()
    if not pairs.num_rows:
        raise InputError(f"{name} holds no row with both texts")
    _check_ids(pairs, name)
    warn_of_case(sorted(pairs["domain"].unique().to_pylist()), name, "domains")
    sets = [each for _, each in parts if each is not None]
    split = np.concatenate(sets) if len(sets) == len(parts) else None
    rows = _find_first(pairs, split, join_ids(pairs).reshape(2, -1))
    if again := pairs.num_rows - len(rows):
        logger.warning(f"{name}: left out, as they repeat another row, in either order: {again:,}")
    is_same = pc.or_(
        pc.equal(pairs["anchor_id"], pairs["positive_id"]),
        pc.equal(fold_texts(pairs["anchor"]), fold_texts(pairs["positive"])),
    ).to_numpy()[rows]
    if is_same.any():
        logger.warning(f"{name}: left out, as their two texts are the same: {is_same.sum():,}")
        rows = rows[~is_same]
    contradicted = find_contradicted(pairs)[rows]
    disputed = pairs.take(rows[contradicted])
    if left_out := int(contradicted.sum()):
        logger.warning(
            f"{name}: left out, as other rows say the opposite of the same texts, or link their negative "
            f"(texts of one id are one): {left_out:,}"
        )
        rows = rows[~contradicted]
    if not pc.any(pc.equal(pairs["label"].take(rows), 1)).as_py():
        others = " that no other row contradicts" if left_out else ""
        raise InputError(f"{name} holds no linked pair{others}: a row of label 1, or without a column label")
    return pairs.take(rows), None if split is None else split[rows], disputed


def _complete(table: pa.Table, name: str, number: int | None) -> tuple[pa.Table, np.ndarray | None]:
    """Complete the rows that have both texts; also return the number in `SPLITS` of each, if it is known.

    The column `split` of a table counts if `number`, the split of the whole table, is not given.
    """
    blank = np.zeros(table.num_rows, dtype=bool)
    for end in ("anchor", "positive"):
        blank |= read_texts(table[end], f"{name}, column {end}").is_null().to_numpy()
    if blank.any():
        first = ", ".join(str(row + 1) for row in np.flatnonzero(blank)[:5])
        more = " ..." if blank.sum() > 5 else ""
        logger.warning(f"{name}: left out, as they lack a text: {blank.sum():,} (row {first}{more})")
        table = table.take(np.flatnonzero(~blank))
    pairs = pair_table(table, name)
    if number is not None:
        return pairs, np.full(pairs.num_rows, number)
    return pairs, split_column(table, name) if "split" in table.column_names else None


def _check_ids(pairs: pa.Table, name: str) -> None:
    """Check that texts of one id are one, as they count as one.

    Raises:
        InputError: most ids that are anchors and positives have several texts: they are of two tables.
    """
    ids = {end: pc.unique(pairs[f"{end}_id"]) for end in ("anchor", "positive")}
    texts = pa.table({"id": join_ids(pairs), "text": join_texts(pairs)})
    counted = texts.group_by("id").aggregate([("text", "count_distinct")])
    several = counted.filter(pc.greater(counted["text_count_distinct"], 1))["id"]
    if not len(several):
        return
    some = texts.filter(pc.is_in(texts["id"], several.combine_chunks()))
    some = some.set_column(1, "text", fold_texts(some["text"]))  # which may be one after all
    counted = some.group_by("id").aggregate([("text", "count_distinct")])
    doubled = counted.filter(pc.greater(counted["text_count_distinct"], 1))["id"].to_pylist()
    shared = {*ids["anchor"].to_pylist()} & {*ids["positive"].to_pylist()}
    both = shared.intersection(doubled)
    if not doubled:
        return
    shown = f"{len(both or doubled):,} ids have several texts, such as {min(both or doubled)!r}"
    if len(both) > len(shared) / 2:
        raise InputError(
            f"{name}: {shown}, as anchor and as positive: where `anchor_id` and `positive_id` are of two "
            "tables, put a letter before those of one; where they name a whole document, leave them out"
        )
    logger.warning(f"{name}: {shown}; texts of one id count as one, and its last text is that of negatives")


def _find_first(pairs: pa.Table, split: np.ndarray | None, ends: np.ndarray) -> np.ndarray:
    """Find the rows that repeat none before them; `ends` tells the two texts of each row, (2, rows)."""
    columns = {
        name: pairs[name] for name in pairs.column_names if not name.startswith(("anchor", "positive"))
    }
    if NEGATIVE in columns:
        columns[NEGATIVE] = fold_texts(columns[NEGATIVE])
    columns |= {} if split is None else {"split": pa.array(split)}
    columns |= dict(zip(("first", "second"), np.sort(ends, axis=0), strict=True))  # in either order
    numbered = pa.table({**columns, "row": np.arange(pairs.num_rows)})
    once = numbered.group_by([*columns], use_threads=False).aggregate([("row", "min")])["row_min"]
    return np.sort(once.to_numpy())


class _Texts:
    """The texts of a table of pairs as numbers, with the links that `draw_negatives` asks for.

    Attributes:
        ids: sorted ids of the texts; a text's number is its place here.
        ends: numbers of the two texts of a row, shape (rows, 2).
        texts: texts by number.
        side: 1 for a text that is only an anchor, -1 only a positive, 0 both.
        works: numbers of equal texts, and years and frequencies, which are unknown.
    """

    def __init__(self, table: pa.Table, disputed: pa.Table) -> None:
        """Number the texts of a table; `disputed` are pairs that may be no negatives either."""
        self.ids, numbers = np.unique(join_ids(table), return_inverse=True)
        self.ends = numbers.reshape(2, -1).T
        self.texts = np.empty(len(self.ids), dtype=object)
        self.texts[numbers] = join_texts(table).to_pylist()
        ends = number_texts(pa.concat_tables([each.select(_ENDS) for each in (table, disputed)]))
        same_text = np.empty(len(self.ids), dtype=np.int64)
        same_text[self.ends.T] = ends[:, : table.num_rows]
        of_columns = [np.isin(np.arange(len(self.ids)), self.ends[:, column]) for column in (0, 1)]
        self.side = of_columns[0].astype(np.int64) - of_columns[1]
        unknown = np.full(len(self.ids), -1)
        self.works = WorkArrays(same_text, unknown, np.zeros_like(unknown))
        self._domains = table["domain"].to_numpy(zero_copy_only=False).astype(object)
        is_linked = np.append(table["label"].to_numpy() == 1, np.ones(disputed.num_rows, dtype=bool))
        self._linked = np.unique(keys_of(*ends[:, is_linked]))

    def mask_of(self, rows: np.ndarray) -> np.ndarray:
        """Return a mask of shape (texts,) of the texts in some rows, given by a mask."""
        mask = np.zeros(len(self.ids), dtype=bool)
        mask[self.ends[rows]] = True
        return mask

    def in_domain(self, domain: str) -> np.ndarray:
        """Return a mask of shape (texts,) of the texts in a pair of the domain."""
        return self.mask_of(self._domains == domain)

    def links_among(self, works: np.ndarray) -> PairTest:
        """Make a test of which two texts a row links, or which cannot be a pair, being of one column."""
        text, side = self.works.same_text, self.side

        def linked(left: np.ndarray, right: np.ndarray) -> np.ndarray:
            known = find_among(keys_of(text[left], text[right]), self._linked)
            # Two questions are not a negative where all linked pairs are a question and an answer.
            mask: np.ndarray = known | (side[left] * side[right] == 1)
            return mask

        return linked


def _split_pairs(
    table: pa.Table, split: np.ndarray | None, disputed: pa.Table, config: ImportPairsConfig
) -> Pairs:
    rng = np.random.default_rng(config.seed)
    whole = append_stated_negatives(table)
    known = _Texts(whole, disputed)
    domains = whole["domain"].to_numpy(zero_copy_only=False).astype(object)
    # The count holds the row, so that pairs that get no negative can be told.
    pairs = PairArrays(known.ends[:, 0], known.ends[:, 1], np.arange(whole.num_rows), domains)
    if split is None:
        assignment = _assign(pairs, known, whole["label"].to_numpy(), config, rng)
    else:
        assignment = _keep_sets(known, split[whole["row"].to_numpy()])
        if config.fractions != ImportPairsConfig.model_fields["fractions"].default:
            logger.warning("`fractions` has no effect, as the source gives the split of each row")
    tables, shortfall = _add_negatives(whole, pairs, known, assignment, config, rng)
    if short := describe_shortfall(shortfall, "Rows of label 0 tell which texts are unlinked"):
        logger.warning(short)
    # A stated negative of a training pair belongs to its row, and is not a row itself.
    of_rows, of_negatives = np.split(assignment.pairs, [table.num_rows])
    trained = np.flatnonzero(of_rows == TRAIN)
    tables["train"] = table.take(trained)
    elsewhere = np.isin(trained, whole["row"].to_numpy()[table.num_rows :][of_negatives != TRAIN])
    tables["train"] = leave_out_negatives(tables["train"], elsewhere)
    if left_out := int((of_rows == CROSSING).sum()):
        logger.warning(f"{left_out:,} of {table.num_rows:,} pairs were left out: their texts are in two sets")
    seen = 0
    if split is not None:
        if empty := [each for each in SPLITS if not tables[each].num_rows]:
            logger.warning(f"by the column `split`, there are no pairs for {' and '.join(empty)}")
        for first, second in (("validation", "test"), ("train", "validation"), ("train", "test")):
            later = np.searchsorted(known.ids, join_ids(tables[second]))
            read = known.ends[assignment.pairs == SPLITS.index(first)].ravel()  # negatives too
            seen = seen_in_training(known.works.same_text[read], known.works.same_text[later])[0]
            if seen:
                names = (each.replace("train", "training") for each in (second, first))
                logger.warning(
                    f"{seen:,} texts of {' pairs are in '.join(names)} pairs too, by the column `split`: "
                    "figures on them are optimistic; without the column the sets share no text"
                )
    made = {
        "split": "text" if split is None else "given",
        "left_out": left_out,
        "not_matched": shortfall,
        "test_texts_seen_in_training": seen,
        "simulated": sum(each.removeprefix("doi:").startswith(SIMULATED_DOI) for each in known.ids),
    }
    return Pairs.in_memory(tables, links_of(tables["train"]), {"imported": config.model_dump() | made})


def _keep_sets(known: _Texts, sets: np.ndarray) -> Assignment:
    """Assign each row to its set in `sets`; the negatives of a set are made of its texts."""
    return Assignment(sets, {number: known.mask_of(sets == number) for number in range(len(SPLITS))})


def _assign(
    pairs: PairArrays, known: _Texts, labels: np.ndarray, config: ImportPairsConfig, rng: np.random.Generator
) -> Assignment:
    """Assign groups of pairs that share texts to sets; where one group is most pairs, split papers as in
    `compile_pairs`, and leave out pairs between two sets."""
    train, validation, test = config.fractions
    fractions = (train, validation, test)
    text = known.works.same_text
    group = find_components(text[pairs.left], text[pairs.right], int(text.max()) + 1)[text[pairs.left]]
    split_of_group = np.zeros(int(group.max()) + 1, dtype=np.int64)
    sizes = np.bincount(group)
    groups, first = np.unique(group, return_index=True)
    home = pairs.domain[first]
    for domain in np.unique(home):
        mine = rng.permutation(groups[home == domain])
        middle = (np.cumsum(sizes[mine]) - sizes[mine] / 2) / sizes[mine].sum()
        split_of_group[mine] = np.searchsorted(np.cumsum(fractions)[:2], middle, side="right")
    by_group = split_of_group[group]
    shares = [
        (np.mean(by_group[pairs.domain == domain] == number), share)
        for domain in np.unique(pairs.domain)
        for number, share in enumerate(fractions)
    ]
    if all(want / 2 <= share <= want * 2 for share, want in shares):
        return _keep_sets(known, by_group)
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


def _add_negatives(
    whole: pa.Table, pairs: PairArrays, known: _Texts, assignment: Assignment, config: ImportPairsConfig,
    rng: np.random.Generator,
) -> tuple[dict[str, pa.Table], dict[str, dict[str, dict[str, int]]]]:  # fmt: skip
    """Make the tables of validation and test: a domain of a set that states no negative gets as many as
    linked pairs, and pairs for which there is none are left out. Also return how many negatives are not fully
    matched (`DrawnNegatives.shortfall`)."""
    labels = whole["label"].to_numpy()
    lacking = [pairs.take(np.empty(0, np.int64))] * len(SPLITS)
    # A pair counts once, however many negatives its rows state.
    ends = known.works.same_text[known.ends.T]  # a stated negative has no id of the table's
    first = _find_first(whole.drop_columns(["row", "count"]), assignment.pairs, ends)
    for number in (VALIDATION, TEST):
        rows = first[assignment.pairs[first] == number]
        stated = np.unique(pairs.domain[rows[labels[rows] == 0]])
        lacking[number] = pairs.take(rows[(labels[rows] == 1) & ~np.isin(pairs.domain[rows], stated)])
    is_stated = (labels[first[assignment.pairs[first] != TRAIN]] == 0).any()
    if config.negatives != "matched" and is_stated and not any(map(len, lacking)):
        logger.warning(f"`negatives={config.negatives}` has no effect, as the rows state negatives")
    drawn = draw_negatives(known, lacking, assignment, config.negatives, 0, rng)
    tables = {}
    for number in (VALIDATION, TEST):
        without = np.setdiff1d(lacking[number].count, drawn.splits[number].count)
        rows = np.setdiff1d(first[assignment.pairs[first] == number], without)
        linked = whole.take(rows).drop_columns(["row"])
        negatives = _make_rows(drawn.negatives[number], known).select(linked.column_names)
        tables[SPLITS[number]] = pa.concat_tables([linked, negatives.cast(linked.schema)]).combine_chunks()
    return tables, drawn.shortfall


def _make_rows(negatives: PairArrays, known: _Texts) -> pa.Table:
    """Make the rows of negatives; a text of only one column of the user's table stays in that column."""
    ends = np.stack([negatives.left, negatives.right])
    anchor, positive = np.where(known.side[ends[0]] < known.side[ends[1]], ends[::-1], ends)
    zeros = pa.array(np.zeros(len(negatives), np.int64))
    columns = {"domain": pa.array(negatives.domain.tolist(), pa.string()), "label": zeros, "count": zeros}
    for end, numbers in (("anchor", anchor), ("positive", positive)):
        columns[end] = pa.array(known.texts[numbers].tolist(), pa.string())
        columns[f"{end}_id"] = pa.array(known.ids[numbers].tolist(), pa.string())
    return pa.table(columns)
