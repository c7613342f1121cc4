"""A recipe of MoEE: one language model under each prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from sentence_experts.errors import InputError
from sentence_experts.moee.prompts import NO_PROMPT, PROMPTS
from sentence_experts.reproduce.moee.published import Published
from sentence_experts.reproduce.protocol import Choice, Strict
from sentence_experts.reproduce.reading import RecipeFile, checked


class EvaluateOptions(Strict):
    """How a model is read and measured; the flags of `moee evaluate` of the same names."""

    mteb: str | None = None
    alpha: float | None = None
    dtype: str | None = None
    trust_remote_code: bool | None = None
    tokens_at_once: int | None = Field(default=None, ge=1)
    bootstrap: int | None = Field(default=None, ge=0)


class Small(Strict):
    """What changes at small scale: a small model of the same architecture, and the test sets at hand."""

    model: str
    tasks: str
    evaluate: EvaluateOptions = EvaluateOptions()


class Protocol(Strict):
    """What the recipes share; `file` is where it was read."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    file: Path
    published: Path
    prompts: tuple[str, ...]
    evaluate: EvaluateOptions
    choices: tuple[Choice, ...] = ()
    small: Small


class Recipe(Strict):
    """One model. `about` says what it is, `model` what the paper calls it; `evaluate` over the protocol's."""

    title: str
    about: str
    model: str
    protocol: Protocol
    evaluate: EvaluateOptions = EvaluateOptions()

    def evaluate_settings(self, small: bool) -> dict[str, Any]:
        """The flags of `moee evaluate` at a scale."""
        settings = self.protocol.evaluate.model_dump(exclude_none=True)
        if small:
            del settings["mteb"]
            return settings | self.protocol.small.evaluate.model_dump(exclude_none=True)
        return settings | self.evaluate.model_dump(exclude_none=True)


def read_recipe(path: Path) -> Recipe:
    """The recipe of a file, checked against the published figures.

    Raises:
        InputError: no such file, or a key or value that does not belong there.
    """
    file = RecipeFile.read(path)
    protocol = checked(Protocol, file.with_paths("published"), file.source, file.inside)
    unknown = [prompt for prompt in protocol.prompts if prompt not in (*PROMPTS, NO_PROMPT)]
    if unknown:
        raise InputError(f"{file.source}: prompts: {unknown[0]!r} is none of the paper's")
    recipe = checked(Recipe, {**file.content, "protocol": protocol}, path)
    models = Published.read(protocol.published).models
    if recipe.model not in models:
        raise InputError(f"{path}: model: {recipe.model!r} is none of {', '.join(models)}")
    return recipe
