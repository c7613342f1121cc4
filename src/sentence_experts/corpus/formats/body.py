"""The text of a JATS article's body, section by section."""

from __future__ import annotations

from sentence_experts.corpus.formats.markup import Element, plain_text

# Running text and captions; cells of tables are left out.
_TEXT = frozenset({"p", "title"})


class BodyText:
    """Collects the text of one body, from its tree or while it is streamed."""

    def __init__(self) -> None:
        self._titles: dict[Element, str] = {}
        self._parts: list[tuple[Element, list[str]]] = []

    def add(self, paragraph: Element) -> None:
        """Add an element of running text, with all that it contains."""
        if paragraph.tag not in _TEXT or not (text := plain_text(paragraph)):
            return
        parent = paragraph.getparent()
        around = (node for node in (parent, *parent.iterancestors()) if _is_section(node))
        section = next(around, None)
        if paragraph.tag == "title" and parent is section:
            self._titles.setdefault(section, text)
        elif self._parts and self._parts[-1][0] is section:
            self._parts[-1][1].append(text)
        else:
            self._parts.append((section, [text]))

    def sections(self) -> tuple[tuple[str | None, str], ...]:
        """(title of the innermost section, text) in reading order; paragraphs stand on their own lines."""
        return tuple((self._titles.get(section), "\n".join(texts)) for section, texts in self._parts)


def _is_section(node: Element) -> bool:
    return isinstance(node.tag, str) and node.tag.rpartition("}")[2] == "sec"
