"""Write the API reference from the docstrings of what is public."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from textwrap import dedent
from typing import Any

import sentence_experts

# Title of a part of the page -> packages whose public names stand in it.
PARTS = {
    "Corpus": ("corpus",),
    "Pairs": ("pairs",),
    "Tasks": ("tasks",),
    "Models": ("models",),
    "Training": ("training",),
    "Encoding": ("encoding",),
    "Language models": ("moee", "evaluation.moee"),
    "Evaluation": ("evaluation",),
    "Search": ("retrieval",),
    "Server": ("serve",),
    "Reports, published experiments": ("report", "reproduce"),
    "Errors": ("errors",),
}
SECTION = re.compile(r"(Args|Returns|Yields|Raises|Attributes|Examples?):$")
ITEM = re.compile(r"(\*{0,2}[\w., ]+):\s+(.*)", flags=re.DOTALL)
LINE = 100


def api() -> str:
    """The text of the page."""
    public = {name: getattr(sentence_experts, name) for name in sentence_experts.__all__ if name[0] != "_"}
    blocks = [
        "# API reference",
        "The public functions and classes of `sentence_experts`, and the classes of their results, made from "
        "their docstrings. For how they go together see the "
        "[Python API](python-api.md).",
        "The [reference](reference.md) explains the keywords.",
    ]
    rest = dict(public)
    for title, packages in PARTS.items():
        names = [name for name, value in rest.items() if _is_of(value, packages)]
        entries = [rest.pop(name) for name in sorted(names, key=str.lower)]
        entries += [result for result in _results(entries) if result not in public.values()]
        blocks.append(f"## {title}")
        for value in entries:
            blocks += _entry(value.__name__, value)
    assert not rest, f"no part of the page has {', '.join(rest)}"
    return "\n\n".join(blocks) + "\n"


def _is_of(value: Any, packages: tuple[str, ...]) -> bool:
    module = value.__module__.removeprefix("sentence_experts.") + "."
    return any(module.startswith(f"{package}.") for package in packages)


def _results(values: list[Any]) -> list[type]:
    """Classes of this package that the functions return."""
    found: dict[type, None] = {}
    for value in values:
        if inspect.isfunction(value):
            for name in re.findall(r"\w+", str(value.__annotations__.get("return", ""))):
                result = value.__globals__.get(name)
                if inspect.isclass(result) and result.__module__.startswith("sentence_experts."):
                    found[result] = None
    return list(found)


def _entry(name: str, value: Any, level: int = 3) -> Iterator[str]:
    yield f"{'#' * level} {name}"
    # How a class of results is made is of no use to its readers.
    if inspect.isfunction(value) or (inspect.isclass(value) and _is_made_by_users(value)):
        yield f"```py\n{_signature(name, value)}\n```"
    yield from _markdown(inspect.getdoc(value) or "")
    if inspect.isclass(value) and not issubclass(value, Exception):
        for member, attribute in vars(value).items():
            attribute = getattr(attribute, "__func__", attribute)
            documented = inspect.isfunction(attribute) or isinstance(attribute, property)
            if member[0] != "_" and documented and attribute.__doc__:
                yield from _entry(f"{name}.{member}", attribute, level + 1)


def _is_made_by_users(value: type) -> bool:
    return not issubclass(value, Exception) and not is_dataclass(value)


def _signature(name: str, value: Any) -> str:
    """`name(parameters) -> result`, with a parameter in each line where one line would be long."""
    signature = inspect.signature(value)
    parameters = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    signature = signature.replace(parameters=parameters)
    line = name + str(signature).replace("'", "")
    if len(line) <= LINE:
        return line
    rows: list[str] = []
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not any(row.startswith("*") for row in rows):
            rows.append("*")
        rows.append(str(each).replace("'", ""))
    result = line.rpartition(")")[2]
    return f"{name}(\n" + "".join(f"    {row},\n" for row in rows) + f"){result}"


def _markdown(docstring: str) -> Iterator[str]:
    """A docstring in Google's style as blocks of Markdown."""
    text: list[str] = []
    lines = docstring.splitlines()
    while lines:
        line = lines.pop(0)
        section = SECTION.match(line)
        if not section:
            text.append(line)
            continue
        if before := "\n".join(text).strip():
            yield before
        text, body = [], []
        while lines and (not lines[0] or lines[0].startswith(" ")):
            body.append(lines.pop(0))
        yield from _section(section[1], dedent("\n".join(body)).strip("\n"))
    if rest := "\n".join(text).strip():
        yield rest


def _section(title: str, body: str) -> Iterator[str]:
    yield f"**{title}**"
    if title.startswith("Example"):
        yield f"```pycon\n{body}\n```"
        return
    items = re.split(r"\n(?=\S)", body)
    named = [ITEM.fullmatch(item) for item in items]
    if title in ("Returns", "Yields") or not all(named):
        yield body
    else:
        yield "\n".join(f"- `{item[1]}`: {' '.join(item[2].split())}" for item in named if item)
