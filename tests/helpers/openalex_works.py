"""Works of our own making in the schema of OpenAlex's snapshot."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def work(number: int, cites: tuple[int, ...] = (), **more: Any) -> dict[str, Any]:
    """One work; `more` replaces its fields."""
    return {
        "id": f"https://openalex.org/W{number}",
        "doi": f"https://doi.org/10.1000/W{number}",
        "title": f"Work {number}",
        "publication_year": 2020,
        "type": "article",
        "language": "en",
        "primary_topic": {
            "id": "https://openalex.org/T1",
            "display_name": "Rice genetics",
            "subfield": {"id": "https://openalex.org/subfields/1110", "display_name": "Plant Science"},
            "field": {"id": "https://openalex.org/fields/11", "display_name": "Agricultural Sciences"},
        },
        "abstract_inverted_index": {"grow": [1], "Roots": [0]},
        "referenced_works": [f"https://openalex.org/W{cited}" for cited in cites],
        "updated_date": "2026-01-02T00:00:00",
    } | more


def write_records(path: Path, records: Iterable[dict[str, Any]]) -> Path:
    """Write records as JSON lines, gzipped if the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path
