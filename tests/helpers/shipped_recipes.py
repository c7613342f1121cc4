"""Where the shipped recipes are, and a small one of the tests' own."""

from __future__ import annotations

from pathlib import Path

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
# Every YAML file that is a recipe on pairs: the others are what recipes refer to, and the other papers'.
PARTS = ("protocol.yaml", "published.yaml", "domains.yaml")
OTHERS = ("mote", "moee", "corpus")
SHIPPED = sorted(
    file for file in RECIPES.rglob("*.yaml") if file.name not in PARTS and file.parent.name not in OTHERS
)


def copy_recipe(recipe: Path, folder: Path, **replacements: str) -> Path:
    """The recipe and the parts beside it in `folder`, with some text replaced."""
    for file in (recipe, *(recipe.parent / part for part in PARTS)):
        if file.exists():
            text = file.read_text(encoding="utf-8")
            for old, new in replacements.items():
                text = text.replace(old, new)
            (folder / file.name).write_text(text, encoding="utf-8")
    return folder / recipe.name
