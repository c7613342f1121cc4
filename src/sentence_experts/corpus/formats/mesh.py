"""MeSH descriptor files (desc20XX.xml): names and tree numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lxml import etree

from sentence_experts.errors import InputError

TREE_NUMBER = re.compile(r"[A-Z]\d{2}(\.\d{3})*")
"""The form of a place in the tree ("C14.280")."""


@dataclass(frozen=True)
class Descriptor:
    """One MeSH heading: its unique id ("D002318"), name, and its places in the tree ("C14")."""

    ui: str
    name: str
    tree_numbers: tuple[str, ...]


def read_descriptors(path: Path) -> list[Descriptor]:
    """Read a MeSH descriptor file, one record at a time.

    Raises:
        InputError: the file is missing, not XML, or holds no descriptor.
    """
    descriptors: list[Descriptor] = []
    try:
        records = etree.iterparse(
            str(path), tag="DescriptorRecord", resolve_entities=False, no_network=True, load_dtd=False
        )
        for _, record in records:
            numbers = tuple(str(node.text) for node in record.findall("TreeNumberList/TreeNumber"))
            name = record.findtext("DescriptorName/String") or ""
            descriptors.append(Descriptor(record.findtext("DescriptorUI") or "", name.strip(), numbers))
            record.clear()
    except (OSError, etree.XMLSyntaxError) as error:
        raise InputError(f"{path}: cannot be read as a MeSH descriptor file: {error}") from error
    if not descriptors:
        raise InputError(f"{path}: has no DescriptorRecord; give NLM's MeSH descriptor XML (desc20XX.xml)")
    return descriptors


class MeshTree:
    """The tree of headings."""

    def __init__(self, descriptors: Iterable[Descriptor]) -> None:
        self._numbers: dict[str, tuple[str, ...]] = {}
        self._names: dict[str, str] = {}
        for descriptor in descriptors:
            name = descriptor.name.casefold()
            self._numbers[name] = descriptor.tree_numbers
            self._names[descriptor.ui.casefold()] = name

    def name_of(self, heading: str) -> str:
        """Return the descriptor's name in lower case, given its name or its unique id."""
        folded = heading.casefold()
        return self._names.get(folded, folded)

    def __contains__(self, heading: str) -> bool:
        return self.name_of(heading) in self._numbers

    def numbers_of(self, heading: str) -> tuple[str, ...]:
        """Return the tree numbers of a heading; none if the file does not have it."""
        return self._numbers.get(self.name_of(heading), ())
