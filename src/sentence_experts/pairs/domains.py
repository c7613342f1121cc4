"""Assign papers to domains, by rules over their subjects, MeSH headings, keywords, journal and title.

A rules file:

    several: first            # a paper in several domains: first | drop | each
    none: drop                # a paper in no domain: drop, or the name of a domain for the rest
    mesh_descriptors: desc2026.xml   # needed if a heading stands for its whole subtree
    domains:
      copd:
        mesh: ["Pulmonary Disease, Chronic Obstructive"]
        keywords: ["COPD", "emphysema*"]
        years: [2010, 2022]   # only papers of these years, both included
      cvd:
        mesh: ["C14"]         # a tree number: everything under Cardiovascular Diseases
      neuroscience:
        subjects: ["Neuroscience"]
      vision:
        subfields: ["Computer Vision*"]   # as topics and fields: the primary topic by OpenAlex

Within a domain any match is enough. Patterns ignore case; `*` stands for any text. A cited work outside the
corpus, of which only the title is known, gets the domain that cites it most; on a tie none, or with
`several: each` all of them.

`years` are the years of publication of the papers in the pairs, not of the papers that cite them: both
versions of the paper query for papers published within them (Data compilation). A paper of unknown year is
left out.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sentence_experts.config import check_content
from sentence_experts.corpus.config import check_years
from sentence_experts.corpus.formats.mesh import TREE_NUMBER, MeshTree
from sentence_experts.errors import InputError
from sentence_experts.names import DOMAIN
from sentence_experts.pairs.config import ONE_DOMAIN
from sentence_experts.pairs.links import BEYOND_THE_CORPUS, domains_of_cited, within_years
from sentence_experts.yaml_files import read_yaml

if TYPE_CHECKING:
    from sentence_experts.pairs.config import PairsConfig
    from sentence_experts.pairs.sql_engine import SqlEngine

logger = logging.getLogger(__name__)

# Key of a rule -> column of the papers.
COLUMNS = {
    "subjects": "subjects", "keywords": "keywords", "journals": "journal", "mesh": "mesh", "title": "title",
    "topics": "topic", "subfields": "subfield", "fields": "field",
}  # fmt: skip
_FIELDS = ("paper_id", *dict.fromkeys(COLUMNS.values()), "year")
_COMPARED = 20_000  # number of frequent values that a pattern without a match is compared with
# Column -> its values in the corpus, with the number of papers that have each.
Values = Mapping[str, Mapping[str, int]]


class DomainRule(BaseModel):
    """The conditions of one domain: a match in any of the lists."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    subjects: tuple[str, ...] = ()
    mesh: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    journals: tuple[str, ...] = ()
    topics: tuple[str, ...] = Field((), description="primary topics by OpenAlex")
    subfields: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    title: tuple[str, ...] = Field((), description="words or phrases found in the title")
    years: tuple[int, int] | None = Field(None, description="first and last year of the papers")

    _check_years = field_validator("years")(check_years)


class DomainRules(BaseModel):
    """A whole rules file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    domains: dict[str, DomainRule] = Field(min_length=1)
    several: Literal["first", "drop", "each"] = "first"
    none: str = "drop"
    mesh_descriptors: Path | None = None

    @field_validator("domains", mode="before")
    @classmethod
    def _check_names(cls, domains: Any) -> Any:
        # This precedes the check of types: YAML reads a bare `no` or `2020` as something other than text.
        DOMAIN.check("domain", *(domains if isinstance(domains, dict) else ()))
        return domains

    @field_validator("none")
    @classmethod
    def _check_name(cls, name: str) -> str:
        DOMAIN.check("domain", name)
        return "drop" if name.lower() == "drop" else name

    @classmethod
    def of(cls, source: Path | str | Mapping[str, Any]) -> DomainRules:
        """Read rules from a file, or from a dict of the same form or of its `domains` alone.

        A `mesh_descriptors` is relative to the file.

        Raises:
            InputError: no such file, not YAML, or a field that does not have the form above.
        """
        if isinstance(source, Mapping):
            return check_content(cls, source if "domains" in source else {"domains": source}, "`domains`")
        content = read_yaml(Path(source), "domain rules")
        if not isinstance(content, dict) or "domains" not in content:
            form = f"'domains: NAME: {'|'.join(DomainRule.model_fields)}: [...]'"
            raise InputError(f"{source}: domain rules need {form}; also several, none, mesh_descriptors")
        rules = check_content(cls, content, source)
        if rules.mesh_descriptors is None:
            return rules
        return rules.model_copy(update={"mesh_descriptors": Path(source).parent / rules.mesh_descriptors})

    def classifier(self) -> Callable[[Mapping[str, Any]], tuple[str, ...]]:
        """Make a function from a paper (a row of papers.parquet) to its domains, usually one.

        Raises:
            InputError: a tree number is used without a `mesh_descriptors` file.
        """
        matching = self.matching()
        return lambda paper: self.chosen(matching(paper))

    def matching(self) -> Callable[[Mapping[str, Any]], tuple[str, ...]]:
        """Make a function from a paper to all domains whose rules match it. Raises as `classifier`."""
        tests = {
            name: [(column, self.test(name, key, patterns))
                   for key, column in COLUMNS.items() if (patterns := getattr(rule, key))]
            for name, rule in self.domains.items()
        }  # fmt: skip

        def matches(paper: Mapping[str, Any], name: str) -> bool:
            if (years := self.domains[name].years) is not None:
                year = paper.get("year")
                if year is None or not years[0] <= year <= years[1]:
                    return False
            return any(any(map(test, values_of(paper, column))) for column, test in tests[name])

        return lambda paper: tuple(name for name in tests if matches(paper, name))

    def chosen(self, matched: tuple[str, ...]) -> tuple[str, ...]:
        """Choose the domains of a paper from the domains that match it."""
        if not matched:
            return () if self.none == "drop" else (self.none,)
        if len(matched) == 1 or self.several == "each":
            return matched
        return matched[:1] if self.several == "first" else ()

    def test(self, domain: str, key: str, patterns: tuple[str, ...]) -> Callable[[str], bool]:
        """Make a test of whether a value matches a pattern that a domain has under a key of its rule."""
        if key == "mesh":
            return _match_mesh(domain, patterns, self._tree)
        if key == "title":
            words = "|".join(_write_pattern(phrase, r"\w*") for phrase in patterns)
            # Not \b: a phrase may begin or end with a sign, as "C++" does.
            expression = re.compile(rf"(?<!\w)(?:{words})(?!\w)", re.IGNORECASE)
            return lambda title: expression.search(title) is not None
        return _match_any(patterns)

    @cached_property
    def _tree(self) -> MeshTree | None:
        return MeshTree.read(self.mesh_descriptors) if self.mesh_descriptors else None


def values_of(paper: Mapping[str, Any], column: str) -> Sequence[str]:
    """Return the values of a paper in a column of single texts or of lists of texts."""
    values = paper.get(column) or ()
    return [values] if isinstance(values, str) else values


def _write_pattern(text: str, star: str) -> str:
    """Write a regular expression for `text`: `*` stands for `star`, any other character for itself."""
    return star.join(re.escape(part) for part in text.split("*"))


def _match_any(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    expression = re.compile(
        "|".join(_write_pattern(pattern.casefold(), ".*") for pattern in patterns), re.DOTALL
    )
    return lambda value: expression.fullmatch(value.casefold()) is not None


def descriptor_of(heading: str) -> str:
    """Return the descriptor of a heading: Asthma of "*Asthma/drug therapy", which has a qualifier."""
    return heading.strip("*").split("/")[0].strip("* ")


def _match_mesh(domain: str, headings: tuple[str, ...], tree: MeshTree | None) -> Callable[[str], bool]:
    numbers = [heading for heading in headings if TREE_NUMBER.fullmatch(heading)]
    names = tuple(heading for heading in headings if heading not in numbers)
    if tree is None:
        if numbers:
            raise InputError(
                f"domain {domain}: MeSH tree number {numbers[0]} needs 'mesh_descriptors: desc20XX.xml'"
            )
        by_name = _match_any(names)
        return lambda heading: by_name(descriptor_of(heading))
    names = tuple(tree.name_of(name) for name in names)
    is_named = _match_any(names)
    # "Diabetes*" means the headings that begin so, with all below them.
    named = [each for each in tree.names() if is_named(each)] if any("*" in name for name in names) else names
    below = tuple(
        f"{number}." for number in (*numbers, *(n for name in named for n in tree.numbers_of(name)))
    )

    def matches(heading: str) -> bool:
        name = tree.name_of(descriptor_of(heading))
        return is_named(name) or any(f"{place}.".startswith(below) for place in tree.numbers_of(name))

    return matches


# ---- the papers of each domain ----------------------------------------------------------------------


def domains_of_works(
    engine: SqlEngine,
    settings: PairsConfig,
    texts: str,
    papers: str,
    citations: str,
    found_in: Path | None,
) -> tuple[str, dict[str, Any] | None]:
    """Return the table `paper_id, domain`, a row for each domain of a work of `texts` (`folded_texts`); and,
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
    keep_ties = True  # a paper that several queries found is of each
    if settings.domains is not None:
        rules = DomainRules.of(settings.domains)
        keep_ties = rules.several == "each"
        classified = papers if votes else f"(SELECT * FROM {papers} SEMI JOIN {texts} USING (paper_id))"
        inside, counts, values = _classify(engine, classified, rules)
        name = "`domains`" if isinstance(settings.domains, Mapping) else str(settings.domains)
        unmatched = describe_unmatched_rules(rules, values)
        counts["rules_without_a_match"] = [one for described in unmatched.values() for one in described]
        _check_not_empty(rules, counts["per_domain"], unmatched, name)
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
        cited = domains_of_cited(texts, papers, citations, inside, keep_ties)
        if years:
            cited = engine.compute(cited)
            _warn_of_unknown_years(engine, cited, texts, years)
            cited = f"SELECT * FROM {cited}"
        query += f" UNION ALL {within_years(f'({cited})', texts, years)}"
    return engine.compute(query), counts


def _warn_of_unknown_years(
    engine: SqlEngine, cited: str, texts: str, years: Mapping[str, tuple[int, int]]
) -> None:
    """Warn of works outside the corpus that are in no domain, as their year is unknown."""
    named = ", ".join(f"'{name}'" for name in years)
    [found] = engine.rows(f"""SELECT count(DISTINCT paper_id) AS works FROM {cited} SEMI JOIN
        (SELECT paper_id FROM {texts} WHERE year IS NULL) AS undated USING (paper_id)
        WHERE domain IN ({named})""").to_pylist()
    message = (
        f"cited works outside the corpus are left out of {', '.join(years)}, as their year is unknown: "
        f"{found['works']:,}; rules without `years` keep them"
    )
    if found["works"] and message not in engine.warned:
        logger.warning(message)
        engine.warned.add(message)


def _classify(engine: SqlEngine, papers: str, rules: DomainRules) -> tuple[str, dict[str, Any], Values]:
    """Return the table `paper_id, domain` of papers that have a domain, the number of papers per domain, and
    the values of the columns that rules look at."""
    import pyarrow as pa  # here, since reading rules does not need it

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
                in_paper = values_of(paper, column)
                counted.update(map(descriptor_of, in_paper) if column == "mesh" else in_paper)
            matched = matching(paper)
            several, none = several + (len(matched) > 1), none + (not matched)
            domains = rules.chosen(matched)
            domains_of_papers.update(domains)
            rows += [{"paper_id": paper["paper_id"], "domain": domain} for domain in domains]
        batches.append(pa.Table.from_pylist(rows, schema))
    counts = {"per_domain": dict(sorted(domains_of_papers.items())), "in_several": several, "in_none": none}
    return engine.store(pa.concat_tables(batches)), counts, values


def describe_unmatched_rules(rules: DomainRules, values: Values) -> dict[str, list[str]]:
    """Describe the patterns of each domain that match no paper, with the closest value."""
    unmatched: dict[str, list[str]] = {}
    for key, column in COLUMNS.items():
        for domain, rule in rules.domains.items():
            for pattern in getattr(rule, key):
                if not any(map(rules.test(domain, key, (pattern,)), values[column])):
                    close = "" if key == "title" else _describe_closest(pattern, values[column])
                    message = f"{domain}.{key}: {pattern!r} matches no paper{close}"
                    unmatched.setdefault(domain, []).append(message)
    return unmatched


def _describe_closest(pattern: str, values: Mapping[str, int]) -> str:
    frequent = sorted(values, key=lambda value: (-values[value], value))[:_COMPARED]
    folded = {value.casefold(): value for value in reversed(frequent)}
    close = get_close_matches(pattern.strip("*").casefold(), folded, n=1, cutoff=0.7)
    return f" (did you mean {folded[close[0]]!r}, {values[folded[close[0]]]:,} papers?)" if close else ""


def _check_not_empty(
    rules: DomainRules, papers: Mapping[str, int], unmatched: Mapping[str, list[str]], name: str
) -> None:
    """Check that each domain has a paper.

    Raises:
        InputError: a domain has none; the message says why, and what may be misspelt.
    """
    empty = [domain for domain in rules.domains if domain not in papers]
    if not empty:
        return
    if empty[0] in unmatched:
        why = "; ".join(unmatched[empty[0]])
    elif not any(getattr(rules.domains[empty[0]], key) for key in COLUMNS):
        why = "it has no rule"
    else:
        why = "papers that its rules match are of other years, belong to another domain, or have no text"
    more = f" (nor do {', '.join(empty[1:])})" if len(empty) > 1 else ""
    raise InputError(
        f"{name}: the domain {empty[0]} gets no paper of the corpus{more}: {why}; "
        "`count_values` lists what a corpus has"
    )
