"""MeSH descriptor files (desc20XX.xml): names and tree numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from lxml import etree

from sentence_experts.errors import InputError

TREE_NUMBER = re.compile(r"[A-Z]\d{2}(\.\d{3})*")
"""The form of a place in the tree ("C14.280")."""


@dataclass
class MeshTree:
    """The tree of headings; a heading is given by its name or its unique id ("D002318"), in any case."""

    _numbers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> MeshTree:
        """Read a MeSH descriptor file, one record at a time.

        Raises:
            InputError: the file is missing, not XML, or holds no descriptor.
        """
        tree = cls()
        try:
            records = etree.iterparse(
                str(path), tag="DescriptorRecord", resolve_entities=False, no_network=True, load_dtd=False
            )
            for _, record in records:
                name = (record.findtext("DescriptorName/String") or "").strip().casefold()
                numbers = record.findall("TreeNumberList/TreeNumber")
                tree._numbers[name] = tuple(str(number.text) for number in numbers)
                tree._names[(record.findtext("DescriptorUI") or "").casefold()] = name
                record.clear()
        except (OSError, etree.XMLSyntaxError) as error:
            raise InputError(f"{path}: cannot be read as a MeSH descriptor file: {error}") from error
        if not tree._numbers:
            raise InputError(
                f"{path}: has no DescriptorRecord; give NLM's MeSH descriptor XML (desc20XX.xml)"
            )
        return tree

    def name_of(self, heading: str) -> str:
        """Return the descriptor's name in lower case."""
        folded = heading.casefold()
        return self._names.get(folded, folded)

    def names(self) -> list[str]:
        """Return the names of all descriptors, as `name_of` gives them."""
        return [*self._numbers]

    def numbers_of(self, heading: str) -> tuple[str, ...]:
        """Return the tree numbers of a heading ("C14"); none if the file does not have it."""
        return self._numbers.get(self.name_of(heading), ())
