"""Every choice that shapes a pairs dataset."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from sentence_experts.errors import UsageError


def _shares(value: Any) -> Any:
    parts = value.split(",") if isinstance(value, str) else value
    if parts is not None and len(parts) != 3:
        raise ValueError("give three shares that add up to 1, such as 0.6,0.2,0.2")
    return parts


def _add_up(shares: tuple[float, float, float] | None) -> tuple[float, float, float] | None:
    if shares and (min(shares) < 0 or shares[0] == 0 or abs(sum(shares) - 1) > 1e-6):
        raise ValueError("give three shares that add up to 1, such as 0.6,0.2,0.2")
    return shares


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
    max_references: int | None = Field(
        None,
        ge=2,
        description="Papers whose reference list has more entries link nothing: a review with 2,000 "
        "references would make two million co-cited pairs. Negatives are unlinked through them all the same",
    )
    split: Literal["paper", "article", "random", "year"] = Field(
        "paper",
        description="paper (no paper in two sets), article (nor an article that cites both of a pair, with "
        "co-citation), random (pairs, as published: the same papers are in train and test), year (the newest "
        "year is the test set)",
    )
    fractions: Annotated[
        tuple[float, float, float] | None, BeforeValidator(_shares), AfterValidator(_add_up)
    ] = Field(
        None,
        description="Shares of train,validation,test: of papers with split paper and of citing articles with "
        "article (0.6,0.2,0.2 if not given), of pairs with random (0.98,0.01,0.01) and year (0.99,0.01,0)",
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
    max_validation_per_domain: int | None = Field(
        None, ge=1, description="Draw fewer for validation, which is measured again and again while training"
    )
    seed: int = Field(0, ge=0, description="Same seed, same bytes")

    def most_per_domain(self, split: str) -> int | None:
        """How many positive pairs of a domain are drawn at most for a split; None for all."""
        if split == "train":
            return self.max_train_per_domain
        if split == "validation" and self.max_validation_per_domain is not None:
            return self.max_validation_per_domain
        return self.max_eval_per_domain

    @model_validator(mode="after")
    def _articles_stand_behind_pairs(self) -> PairSettings:
        if self.split == "article" and self.relation != "co-citation":
            raise UsageError(
                "--split article is for --relation co-citation, where an article cites both works of a pair; "
                f"{self.relation} has no such articles, use --split paper"
            )
        return self
