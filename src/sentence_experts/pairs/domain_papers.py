"""The papers of each domain: by rules, by the query that found them, or one domain for all."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from sentence_experts.errors import InputError
from sentence_experts.pairs.domains import COLUMNS, DomainRules, Matchers, descriptor_of
from sentence_experts.pairs.sql_engine import SqlEngine
from sentence_experts.pairs.user_tables import ONE_DOMAIN
from sentence_experts.pairs.works import BEYOND_THE_CORPUS, domains_of_cited, within_years

logger = logging.getLogger(__name__)

LISTS = ("subjects", "keywords", "mesh")  # columns of several values
_FIELDS = ("paper_id", *dict.fromkeys(COLUMNS.values()), "year")
_MOST_FREQUENT = 8
_COMPARED = 20_000  # values, the most frequent, that a pattern without a match is compared with
# Column -> its values in the corpus, with the number of papers that have each.
CountValues = Callable[[str], Mapping[str, int]]


@dataclass
class DomainCounts:
    """The papers of each domain.

    Attributes:
        papers: domain -> number of papers.
        in_several: papers that the rules of several domains match.
        in_none: papers that no rule matches.
        unmatched: "DOMAIN.KEY: PATTERN" of rules that match no paper, with the closest value of the corpus.
    """

    papers: Counter[str] = field(default_factory=Counter)
    in_several: int = 0
    in_none: int = 0
    unmatched: list[str] = field(default_factory=list)

    def add(self, matched: Iterable[str], domains: Iterable[str]) -> None:
        """Count one paper by the domains whose rules match it, and those that it belongs to."""
        several = len(tuple(matched))
        self.in_several += several > 1
        self.in_none += several == 0
        self.papers.update(domains)

    def to_json(self) -> dict[str, Any]:
        """The counts for the manifest."""
        return {"per_domain": dict(sorted(self.papers.items())), "in_several": self.in_several,
                "in_none": self.in_none, "rules_without_a_match": self.unmatched}  # fmt: skip


def domains_of_works(
    engine: SqlEngine,
    unit: str,
    texts: str,
    papers: str,
    citations: str,
    given_rules: Path | Mapping[str, Any] | None,
    found_in: Path | None = None,
) -> tuple[str, DomainCounts | None]:
    """`paper_id, domain`: a row for each domain of each work of `texts` (`folded_texts`) that has any; and,
    with rules, the number of papers of each domain.

    Without rules, `found_in` tells which domain's query found each paper of a fetched corpus; without either,
    all works are of one domain. With titles, works outside the corpus count too.

    Raises:
        InputError: the rules cannot be read, or a domain gets no paper.
    """
    # A paper without text is in no pair, but the works that it cites outside the corpus get its domain.
    votes = unit in BEYOND_THE_CORPUS
    years: dict[str, tuple[int, int]] = {}
    counts: DomainCounts | None = None
    if given_rules is not None:
        rules = DomainRules.of(given_rules)
        classified = papers if votes else f"(SELECT * FROM {papers} SEMI JOIN {texts} USING (paper_id))"
        inside, counts = _classify(engine, classified, rules)
        name = "`domains`" if isinstance(given_rules, Mapping) else str(given_rules)
        _check_rules(engine, classified, rules, counts, name)
        years = {name: rule.years for name, rule in rules.domains.items() if rule.years is not None}
    elif found_in is not None:
        inside = engine.read(found_in)
    else:
        return engine.compute(f"SELECT paper_id, '{ONE_DOMAIN}' AS domain FROM {texts}"), None
    query = f"SELECT paper_id, domain FROM {inside} AS m SEMI JOIN {texts} USING (paper_id)"
    if votes:
        cited = domains_of_cited(texts, papers, citations, inside)
        query += f" UNION ALL {within_years(f'({cited})', texts, years)}"
    return engine.compute(query), counts


def _classify(engine: SqlEngine, papers: str, rules: DomainRules) -> tuple[str, DomainCounts]:
    """The table `paper_id, domain` of papers that have a domain; and how many papers have each."""
    matching, counts, batches = rules.matching(), DomainCounts(), []
    schema = pa.schema([("paper_id", pa.string()), ("domain", pa.string())])
    for batch in engine.batches(f"SELECT {', '.join(_FIELDS)} FROM {papers} AS papers"):
        rows = []
        for paper in batch.to_pylist():
            matched = matching(paper)
            domains = rules.chosen(matched)
            counts.add(matched, domains)
            rows += [{"paper_id": paper["paper_id"], "domain": domain} for domain in domains]
        batches.append(pa.Table.from_pylist(rows, schema))
    return engine.store(pa.concat_tables(batches)), counts


def _check_rules(engine: SqlEngine, papers: str, rules: DomainRules, counts: DomainCounts, name: str) -> None:
    """Log the rules that match nothing, and note them in `counts`.

    Raises:
        InputError: a domain has no paper; says what may be misspelt.
    """

    @cache
    def count_values(column: str) -> Mapping[str, int]:
        value = f"explode({column})" if column in LISTS else column
        counted = engine.rows(f"""SELECT value, count(*) AS papers FROM (
                SELECT {value} AS value FROM {papers} AS papers) AS listed
            WHERE value IS NOT NULL GROUP BY value""")
        values: Counter[str] = Counter()
        for value, times in zip(counted["value"].to_pylist(), counted["papers"].to_pylist(), strict=True):
            values[descriptor_of(value) if column == "mesh" else value] += times
        return values

    unmatched = unmatched_rules(rules, count_values)
    counts.unmatched = [one for descriptions in unmatched.values() for one in descriptions]
    empty = [domain for domain in rules.domains if not counts.papers[domain]]
    if empty:
        why = _explain_empty(empty[0], rules, unmatched.get(empty[0], []), count_values)
        more = f" (nor do {', '.join(empty[1:])})" if len(empty) > 1 else ""
        raise InputError(
            f"{name}: the domain {empty[0]} gets no paper of the corpus{more}: {why}; "
            "`count_values` lists what a corpus has"
        )
    for message in (f"{name}: {one}" for one in counts.unmatched):
        if message not in engine.warned:
            logger.warning(message)
            engine.warned.add(message)


def unmatched_rules(rules: DomainRules, count_values: CountValues) -> dict[str, list[str]]:
    """Domain -> a description of each of its patterns that matches no paper."""
    unmatched: dict[str, list[str]] = {}
    matchers = Matchers(rules)
    for key, column in COLUMNS.items():
        for domain, rule in rules.domains.items():
            for pattern in getattr(rule, key):
                values = count_values(column)
                if not any(map(matchers.of(domain, key, (pattern,)), values)):
                    close = "" if key == "title" else _closest(pattern, values)
                    message = f"{domain}.{key}: {pattern!r} matches no paper{close}"
                    unmatched.setdefault(domain, []).append(message)
    return unmatched


def _most_frequent(values: Mapping[str, int]) -> str:
    shown = sorted(values.items(), key=lambda item: (-item[1], item[0]))[:_MOST_FREQUENT]
    return ", ".join(f"{value} ({count:,})" for value, count in shown)


def _closest(pattern: str, values: Mapping[str, int]) -> str:
    common = sorted(values, key=lambda value: (-values[value], value))[:_COMPARED]
    folded = {value.casefold(): value for value in reversed(common)}
    close = get_close_matches(pattern.strip("*").casefold(), folded, n=1, cutoff=0.7)
    return f" (did you mean {folded[close[0]]!r}, {values[folded[close[0]]]:,} papers?)" if close else ""


def _explain_empty(domain: str, rules: DomainRules, unmatched: list[str], count_values: CountValues) -> str:
    """Why a domain has no paper, and what to do."""
    rule = rules.domains[domain]
    keys = [key for key in COLUMNS if getattr(rule, key)]
    if not keys:
        return "it has no rule"
    if unmatched:
        for key in [key for key in keys if key != "title"][:1]:
            shown = _most_frequent(count_values(COLUMNS[key]))
            listed = f"the most frequent {key} are {shown}" if shown else f"no paper of the corpus has {key}"
            unmatched = [*unmatched, listed]
        return "; ".join(unmatched)
    if rule.years is not None:
        return f"no paper of the years {rule.years} matches its rules and belongs to it"
    moved = {"first": "belong to a domain before it", "drop": "are in several domains"}
    return f"the papers that its rules match {moved.get(rules.several, 'have no text')}"
