"""The names of domains, routes, experts, tasks and models, checked in one place.

A name becomes a file's or a folder's name, a column, a key and a word of messages: it is one line, without
white space at its ends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class NameRule:
    """The rule for names of one kind.

    Attributes:
        pattern: that the whole name matches.
        allowed: the same in words.
    """

    pattern: re.Pattern[str]
    allowed: str

    def check(self, what: str, *names: object) -> None:
        """Check names; `what` says what they name, such as "domain".

        Raises:
            ValueError: one is not allowed.

        >>> DOMAIN.check("domain", "neuro\\n")
        Traceback (most recent call last):
        ValueError: domain name 'neuro\\n': use letters, digits, _ and -, a letter first
        """
        for name in names:
            if not isinstance(name, str):
                raise ValueError(f"{what} name {name!r} is not text; put it in quotes")
            if not self.pattern.fullmatch(name):
                raise ValueError(f"{what} name {name[:_MAX_SHOWN]!r}: use {self.allowed}")
            if len(name) > MAX_LENGTH:
                raise ValueError(f"{what} name {name[:_MAX_SHOWN]!r}...: longer than {MAX_LENGTH} characters")


MAX_LENGTH = 100
_MAX_SHOWN = 60
DOMAIN = NameRule(re.compile(r"[A-Za-z][A-Za-z0-9_-]*"), "letters, digits, _ and -, a letter first")
FOLDER = NameRule(
    re.compile(r"[A-Za-z0-9][\w.-]*"), "letters, digits, '_', '-' and '.', a letter or digit first"
)
"""Tasks and datasets, which are folders too."""
EXPERT = NameRule(
    re.compile(r"[^\W_](?:[\w -]*[\w-])?"),
    "letters, digits, '_', '-' and spaces between, a letter or digit first",
)
"""Experts and routes."""
LABEL = NameRule(
    re.compile(r"[^\s\x00-\x1f\x7f\ud800-\udfff](?:[^\r\n\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]*\S)?"),
    "one line without white space at its ends",
)
"""Models, and the domains of tables, as their owners write them."""

RESERVED = ("all", "auto", "none")  # as in `route=all`


def check_route_names(names: Sequence[str], beside: Sequence[str] = ()) -> None:
    """Check names of new routes; one that stays alone may be "all", the domain of pairs without domains.

    Args:
        names: those of the new routes.
        beside: those of routes that are there already.

    Raises:
        ValueError: one is a word that means something else.

    >>> check_route_names(["all"])
    >>> check_route_names(["crops", "none"])
    Traceback (most recent call last):
    ValueError: route name 'none': all, auto and none mean other things where a route is named
    """
    reserved = [name for name in names if name in RESERVED]
    if reserved and [*beside, *names] != ["all"]:
        raise ValueError(
            f"route name {reserved[0]!r}: all, auto and none mean other things where a route is named"
        )
