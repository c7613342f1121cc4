"""Label columns of a table as kinds of similarity: texts that share a value of a column are alike by it.

A column holds one label per row, a list of them, labels with separators between, numbers (cut into bins), or
places in a hierarchy, such as `use::viewing` or the MeSH tree number `C14.280`. Missing labels say nothing: a
text without a label of a column is neither alike nor unlike others by it.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from sentence_experts.cells import NO_VALUES, as_text, parse_list, strip_text
from sentence_experts.corpus.formats.mesh import TREE_NUMBER, MeshTree
from sentence_experts.errors import InputError, UsageError
from sentence_experts.names import DOMAIN
from sentence_experts.pairs.domains import descriptor_of

logger = logging.getLogger(__name__)

Rows = NDArray[np.int64]

MIN_PAIRS = 8  # minimum number of pairs that a route is learned from
_WITH_COMMAS = re.compile(r"[+-]?\d+(,\d+)*(\.\d+)?")
MAX_CATEGORIES = 20  # a column of more different numbers is cut into bins
SEPARATORS = re.compile(r"\s*[;|]\s*")  # between the labels in one cell
LABEL_POWER = 0.75  # a label is drawn with its count to this power, so that rare ones are not drowned
_LEVELS = {"::": re.compile(r"::|:"), ":": re.compile(":"), ".": re.compile(r"\."), "/": re.compile("/")}
_MISSING = {"na", "n/a", "nan", "null", "none", "-", ".", "?", "inf", "-inf"}  # cells without a number
_CODE = re.compile(r"[+-]?0\d.*|.*_.*")  # a text, not a number
_TWO_NUMBERS = re.compile(r"\d+\.\d+")  # as of versions and sections
_SECTION = re.compile(r"\d+(\.(1?\d|20))?")
_WHOLE = re.compile(r"\.0*$")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
# "12A", "1500s" and "2nd" have no unit.
_UNIT = (
    r"[ \xa0]?[%‰$€£¥]|[ \xa0]?°[CFK]?|[glm]|[ \xa0][^\W\d_]"
    r"|[ \xa0]?(?!(?:th|st|nd|rd|er|re|ème)$)[^\W\d_]{2}[^\d\s]{0,8}"
)
_WITH_UNIT = re.compile(rf"[~<>≤≥−+-]*([$€£¥]?) ?[~<>≤≥−+-]*\d[\d.,]*({_UNIT})?")
_NEARLY_ALL = 0.9  # share of numbers with one unit in a column of them
_MANY_TEXTS = 0.3  # share of texts among numbers that are no typing errors, or words for nothing
_EXACT = 1 << 53  # floats hold whole numbers up to here
_DRAWS = 40  # number of draws per pair that is wanted, before a search for unlike ones ends


class _Item(str):
    """A label that was an item of a list: it is neither split nor binned."""


@dataclass(frozen=True)
class LabelColumn:
    """A column that teaches a route, or one branch of the hierarchy in it.

    Attributes:
        column: name of the column.
        branch: place in the hierarchy below which labels count: `use` of `use::viewing`, `C` of `C14.280`.
        route: name of the route.
    """

    column: str
    branch: str | None
    route: str

    @classmethod
    def parse(cls, text: str, columns: Mapping[str, Sequence[Any]]) -> LabelColumn:
        """Read `[ROUTE=]COLUMN[:BRANCH]`, such as `use`, `tags:use` or `disease=mesh:C`.

        A branch alone is found if only one column has it, as `use` in labels such as `use::viewing`.

        `columns` holds the first values of each column, in which branches are looked for.

        Raises:
            UsageError: it is not of this form, or the route's name is not allowed.
            InputError: there is no such column.

        >>> LabelColumn.parse("mesh:C", {"title": [], "mesh": []})
        LabelColumn(column='mesh', branch='C', route='mesh-C')
        >>> LabelColumn.parse("aim=use", {"tags": ["use::viewing; role::program"]})
        LabelColumn(column='tags', branch='use', route='aim')
        """
        route, equals, place = text.partition("=")
        if not equals or text in columns:
            route, place = "", text
        column, colon, branch = (place, "", "") if place in columns else place.partition(":")
        if not column or (colon and not branch) or (equals and not route and text not in columns):
            raise UsageError(
                f"`by`: {text!r} is not of the form COLUMN, COLUMN:BRANCH or ROUTE=COLUMN:BRANCH"
            )
        if column not in columns:
            having = _find_columns(branch or column, columns)
            if branch or len(having) != 1:
                hint = "".join(f"; {each}:{branch or column} has such labels" for each in having)
                known = ", ".join(columns) or "none"
                raise InputError(f"`by`: no column {column!r}; the columns are {known}{hint}")
            column, branch = having[0], column
        if not route:
            # A single letter, as of a branch of MeSH, says too little.
            named = f"{column}-{branch}" if len(branch) == 1 else branch or column
            route = re.sub(r"[^A-Za-z0-9_-]+", "-", named).strip("-")
        try:
            DOMAIN.check("route", route)
        except ValueError as error:
            raise UsageError(f"`by`: {error}; name it: ROUTE={place}") from error
        return cls(column, branch or None, route)


def _find_columns(branch: str, columns: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the columns that have labels such as `BRANCH::LABEL`."""
    having = []
    for column, cells in columns.items():
        with contextlib.suppress(InputError):  # cells that are objects, in columns that nobody asked for
            values = (str(value) for cell in cells for value in _read_cell(cell, None))
            if any(value.startswith(f"{branch}::") for value in values):
                having.append(column)
    return having


@dataclass(frozen=True)
class Labels:
    """The labels of all texts under one route.

    Attributes:
        route: name of the route.
        names: labels, in the order of the columns of `matrix`.
        matrix: array of shape (texts, labels), 1 where a text has a label.
    """

    route: str
    names: tuple[str, ...]
    matrix: csr_array

    @property
    def counts(self) -> Rows:
        """Number of texts per label, shape (labels,)."""
        return np.asarray(self.matrix.sum(axis=0)).ravel().astype(np.int64)

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Whether a text has a label, shape (texts,)."""
        counts: Rows = np.diff(self.matrix.indptr)
        return counts > 0

    def rows(self, chosen: Rows) -> Labels:
        """Return the labels of some texts, in this order."""
        return Labels(self.route, self.names, self.matrix[chosen])

    def alike(self, first: Rows, second: Rows) -> NDArray[np.bool_]:
        """Return whether the two texts of a pair share a label: shape (pairs,)."""
        shared: Rows = np.asarray(self.matrix[first].multiply(self.matrix[second]).sum(axis=1)).ravel()
        return shared > 0

    def sharing(self, first: Rows, second: Rows) -> NDArray[np.bool_]:
        """Return whether texts share a label, all against all: (first, second)."""
        shared: NDArray[np.bool_] = (self.matrix[first] @ self.matrix[second].T).toarray() > 0
        return shared

    def draw_pairs(
        self, number: int, rng: np.random.Generator, groups: Rows, power: float = LABEL_POWER
    ) -> Rows:
        """Draw pairs of alike texts of different groups, with repetition: shape (2, at most number).

        First a label is drawn, with its count to the `power` (1 draws texts alike, 0 labels), then two of
        its texts; pairs of one of the `groups` (texts,) are left out.
        """
        by_label = self.matrix.tocsc()
        counts = np.diff(by_label.indptr)
        weights = np.where(counts > 1, counts.astype(np.float64) ** power, 0)
        if not weights.any():
            return np.empty((2, 0), np.int64)
        drawn = rng.choice(len(counts), number, p=weights / weights.sum())
        starts, sizes = by_label.indptr[drawn], counts[drawn]
        one = (rng.random(number) * sizes).astype(np.int64)
        other = (one + 1 + (rng.random(number) * (sizes - 1)).astype(np.int64)) % sizes
        pairs: Rows = by_label.indices[np.stack([starts + one, starts + other])].astype(np.int64)
        return pairs[:, groups[pairs[0]] != groups[pairs[1]]]

    def count_pairs(self, groups: Rows, enough: int = MIN_PAIRS) -> int:
        """Count the different pairs of alike texts of different groups; at most about `enough`."""
        return len(_sort_pairs(self.draw_pairs(_DRAWS * enough, np.random.default_rng(0), groups)))


def _sort_pairs(pairs: Rows) -> Rows:
    """Return the distinct pairs of (2, pairs), whatever their order: (distinct pairs, 2), sorted."""
    return np.unique(np.sort(pairs.T, axis=1), axis=0)


def read_labels(
    cells: Sequence[Any],
    column: LabelColumn,
    separator: str | None = None,
    bins: int = 5,
    tree: MeshTree | None = None,
    ignore_case: bool = False,
) -> Labels:
    """Read the labels of a column.

    Args:
        cells: values of the column, (texts,).
        column: column or branch of the values.
        separator: text between labels in one cell; by default `;` and `|`.
        bins: number of bins of equal size for a column of more than 20 different numbers.
        tree: MeSH tree with the tree numbers of headings, for a branch of them.
        ignore_case: whether labels that differ only in case are one, in the most frequent spelling.

    Raises:
        InputError: no text has a label, all have the same, or no two texts share one; or numbers and texts
            are mixed. The message names the column, and counts.

    >>> labels = read_labels(["a; b", "b", None, "c"], LabelColumn("topic", None, "topic"))
    >>> labels.names, labels.matrix.sum(axis=1)
    (('a', 'b', 'c'), array([2., 1., 0., 1.], dtype=float32))
    """
    named = f"column {column.column!r}" + (f", branch {column.branch!r}" if column.branch else "")
    values = _read_cells(cells, separator, named)
    unknown = Counter(word for cell in cells for word in _words_of(cell, separator) if word in NO_VALUES)
    if unknown:
        word, _ = unknown.most_common(1)[0]
        logger.info(f"{named}: {unknown.total():,} values are {word!r} or alike, which is no label")
    if tree is not None and column.branch is not None:
        _warn_of_unknown_headings(values, tree, named)
        values = [[number for value in each for number in _find_tree_numbers(value, tree)] for each in values]
    single = [value for each in values for value in each if not isinstance(value, _Item)]
    kinds = Counter("numbers" if isinstance(value, float) else "texts" for value in single)
    listed = len(single) < sum(map(len, values))
    if len(kinds) > 1:
        counts = " and ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
        raise InputError(f"{named} mixes kinds of labels: {counts}; make them all texts or all numbers")
    if column.branch is not None:  # 1.10 is a place there, not 1.1
        labels = [_cut_branch(column.branch, [str(value) for value in each]) for each in values]
    elif listed:
        labels = [[_format_cell(value) for value in each] for each in values]
    else:
        sections = None if kinds["numbers"] else _read_sections(values, named)
        known = values if kinds["numbers"] else _as_numbers(values)
        labels = sections or (values if known is None else _put_in_bins(known, bins, named))
        comma = next((value for value in single if isinstance(value, str) and "," in value), None)
        if known is None and comma and all(map(_WITH_COMMAS.fullmatch, single)):
            logger.warning(
                f"{named}: numbers with a comma ({comma}) are labels; write a decimal point, or none"
            )
        elif known is None:
            _warn_of_few_texts(_without_missing(values), named)
            _warn_of_unit(_without_missing(values), named)
    if ignore_case:
        times = Counter(label for each in labels for label in each)
        spelled = {label.lower(): label for label in sorted(times, key=lambda label: (times[label], label))}
        labels = [[spelled[label.lower()] for label in each] for each in labels]
    names = sorted({label for each in labels for label in each})
    warn_of_case(names, named)
    numbers = {name: number for number, name in enumerate(names)}
    sets = [sorted({numbers[label] for label in each}) for each in labels]
    indptr = np.cumsum([0, *map(len, sets)])
    indices = np.fromiter((number for each in sets for number in each), np.int64, int(indptr[-1]))
    matrix = csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(len(sets), len(names)))
    found = Labels(column.route, tuple(names), matrix)
    labelled = int(found.labelled.sum())
    counted = f"{named}: {labelled:,} of {len(cells):,} texts have a label, {len(names):,} different ones"
    if not labelled:
        raise InputError(f"{named} has no label in any of {len(cells):,} texts")
    if not (found.counts > 1).any():
        raise InputError(f"{counted}, and no two texts share one; texts that share a label teach a route")
    if len(names) == 1:
        raise InputError(f"{counted} ({names[0]!r}); a route needs texts that differ by it too")
    return found


def warn_of_case(labels: Sequence[str], where: str, what: str = "labels") -> None:
    """Warn of labels, sorted, or other names (`what`) that differ in case alone."""
    first = {label.lower(): label for label in reversed(labels)}
    if odd := [(first[label.lower()], label) for label in labels if first[label.lower()] != label]:
        logger.warning(
            f"{where}: {what} differ in case alone ({len(odd):,}), such as {odd[0][0]!r} and {odd[0][1]!r}: "
            f"they are different {what}; write them in one way if they are not"
        )


def _words_of(cell: Any, separator: str | None) -> list[str]:
    """Return the texts in a cell, as far as they can be seen without reading it."""
    if isinstance(cell, str):
        return [part.strip() for part in (cell.split(separator) if separator else SEPARATORS.split(cell))]
    return [part.strip() for part in cell if isinstance(part, str)] if isinstance(cell, list) else []


def _read_cells(cells: Sequence[Any], separator: str | None, named: str) -> list[list[Any]]:
    """Return the labels of each cell; refuse cells that hold none, with their number."""
    values, refused = list[list[Any]](), list[InputError]()
    for cell in cells:
        try:
            values.append(_read_cell(cell, separator))
        except InputError as error:
            refused.append(error)
    if refused:
        raise InputError(f"{named} {refused[0]} (in {len(refused):,} of {len(cells):,} texts)")
    return values


def _read_cell(cell: Any, separator: str | None) -> list[str | float]:
    """Return the labels in a cell: numbers as floats, all else as texts, with single spaces."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return []
    if isinstance(cell, str):
        text = normalize("NFC", cell.strip())
        if text in NO_VALUES:
            return []
        if (items := parse_list(text)) is not None:
            with contextlib.suppress(RecursionError):
                return _read_cell(items, separator)
        parts = text.split(separator) if separator else SEPARATORS.split(text)
        return [" ".join(part.split()) for part in parts if strip_text(part)]
    if isinstance(cell, Mapping | bytes):
        what = "bytes" if isinstance(cell, bytes) else "an object"
        raise InputError(f"holds {what} ({cell!r:.60}), not labels")
    if isinstance(cell, Iterable):
        items = [
            [" ".join(normalize("NFC", strip_text(part)).split())]
            if isinstance(part, str)
            else _read_cell(part, separator)
            for part in cell
        ]
        return [_Item(_format_cell(value)) for each in items for value in each if value != ""]
    if isinstance(cell, bool | np.bool_):
        return [str(bool(cell)).lower()]
    if isinstance(cell, int | float | np.number):
        if isinstance(cell, int | np.integer) and abs(int(cell)) > _EXACT:
            return [str(cell)]  # an identifier: as a float it would be the same as its neighbours
        return [float(cell)] if math.isfinite(cell) else []
    return [str(cell)]


def _format_cell(value: str | float) -> str:
    return value if isinstance(value, str) else str(as_text(value))


def _warn_of_unknown_headings(values: list[list[Any]], tree: MeshTree, named: str) -> None:
    headings, known = Counter(str(value) for each in values for value in each), {*tree.names()}
    lacking = Counter(
        {
            each: count
            for each, count in headings.items()
            if not TREE_NUMBER.fullmatch(each) and tree.name_of(descriptor_of(each)) not in known
        }
    )
    if lacking:
        heading, _ = lacking.most_common(1)[0]
        logger.warning(
            f"{named}: {lacking.total():,} of {headings.total():,} values are headings that the descriptor "
            f"file lacks, and so no labels, most often {heading!r}; take the file of the year of the headings"
        )


def _find_tree_numbers(heading: str | float, tree: MeshTree) -> Sequence[str]:
    """Return the tree numbers of a heading such as "*Asthma/drug therapy"; a tree number stays."""
    name = str(heading)
    return [name] if TREE_NUMBER.fullmatch(name) else tree.numbers_of(descriptor_of(name))


def _read_sections(values: list[list[str]], named: str) -> list[list[str]] | None:
    """Return the texts of a column of sections or versions, such as "1.1" beside "1.10"; None of others."""
    known = _without_missing(values)
    written = {value for each in known for value in each}
    if not any(all(map(form.fullmatch, written)) for form in (_TWO_NUMBERS, _SECTION)):
        return None
    whole = {_WHOLE.sub("", value) for value in written}
    numbers = Counter(map(float, whole))
    if len(whole) == len(numbers):
        return None
    same = max(numbers, key=lambda each: numbers[each])
    shown = " and ".join(sorted(value for value in whole if float(value) == same)[:2])
    logger.warning(f"{named}: texts, not numbers, as {shown} would be one number")
    return known


def _without_missing(values: list[list[str]]) -> list[list[str]]:
    return [[value for value in each if value.lower() not in _MISSING] for each in values]


def _as_numbers(values: list[list[str]]) -> list[list[float]] | None:
    """Return texts that are all numbers, as CSV writes them, or missing; None of others, such as "003"."""
    known = _without_missing(values)
    try:
        numbers = [[float(value) for value in each] for each in known]
    except ValueError:
        return None
    flat = [value for each in numbers for value in each]
    exact = all(math.isfinite(value) and abs(value) <= _EXACT for value in flat)
    written = {value for each in known for value in each}
    is_code = any(_CODE.fullmatch(value) for value in written)
    return numbers if flat and exact and not is_code else None


def _warn_of_few_texts(values: list[list[str]], named: str) -> None:
    """Warn of a column of numbers to cut into bins but for some texts, which may be typing errors."""
    flat = [value for each in values for value in each]
    texts = [value for value in flat if not _NUMBER.fullmatch(value)]
    numbers = [value for value in flat if _NUMBER.fullmatch(value)]
    if not 0 < len(texts) <= _MANY_TEXTS * len(flat) or len({*numbers}) <= MAX_CATEGORIES:
        return
    if _as_numbers([numbers]) is not None:  # of codes, correcting makes no numbers
        logger.warning(
            f"{named}: {len(numbers):,} of {len(flat):,} values are numbers, but {texts[0]!r} is none: so "
            "each number is a label; correct or empty such cells to have the numbers cut into ranges"
        )


def _warn_of_unit(values: list[list[str]], named: str) -> None:
    """Warn of a column of many numbers that nearly all have one unit, such as "12 mg", "45%" and "$5"."""
    flat = [value for each in values for value in each]
    found = [match for value in flat if (match := _WITH_UNIT.fullmatch(value))]
    units = Counter(unit for match in found if (unit := _unit_of(match)))
    if not units:
        return
    unit, times = units.most_common(1)[0]
    same = [match[0] for match in found if _unit_of(match) == unit]
    if times >= _NEARLY_ALL * len(flat) and len({*same}) > MAX_CATEGORIES:
        logger.warning(
            f"{named}: {times:,} of {len(flat):,} values are a number with {unit!r}, such as "
            f"{same[0]!r}, and each is a label; write the numbers alone to have them cut into ranges"
        )


def _unit_of(match: re.Match[str]) -> str:
    return match[1] + (match[2] or "").strip()


def _put_in_bins(values: list[list[float]], bins: int, named: str) -> list[list[str]]:
    """Return numbers as labels: themselves if there are few, else the quantile that each lies in.

    A bin is named after its least and its greatest number.
    """
    flat = np.array([value for each in values for value in each])
    different = np.unique(flat)
    if len(different) <= MAX_CATEGORIES:
        labels = dict(zip(different.tolist(), _write_numbers(different, 15), strict=True))
        return [[labels[value] for value in each] for each in values]
    # By whole numbers: np.quantile(flat, 0.6) may take the number behind, as 0.6 is no exact fraction.
    last = [-(-part * len(flat) // bins) - 1 for part in range(1, bins)]
    ends = np.unique(np.sort(flat)[last])
    places = np.searchsorted(ends, flat)
    bounds = {
        int(place): (flat[places == place].min(), flat[places == place].max()) for place in np.unique(places)
    }
    limits = np.unique(list(bounds.values()))
    written = dict(zip(limits.tolist(), _write_numbers(limits, 6), strict=True))
    logger.info(f"{named}: cut into {len(bounds)} ranges")
    names = {place: f"{written[low]} to {written[high]}" for place, (low, high) in bounds.items()}
    return [[names[int(place)] for place in np.searchsorted(ends, each)] for each in values]


def _write_numbers(numbers: NDArray[np.float64], least: int) -> list[str]:
    """Write different numbers with as few digits, `least` or more, as tell them apart."""
    for digits in range(least, 18):  # 17 digits tell any two floats apart
        texts = [f"{number:.{digits}g}" for number in numbers]
        if len(set(texts)) == len(texts):
            break
    return texts


def _cut_branch(branch: str, labels: list[str]) -> list[str]:
    """Return the labels right below a place in the hierarchy: `viewing` for `use::viewing::image`."""
    found = []
    for label in labels:
        if not label.startswith(branch) or not (rest := label[len(branch) :]):
            continue
        separator = next((each for each in _LEVELS if rest.startswith(each)), "")
        if separator:
            found.append(_LEVELS[separator].split(rest.removeprefix(separator).strip())[0].strip())
        elif len(branch) == 1 and rest[0].isdecimal():  # C of the tree number C14.280
            found.append(branch + rest.split(".")[0])
    return [label for label in found if label]


def split_groups(groups: Rows, fractions: Mapping[str, float], seed: int = 0) -> dict[str, Rows]:
    """Divide texts into sets so that no group is in two of them: set -> rows, ascending.

    `groups` has the group of each text, (texts,), `fractions` the share of the groups per set; the last set
    takes the rest.
    """
    names = np.unique(groups)
    order = np.random.default_rng(seed).permutation(len(names))
    ends = (np.cumsum(list(fractions.values())) * len(names)).round().astype(int)
    place = np.searchsorted(ends[:-1], order, side="right")
    of_text = place[np.searchsorted(names, groups)]
    return {name: np.flatnonzero(of_text == number) for number, name in enumerate(fractions)}
