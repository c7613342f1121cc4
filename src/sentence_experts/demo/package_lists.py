"""Texts with human labels on any Debian or Ubuntu machine: descriptions and tags of apt's package lists."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Iterator

FACETS = ("use", "works-with", "uitoolkit")
MIN_PROGRAMS = 1000  # a machine with fewer has no lists with tags
PROGRAM = "role::program"


def read_packages(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Return the fields of each package in the output of `apt-cache dumpavail`."""
    fields: dict[str, str] = {}
    name = ""
    for line in lines:
        if not line.strip():
            if fields:
                yield fields
            fields, name = {}, ""
        elif line[0].isspace():
            fields[name] = f"{fields.get(name, '')} {line.strip()}"
        else:
            name, _, value = line.partition(":")
            fields[name] = value.strip()
    if fields:
        yield fields


def labelled_programs() -> list[dict[str, str]]:
    """Return programs with labels of at least two of `FACETS`, one per source; none where there are no lists.

    Each has the columns package, source, description and a column per facet, with `;` between labels.
    """
    if shutil.which("apt-cache") is None:
        return []
    listed = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, errors="replace")
    programs: dict[str, dict[str, str]] = {}
    for fields in read_packages(listed.stdout.splitlines()):
        tags = [tag.strip() for tag in fields.get("Tag", "").split(",")]
        labels = {
            facet: "; ".join(
                sorted({tag.split("::")[1].split(":")[0] for tag in tags if tag.startswith(f"{facet}::")})
            )
            for facet in FACETS
        }
        description = fields.get("Description-en") or fields.get("Description")
        source = fields.get("Source", fields.get("Package", "")).split(" ")[0]
        if PROGRAM in tags and description and sum(map(bool, labels.values())) >= 2:
            row = {"package": fields["Package"], "source": source, "description": description, **labels}
            programs.setdefault(source, row)
    return list(programs.values()) if len(programs) >= MIN_PROGRAMS else []
