"""The domains of the works: by rules, by the query that found them, or one for all."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from sentence_experts.errors import InputError
from sentence_experts.pairs.domain_report import DomainCounts, explain_empty, unmatched_rules
from sentence_experts.pairs.domains import COLUMNS, DomainRules, descriptor_of
from sentence_experts.pairs.sql_engine import SqlEngine
from sentence_experts.pairs.works import BEYOND_THE_CORPUS, domains_of_cited, within_years

logger = logging.getLogger(__name__)

ONE_DOMAIN = "all"
LISTS = ("subjects", "keywords", "mesh")  # columns of several values
_FIELDS = ("paper_id", *dict.fromkeys(COLUMNS.values()), "year")


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
    of_works = f"SELECT paper_id, domain FROM {{}} AS m SEMI JOIN {texts} USING (paper_id)"
    years: dict[str, tuple[int, int]] = {}
    counts: DomainCounts | None = None
    if given_rules is not None:
        rules = DomainRules.of(given_rules)
        classified = papers if votes else f"(SELECT * FROM {papers} SEMI JOIN {texts} USING (paper_id))"
        name = "`domains`" if isinstance(given_rules, Mapping) else str(given_rules)
        batches, counts = _classified(engine, classified, rules)
        _check_rules(engine, classified, rules, counts, name)
        inside = engine.store(pa.concat_tables(batches))
        years = {name: rule.years for name, rule in rules.domains.items() if rule.years is not None}
    elif found_in is not None:
        inside = engine.read(found_in)
    else:
        return engine.compute(f"SELECT paper_id, '{ONE_DOMAIN}' AS domain FROM {texts}"), None
    if not votes:
        return engine.compute(of_works.format(inside)), counts
    outside = within_years(f"({domains_of_cited(texts, papers, citations, inside)})", texts, years)
    return engine.compute(f"{of_works.format(inside)} UNION ALL {outside}"), counts


def _classified(engine: SqlEngine, papers: str, rules: DomainRules) -> tuple[list[pa.Table], DomainCounts]:
    """The domains of the papers, batch by batch, without papers of no domain; and how many have each."""
    matching, counts, batches = rules.matching(), DomainCounts(), []
    for batch in engine.batches(f"SELECT {', '.join(_FIELDS)} FROM {papers} AS papers"):
        memberships = []
        for paper in batch.to_pylist():
            matched = matching(paper)
            domains = rules.chosen(matched)
            counts.add(matched, domains)
            memberships += [(paper["paper_id"], domain) for domain in domains]
        if memberships:
            ids, names = zip(*memberships, strict=True)
            columns = {"paper_id": pa.array(ids, pa.string()), "domain": pa.array(names, pa.string())}
            batches.append(pa.table(columns))
    return batches, counts


def _check_rules(engine: SqlEngine, papers: str, rules: DomainRules, counts: DomainCounts, name: str) -> None:
    """Log the rules that match nothing, and note them in `counts`.

    Raises:
        InputError: a domain has no paper; says what may be misspelt.
    """

    @cache
    def count_values(column: str) -> dict[str, int]:
        value = f"explode({column})" if column in LISTS else column
        counted = engine.rows(f"""SELECT value, count(*) AS papers FROM (
                SELECT {value} AS value FROM {papers} AS papers) AS listed
            WHERE value IS NOT NULL GROUP BY value""")
        if column != "mesh":
            return dict(zip(counted["value"].to_pylist(), counted["papers"].to_pylist(), strict=True))
        headings: Counter[str] = Counter()
        for value, times in zip(counted["value"].to_pylist(), counted["papers"].to_pylist(), strict=True):
            headings[descriptor_of(value)] += times
        return headings

    unmatched = unmatched_rules(rules, count_values)
    counts.unmatched = [one for descriptions in unmatched.values() for one in descriptions]
    empty = [domain for domain in rules.domains if not counts.papers[domain]]
    if empty:
        why = explain_empty(empty[0], rules, counts, unmatched.get(empty[0], []), count_values)
        more = f" (nor do {', '.join(empty[1:])})" if len(empty) > 1 else ""
        raise InputError(
            f"{name}: the domain {empty[0]} gets no paper of the corpus{more}: {why}; "
            "`count_values` lists what a corpus has"
        )
    for message in (f"{name}: {one}" for one in counts.unmatched):
        if message not in engine.warned:
            logger.warning(message)
            engine.warned.add(message)
