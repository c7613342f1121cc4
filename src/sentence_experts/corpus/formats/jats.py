"""Parse JATS articles (and the older NLM DTD) into `Paper`, in the dialects of PMC, PLOS and eLife."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sentence_experts.corpus.formats.front import read_front
from sentence_experts.corpus.formats.markup import Element
from sentence_experts.corpus.formats.mentions import ArticleText, ReferenceList, is_citation
from sentence_experts.corpus.formats.references import citations_of
from sentence_experts.corpus.formats.secure_xml import Hashing, RecordLimits, UnreadableArticleError, drop
from sentence_experts.corpus.paper import Citation, Paper

# Parts of an article with their own references: decision letters, replies, translations.
_PARTS = frozenset({"sub-article", "response"})
_CITING = ("ref", "xref")


def read_whole(
    root: Element, hashed: Callable[[], Any], full_text: bool = False
) -> Iterator[Paper | UnreadableArticleError]:
    """Read the articles under a root element: an `article`, or a set of them (`pmc-articleset`, an OAI-PMH
    answer); none is an UnreadableArticleError. `hashed` gives the hash of the document."""
    _without_namespace(root)
    articles = [root] if root.tag == "article" else list(root.iter("article"))
    if not articles:
        raise _no_article(root.tag)
    for position, article in enumerate(articles):
        try:
            content, xrefs = _Content(full_text), []
            for child in article:
                if child.tag in _PARTS:
                    continue
                for node in child.iter(*_CITING):  # one walk, as the tree is large
                    if node.tag == "ref":
                        content.add_reference(node)
                    elif is_citation(node):
                        xrefs.append(node)
            content.text.read_whole(article, xrefs)
            yield content.paper(article, article.find("front"), hashed, position)
        except UnreadableArticleError as error:
            yield error


def _no_article(root_tag: str) -> UnreadableArticleError:
    return UnreadableArticleError("not-jats", f"the root element is <{root_tag}> and holds no <article>")


class _Content:
    """The references and the text of one article, as they are read."""

    def __init__(self, full_text: bool) -> None:
        self.text = ArticleText(full_text)
        self._citations: list[Citation] = []
        self._references = ReferenceList()

    def add_reference(self, ref: Element) -> None:
        first = len(self._citations)
        self._citations.extend(citations_of(ref))
        self._references.add(ref, first, len(self._citations))

    def paper(
        self, article: Element, front: Element | None, hashed: Callable[[], Any], position: int
    ) -> Paper:
        return read_front(
            article,
            front,
            hashed,
            position,
            citations=tuple(self._citations),
            mentions=self.text.mentions(self._references),
            has_body=self.text.has_body,
            body=self.text.body.sections() if self.text.body else (),
        )


def read_stream(
    events: Iterable[tuple[str, Element]], stream: Hashing, full_text: bool = False
) -> Iterator[Paper | UnreadableArticleError]:
    """Read the same from a parser's start and end events; elements are dropped once they are read, except
    the front matter of the current article."""
    limits = RecordLimits(stream)
    front: Element | None = None
    content = _Content(full_text)
    in_front = False
    depth_of_part = in_ref = position = 0
    root_tag = ""
    for event, node in events:
        root_tag = root_tag or node.tag
        tag = node.tag.rpartition("}")[2] if isinstance(node.tag, str) else ""
        in_text = not in_front and not in_ref and not depth_of_part
        if event == "start":
            depth_of_part += tag in _PARTS
            begins = tag == "ref" or (tag == "front" and not depth_of_part)
            if begins and not in_front and not in_ref:
                limits.begin()
            in_ref += tag == "ref"
            in_front = in_front or (tag == "front" and not depth_of_part)
            if in_text:
                content.text.begin(tag, limits)
            continue
        if in_front or in_ref:
            limits.count("the front matter" if in_front else "a reference")
        if tag == "front" and not depth_of_part:
            in_front, front = False, node
            continue
        if tag == "article" and not depth_of_part:
            _without_namespace(node)
            try:
                yield content.paper(node, front, lambda: stream.hash, position)
            except UnreadableArticleError as error:
                yield error
            front, content, position = None, _Content(full_text), position + 1
        elif tag == "ref" and not depth_of_part:
            _without_namespace(node)
            content.add_reference(node)
        elif in_text and content.text.ends(tag, limits):
            _without_namespace(node)
            content.text.end(node)
        depth_of_part -= tag in _PARTS
        in_ref -= tag == "ref"
        if not in_front and not in_ref and not content.text.keeps:
            drop(node, keep=front)
    if not position:
        raise _no_article(root_tag)


def _without_namespace(root: Element) -> None:
    """Remove the namespace of JATS elements that have one (OAI-PMH answers)."""
    if root.tag == "article" or not any("jats" in node.tag for node in (root, *root.iter("{*}article"))):
        return
    for node in root.iter("{*}*"):
        namespace, _, name = node.tag.rpartition("}")
        if "jats" in namespace.lower():
            node.tag = name
