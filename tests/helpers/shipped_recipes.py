"""The shipped recipes on pairs, and a changed one of the tests' own."""

from __future__ import annotations

from pathlib import Path

from sentence_experts.recipes import RECIPES, find_recipe, recipe_names

PAPERS_ON_PAIRS = ("hallee2024", "hallee2025", "default")
SHIPPED = [find_recipe(name) for name in recipe_names() if name.partition("/")[0] in PAPERS_ON_PAIRS]
PARTS = ("protocol.yaml", "published.yaml", "domains.yaml")


def recipe_id(recipe: Path) -> str:
    return str(recipe.relative_to(RECIPES))


def copy_recipe(recipe: Path, folder: Path, **replacements: str) -> Path:
    """The recipe and the parts beside it in `folder`, with some text replaced."""
    files = [file for file in (recipe, *(recipe.parent / part for part in PARTS)) if file.exists()]
    texts = {file.name: file.read_text(encoding="utf-8") for file in files}
    for old, new in replacements.items():
        assert any(old in text for text in texts.values()), old
        texts = {name: text.replace(old, new) for name, text in texts.items()}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder / recipe.name
