"""YAML as the package reads it everywhere: settings, domain rules, task files, recipes.

PyYAML lets the last of two equal keys win. Here that is an error that names the line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, ScalarNode

from sentence_experts.errors import InputError

_MERGE = "tag:yaml.org,2002:merge"


def read_yaml(path: Path | str, what: str = "a YAML file") -> Any:
    """Return the content of a YAML file in UTF-8, or UTF-16 with a byte order mark; None if it is empty.

    Args:
        path: the file.
        what: name of its content, such as "domain rules"; for messages.

    Raises:
        InputError: no such file, not text, not YAML, nested too deep, or a key that occurs twice.
    """
    path = Path(path)
    try:
        if not path.is_file():
            raise InputError(f"{path}: {'not a file' if path.exists() else 'no such file'}")
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read as {what}: {error.strerror}") from error
    return parse_yaml(content, str(path), what)


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


def parse_yaml(text: str | bytes, where: str, what: str = "a YAML file") -> Any:
    """Return the content of YAML text; `where` names the text in messages.

    Raises:
        InputError: as `read_yaml`.

    >>> parse_yaml("a: 1\\na: 2", "settings.yaml")
    Traceback (most recent call last):
    sentence_experts.errors.InputError: settings.yaml: line 2: the key 'a' occurs twice
    """
    try:
        return yaml.load(text, _StrictLoader)
    except _RepeatedKeyError as error:
        raise InputError(f"{where}: {error}") from error
    except RecursionError as error:
        raise InputError(f"{where}: nested too deep") from error
    except yaml.reader.ReaderError as error:
        place = f"at character {error.position} ({error.reason})"
        raise InputError(f"{where}: cannot be read as {what}: no text in UTF-8 {place}") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # or a date that does not exist
        raise InputError(f"{where}: cannot be read as {what}: {' '.join(str(error).split())}") from error


class _RepeatedKeyError(Exception):
    pass


class _StrictLoader(yaml.SafeLoader):
    """A loader of plain values only, which refuses a key that occurs twice."""

    def compose_mapping_node(self, anchor: Any) -> MappingNode:
        """Compose keys and values."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, ScalarNode) and key.tag != _MERGE:
                if (key.tag, key.value) in seen:
                    line = key.start_mark.line + 1
                    raise _RepeatedKeyError(f"line {line}: the key {key.value!r} occurs twice")
                seen.add((key.tag, key.value))
        return node
