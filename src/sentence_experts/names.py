"""The names of domains, routes, experts, tasks and models, checked in one place.

A name becomes a file's or a folder's name, a column, a key and a word of messages: it is one line, without
white space at its ends.
"""

from __future__ import annotations

import re
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
