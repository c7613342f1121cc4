"""JATS articles (and the older NLM DTD) to `Paper`, in the dialects of PMC, PLOS and eLife.

Nothing outside the bytes is ever read: no DTD, no external entity, no network. libxml2's own limits (depth,
text size, entity amplification) stay on, so an entity bomb is an error like any other malformed file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import IO, Any

from lxml import etree

from sentence_experts.corpus.formats.front import UnreadableArticleError, read_front
from sentence_experts.corpus.formats.markup import Element
from sentence_experts.corpus.formats.references import citations_of
from sentence_experts.corpus.paper import Citation, Paper

WHOLE_DOCUMENT_BYTES = 16 << 20
"""Documents up to this size are parsed in one go; larger ones are streamed and their bodies dropped on the
way."""
_LARGEST_FRONT = 200_000  # elements
_BLANK = b"\0\t\r\n "

# Parts of an article that are texts of their own: decision letters, replies, translations.
_PARTS = frozenset({"sub-article", "response"})
# Not `collect_ids=False`: libxml2 keeps that in the same word as "load the DTD" and would then ask for it.
_SECURE: dict[str, Any] = {
    "resolve_entities": "internal", "no_network": True, "load_dtd": False, "dtd_validation": False,
    "attribute_defaults": False, "huge_tree": False, "remove_comments": True, "remove_pis": True,
}  # fmt: skip


def read_articles(document: bytes | IO[bytes]) -> Iterator[Paper | UnreadableArticleError]:
    """The articles of one XML document: an `article`, or a set of them (`pmc-articleset`, an OAI-PMH answer).

    `document` is the whole document as bytes, or a binary stream that is read in pieces, so that a document
    of any size takes memory for one front matter and its references only. What was read before an error is
    kept.
    """
    try:
        if isinstance(document, bytes):
            yield from _whole(document)
        else:
            yield from _streamed(document)
    except UnreadableArticleError as error:
        yield error
    except etree.XMLSyntaxError as error:
        yield _syntax(error)
    except (UnicodeError, LookupError) as error:
        yield UnreadableArticleError("encoding", str(error))


def _whole(document: bytes) -> Iterator[Paper | UnreadableArticleError]:
    if not document[:4096].strip(_BLANK) and not document.strip(_BLANK):
        raise UnreadableArticleError("empty", "no content")
    root = etree.fromstring(document, etree.XMLParser(**_SECURE))
    _refuse_external_entities(root.getroottree().docinfo)
    _without_namespace(root)
    for position, article in enumerate(_articles(root)):
        try:
            of_parts = {ref for part in article.iter(*_PARTS) for ref in part.iter("ref")}
            references = (ref for ref in article.iter("ref") if ref not in of_parts)
            citations = tuple([citation for ref in references for citation in citations_of(ref)])
            yield read_front(
                article, article.find("front"), citations, lambda: hashlib.sha256(document), position
            )
        except UnreadableArticleError as error:
            yield error


def _articles(root: Element) -> list[Element]:
    if root.tag == "article":
        return [root]
    articles = list(root.iter("article"))
    if not articles:
        raise UnreadableArticleError("not-jats", f"the root element is <{root.tag}> and holds no <article>")
    return articles


def _streamed(stream: IO[bytes]) -> Iterator[Paper | UnreadableArticleError]:
    """The same, with every element dropped once it is read, but for the front matter of the current
    article."""
    hashing = _Hashing(stream)
    events = etree.iterparse(hashing, events=("start", "end"), **_SECURE)
    front: Element | None = None
    citations: list[Citation] = []
    depth_of_part = in_front = in_ref = count = position = 0
    checked = False
    for event, node in events:
        tag = node.tag.rpartition("}")[2] if isinstance(node.tag, str) else ""
        if event == "start":
            if not checked:
                checked = True
                _refuse_external_entities(node.getroottree().docinfo)
            depth_of_part += tag in _PARTS
            in_ref += tag == "ref"
            if tag == "front" and not depth_of_part:
                in_front, count = 1, 0
            continue
        count += 1
        if in_front and count > _LARGEST_FRONT:
            raise UnreadableArticleError(
                "too-large", f"the front matter holds more than {_LARGEST_FRONT:,} elements"
            )
        if tag == "front" and not depth_of_part:
            in_front, front = 0, node
            continue
        if tag == "article" and not depth_of_part:
            _without_namespace(node)
            yield read_front(node, front, tuple(citations), lambda: hashing.hash, position)
            front, citations, position = None, [], position + 1
        elif tag == "ref" and not depth_of_part:
            _without_namespace(node)
            citations.extend(citations_of(node))
        depth_of_part -= tag in _PARTS
        in_ref -= tag == "ref"
        if not in_front and not in_ref:
            _drop(node, keep=front)
    if not position:
        raise UnreadableArticleError("not-jats", "no <article> in the document")


def _drop(node: Element, keep: Element | None) -> None:
    if keep is not None and keep.getparent() is node:
        for child in list(node):
            if child is not keep:
                node.remove(child)
        return
    node.clear()
    parent = node.getparent()
    if parent is not None:
        while (before := node.getprevious()) is not None and before is not keep:
            parent.remove(before)


class _Hashing:
    """A binary stream that remembers the hash of what was read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.hash.update(data)
        return data


def _syntax(error: etree.XMLSyntaxError) -> UnreadableArticleError:
    message = " ".join(str(error.msg or error).split())[:300]
    low = message.lower()
    if "amplification" in low or "entity reference loop" in low or ("entities" in low and "loop" in low):
        return UnreadableArticleError("entity-bomb", message)
    if "entity" in low and "not defined" in low:
        return UnreadableArticleError("undefined-entity", f"{message}; nothing outside the document is read")
    if "document is empty" in low or "start tag expected" in low or "no element found" in low:
        return UnreadableArticleError("not-xml", message)
    if "encod" in low or "utf-8" in low or "utf-16" in low:
        return UnreadableArticleError("encoding", message)
    if "premature end" in low or "prematurely" in low or ("extra content" in low and "end" in low):
        return UnreadableArticleError("malformed-xml", message)
    return UnreadableArticleError("malformed-xml", message)


def _refuse_external_entities(docinfo: Any) -> None:
    """Refuse a document whose own declarations point outside: it is an attack or it lacks a part of its
    text."""
    dtd = docinfo.internalDTD
    if dtd is None:
        return
    for entity in dtd.iterentities():
        if entity.system_url:
            raise UnreadableArticleError(
                "external-entity", f"the entity {entity.name!r} names {entity.system_url!r}"
            )


def _without_namespace(root: Element) -> None:
    """Give JATS elements that stand in a namespace (OAI-PMH answers) their plain names."""
    if not any(
        tag and "jats" in tag for tag in {root.tag, *(child.tag for child in root.iter("{*}article"))}
    ):
        return
    for node in root.iter("{*}*"):
        namespace, _, name = node.tag.rpartition("}")
        if "jats" in namespace.lower():
            node.tag = name
