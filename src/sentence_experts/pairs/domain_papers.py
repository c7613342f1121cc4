"""The papers of each domain: by rules, by the query that found them, or one domain for all."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa

from sentence_experts.errors import InputError
from sentence_experts.pairs.config import PairsConfig
from sentence_experts.pairs.domains import COLUMNS, DomainRules, descriptor_of, values_of
from sentence_experts.pairs.links import BEYOND_THE_CORPUS, domains_of_cited, within_years
from sentence_experts.pairs.sql_engine import SqlEngine
from sentence_experts.pairs.user_tables import ONE_DOMAIN

logger = logging.getLogger(__name__)

_FIELDS = ("paper_id", *dict.fromkeys(COLUMNS.values()), "year")
_MOST_FREQUENT = 8
_COMPARED = 20_000  # values, the most frequent, that a pattern without a match is compared with
# Column -> its values in the corpus, with the number of papers that have each.
Values = Mapping[str, Mapping[str, int]]


def domains_of_works(
    engine: SqlEngine,
    settings: PairsConfig,
    texts: str,
    papers: str,
    citations: str,
    found_in: Path | None,
) -> tuple[str, dict[str, Any] | None]:
    """`paper_id, domain`: a row for each domain of each work of `texts` (`folded_texts`) that has any; and,
    with rules, the number of papers of each domain, as the manifest has it.

    Without rules, `found_in` tells which domain's query found each paper of a fetched corpus; without either,
    all works are of one domain. With titles, works outside the corpus count too.

    Raises:
        InputError: the rules cannot be read, or a domain gets no paper.
    """
    # A paper without text is in no pair, but the works that it cites outside the corpus get its domain.
    votes = settings.unit in BEYOND_THE_CORPUS
    years: dict[str, tuple[int, int]] = {}
    counts = None
    if settings.domains is not None:
        rules = DomainRules.of(settings.domains)
        classified = papers if votes else f"(SELECT * FROM {papers} SEMI JOIN {texts} USING (paper_id))"
        inside, counts, values = _classify(engine, classified, rules)
        name = "`domains`" if isinstance(settings.domains, Mapping) else str(settings.domains)
        unmatched = unmatched_rules(rules, values)
        counts["rules_without_a_match"] = [one for described in unmatched.values() for one in described]
        _check_not_empty(rules, counts, unmatched, values, name)
        for message in (f"{name}: {one}" for one in counts["rules_without_a_match"]):
            if message not in engine.warned:
                logger.warning(message)
                engine.warned.add(message)
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


def _classify(engine: SqlEngine, papers: str, rules: DomainRules) -> tuple[str, dict[str, Any], Values]:
    """The table `paper_id, domain` of papers that have a domain; how many papers have each; and the values of
    the columns that rules look at."""
    matching, batches = rules.matching(), []
    domains_of_papers: Counter[str] = Counter()
    several = none = 0
    looked_at = [column for key, column in COLUMNS.items()
                 if any(getattr(rule, key) for rule in rules.domains.values())]  # fmt: skip
    values: dict[str, Counter[str]] = {column: Counter() for column in looked_at}
    schema = pa.schema([("paper_id", pa.string()), ("domain", pa.string())])
    for batch in engine.batches(f"SELECT {', '.join(_FIELDS)} FROM {papers} AS papers"):
        rows = []
        for paper in batch.to_pylist():
            for column, counted in values.items():
                own = values_of(paper, column)
                counted.update(map(descriptor_of, own) if column == "mesh" else own)
            matched = matching(paper)
            several, none = several + (len(matched) > 1), none + (not matched)
            domains = rules.chosen(matched)
            domains_of_papers.update(domains)
            rows += [{"paper_id": paper["paper_id"], "domain": domain} for domain in domains]
        batches.append(pa.Table.from_pylist(rows, schema))
    counts = {"per_domain": dict(sorted(domains_of_papers.items())), "in_several": several, "in_none": none}
    return engine.store(pa.concat_tables(batches)), counts, values


def unmatched_rules(rules: DomainRules, values: Values) -> dict[str, list[str]]:
    """Domain -> a description of each of its patterns that matches no paper, with the closest value."""
    unmatched: dict[str, list[str]] = {}
    for key, column in COLUMNS.items():
        for domain, rule in rules.domains.items():
            for pattern in getattr(rule, key):
                if not any(map(rules.test(domain, key, (pattern,)), values[column])):
                    close = "" if key == "title" else _closest(pattern, values[column])
                    message = f"{domain}.{key}: {pattern!r} matches no paper{close}"
                    unmatched.setdefault(domain, []).append(message)
    return unmatched


def _most_frequent(values: Mapping[str, int], count: int) -> list[str]:
    return sorted(values, key=lambda value: (-values[value], value))[:count]


def _closest(pattern: str, values: Mapping[str, int]) -> str:
    folded = {value.casefold(): value for value in reversed(_most_frequent(values, _COMPARED))}
    close = get_close_matches(pattern.strip("*").casefold(), folded, n=1, cutoff=0.7)
    return f" (did you mean {folded[close[0]]!r}, {values[folded[close[0]]]:,} papers?)" if close else ""


def _check_not_empty(
    rules: DomainRules, counts: dict[str, Any], unmatched: dict[str, list[str]], values: Values, name: str
) -> None:
    """Check that each domain has a paper.

    Raises:
        InputError: one has none; says why, and what may be misspelt.
    """
    empty = [domain for domain in rules.domains if domain not in counts["per_domain"]]
    if not empty:
        return
    rule = rules.domains[empty[0]]
    keys = [key for key in COLUMNS if getattr(rule, key)]
    if not keys:
        why = "it has no rule"
    elif described := unmatched.get(empty[0]):
        for key in [key for key in keys if key != "title"][:1]:
            known = values[COLUMNS[key]]
            shown = ", ".join(f"{each} ({known[each]:,})" for each in _most_frequent(known, _MOST_FREQUENT))
            none = f"no paper of the corpus has {key}"
            described = [*described, f"the most frequent {key} are {shown}" if shown else none]
        why = "; ".join(described)
    elif rule.years is not None:
        why = f"no paper of the years {rule.years} matches its rules and belongs to it"
    else:
        moved = {"first": "belong to a domain before it", "drop": "are in several domains"}
        why = f"the papers that its rules match {moved.get(rules.several, 'have no text')}"
    more = f" (nor do {', '.join(empty[1:])})" if len(empty) > 1 else ""
    raise InputError(
        f"{name}: the domain {empty[0]} gets no paper of the corpus{more}: {why}; "
        "`count_values` lists what a corpus has"
    )
