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

Within a domain any match is enough. Patterns ignore case; `*` stands for any text. A cited work outside the
corpus, of which only the title is known, gets the domain that cites it most, or none on a tie.

`years` are the years of publication of the papers in the pairs, not of the papers that cite them: both
versions of the paper query for papers published within them (Data compilation). A paper of unknown year is
left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sentence_experts.corpus.formats.mesh import TREE_NUMBER, MeshTree, read_descriptors
from sentence_experts.errors import InputError
from sentence_experts.names import DOMAIN
from sentence_experts.yaml_files import read_yaml


class DomainRule(BaseModel):
    """The conditions of one domain: a match in any of the lists."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    subjects: tuple[str, ...] = ()
    mesh: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    journals: tuple[str, ...] = ()
    title: tuple[str, ...] = Field((), description="words or phrases found in the title")
    years: tuple[int, int] | None = Field(None, description="first and last year of the papers")

    @field_validator("years")
    @classmethod
    def _in_order(cls, years: tuple[int, int] | None) -> tuple[int, int] | None:
        if years is not None and years[0] > years[1]:
            raise ValueError(f"give the first year before the last, not {years[0]}, {years[1]}")
        return years


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
        # Before types are checked: YAML reads a bare `no` or `2020` as something other than text.
        DOMAIN.check("domain", *(domains if isinstance(domains, dict) else ()))
        return domains

    @field_validator("none")
    @classmethod
    def _check_name(cls, name: str) -> str:
        DOMAIN.check("domain", name)
        return name

    @classmethod
    def of(cls, source: Path | str | Mapping[str, Any]) -> DomainRules:
        """Rules from a file, or from a dict: that of the file, or its `domains` alone.

        Raises:
            InputError: no such file, not YAML, or a field that does not have the form above.
        """
        if not isinstance(source, Mapping):
            return cls.read(Path(source))
        return cls._checked(source if "domains" in source else {"domains": source}, "`domains`")

    @classmethod
    def read(cls, path: Path) -> DomainRules:
        """Read a rules file; a relative `mesh_descriptors` is relative to it.

        Raises:
            InputError: no such file, not YAML, or a field that does not have the form above.
        """
        rules = cls._checked(read_yaml(path, "domain rules"), str(path))
        if rules.mesh_descriptors is not None:
            beside = Path(path).parent / rules.mesh_descriptors
            rules = rules.model_copy(update={"mesh_descriptors": beside})
        return rules

    @classmethod
    def _checked(cls, content: Any, name: str) -> DomainRules:
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the file"
            form = (
                " (domain rules need 'domains: NAME: subjects|mesh|keywords|journals|title|years: [...]'; "
                "also several, none, mesh_descriptors)"
            )
            unknown = first["type"] == "extra_forbidden"
            message = "unknown key" if unknown else first["msg"].removeprefix("Value error, ")
            own = first["type"] == "value_error"
            raise InputError(f"{name}: {where}: {message}{'' if own else form}") from error

    def classifier(self) -> Callable[[Mapping[str, Any]], tuple[str, ...]]:
        """Make a function from a paper (a row of papers.parquet) to its domains, usually one.

        Raises:
            InputError: a tree number is used without a `mesh_descriptors` file.
        """
        tree = MeshTree(read_descriptors(self.mesh_descriptors)) if self.mesh_descriptors else None
        matchers = {name: _matcher(name, rule, tree) for name, rule in self.domains.items()}
        rest: tuple[str, ...] = () if self.none == "drop" else (self.none,)

        def domains_of(paper: Mapping[str, Any]) -> tuple[str, ...]:
            matched = tuple(name for name, matches in matchers.items() if matches(paper))
            if not matched:
                return rest
            if len(matched) > 1 and self.several != "each":
                return matched[:1] if self.several == "first" else ()
            return matched

        return domains_of


def _matcher(domain: str, rule: DomainRule, tree: MeshTree | None) -> Callable[[Mapping[str, Any]], bool]:
    lists = {
        "subjects": _any_of(rule.subjects),
        "keywords": _any_of(rule.keywords),
        "journal": _any_of(rule.journals),
        "mesh": _mesh_matcher(domain, rule.mesh, tree),
    }
    checks = {field: check for field, check in lists.items() if check is not None}
    words = "|".join(_pattern(phrase, r"\w*") for phrase in rule.title)
    # Not \b: a phrase may begin or end with a sign, as "C++" does.
    in_title = re.compile(rf"(?<!\w)(?:{words})(?!\w)", re.IGNORECASE) if words else None

    def matches(paper: Mapping[str, Any]) -> bool:
        if rule.years is not None and not _within(rule.years, paper.get("year")):
            return False
        for field, check in checks.items():
            values = paper.get(field) or ()
            if any(check(value) for value in ([values] if isinstance(values, str) else values)):
                return True
        return bool(in_title and in_title.search(paper.get("title") or ""))

    return matches


def _within(years: tuple[int, int], year: int | None) -> bool:
    return year is not None and years[0] <= year <= years[1]


def _pattern(text: str, star: str) -> str:
    """A regular expression for `text`: `*` stands for `star`, every other character for itself."""
    return star.join(re.escape(part) for part in text.split("*"))


def _any_of(patterns: tuple[str, ...]) -> Callable[[str], bool] | None:
    if not patterns:
        return None
    expression = re.compile("|".join(_pattern(pattern.casefold(), ".*") for pattern in patterns), re.DOTALL)
    return lambda value: expression.fullmatch(value.casefold()) is not None


def _mesh_matcher(
    domain: str, headings: tuple[str, ...], tree: MeshTree | None
) -> Callable[[str], bool] | None:
    if not headings:
        return None
    tree_numbers = [heading for heading in headings if TREE_NUMBER.fullmatch(heading)]
    if tree_numbers and tree is None:
        raise InputError(
            f"domain {domain}: MeSH tree number {tree_numbers[0]} needs 'mesh_descriptors: desc20XX.xml'"
        )
    names = tuple(heading for heading in headings if heading not in tree_numbers)
    if tree is not None:
        names = tuple(tree.name_of(name) for name in names)
        tree_numbers += [number for name in names for number in tree.numbers_of(name)]
    by_name, below = _any_of(names), tuple(f"{number}." for number in tree_numbers)

    def matches(heading: str) -> bool:
        # "*Asthma/drug therapy" is the major topic Asthma with a qualifier.
        name = heading.strip("*").split("/")[0].strip("* ")
        name = tree.name_of(name) if tree is not None else name
        if by_name is not None and by_name(name):
            return True
        places = () if tree is None else tree.numbers_of(name)
        return any(f"{place}.".startswith(below) for place in places)

    return matches
