"""The recipes of published experiments, as YAML files, and the functions that find them by name."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from sentence_experts.errors import InputError

RECIPES = Path(__file__).parent
# Files that recipes refer to, and that are not recipes themselves.
PARTS = ("protocol", "published", "domains", "tasks", "small_tasks", "simulated_tasks")
NOT_RECIPES = ("corpus", "material")
PLANS = "corpus"


def recipe_names() -> list[str]:
    """Return the names of the shipped recipes, such as "hallee2025/moe_all"."""
    names = (file.relative_to(RECIPES) for file in RECIPES.rglob("*.yaml") if file.stem not in PARTS)
    return sorted(name.with_suffix("").as_posix() for name in names if name.parts[0] not in NOT_RECIPES)


def plan_names() -> list[str]:
    """Return the names of the shipped plans of `fetch_corpus`, such as "hallee2025_domains"."""
    return sorted(file.stem for file in (RECIPES / PLANS).glob("*.yaml"))


def find_recipe(recipe: str | Path) -> Path:
    """Return the file of a recipe: a path, or the name of a shipped one ("hallee2025/moe_all").

    Raises:
        InputError: there is neither.
    """
    return _find(recipe, RECIPES, recipe_names(), "recipe")


def find_plan(plan: str | Path) -> Path:
    """Return the file of a plan of `fetch_corpus`: a path, or a shipped name ("hallee2025_domains").

    Raises:
        InputError: there is neither.
    """
    return _find(plan, RECIPES / PLANS, plan_names(), "plan")


def _find(name: str | Path, folder: Path, names: list[str], what: str) -> Path:
    if Path(name).is_file():
        return Path(name)
    if str(name) in names:
        return folder / f"{name}.yaml"
    close = get_close_matches(str(name), names, cutoff=0.8)
    hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(names)}"
    raise InputError(f"{name}: no such file, and no shipped {what} of that name; {hint}")
