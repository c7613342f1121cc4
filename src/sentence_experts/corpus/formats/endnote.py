"""Parse EndNote's XML into papers.

Source: "RSXML.dtd" of EndNote; its texts may be cut up by `style` elements.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lxml import etree

from sentence_experts.corpus.formats.exports import exported_paper, read_export
from sentence_experts.corpus.formats.record_filter import RecordError
from sentence_experts.corpus.formats.secure_xml import SECURE, syntax_error
from sentence_experts.corpus.paper import Paper

_TYPES = {
    "journal article": "research-article", "electronic article": "research-article",
    "conference proceedings": "proceedings-article", "conference paper": "proceedings-article",
    "book section": "book-chapter", "book": "book", "thesis": "dissertation", "report": "report",
    "dataset": "dataset", "web page": "web-page",
}  # fmt: skip
_BEGINS = re.compile(r"<records>\s*<record>")


def is_endnote(text: str) -> bool:
    """Whether an XML document holds EndNote's records."""
    return bool(_BEGINS.search(text))


def read_endnote(path: Path) -> Iterator[dict[str, Any]]:
    """The records, each as `{"record": element}`."""
    data = read_export(path).encode()
    parser = etree.XMLParser(encoding="utf-8", **SECURE)
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        fault = syntax_error(error)
        raise RecordError(fault.reason, fault.detail) from error
    for record in root.iter("record"):
        yield {"record": record}


def to_paper(record: dict[str, Any]) -> Paper:
    """A record as a paper."""
    node = record["record"]
    kind = node.find("ref-type")
    name = (kind.get("name") or "").lower() if kind is not None else ""
    database = f"{_text(node, 'remote-database-name')} {_text(node, 'database')}".lower()
    accession = _text(node, "accession-num")
    is_pubmed = (
        accession and accession.isdigit() and any(word in database for word in ("pubmed", "nlm", "medline"))
    )
    return exported_paper(
        title=_text(node, "titles/title"),
        abstract=_text(node, "abstract"),
        doi=_text(node, "electronic-resource-num"),
        pmid=accession if is_pubmed else None,
        pmcid=_text(node, "custom2") if (_text(node, "custom2") or "").startswith("PMC") else None,
        addresses=["".join(url.itertext()) for url in node.iterfind("urls//url")],
        authors=["".join(name.itertext()) for name in node.iterfind("contributors/authors/author")],
        year=_text(node, "dates/year"),
        volume=_text(node, "volume"),
        issue=_text(node, "number"),
        pages=_text(node, "pages"),
        article_type=_TYPES.get(name, name or None),
        work_types=[_text(node, "work-type")],
        journal=_text(node, "periodical/full-title") or _text(node, "titles/secondary-title"),
        keywords=["".join(word.itertext()) for word in node.iterfind("keywords/keyword")],
        language=_text(node, "language"),
    )


def _text(node: Any, path: str) -> str | None:
    element = node.find(path)
    return "".join(element.itertext()).strip() or None if element is not None else None
