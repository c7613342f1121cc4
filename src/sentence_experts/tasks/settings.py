"""Every choice that shapes task datasets and is not in the task file."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

FRACTIONS = (0.8, 0.1, 0.1)
_SHARES = "give three shares that add up to 1, such as 0.8,0.1,0.1"


def _shares(value: Any) -> Any:
    parts = value.split(",") if isinstance(value, str) else value
    if parts is not None and len(parts) != 3:
        raise ValueError(_SHARES)
    return parts


def _add_up(shares: tuple[float, float, float] | None) -> tuple[float, float, float] | None:
    if shares and (min(shares) < 0 or shares[0] == 0 or abs(sum(shares) - 1) > 1e-6):
        raise ValueError(_SHARES)
    return shares


class TaskSettings(BaseModel):
    """How task datasets are split and drawn. Stored in the folder's manifest."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    fractions: Annotated[
        tuple[float, float, float] | None, BeforeValidator(_shares), AfterValidator(_add_up)
    ] = Field(
        None,
        description="Shares of train,validation,test, of groups, where a dataset is not split already "
        "(0.8,0.1,0.1 if not given)",
    )
    max_train: int | None = Field(
        None, ge=1, description="Draw at most so many training rows of a dataset (pairs, or labelled texts)"
    )
    max_eval: int | None = Field(
        None, ge=1, description="Draw at most so many rows of a dataset for validation, and for test"
    )
    pairs_per_text: int = Field(
        1, ge=1, description="A labelled text is paired with so many other texts of its label"
    )
    seed: int = Field(0, ge=0, description="Same seed, same bytes")

    @property
    def shares(self) -> tuple[float, float, float]:
        """`fractions`, or those by default."""
        return self.fractions or FRACTIONS
