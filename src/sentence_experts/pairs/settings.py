"""Every choice that shapes a pairs dataset."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator


def _shares(value: Any) -> Any:
    parts = value.split(",") if isinstance(value, str) else value
    if parts is not None and len(parts) != 3:
        raise ValueError("give three shares that add up to 1, such as 0.6,0.2,0.2")
    return parts


class PairSettings(BaseModel):
    """What makes a pair, how pairs are split and drawn. Stored in the dataset's manifest."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    relation: Literal["co-citation", "coupling", "citation"] = Field(
        "co-citation",
        description="What links two papers: co-citation (both are cited by a third paper), coupling (they "
        "share references), citation (one cites the other)",
    )
    unit: Literal["abstract", "title", "title+abstract"] = Field(
        "abstract",
        description="The text of a paper: abstract, title or title+abstract; with title, cited works outside "
        "the corpus count too",
    )
    rare: int = Field(
        10, ge=2, description="With coupling, a shared reference counts if at most so many papers cite it"
    )
    min_count: int = Field(1, ge=1, description="Leave out pairs that are linked fewer times")
    split: Literal["paper", "random", "year"] = Field(
        "paper",
        description="paper (no paper in two sets), random (pairs, as published: the same papers are in train "
        "and test), year (the newest year is the test set)",
    )
    fractions: Annotated[tuple[float, float, float] | None, BeforeValidator(_shares)] = Field(
        None,
        description="Shares of train,validation,test: of papers with split paper (0.6,0.2,0.2 if not given), "
        "of pairs with random (0.98,0.01,0.01) and year (0.99,0.01,0)",
    )
    negatives_min_cited: int = Field(
        15, ge=0, description="Both papers of a negative pair are cited at least so often within the corpus"
    )
    frequency: Literal["sampling", "duplication", "none"] = Field(
        "sampling",
        description="How frequent pairs weigh more in training: sampling (likelier when "
        "--max-train-per-domain draws), duplication (a pair linked 5 times stands 5 times), none",
    )
    max_train_per_domain: int | None = Field(None, ge=1, description="Draw at most so many training pairs")
    max_eval_per_domain: int | None = Field(
        None, ge=1, description="Draw at most so many positive pairs for validation, and for test"
    )
    seed: int = Field(0, ge=0, description="Same seed, same bytes")

    @model_validator(mode="after")
    def _shares_add_up(self) -> PairSettings:
        shares = self.fractions
        if shares and (min(shares) < 0 or shares[0] == 0 or abs(sum(shares) - 1) > 1e-6):
            raise ValueError(f"fractions {shares}: give three shares that add up to 1, such as 0.6,0.2,0.2")
        return self
