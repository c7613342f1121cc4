"""Ways to break an XML document. Each takes a source of chance."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

from lxml import etree


@dataclass(frozen=True)
class Input:
    """What a mutation made: names of its steps, how it is packed, of which document, and the file."""

    names: str
    container: str
    base: str
    file: str
    content: bytes


MUTATIONS: dict[str, Callable[[Random, bytes], bytes]] = {}


def _mutation(function: Callable[[Random, bytes], bytes]) -> Callable[[Random, bytes], bytes]:
    MUTATIONS[function.__name__.strip("_").replace("_", " ")] = function
    return function


# ---- of bytes ------------------------------------------------------------------------------------


@_mutation
def _truncate(random: Random, data: bytes) -> bytes:
    return data[: random.randrange(len(data) + 1)]


@_mutation
def _flip_bits(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 3, 30, 300)) if changed else 0):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


@_mutation
def _cut_out(random: Random, data: bytes) -> bytes:
    begin = random.randrange(len(data) + 1)
    return data[:begin] + data[begin + random.randrange(1, 2000) :]


@_mutation
def _repeat_a_part(random: Random, data: bytes) -> bytes:
    begin = random.randrange(len(data) + 1)
    part = data[begin : begin + random.randrange(1, 500)]
    return data[:begin] + part * random.choice((1, 10, 2000)) + data[begin:]


@_mutation
def _nuls(random: Random, data: bytes) -> bytes:
    begin = random.randrange(len(data) + 1)
    return data[:begin] + b"\0" * random.choice((1, 2, 5000)) + data[begin:]


@_mutation
def _noise(random: Random, data: bytes) -> bytes:
    begin = random.randrange(len(data) + 1)
    return data[:begin] + random.randbytes(random.choice((1, 10, 1000))) + data[begin:]


@_mutation
def _twice(random: Random, data: bytes) -> bytes:
    return data + data


@_mutation
def _blank_before(random: Random, data: bytes) -> bytes:
    return random.choice((b" ", b"\n" * 9000, b"\xef\xbb\xbf\xef\xbb\xbf", b"<!-- x -->", b"text")) + data


@_mutation
def _wrong_encoding(random: Random, data: bytes) -> bytes:
    text = re.sub(r"^\s*<\?xml[^>]*>", "", data.decode("utf-8", "replace"))
    stated = random.choice(
        (
            "utf-8",
            "utf-16",
            "UTF-16LE",
            "ucs-4",
            "ascii",
            "iso-8859-1",
            "windows-1252",
            "shift_jis",
            "ebcdic",
            "x",
        )
    )
    real = random.choice(("utf-8", "utf-16", "utf-16-le", "utf-32", "latin-1", "utf-7", "shift_jis", "cp037"))
    declared = f'<?xml version="{random.choice(("1.0", "1.1", "9"))}" encoding="{stated}"?>{text}'
    return declared.encode(real, "replace")


@_mutation
def _character_references(random: Random, data: bytes) -> bytes:
    bad = (
        "&#0;",
        "&#xD800;",
        "&#xFFFE;",
        "&#x10FFFF;",
        "&#99999999999;",
        "&#x1F;",
        "&nbsp;",
        "&;",
        "&amp",
        "\x0b",
    )
    places = [found.end() for found in re.finditer(b">", data)] or [0]
    begin = random.choice(places)
    return data[:begin] + random.choice(bad).encode() * random.choice((1, 50)) + data[begin:]


@_mutation
def _broken_markup(random: Random, data: bytes) -> bytes:
    bad = (
        b"<",
        b">",
        b"</",
        b"<![CDATA[",
        b"]]>",
        b"<!--",
        b"-->",
        b"<?",
        b"<!DOCTYPE x>",
        b'"',
        b"<a b=>",
        b"<:a/>",
    )
    begin = random.randrange(len(data) + 1)
    return data[:begin] + random.choice(bad) + data[begin:]


# ---- of entities ---------------------------------------------------------------------------------

_NAMES = "abcdefghijklmn"
_BOMBS = (
    "<!ENTITY a 'ha ha ha '>" + "".join(
        f"<!ENTITY {name} '{f'&{before};' * 10}'>" for before, name in pairwise(_NAMES)
    ),
    "<!ENTITY n '" + "x" * 60_000 + "'>",
    "<!ENTITY n '&n;'>",
    "<!ENTITY n '&b;'><!ENTITY b '&n;'>",
    "<!ENTITY n SYSTEM 'file:///etc/hostname'>",
    "<!ENTITY n SYSTEM 'file:///dev/zero'>",
    "<!ENTITY n SYSTEM 'http://127.0.0.1:9/x'>",
    "<!ENTITY n PUBLIC 'x' 'http://127.0.0.1:9/x'>",
    "<!ENTITY % p SYSTEM 'file:///dev/zero'> %p;",
    "<!ENTITY % p '<!ENTITY n \"x\">'> %p;",
    "<!ENTITY n '<article><front/></article>'>",
    "<!ENTITY n '</p>'>",
    "<!ATTLIST article article-type CDATA '&n;'>",
    "<!ENTITY n '&#38;#60;'>",
)  # fmt: skip


@_mutation
def _entities(random: Random, data: bytes) -> bytes:
    text = re.sub(rb"<\?xml[^>]*>|<!DOCTYPE[^>]*>", b"", data)
    root = re.search(rb"<([A-Za-z][\w:-]*)", text)
    name = root.group(1).decode() if root else "article"
    places = [found.end() for found in re.finditer(rb"<(?:article-title|p|ArticleTitle|AbstractText)>", text)]
    begin = random.choice(places or [len(text)])
    uses = b"&n;" * random.choice((1, 1, 50, 60_000))
    return f"<!DOCTYPE {name} [{random.choice(_BOMBS)}]>".encode() + text[:begin] + uses + text[begin:]


# ---- of elements ---------------------------------------------------------------------------------


def _tree(data: bytes) -> Any:
    parser = etree.XMLParser(resolve_entities=False, no_network=True, recover=True, huge_tree=True)
    try:
        root = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError):
        root = None
    return etree.fromstring(b"<article><front><article-meta/></front></article>") if root is None else root


def _of_elements(function: Callable[[Random, Any, list[Any]], None]) -> None:
    """A mutation of a tree: `function` gets its root and its elements and changes them."""

    def mutate(random: Random, data: bytes) -> bytes:
        root = _tree(data)
        elements = [node for node in root.iter() if isinstance(node.tag, str)]
        function(random, root, elements)
        return etree.tostring(root, encoding="utf-8")

    MUTATIONS[function.__name__.strip("_").replace("_", " ")] = mutate


def _some(random: Random, elements: list[Any], most: int = 30) -> list[Any]:
    inner = elements[1:] or elements
    return random.sample(inner, min(len(inner), random.randint(1, most)))


@_of_elements
def _delete_elements(random: Random, root: Any, elements: list[Any]) -> None:
    for node in _some(random, elements):
        if (parent := node.getparent()) is not None:
            parent.remove(node)


@_of_elements
def _double_elements(random: Random, root: Any, elements: list[Any]) -> None:
    for node in _some(random, elements, 5):
        parent = node.getparent()
        if parent is not None:
            size = len(etree.tostring(node))
            for _ in range(min(random.choice((1, 20, 5000)), 3_000_000 // size + 1)):
                parent.append(deepcopy(node))


@_of_elements
def _move_elements(random: Random, root: Any, elements: list[Any]) -> None:
    for node in _some(random, elements):
        target = random.choice(elements)
        if node is not root and target is not node and node not in target.iterancestors():
            target.insert(random.randint(0, len(target)), node)


@_of_elements
def _swap_tags(random: Random, root: Any, elements: list[Any]) -> None:
    for node in _some(random, elements):
        other = random.choice(elements)
        node.tag, other.tag = other.tag, node.tag


_STRANGE_TAGS = (
    "article", "front", "ref", "sub-article", "abstract", "p", "sec", "xref", "alternatives", "tex-math",
    "PubmedArticle", "PubmedArticleSet", "PMID", "DeleteCitation", "MedlineCitation", "PubmedBookArticle",
    "{http://www.w3.org/1998/Math/MathML}math", "{http://jats.nlm.nih.gov}article", "{x}y", "mixed-citation",
)  # fmt: skip


@_of_elements
def _strange_tags(random: Random, root: Any, elements: list[Any]) -> None:
    for node in [*_some(random, elements), *random.choice(([], [root]))]:
        node.tag = random.choice(_STRANGE_TAGS)


@_of_elements
def _deep(random: Random, root: Any, elements: list[Any]) -> None:
    tag = random.choice((*_STRANGE_TAGS, "b"))
    node = random.choice(elements)
    for _ in range(random.choice((20, 200, 250, 3000))):
        node = etree.SubElement(node, tag)
    node.text = "x"


@_of_elements
def _many_elements(random: Random, root: Any, elements: list[Any]) -> None:
    node = random.choice(elements)
    tag = random.choice((*_STRANGE_TAGS, "b"))
    for _ in range(random.choice((1000, 100_000))):
        etree.SubElement(node, tag)


_NASTY = (
    ")", "(", "[", "]", ".", " ", "\u00ad", "1", "9", "10.1/", "10.1000/a(", "10.1000/%", "doi:", "::", "%",
    "doi 10.1000/x) ", "https://doi.org/10.1000/", "&", "<", "$", "\\frac{", "\\frac{1}{2}", "\\alpha", "{",
    "a.",
    "\\begin{document}", "CC BY ", "creative commons attribution ", "RETRACTED:", "research ", "mini-", "PMC",
    "pmid:0", "0", "\u0301", "\u202e", "\U0001f600", "(ABSTRACT TRUNCATED", "[Not Available", "2000 Jan ",
    "J. 2001;", "etal ", "http://", ". ", "/", "\t\n", "İ", "ﬃ", "𝟙", "٣", "digest ", "eLife ", "> ", "– ",
)  # fmt: skip


@_of_elements
def _nasty_texts(random: Random, root: Any, elements: list[Any]) -> None:
    for node in _some(random, elements, 8):
        text = random.choice(_NASTY) * random.choice((1, 100, 30_000))
        if random.random() < 0.3:
            text = "10.1000/x" + text
        if random.random() < 0.7:
            node.text = text
        else:
            node.tail = text


@_of_elements
def _nasty_attributes(random: Random, root: Any, elements: list[Any]) -> None:
    with_attributes = [node for node in elements if node.attrib] or elements
    for node in _some(random, with_attributes, 10):
        name = random.choice([*node.attrib, "Version", "x"])
        values = (
            "",
            "-1",
            "0",
            "99999999999999999999",
            "None",
            random.choice(_NASTY) * random.choice((1, 30_000)),
        )
        node.set(name, random.choice(values))


@_mutation
def _huge_attributes(random: Random, data: bytes) -> bytes:
    places = [found.end() for found in re.finditer(rb"<[A-Za-z][\w-]*", data)] or [0]
    begin = random.choice(places)
    many = b"".join(b" a%d='y'" % number for number in range(20_000))
    one = b" x='" + b"y" * random.choice((100_000, 11_000_000)) + b"'"
    return data[:begin] + random.choice((many, one)) + data[begin:]


@_of_elements
def _huge_text(random: Random, root: Any, elements: list[Any]) -> None:
    random.choice(elements).text = random.choice(("word ", "x")) * random.choice((100_000, 2_500_000))


@_of_elements
def _swap_texts(random: Random, root: Any, elements: list[Any]) -> None:
    for node in _some(random, elements):
        other = random.choice(elements)
        node.text, other.text = other.text, node.text


@_of_elements
def _comments_and_instructions(random: Random, root: Any, elements: list[Any]) -> None:
    for node in _some(random, elements):
        node.insert(0, random.choice((etree.Comment("x"), etree.ProcessingInstruction("x", "y"))))


@_of_elements
def _another_root(random: Random, root: Any, elements: list[Any]) -> None:
    root.tag = random.choice(_STRANGE_TAGS)
