"""Read JATS articles and PubMed records of untrusted XML as a stream.

Nothing outside the bytes is ever read: no DTD, no external entity, no network. libxml2's own limits (depth,
text size, entity amplification) stay on, so an entity bomb is an error like any other malformed file.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from typing import IO, Any

from lxml import etree

from sentence_experts.corpus.formats import pubmed
from sentence_experts.corpus.formats.archives import BROKEN_PACKING
from sentence_experts.corpus.formats.jats import KEPT, PARTS, REGIONS, Article, remove_namespace
from sentence_experts.corpus.formats.markup import Element, local_name
from sentence_experts.corpus.formats.mentions import PARAGRAPHS
from sentence_experts.corpus.paper import Deletion, Paper, RecordError

MAX_RECORD_BYTES = 64 << 20
"""Maximum length of the text that is held in memory at a time; each tag counts 16 more."""

Outcome = Paper | Deletion | RecordError

# Reasons for `rejected.jsonl`, by what libxml2 says.
_REASONS = {
    "entity-bomb": re.compile(r"amplification|entity reference loop|entities.*loop"),
    "undefined-entity": re.compile(r"entity.*not defined"),  # nothing outside the document is read
    "not-xml": re.compile(r"document is empty|start tag expected|no element found"),
    "encoding": re.compile(r"encod|utf-8|utf-16"),
    "malformed-xml": re.compile(""),
}
_TAGS = [f"{{*}}{tag}" for tag in ("article", *KEPT, *REGIONS, *PARAGRAPHS, *pubmed.RECORDS)]
# Not `collect_ids=False`: libxml2 stores it with "load the DTD" and would then request the DTD.
_SECURE: dict[str, Any] = {
    "resolve_entities": "internal", "no_network": True, "load_dtd": False, "dtd_validation": False,
    "attribute_defaults": False, "huge_tree": False, "remove_comments": True, "remove_pis": True,
}  # fmt: skip


class _LimitedStream:
    """A binary stream that ends with an error once too much of it is in memory.

    Attributes:
        length: number of bytes that were read since elements were last freed, and 16 for each tag.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.length = 0

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.length += len(data) + 16 * data.count(b"<")
        if self.length > MAX_RECORD_BYTES:
            raise RecordError("too-large", f"a record takes more than {MAX_RECORD_BYTES:,} bytes")
        return data


def read_articles(document: bytes | IO[bytes], full_text: bool = False) -> Iterator[Outcome]:
    """Read the articles of one XML document, in order: JATS (`article`, or a set of them) or PubMed records.

    Only one front matter, reference, paragraph or PubMed record is in memory at a time. Errors are given, not
    raised, and what was read before an error is kept.

    Args:
        document: the content, or a binary stream.
        full_text: keep the text of the body too.
    """
    stream = _LimitedStream(io.BytesIO(document) if isinstance(document, bytes) else document)
    try:
        yield from _read(stream, full_text)
    except RecordError as error:
        yield error
    except etree.XMLSyntaxError as error:
        message = " ".join(str(error.msg or error).split())[:300]
        matching = (reason for reason, pattern in _REASONS.items() if pattern.search(message.lower()))
        yield RecordError(next(matching), message)
    except BROKEN_PACKING as error:
        yield RecordError("broken-packing", f"{type(error).__name__}: {error}")
    except (UnicodeError, LookupError) as error:
        if isinstance(error, KeyError | IndexError):  # a bug, not an unknown encoding
            raise
        yield RecordError("encoding", str(error))


def _read(stream: _LimitedStream, full_text: bool) -> Iterator[Outcome]:
    events = etree.iterparse(stream, events=("start", "end"), tag=_TAGS, **_SECURE)  # type: ignore[call-overload]
    article: Article | None = None
    kept: Element | None = None  # the outermost element that stays in memory until it ends
    first = empty = True
    for event, node in events:
        if first:
            _refuse_external_entities(node)
            first = False
        tag = node.tag if "}" not in node.tag else local_name(node)
        if event == "start":
            if kept is not None:
                continue
            if tag == "article" and (tag == node.tag or "jats" in node.tag.lower()):
                article = Article(node, full_text)
            elif article is not None and tag in REGIONS:
                article.regions.append(tag)
            elif tag in pubmed.RECORDS or (
                article is not None and (tag in KEPT or (tag in PARAGRAPHS and article.regions))
            ):
                kept = node
            continue
        if article is not None and tag == "ref" and local_name(kept) not in PARTS:
            remove_namespace(node)
            article.references.add(node)
        if kept is not None and node is not kept:
            continue
        outcomes: Sequence[Outcome] = ()
        try:
            if tag in pubmed.RECORDS:
                outcomes = pubmed.read_record(node)
            elif article is not None and node is kept:
                remove_namespace(node)
                article.add(node)
            elif article is not None and tag in REGIONS:
                del article.regions[-1:]
            elif article is not None and node is article.element:
                outcomes = [article.paper()]
        except RecordError as error:
            outcomes = [error]
        yield from outcomes
        empty = empty and not outcomes
        if article is not None and node is article.element:
            article = None
        kept = None
        if stream.length:
            _free(node)
            stream.length = 0
    root = events.root
    if first:
        _refuse_external_entities(root)
    if empty and root.tag in pubmed.ROOTS:
        raise RecordError("no-records", "the PubMed document holds no record and no deletion")
    if empty:
        raise RecordError("not-jats", f"the root element is <{root.tag}> and holds no <article>")


def _refuse_external_entities(node: Element) -> None:
    """Refuse a document whose own declarations point outside: an attack, or without part of its text."""
    dtd = node.getroottree().docinfo.internalDTD
    for entity in dtd.iterentities() if dtd is not None else ():
        if entity.system_url:
            raise RecordError("external-entity", f"the entity {entity.name!r} names {entity.system_url!r}")


def _free(node: Element) -> None:
    """Free an element that was read, and all before it in the document."""
    node.clear()
    while (parent := node.getparent()) is not None:
        while (before := node.getprevious()) is not None:
            parent.remove(before)
        node = parent
