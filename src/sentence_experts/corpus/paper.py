"""The vocabulary of this room: a paper, what it cites, and what was set aside."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Citation:
    """One bibliographic reference of a paper. Identifiers are normalised (see `identifiers`), None if
    unknown."""

    doi: str | None = None
    pmid: str | None = None
    pmcid: str | None = None
    title: str | None = None
    year: int | None = None
    other: str | None = None
    """An identifier of the user's own, from tables; JATS has none."""


@dataclass(frozen=True, slots=True)
class Paper:
    """One article as its record states it, before identifiers are resolved over the corpus."""

    doi: str | None = None
    pmid: str | None = None
    pmcid: str | None = None
    other: str | None = None
    """An identifier that stands when the work has no DOI, PMID or PMCID: the user's own, or one of the
    content."""
    title: str | None = None
    abstract: str | None = None
    year: int | None = None
    article_type: str | None = None
    subjects: tuple[str, ...] = ()
    mesh: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    journal: str | None = None
    licence: str | None = None
    retracted: bool = False
    retracts: tuple[Citation, ...] = ()
    """The papers that this one, a retraction notice, withdraws."""
    citations: tuple[Citation, ...] = ()
    version: int | None = None
    """PubMed's version of its record: of the same one in several files the last counts. Others have none."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """PubMed's word, in a file of updates, that its earlier files' record is no more."""

    pmid: str
    version: int = 1


@dataclass(frozen=True, slots=True)
class Rejection:
    """Something that did not become a paper or a citation, and why."""

    source: str
    member: str | None
    record: str | None
    reason: str
    detail: str = ""
