"""Our figures beside the published ones: what every sort of recipe ends with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

OTHER_DATA, OTHER_BASE, OTHER_SCALE, OTHER_PROTOCOL = "data", "base", "scale", "protocol"
NOT_RUN = "not run"


@dataclass(frozen=True)
class TableOfRows:
    """One published table with our figures in it: cells as text."""

    title: str
    headings: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Comparison:
    """A recipe's whole result.

    Attributes:
        legend: how the tables are to be read.
        figures: every published figure beside ours, as dataclasses; `tables` are their printed form.
        differences: what differs from the published experiment, in words.
        notes: what the paper garbles.
    """

    title: str
    paper: str
    scale: str
    legend: str
    figures: tuple[Any, ...]
    tables: tuple[TableOfRows, ...]
    differences: tuple[str, ...]
    choices: tuple[str, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values, ready for `storage.write_json`."""
        return {key: value for key, value in asdict(self).items() if key not in ("legend", "tables")}


def changed_settings(what: str, published: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    """What settings here are not as published, as one line; none where all are."""
    changes = [
        f"{key} {_plain(value)} for {_plain(published.get(key, 'none'))}"
        for key, value in here.items()
        if _plain(value) != _plain(published.get(key))
    ]
    if changes:
        yield f"{what}: {'; '.join(changes)}"


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value).replace(",", ", ")
