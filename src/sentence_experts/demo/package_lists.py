"""Texts with human labels on any Debian or Ubuntu machine: descriptions and tags of apt's package lists."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Iterator

FACETS = ("use", "works-with", "uitoolkit")
MIN_PROGRAMS = 1000  # a machine with fewer has no lists with tags
PROGRAM = "role::program"
_HELPER = "/usr/lib/apt/apt-helper"  # unpacks lists, however they are packed


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
            if line.strip() != ".":  # a dot is an empty line
                fields[name] = f"{fields.get(name, '')} {line.strip()}"
        else:
            name, _, value = line.partition(":")
            fields[name] = value.strip()
    if fields:
        yield fields


def read_labelled_programs() -> list[dict[str, str]]:
    """Return programs with labels of at least two of `FACETS`, one per source; none where there are no lists.

    Each has the columns package, source, summary (its description in a line), description (in full, if the
    lists have it: Debian keeps it in a separate list, which container images leave out) and a column per
    facet, with `;` between labels.
    """
    if shutil.which("apt-cache") is None:
        return []
    programs: dict[str, dict[str, str]] = {}
    in_full = _read_descriptions()
    for fields in read_packages(_run("apt-cache", "dumpavail")):
        tags = [tag.strip() for tag in fields.get("Tag", "").split(",")]
        labels = {
            facet: "; ".join(
                sorted({tag.split("::")[1].split(":")[0] for tag in tags if tag.startswith(f"{facet}::")})
            )
            for facet in FACETS
        }
        summary = fields.get("Description-en") or fields.get("Description")
        source = fields.get("Source", fields.get("Package", "")).split(" ")[0]
        if PROGRAM in tags and summary and sum(map(bool, labels.values())) >= 2:
            description = in_full.get(fields.get("Description-md5", ""), summary)
            texts = {"package": fields["Package"], "source": source, "summary": summary}
            programs.setdefault(source, {**texts, "description": description, **labels})
    return list(programs.values()) if len(programs) >= MIN_PROGRAMS else []


def _read_descriptions() -> dict[str, str]:
    """Return the descriptions in full, in English, by their Description-md5."""
    wanted = ("--format", "$(FILENAME)", "Created-By: Translations")
    files = _run("apt-get", "indextargets", "-o", "Acquire::Languages=en", *wanted)
    english = [file for file in files if "Translation-en" in file]
    listed = read_packages(_run(_HELPER, "cat-file", *english)) if english else ()
    return {each["Description-md5"]: each["Description-en"] for each in listed if "Description-en" in each}


def _run(*command: str) -> list[str]:
    """Return the lines that a command prints; none if there is no such command."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    except OSError:
        return []
    return done.stdout.split("\n")
