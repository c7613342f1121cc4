"""The names of domains, routes, experts, tasks and models, checked in one place.

A name becomes a file's or a folder's name, a column, a key and a word of messages: it is one line, without
white space at its ends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_MAX_LENGTH, _MAX_SHOWN = 100, 60
ALL_ROUTES = "all"
_RESERVED = (ALL_ROUTES, "auto", "none")  # as in `route=all`


@dataclass(frozen=True)
class NameRule:
    """The rule for names of one kind: the pattern that a whole name matches, and the same in words."""

    pattern: str
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
            if not re.fullmatch(self.pattern, name):
                raise ValueError(f"{what} name {name[:_MAX_SHOWN]!r}: use {self.allowed}")
            if len(name) > _MAX_LENGTH:
                shown = f"{name[:_MAX_SHOWN]!r}..."
                raise ValueError(f"{what} name {shown}: longer than {_MAX_LENGTH} characters")


DOMAIN = NameRule(r"[A-Za-z][A-Za-z0-9_-]*", "letters, digits, _ and -, a letter first")
# Tasks and datasets, which are folders too.
FOLDER = NameRule(r"[A-Za-z0-9][\w.-]*", "letters, digits, '_', '-' and '.', a letter or digit first")
# Experts and routes.
EXPERT = NameRule(
    r"[^\W_](?:[\w -]*[\w-])?", "letters, digits, '_', '-' and spaces between, a letter or digit first"
)
# Models, and the domains of tables, as their owners write them.
LABEL = NameRule(
    r"[^\s\x00-\x1f\x7f\ud800-\udfff](?:[^\r\n\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]*\S)?",
    "one line without white space at its ends",
)


def check_route_names(names: Sequence[str], beside: Sequence[str] = ()) -> None:
    """Check names of new routes, beside those that are there already; one that stays alone may be "all", the
    domain of pairs without domains.

    Raises:
        ValueError: one is a word that means something else.

    >>> check_route_names(["all"])
    >>> check_route_names(["crops", "none"])
    Traceback (most recent call last):
    ValueError: route name 'none': all, auto and none mean other things where a route is named
    """
    reserved = [name for name in names if name in _RESERVED]
    if reserved and [*beside, *names] != ["all"]:
        raise ValueError(
            f"route name {reserved[0]!r}: all, auto and none mean other things where a route is named"
        )
