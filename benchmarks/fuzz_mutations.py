"""Ways to break bytes, XML documents and JSON values, and to pack a document well or badly.

Each takes a source of chance. `BYTES`, `XML` and `CONTAINERS` hold them by name.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import tarfile
import zipfile
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

from lxml import etree

Mutation = Callable[[Random, bytes], bytes]
Container = Callable[[Random, bytes], tuple[str, bytes]]  # gives the name of the file, and its content
Element = Any


def _by_name(*functions: Callable[..., Any]) -> dict[str, Any]:
    return {function.__name__.strip("_").replace("_", " "): function for function in functions}


# ---- bytes ---------------------------------------------------------------------------------------


def _inserted(random: Random, data: bytes, part: bytes, places: list[int] | None = None) -> bytes:
    begin = random.choice(places) if places else random.randrange(len(data) + 1)
    return data[:begin] + part + data[begin:]


def _truncate(random: Random, data: bytes) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _flip_bits(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 3, 30, 300)) if changed else 0):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _cut_out(random: Random, data: bytes) -> bytes:
    begin = random.randrange(len(data) + 1)
    return data[:begin] + data[begin + random.randrange(1, 2000) :]


def _repeat_a_part(random: Random, data: bytes) -> bytes:
    begin = random.randrange(len(data) + 1)
    part = data[begin : begin + random.randrange(1, 500)]
    return _inserted(random, data, part * random.choice((1, 10, 2000)), [begin])


def _noise(random: Random, data: bytes) -> bytes:
    return _inserted(random, data, random.choice((b"\0", random.randbytes(1))) * random.choice((1, 10, 5000)))


def _blank_before(random: Random, data: bytes) -> bytes:
    return random.choice((b" ", b"\n" * 9000, b"\xef\xbb\xbf\xef\xbb\xbf", b"<!-- x -->", b"text")) + data


BYTES: dict[str, Mutation] = _by_name(_truncate, _flip_bits, _cut_out, _repeat_a_part, _noise, _blank_before)


def break_bytes(random: Random, data: bytes) -> bytes:
    """Return the bytes after one to three mutations."""
    for _ in range(random.choice((1, 1, 2, 3))):
        data = BYTES[random.choice(sorted(BYTES))](random, data)
    return data


# ---- XML as text ---------------------------------------------------------------------------------

_STATED = (
    "utf-8", "utf-16", "UTF-16LE", "ucs-4", "ascii", "iso-8859-1", "windows-1252", "shift_jis", "ebcdic", "x",
)  # fmt: skip
_REAL = ("utf-8", "utf-16", "utf-16-le", "utf-32", "latin-1", "utf-7", "shift_jis", "cp037")
_REFERENCES = (
    "&#0;", "&#xD800;", "&#xFFFE;", "&#x10FFFF;", "&#99999999999;", "&#x1F;", "&nbsp;", "&;", "&amp", "\x0b",
)  # fmt: skip
_MARKUP = b'< > </ <![CDATA[ ]]> <!-- --> <? <!DOCTYPE " <a <:a/>'.split()


def _wrong_encoding(random: Random, data: bytes) -> bytes:
    text = re.sub(r"^\s*<\?xml[^>]*>", "", data.decode("utf-8", "replace"))
    stated, real = random.choice(_STATED), random.choice(_REAL)
    declared = f'<?xml version="{random.choice(("1.0", "1.1", "9"))}" encoding="{stated}"?>{text}'
    return declared.encode(real, "replace")


def _character_references(random: Random, data: bytes) -> bytes:
    part = random.choice(_REFERENCES).encode() * random.choice((1, 50))
    return _inserted(random, data, part, [found.end() for found in re.finditer(b">", data)] or [0])


def _broken_markup(random: Random, data: bytes) -> bytes:
    return _inserted(random, data, random.choice(_MARKUP))


_BOMBS = (
    "<!ENTITY a 'ha ha ha '>" + "".join(
        f"<!ENTITY {name} '{f'&{before};' * 10}'>" for before, name in pairwise("abcdefghijklmn")
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


def _entities(random: Random, data: bytes) -> bytes:
    text = re.sub(rb"<\?xml[^>]*>|<!DOCTYPE[^>]*>", b"", data)
    root = re.search(rb"<([A-Za-z][\w:-]*)", text)
    name = root.group(1).decode() if root else "article"
    places = [found.end() for found in re.finditer(rb"<(?:article-title|p|ArticleTitle|AbstractText)>", text)]
    uses = b"&n;" * random.choice((1, 1, 50, 60_000))
    document_type = f"<!DOCTYPE {name} [{random.choice(_BOMBS)}]>".encode()
    return document_type + _inserted(random, text, uses, places or [len(text)])


def _huge_attributes(random: Random, data: bytes) -> bytes:
    many = b"".join(b" a%d='y'" % number for number in range(20_000))
    one = b" x='" + b"y" * random.choice((100_000, 11_000_000)) + b"'"
    places = [found.end() for found in re.finditer(rb"<[A-Za-z][\w-]*", data)] or [0]
    return _inserted(random, data, random.choice((many, one)), places)


# ---- XML as a tree: a function gets the root and all elements, and changes them ----------------------

_TAGS = (
    "article", "front", "ref", "sub-article", "abstract", "p", "sec", "xref", "alternatives", "tex-math",
    "PubmedArticle", "PubmedArticleSet", "PMID", "DeleteCitation", "MedlineCitation", "PubmedBookArticle",
    "{http://www.w3.org/1998/Math/MathML}math", "{http://jats.nlm.nih.gov}article", "{x}y", "mixed-citation",
)  # fmt: skip
_NASTY = (
    ")", "(", "[", "]", ".", " ", "\u00ad", "1", "9", "10.1/", "10.1000/a(", "10.1000/%", "doi:", "::", "%",
    "doi 10.1000/x) ", "https://doi.org/10.1000/", "&", "<", "$", "\\frac{", "\\frac{1}{2}", "\\alpha", "{",
    "a.",
    "\\begin{document}", "CC BY ", "creative commons attribution ", "RETRACTED:", "research ", "mini-", "PMC",
    "pmid:0", "0", "\u0301", "\u202e", "\U0001f600", "(ABSTRACT TRUNCATED", "[Not Available", "2000 Jan ",
    "J. 2001;", "etal ", "http://", ". ", "/", "\t\n", "İ", "ﬃ", "𝟙", "٣", "digest ", "eLife ", "> ", "– ",
)  # fmt: skip


def _some(random: Random, elements: list[Element], most: int = 30) -> list[Element]:
    inner = elements[1:] or elements
    return random.sample(inner, min(len(inner), random.randint(1, most)))


def _delete_elements(random: Random, root: Element, elements: list[Element]) -> None:
    for node in _some(random, elements):
        if (parent := node.getparent()) is not None:
            parent.remove(node)


def _double_elements(random: Random, root: Element, elements: list[Element]) -> None:
    for node in _some(random, elements, 5):
        if (parent := node.getparent()) is not None:
            size = len(etree.tostring(node))
            for _ in range(min(random.choice((1, 20, 5000)), 3_000_000 // size + 1)):
                parent.append(deepcopy(node))


def _swap_elements(random: Random, root: Element, elements: list[Element]) -> None:
    """Move elements to other places, or exchange their tags or texts."""
    what = random.choice(("place", "tag", "text"))
    for node in _some(random, elements):
        other = random.choice(elements)
        if what != "place":
            mine, theirs = getattr(node, what), getattr(other, what)
            setattr(node, what, theirs)
            setattr(other, what, mine)
        elif node is not root and other is not node and node not in other.iterancestors():
            other.insert(random.randint(0, len(other)), node)


def _strange_tags(random: Random, root: Element, elements: list[Element]) -> None:
    for node in [*_some(random, elements), *random.choice(([], [root]))]:
        node.tag = random.choice(_TAGS)


def _many_elements(random: Random, root: Element, elements: list[Element]) -> None:
    """Put many elements beside each other, or inside each other."""
    tag, node, deep = random.choice((*_TAGS, "b")), random.choice(elements), random.random() < 0.5
    for _ in range(random.choice((20, 200, 250, 3000) if deep else (1000, 100_000))):
        made = etree.SubElement(node, tag)
        node = made if deep else node
    node.text = "x"


def _nasty_texts(random: Random, root: Element, elements: list[Element]) -> None:
    for node in _some(random, elements, 8):
        text = random.choice((*_NASTY, "word ")) * random.choice((1, 100, 30_000, 300_000))
        text = "10.1000/x" + text if random.random() < 0.3 else text
        setattr(node, "text" if random.random() < 0.7 else "tail", text)


def _nasty_attributes(random: Random, root: Element, elements: list[Element]) -> None:
    for node in _some(random, [node for node in elements if node.attrib] or elements, 10):
        nasty = random.choice(_NASTY) * random.choice((1, 30_000))
        values = ("", "-1", "0", "99999999999999999999", "None", nasty)
        node.set(random.choice([*node.attrib, "Version", "x"]), random.choice(values))


def _comments_and_instructions(random: Random, root: Element, elements: list[Element]) -> None:
    for node in _some(random, elements):
        node.insert(0, random.choice((etree.Comment("x"), etree.ProcessingInstruction("x", "y"))))


def _of_tree(change: Callable[[Random, Element, list[Element]], None]) -> Mutation:
    def mutate(random: Random, data: bytes) -> bytes:
        parser = etree.XMLParser(resolve_entities=False, no_network=True, recover=True, huge_tree=True)
        try:
            root = etree.fromstring(data, parser)
        except (etree.XMLSyntaxError, ValueError):
            root = None
        if root is None:
            root = etree.fromstring(b"<article><front><article-meta/></front></article>")
        change(random, root, [node for node in root.iter() if isinstance(node.tag, str)])
        return etree.tostring(root, encoding="utf-8")

    return mutate


_TREES = _by_name(
    _delete_elements, _double_elements, _swap_elements, _strange_tags, _many_elements, _nasty_texts,
    _nasty_attributes, _comments_and_instructions,
)  # fmt: skip
XML: dict[str, Mutation] = {
    **BYTES,
    **_by_name(_wrong_encoding, _character_references, _broken_markup, _entities, _huge_attributes),
    **{name: _of_tree(change) for name, change in _TREES.items()},
}

# ---- JSON ----------------------------------------------------------------------------------------

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 10**30, 1e308, 0.5, "", "\0", "x" * 5000, "²", "-1", "../x", "a\nb", "\u202e", "NaN",
    [], [[]], {}, {"a": []}, [None], ["x", 1], "9" * 5000, "\ud800",
)  # fmt: skip


def break_value(random: Random, value: Any) -> Any:
    """Return a JSON value with some of its parts replaced, removed, doubled or nested."""
    if random.random() < 0.2 or not isinstance(value, dict | list) or not value:
        return random.choice(ODD)
    if isinstance(value, list):
        kept, place, how = [*value], random.randrange(len(value)), random.randrange(4)
        if how == 0:
            del kept[place]
        elif how == 1:
            kept += kept * random.choice((1, 30))
        else:
            kept[place] = break_value(random, kept[place])
        return kept
    changed, key, how = dict(value), random.choice(sorted(value, key=str)), random.randrange(5)
    if how == 0:
        del changed[key]
    elif how == 1:
        changed[random.choice(("x", "", key + " ", "\n"))] = changed[key]
    else:
        changed[key] = break_value(random, changed[key])
    return changed


def break_json(random: Random, value: Any) -> bytes:
    """Return JSON that is broken in its values, or in its bytes."""
    for _ in range(random.choice((1, 1, 2, 4))):
        value = break_value(random, value)
    data = json.dumps(value).encode()
    if random.random() < 0.1:
        deep = random.choice((50, 5000, 100_000))
        data = b"[" * deep + data + b"]" * deep
    return break_bytes(random, data) if random.random() < 0.3 else data


# ---- archives ------------------------------------------------------------------------------------

_MEMBERS = (
    "a.xml", "x/y/a.nxml", "../a.xml", "/a.xml", "a.txt", "a.xml.gz", "é\udc80.xml", "C:\\a.xml",
    "a" * 300 + ".xml",
)  # fmt: skip
_ODD_MEMBERS = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, b"Z")
_PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    ".tar": bytes,
    ".tar.gz": partial(gzip.compress, compresslevel=1),
    ".tgz": partial(gzip.compress, compresslevel=1),
    ".tar.xz": partial(lzma.compress, preset=0),
    ".tar.bz2": partial(bz2.compress, compresslevel=1),
}


def _members(random: Random, data: bytes) -> bytes:
    """Return an unpacked tar archive of some members, a few of them links or stranger things."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for name in random.sample(_MEMBERS, random.randint(1, 4)):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            if random.random() < 0.15:
                entry.type = random.choice(_ODD_MEMBERS)
                entry.linkname = random.choice(("/etc/passwd", "a.xml", "../x"))
            archive.addfile(entry, io.BytesIO(data))
    return held.getvalue()


def _broken(random: Random, data: bytes) -> bytes:
    return BYTES[random.choice(sorted(BYTES.keys() - {"blank before", "repeat a part"}))](random, data)


def _gzip(random: Random, data: bytes) -> tuple[str, bytes]:
    return "article.xml.gz", gzip.compress(data, 1)


def _broken_gzip(random: Random, data: bytes) -> tuple[str, bytes]:
    packed = gzip.compress(data, 1)
    bad = (_broken(random, packed), gzip.compress(packed, 1), packed + b"junk", packed + b"\0" * 99, data,
           bz2.compress(data), gzip.compress(bytes(1 << 24)))  # fmt: skip
    return "article.xml.gz", random.choice(bad)


def _tar(random: Random, data: bytes) -> tuple[str, bytes]:
    ending = random.choice(sorted(_PACKINGS))
    return f"a{ending}", _PACKINGS[ending](_members(random, data))


def _broken_tar(random: Random, data: bytes) -> tuple[str, bytes]:
    name, packed = _tar(random, data)
    return name, _broken(random, packed)


def _headers_of_tar(random: Random, data: bytes) -> tuple[str, bytes]:
    """Break the headers and leave the packing whole."""
    inner, ending = bytearray(_members(random, data)), random.choice(sorted(_PACKINGS))
    for _ in range(random.randint(1, 6)):
        inner[random.randrange(512)] = random.randrange(256)
    return f"a{ending}", _PACKINGS[ending](bytes(inner))


def _zip(random: Random, data: bytes) -> tuple[str, bytes]:
    held = io.BytesIO()
    kind = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    with zipfile.ZipFile(held, "w", kind) as archive:
        for name in random.sample([name for name in _MEMBERS if name.isprintable()], random.randint(1, 4)):
            archive.writestr(name, data)
    return "a.zip", held.getvalue()


def _broken_zip(random: Random, data: bytes) -> tuple[str, bytes]:
    packed = bytearray(_zip(random, data)[1])
    if random.random() < 0.5:
        return "a.zip", _broken(random, bytes(packed))
    for _ in range(random.randint(1, 6)):  # the directory at the end is where most can go wrong
        packed[-random.randint(1, min(200, len(packed)))] = random.randrange(256)
    return "a.zip", bytes(packed)


def _wrong_ending(random: Random, data: bytes) -> tuple[str, bytes]:
    ending = random.choice((".xml", ".nxml", ".xml.gz", ".zip", *sorted(_PACKINGS)))
    packed = random.choice((_zip, _tar, _gzip))(random, data)[1]
    return f"a{ending}", random.choice((data, packed))


def _nested(random: Random, data: bytes) -> tuple[str, bytes]:
    return random.choice((_zip, _tar))(random, random.choice((_zip, _tar, _gzip))(random, data)[1])


CONTAINERS: dict[str, Container] = _by_name(
    _gzip, _broken_gzip, _tar, _broken_tar, _headers_of_tar, _zip, _broken_zip, _nested, _wrong_ending
)
