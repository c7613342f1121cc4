"""YAML as the package reads it everywhere: settings, domain rules, task files, recipes.

PyYAML lets the last of two equal keys win, and expands aliases of aliases. Here both are errors that name the
line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from sentence_experts.errors import InputError

_MAX_BYTES: Final = 4 << 20
_MERGE: Final = "tag:yaml.org,2002:merge"
_BOMS: Final = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"", "utf-8-sig"))


def read_yaml(path: Path | str, what: str = "a YAML file") -> Any:
    """Return the content of a YAML file; None if it is empty.

    Args:
        path: the file, in UTF-8, or in UTF-16 with a byte order mark.
        what: what it is read as, such as "domain rules"; for messages.

    Raises:
        InputError: no such file, not text, not YAML, nested too deep, or a key that occurs twice.
    """
    path = Path(path)
    try:
        if not path.is_file():
            raise InputError(f"{path}: {'not a file' if path.exists() else 'no such file'}")
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"{path}: larger than {_MAX_BYTES >> 20} MB, too large for {what}")
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read as {what}: {reason}") from error
    encoding = next(encoding for mark, encoding in _BOMS if content.startswith(mark))
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InputError(f"{path}: line {line} is not UTF-8: save the file as UTF-8") from error
    return parse_yaml(text, str(path), what)


def read_settings(path: Path | str) -> dict[str, Any]:
    """Return the keys and values of a YAML file of settings; an empty file has none.

    Raises:
        InputError: as `read_yaml`, or the file holds something other than keys and values.
    """
    content = read_yaml(path, "a YAML config") or {}
    if not isinstance(content, dict):
        raise InputError(f"{path}: a config is a list of 'key: value' lines")
    if other := [key for key in content if not isinstance(key, str)]:
        raise InputError(f"{path}: the key {other[0]!r} is not text; put it in quotes")
    return content


def parse_yaml(text: str, where: str, what: str = "a YAML file") -> Any:
    """Return the content of YAML text; `where` names the text in messages.

    Raises:
        InputError: as `read_yaml`.

    >>> parse_yaml("a: 1\\na: 2", "settings.yaml")
    Traceback (most recent call last):
    sentence_experts.errors.InputError: settings.yaml: line 2: the key 'a' occurs twice
    """
    try:
        return yaml.load(text, _StrictLoader)
    except _PlaceError as error:
        raise InputError(f"{where}: line {error.line}: {error}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{where}: cannot be read as {what}: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise InputError(f"{where}: nested too deep") from error
    except (ValueError, OverflowError) as error:  # a number or a date that does not exist
        raise InputError(f"{where}: cannot be read as {what}: {error}") from error


class _PlaceError(Exception):
    def __init__(self, place: Any, message: str) -> None:
        super().__init__(message)
        self.line = place.start_mark.line + 1


class _StrictLoader(yaml.SafeLoader):
    """Plain values only; no key twice, no aliases of aliases, no characters that no file can hold."""

    _anchored = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        """Compose one value; aliases inside of one that has an anchor could grow without bound."""
        event: Any = self.peek_event()
        if isinstance(event, yaml.AliasEvent) and self._anchored:
            raise _PlaceError(event, f"the alias *{event.anchor} is inside a value with an anchor (&name)")
        named = event.anchor is not None
        self._anchored += named
        node = super().compose_node(parent, index)
        self._anchored -= named
        return node

    def compose_scalar_node(self, anchor: Any) -> ScalarNode:
        """Compose a text, number or date."""
        node = super().compose_scalar_node(anchor)
        if any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in node.value):
            raise _PlaceError(node, "a character (such as \\0 or \\ud800) that no text may hold")
        return node

    def compose_mapping_node(self, anchor: Any) -> MappingNode:
        """Compose keys and values."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, ScalarNode) and key.tag != _MERGE:
                if (key.tag, key.value) in seen:
                    raise _PlaceError(key, f"the key {key.value!r} occurs twice")
                seen.add((key.tag, key.value))
        return node
