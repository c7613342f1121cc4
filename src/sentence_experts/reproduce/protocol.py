"""What protocols of every sort of recipe are made of."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Settings in a file: an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Choice(Strict):
    """Something in a published protocol that leaks, or that the paper leaves open, and what was done here."""

    what: str
    kind: Literal["leaks", "open", "differs"]
    here: str
