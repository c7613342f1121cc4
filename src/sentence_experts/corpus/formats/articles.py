"""Read the articles of one XML document of any known kind."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import chain
from typing import IO

from lxml import etree

from sentence_experts.corpus.formats import jats, pubmed
from sentence_experts.corpus.formats.pubmed import Outcome
from sentence_experts.corpus.formats.secure_xml import (
    BROKEN_PACKING,
    SECURE,
    Hashing,
    UnreadableArticleError,
    refuse_external_entities,
    syntax_error,
)

_BLANK = b"\0\t\r\n "


def read_articles(document: bytes | IO[bytes], full_text: bool = False) -> Iterator[Outcome]:
    """Read the articles of one XML document, in order: JATS (`article`, or a set of them) or PubMed records.

    `document` is the whole document, or a binary stream, of which only one front matter with its references,
    or one record, is in memory at a time; with `full_text` the body's text too. What was read before an error
    is kept.
    """
    try:
        if isinstance(document, bytes):
            yield from _whole(document, full_text)
        else:
            yield from _streamed(document, full_text)
    except UnreadableArticleError as error:
        yield error
    except etree.XMLSyntaxError as error:
        yield syntax_error(error)
    except BROKEN_PACKING as error:
        yield UnreadableArticleError("broken-packing", f"{type(error).__name__}: {error}")
    except (UnicodeError, LookupError) as error:
        if isinstance(error, KeyError | IndexError):  # a bug, not an unknown encoding
            raise
        yield UnreadableArticleError("encoding", str(error))


def _whole(document: bytes, full_text: bool) -> Iterator[Outcome]:
    if not document[:4096].strip(_BLANK) and not document.strip(_BLANK):
        raise UnreadableArticleError("empty", "no content")
    root = etree.fromstring(document, etree.XMLParser(**SECURE))
    refuse_external_entities(root.getroottree().docinfo)
    if pubmed.is_pubmed(root.tag):
        yield from pubmed.read_whole(root)
    else:
        yield from jats.read_whole(root, lambda: hashlib.sha256(document), full_text)


def _streamed(stream: IO[bytes], full_text: bool) -> Iterator[Outcome]:
    hashing = Hashing(stream)
    events = etree.iterparse(hashing, events=("start", "end"), **SECURE)
    for first in events:
        root = first[1]
        refuse_external_entities(root.getroottree().docinfo)
        everything = chain([first], events)
        if pubmed.is_pubmed(root.tag):
            yield from pubmed.read_stream(everything, hashing)
        else:
            yield from jats.read_stream(everything, hashing, full_text)
