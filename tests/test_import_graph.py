"""Imports between modules: no circles, packages in one direction, no torch where none is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import sentence_experts

PACKAGE = Path(sentence_experts.__file__).parent
# A package imports from itself, from those before it, and from modules in none of them.
PACKAGES = (
    "corpus",
    "pairs",
    "tasks",
    "models",
    "encoding",
    "moee",
    "retrieval",
    "serve",
    "evaluation",
    "training",
    "report",
    "reproduce",
    "demo",
    "cli",
)
# The same inside `models`: a part imports from itself and from those before it.
MODEL_PARTS = {
    "sources": ("sources", "pooling"),
    "layers": ("layers",),
    "routes": ("routes",),
    "architectures": ("architectures",),
    "runtimes": ("batching", "torch_runtime", "onnx_encoder"),
    "encoder": ("card", "encoder", "dense"),
    "files": ("files", "loading"),
    "surgery": ("surgery",),
    "export": ("export",),
}
BASES = ("compat", "storage", "recipes")  # every package may import these; they import none
OUTSIDE = ("sentence_experts", "sentence_experts.register")  # for users, not for the packages
WITHOUT_TORCH = ("corpus", "pairs", "tasks")


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


FILES = {module_name(file): file for file in PACKAGE.rglob("*.py")}


def imported_names(node: ast.AST) -> Iterator[str]:
    """Find the imports anywhere in a module, but for type checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            names = [f"{child.module}.{alias.name}" for alias in child.names]
            yield from (name if name in FILES else child.module for name in names)
        if isinstance(child, ast.Constant) and isinstance(child.value, str) and ":" in child.value:
            yield child.value.partition(":")[0]  # "package.module:name", as entry points are written
        yield from imported_names(child)


@cache
def imports() -> dict[str, set[str]]:
    graph = {}
    for name, file in FILES.items():
        found = set(imported_names(ast.parse(file.read_text(encoding="utf-8"))))
        graph[name] = {other for other in found if other in FILES and other != name}
    return graph


def test_a_module_named_in_a_string_counts_as_imported() -> None:
    code = 'OPENERS = {"moee.json": "sentence_experts.moee.embedder:MoeEmbedder"}'
    assert list(imported_names(ast.parse(code))) == ["sentence_experts.moee.embedder"]


def package_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in PACKAGES else None


def test_every_folder_is_a_known_package() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders <= {*PACKAGES, *BASES}


def test_no_circle_of_imports() -> None:
    try:
        TopologicalSorter(imports()).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_packages_import_in_one_direction() -> None:
    wrong = []
    for module, others in imports().items():
        for other in sorted(others):
            here, there = package_of(module), package_of(other)
            if there is None or here == there or module in OUTSIDE:
                continue
            if here is None or PACKAGES.index(there) > PACKAGES.index(here):
                wrong.append(f"{module} imports {other}")
    assert not wrong, "\n".join(wrong)


def test_the_parts_of_models_import_in_one_direction() -> None:
    order = [{*modules} for modules in MODEL_PARTS.values()]
    ranks = {module: rank for rank, modules in enumerate(order) for module in modules}
    inside = "sentence_experts.models."
    graph = {name: others for name, others in imports().items() if name.startswith(inside)}
    assert {name.removeprefix(inside).partition(".")[0] for name in graph} == set(ranks)
    up = [
        f"{module} imports {other}"
        for module, others in graph.items()
        for other in sorted(others)
        if other.startswith(inside) and ranks[other.split(".")[2]] > ranks[module.split(".")[2]]
    ]
    assert not up, "\n".join(up)


def test_data_and_metrics_need_no_torch() -> None:
    modules = [name for name in FILES if package_of(name) in WITHOUT_TORCH]
    modules.append("sentence_experts.evaluation.metrics")
    code = f"import sys; [__import__(name) for name in {modules!r}]; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_only_the_command_line_and_its_tables_import_rich() -> None:
    rich = {
        name
        for name, file in FILES.items()
        if any(each.split(".")[0] == "rich" for each in imported_names(ast.parse(file.read_text())))
    }
    assert {name.split(".")[1] for name in rich} == {"cli", "report"}
