"""`teach`: a route from papers that are similar, or not, in the way that someone means."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from sentence_experts.cells import BadRowError, as_text, strip_text
from sentence_experts.config import with_settings
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.encoding.encode import Model
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.loading import LoadConfig
from sentence_experts.retrieval.citation_export import unquoted
from sentence_experts.retrieval.keywords import telling_words
from sentence_experts.retrieval.papers import Filters
from sentence_experts.retrieval.search_routes import Blend, SearchRoute
from sentence_experts.retrieval.searcher import Searcher
from sentence_experts.retrieval.taught import DEFAULT, MAX_ID, Mark, Profile, ProfileName, Sample, TaughtEntry
from sentence_experts.retrieval.taught_routes import (
    MAX_TITLE,
    described_marks,
    find_listed,
    gather,
    latest_marks,
)
from sentence_experts.retrieval.teaching import (
    Examples,
    count_classes,
    cross_validate,
    fit_head,
)
from sentence_experts.retrieval.texts import PaperTexts
from sentence_experts.retrieval.value_counts import folded
from sentence_experts.tables import (
    Table,
    check_columns,
    fold_columns,
    name_of_table,
    read_columns,
    read_rows,
)

if TYPE_CHECKING:
    import pandas as pd

_SMALL = 0.65  # a ROC-AUC that is hardly of use
NEAREST = 100  # papers among which others rose or fell
SHOWN, WORDS = 5, 8
_YES = ("1", "1.0", "true", "yes", "y", "similar")  # 1.0: pandas, where cells are empty
_NO = ("0", "0.0", "false", "no", "n", "not similar")
_COLUMNS = ("similar", "query", "like", "sampled")
_ALIKE = 0.8  # names of columns that are typing errors; "link" and "like" have 0.75

logger = logging.getLogger(__name__)


class TeachConfig(PaperTexts):
    """Settings of `teach`."""

    name: str = Field(description="Name of the taught route; one of that name is replaced")
    on: str | None = Field(
        None, description="Route of the model that the taught one begins as. Default: as for `search`"
    )
    profile: ProfileName = DEFAULT


@dataclass(frozen=True)
class TeachResult:
    """A taught route, and what it learned.

    Attributes:
        name: name of the route.
        similar, not_similar: numbers of papers that taught it.
        auc: cross-validated ROC-AUC: the chance that a similar paper is nearer than another one; NaN if
            nothing could be held out.
        low, high: 95% interval of `auc`.
        untaught: the same figure before teaching.
        words: words that moved up and down: "up", "down" -> words of papers that rose, or fell, most first.
        papers: "up", "down" -> papers that moved most, without the examples: dicts of `paper_id`, `title`,
            `before` and `after`, ranks beside the first query, or beside the similar papers.
        missing: examples that the corpus does not have, or not with a text.
    """

    name: str
    similar: int
    not_similar: int
    auc: float
    low: float
    high: float
    untaught: float
    words: Mapping[str, Sequence[str]]
    papers: Mapping[str, Sequence[Mapping[str, Any]]]
    missing: int = 0

    @property
    def verdict(self) -> str:
        """A summary of the figures in a sentence or two."""
        count = self.similar + self.not_similar
        if not math.isfinite(self.auc):
            return f"{count} examples are too few to tell: nothing could be held out."
        figure = f"ROC-AUC {self.auc:.2f} ({self.low:.2f} to {self.high:.2f}), before {self.untaught:.2f}"
        if self.low <= 0.5 and self.high < _SMALL:
            judged = f"Nothing was learned that can be measured: {figure}"
        elif self.low <= 0.5:
            judged = f"{count} examples are too few to tell: {figure}"
        elif self.auc <= self.untaught:
            judged = f"No better than before: {figure}"
        else:
            judged = f"Tells similar papers from others: {figure}"
        return f"{judged}."

    def to_pandas(self) -> pd.DataFrame:
        """Return a row per paper that moved most: "up" or "down", the paper, its ranks before and after."""
        import pandas as pd

        return pd.DataFrame(
            [{"moved": way, **paper} for way, papers in self.papers.items() for paper in papers]
        )

    def __repr__(self) -> str:
        return f"TeachResult({self.name!r}: {self.verdict})"

    def entry(self, searcher: Searcher, on: SearchRoute, marks: Sequence[Mark]) -> TaughtEntry:
        """Return what is kept of the route."""
        places: dict[str, Any] = {"model": searcher.encoder.name, "on": on.name, "unit": searcher.unit}
        kept = tuple(described_marks(searcher.papers, marks))
        return TaughtEntry(**places, marks=kept, figures=self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain values, with the verdict; None for what is not known."""
        values = {**asdict(self), "verdict": self.verdict}
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in values.items()
        }


@with_settings(TeachConfig)
def teach(
    model: Model,
    corpus: CorpusFolder | Path | str,
    examples: Table,
    config: TeachConfig | None = None,
    *,
    load_config: LoadConfig | None = None,
    **settings: Any,
) -> TeachResult:
    """Teach a route by papers of a corpus that are similar in the way that is meant, and others.

    The route is a linear map of the model's vectors. It is kept beside the corpus; `search` and the server
    then know it by its name.

    Args:
        model: a model in memory, or the path or name of one.
        corpus: a corpus or its folder.
        examples: a table with the columns `paper` (DOI, PMID, PMCID or id) and `similar` (yes or no), and, if
            the papers were judged against something, `query` (a text) or `like` (a paper). Without these,
            similar papers are similar to each other.
        config: settings; those given by name come before it.
        load_config: settings for opening a model that is given by its path or name; see `load`.

    Raises:
        UsageError: a bad setting, or fewer than two papers of either kind.
        InputError: the corpus or the table cannot be read, or the corpus cannot be written to.
        RouteError: the model needs a route (`on`), or does not know it.

    Example:
        >>> papers = CorpusFolder.open("corpus").to_pandas()["paper_id"][:8]
        >>> rows = [{"paper": paper, "similar": number < 4} for number, paper in enumerate(papers)]
        >>> teach("model", "corpus", rows, name="my way", on="genomics", unit="title").similar
        4
    """
    config = TeachConfig.of(config, **settings)
    opened = CorpusFolder.open(corpus)
    marks, _, unread = read_marks(examples, to_teach=True)
    profile = Profile(opened, config.profile)
    searcher = Searcher.open(model, opened, config, load_config)
    marks = latest_marks(searcher.papers, find_listed(searcher.papers, marks, unread))
    on = searcher.one_route(config.on)
    result = learn(searcher, on, marks, config.name)
    with profile.changing() as state:
        taken = {searcher.encoder.name, *searcher.encoder.routes}
        entry = result.entry(searcher, on, marks)
        before = latest_marks(
            searcher.papers, state.routes[config.name].marks if config.name in state.routes else ()
        )
        if lost := {each.paper for each in before} - {each.paper for each in marks}:
            logger.warning(
                f"`name`: takes the place of the route {config.name!r}, of whose {len(before):,} marks the "
                f"table lacks {len(lost):,}; with another name both are kept"
            )
        state.put(config.name, entry, taken)
        if state.name == config.name:
            state.marks = {each.key: each for each in entry.marks}
    return result


def read_marks(examples: Table, to_teach: bool = False) -> tuple[list[Mark], Sample | None, list[Mark]]:
    """Read a table of examples, the random sample that its column `sampled` tells of, and its unread papers.

    Rows without a word for `similar` are no marks; `to_teach` warns of them. Queries that differ in case or
    white space are one, in the first spelling. `sampled` is yes for papers that were drawn, no for others
    of those that they were drawn from, and empty for papers that had been read.

    Raises:
        InputError: a column is missing, or a cell is neither yes nor no.
    """
    where = name_of_table(examples)
    names, known = _find_columns(where, read_columns(examples))
    spellings, empty = dict[str, str](), 0
    marks, unread = list[Mark](), list[Mark]()
    drawn, others, before = list[str](), list[str](), list[str]()
    for number, row in enumerate(read_rows(examples, [*known.values()]), start=1):
        try:
            if isinstance(row, BadRowError):
                raise row
            row = {name: row.get(own) for name, own in known.items()}
            cells = (strip_text(unquoted(as_text(row.get(each)) or "")) for each in names)
            paper, given, query, like, sampled = cells
            if not any((paper, given, query, like, sampled)):  # as spreadsheets write at the end
                continue
            query = spellings.setdefault(" ".join(folded(query).split()), query)
            similar, is_drawn = _read_word("similar", given), _read_word("sampled", sampled)
            empty += similar is None
            if not paper:
                raise BadRowError("give a `paper`")
            if query and like:
                raise BadRowError("give `query` or `like`, not both")
            if is_drawn is not None:
                (drawn if is_drawn else others).append(paper)
            elif similar is not None:
                before.append(paper)
            title = row.get("title")
            title = strip_text(unquoted(title))[:MAX_TITLE] or None if isinstance(title, str) else None
            if similar is not None:
                liked = (like,) if like else ()
                marks.append(Mark(paper=paper, similar=similar, query=query or None, like=liked, title=title))
            elif title is not None and len(paper) <= MAX_ID:
                unread.append(Mark(paper=paper, similar=False, title=title))
        except (BadRowError, ValidationError) as error:
            text = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            raise InputError(f"{where}: row {number}: {text}") from error
    if to_teach:
        _warn_of_rows(where, marks, empty)
    sample = Sample(papers=tuple(drawn), before=tuple(before), others=tuple(others))
    return marks, sample if drawn else None, unread


def _find_columns(where: str, columns: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the names of the columns to read, and these, with `title`, -> as the table has them.

    A warning names columns that seem to be typing errors.
    """
    wanted = ("paper", "paper_id", *_COLUMNS, "title")
    own = fold_columns(where, [each for each in columns if each.strip().lower() in wanted])
    names = ("paper_id" if "paper_id" in own and "paper" not in own else "paper", *_COLUMNS)
    others = [each for each in columns if each.strip().lower() not in wanted]
    lacking = [each for each in (*_COLUMNS, "title") if each not in own]
    lacking += ["queries"] if "query" in lacking else []
    check_columns(where, names[:2], [*own, *others])
    unknown = [each for each in others if get_close_matches(each.strip().lower(), lacking, 1, _ALIKE)]
    unknown += [own["paper_id"]] if "paper_id" in own and "paper" in own else []
    if unknown:
        listed = f"{', '.join(unknown[:10])}{' ...' * (len(unknown) > 10)}"
        logger.warning(f"{where}: columns that are not used: {listed}; these are: {', '.join(names)}, title")
    return names, {name: own[name] for name in (*names, "title") if name in own}


def _warn_of_rows(where: str, marks: Sequence[Mark], empty: int) -> None:
    """Warn of rows that teach nothing, or other than they may seem to."""
    if 0 < empty <= len(marks):  # a list to read has many
        logger.warning(f"{where}: rows without yes or no for `similar` teach nothing: {empty:,}")
    alone = [mark.paper for mark in marks if mark.anchor is None]
    if alone and len(alone) < len(marks):
        logger.warning(
            f"{where}: rows without `query` or `like` ({len(alone):,} of {len(marks):,}, such as "
            f"{alone[0]!r}) are compared with each other, not with the query of another row: fill it in if "
            "that is meant"
        )


def _read_word(column: str, cell: str) -> bool | None:
    """Return whether a cell says yes or no; None for an empty one."""
    word = cell.lower()
    if word not in ("", *_YES, *_NO):
        raise BadRowError(f"yes or no for `{column}`, not {cell!r}")
    return word in _YES if word else None


def learn(searcher: Searcher, on: SearchRoute, marks: Sequence[Mark], name: str) -> TeachResult:
    """Fit a route to marks and say what it learned; nothing is kept."""
    examples = gather(searcher, on, marks)
    _check_groups(examples)
    validated = cross_validate(examples)
    taught = SearchRoute(name, on.document_route, on.query_route, fit_head(examples))
    words, papers = _describe(searcher, on, taught, examples)
    return TeachResult(
        name=name,
        similar=int(examples.similar.sum()),
        not_similar=int((~examples.similar).sum()),
        **asdict(validated),
        words=words,
        papers=papers,
        missing=len(marks) - len(examples.similar),
    )


def _check_groups(examples: Examples) -> None:
    """Warn of examples that teach nothing, as their query has only similar papers, or none.

    Raises:
        UsageError: all are such.
    """
    # Without a query, papers are similar to each other; a query is itself similar to its papers.
    groups = zip(np.unique(examples.groups), count_classes(examples), strict=True)
    idle = [yes + no for group, (yes, no) in groups if not no or yes < (2 if group < 0 else 1)]
    if sum(idle) == len(examples.similar):
        raise UsageError(
            "nothing can be learned: no query, or `like`, has both similar papers and others: mark both"
        )
    if idle:
        logger.warning(
            f"papers ({sum(idle):,}) count for nothing: what they are compared with (a query, `like`, each "
            "other) has only similar papers, or only others"
        )


def _describe(
    searcher: Searcher, on: SearchRoute, taught: SearchRoute, examples: Examples
) -> tuple[dict[str, list[str]], dict[str, list[dict[str, Any]]]]:
    """Return the words, and the papers but notices, that moved most up and down beside the first query."""
    assert examples.papers is not None
    if len(query := examples.anchors[:1]):
        queries = [query, taught.apply(query)]
    else:
        similar = examples.papers[examples.similar].tolist()
        queries = [searcher.mean_vectors(similar, Blend((route,)))[0] for route in (on, taught)]
    papers = searcher.vectors(on).papers
    passing = searcher.papers.places(Filters(notices=False))
    found = np.ones(len(papers), bool) if passing is None else passing[papers]
    ranks = []
    for route, (vector,) in zip((on, taught), queries, strict=True):
        scores = searcher.vectors(route).scores(vector)
        ranks.append(_ranks(np.where(found, scores, -np.inf)))
    moved = np.log(ranks[0]) - np.log(ranks[1])
    moved[np.isin(papers, examples.papers)] = 0
    near = found & (np.minimum(*ranks) <= NEAREST)
    order = np.argsort(-np.where(near, moved, 0), kind="stable")
    ways = {
        "up": [place for place in order[:NEAREST] if near[place] and moved[place] > 0],
        "down": [place for place in order[::-1][:NEAREST] if near[place] and moved[place] < 0],
    }
    texts, shown = {}, {}
    for way, places in ways.items():
        facts = searcher.papers.facts(papers[places])
        texts[way] = [f"{each['title'] or ''} {each['abstract'] or ''}" for each in facts]
        before, after = (each[places[:SHOWN]].tolist() for each in ranks)
        shown[way] = [
            {"paper_id": one["paper_id"], "title": (one["title"] or "")[:300], "before": old, "after": new}
            for one, old, new in zip(facts, before, after, strict=False)
        ]
    return _words(texts), shown


def _ranks(scores: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Return the rank of each score, from 1 for the largest."""
    ranks = np.empty(len(scores), np.int64)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return ranks


def _words(texts: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the words whose shares of both groups of texts differ most, by the odds."""
    counts = {
        way: Counter(word for text in each for word in {word.lower() for word in telling_words(text)})
        for way, each in texts.items()
    }

    def odds(way: str, word: str) -> float:
        count, size = counts[way][word] + 0.5, len(texts[way]) + 1
        return math.log(count / (size - count))

    words = {}
    for way, other in (("up", "down"), ("down", "up")):
        gains = {
            word: odds(way, word) - odds(other, word) for word, count in counts[way].items() if count >= 2
        }
        best = sorted(gains, key=lambda word, gains=gains: (-gains[word], word))  # type: ignore[misc]
        words[way] = [word for word in best[:WORDS] if gains[word] > 0]
    return words
