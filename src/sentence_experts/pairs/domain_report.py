"""How domain rules sort a corpus: papers per domain, in several, in none; rules that match nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from sentence_experts.pairs.domains import COLUMNS, DomainRules, Matchers

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


def unmatched_rules(rules: DomainRules, count_values: CountValues) -> dict[str, list[str]]:
    """Domain -> a description of each of its patterns that matches no paper."""
    unmatched: dict[str, list[str]] = {}
    matchers = Matchers(rules)
    for key, column in COLUMNS.items():
        patterns = [(name, one) for name, rule in rules.domains.items() for one in getattr(rule, key)]
        if not patterns:
            continue
        values = count_values(column)
        for domain, pattern in patterns:
            matches = matchers.of(domain, key, (pattern,))
            if not any(map(matches, values)):
                close = "" if key == "title" else _closest(pattern, values)
                unmatched.setdefault(domain, []).append(
                    f"{domain}.{key}: {pattern!r} matches no paper{close}"
                )
    return unmatched


def most_frequent(values: Mapping[str, int]) -> str:
    """The most frequent values, for messages."""
    shown = sorted(values.items(), key=lambda item: (-item[1], item[0]))[:_MOST_FREQUENT]
    return ", ".join(f"{value} ({count:,})" for value, count in shown)


def _closest(pattern: str, values: Mapping[str, int]) -> str:
    common = sorted(values, key=lambda value: (-values[value], value))[:_COMPARED]
    folded = {value.casefold(): value for value in reversed(common)}
    close = get_close_matches(pattern.strip("*").casefold(), folded, n=1, cutoff=0.7)
    return f" (did you mean {folded[close[0]]!r}, {values[folded[close[0]]]:,} papers?)" if close else ""


def explain_empty(
    domain: str, rules: DomainRules, counts: DomainCounts, unmatched: list[str], count_values: CountValues
) -> str:
    """Why a domain has no paper, and what to do."""
    rule = rules.domains[domain]
    keys = [key for key in COLUMNS if getattr(rule, key)]
    if not keys:
        return "it has no rule"
    if unmatched:
        listed = [
            f"the most frequent {key} are {shown}" if shown else f"no paper of the corpus has {key}"
            for key in keys
            if key != "title"
            for shown in [most_frequent(count_values(COLUMNS[key]))]
        ]
        return "; ".join([*unmatched, *listed[:1]])
    if rule.years is not None:
        return f"no paper of the years {rule.years} matches its rules and belongs to it"
    moved = {"first": "belong to a domain before it", "drop": "are in several domains"}
    return f"the papers that its rules match {moved.get(rules.several, 'have no text')}"
