"""The settings of `compile_pairs`, `import_pairs` and `suggest_domains`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, field_validator, model_validator

from sentence_experts.config import Config, KeepRetracted, Memory, Seed
from sentence_experts.engines import LOCAL, EngineName

SPLITS = ("train", "validation", "test")
OTHER_NAMES = {"val": "validation", "valid": "validation", "dev": "validation"}
ONE_DOMAIN = "all"  # domain of works and texts without a rule or column that sorts them
# Characters that are ignored in comparing texts: papers cite a title with and without its final stop.
# By Unicode's categories, as engines differ in the meaning of \s.
NOT_WORDS = r"\p{P}\p{Z}\p{Cc}\p{Cf}"
# Characters that are not seen, also within words: soft hyphens, joiners, marks of the direction of writing.
UNSEEN = (
    "\u00ad\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
)
AUTO_UNIT: Literal["auto"] = "auto"
Level = Literal["article", "section", "paragraph", "sentence", "bracket"]
# Levels from the widest to the closest; each lies within the one before.
LEVELS: tuple[Level, ...] = get_args(Level)
AUTO_LEVEL: Literal["auto"] = "auto"
# Levels that training pairs are kept to where enough are so near: nearer works have more in common.
TRAINED_LEVELS: tuple[Level, ...] = ("bracket", "sentence", "paragraph")
# Number of training pairs of a domain from which wider levels are left out: some thirty batches of 32, with
# which a first training was better than the base (docs/training.md).
ENOUGH_TO_TRAIN = 1_000
# Split -> the default of `fractions`.
DEFAULT_FRACTIONS = {
    "paper": (0.6, 0.2, 0.2),
    "article": (0.6, 0.2, 0.2),
    "random": (0.98, 0.01, 0.01),
    "year": (0.99, 0.01, 0.0),
}


def check_shares(value: Any) -> list[float] | None:
    """Return the shares of train, validation and test, given as a list or as "0.6,0.2,0.2".

    Raises:
        ValueError: they are not three numbers that add up to 1, or nothing is left for training.
    """
    if value is None:
        return None
    try:
        shares = [float(part) for part in (value.split(",") if isinstance(value, str) else value)]
        if len(shares) == 3 and min(shares) >= 0 < shares[0] and abs(sum(shares) - 1) < 1e-6:
            return shares
    except (TypeError, ValueError):
        pass
    raise ValueError("give three shares that add up to 1, such as 0.6,0.2,0.2")


class PairsConfig(Config):
    """Settings of `compile_pairs`."""

    domains: Path | dict[str, Any] | None = Field(
        None,
        description="YAML rules that sort papers into domains; without, the domains whose queries found the "
        "papers (of a fetched corpus), or else one domain 'all'",
    )
    relation: Literal["co-citation", "coupling", "citation"] = Field(
        "co-citation",
        description="Link between two papers: co-citation (a third paper cites both), coupling (they share "
        "references), citation (one cites the other)",
    )
    unit: Literal["auto", "abstract", "title", "title+abstract"] = Field(
        AUTO_UNIT,
        description="The text of a paper: abstract, title or title+abstract; with title, cited works outside "
        "the corpus count too; auto takes abstracts where enough of them are linked, otherwise titles",
    )
    keep_retracted: KeepRetracted = False
    keep_notices: bool = Field(
        False,
        description="Keep papers that are no research: corrections, retraction notices, expressions of "
        "concern, editorials, digests, news; otherwise they are left out and counted",
    )
    within: Level = Field(
        "article",
        description="With co-citation, how near to each other an article mentions two papers that it links: "
        "anywhere in the article (or its reference list), or in one section, paragraph, sentence or bracket; "
        "all but article need articles that came with their text",
    )
    train_within: Literal["auto"] | Level = Field(
        AUTO_LEVEL,
        description="The same for training pairs alone: nearer ones teach more. auto takes, for each domain, "
        f"the nearest of bracket, sentence, paragraph and article that has {ENOUGH_TO_TRAIN:,} pairs (or "
        "`max_train_per_domain`, if that is less); where `within` is given, as that says",
    )
    rare: int = Field(
        10, ge=2, description="With coupling, a shared reference counts if at most this many papers cite it"
    )
    min_count: int = Field(1, ge=1, description="Leave out pairs that are linked fewer times")
    max_references: int | None = Field(
        None,
        ge=2,
        description="Papers with a longer reference list link nothing: a review with 2,000 references would "
        "make two million co-cited pairs. Works that they link are still no "
        "negatives of each other, in lists of up to 1,000",
    )
    split: Literal["paper", "article", "random", "year"] = Field(
        "paper",
        description="How train, validation and test are separated: paper (no paper in two sets), article "
        "(also no article that cites both papers of a pair; co-citation only), random (pairs, as published: "
        "the same papers are in train and test), year (the newest year is the test set)",
    )
    fractions: list[float] | None = Field(
        None,
        description="Shares of train,validation,test: of papers with split paper, of citing articles with "
        "article, of pairs with random and year. Default: 0.6,0.2,0.2; random 0.98,0.01,0.01; year "
        "0.99,0.01,0",
    )
    negatives: Literal["matched", "cited", "random"] = Field(
        "matched",
        description="Negative pairs of validation and test, which no relation links: matched (the works of "
        "the linked pairs paired anew, so that each is equally often in both classes), cited (as published: "
        "papers of the domain cited at least `negatives_min_cited` times, which their number of citations "
        "gives away), random (papers of the domain)",
    )
    negatives_min_cited: int = Field(
        15,
        ge=0,
        description="With negatives cited, minimum number of citations, within the corpus, of each paper of "
        "a negative pair",
    )
    frequency: Literal["sampling", "duplication", "none"] = Field(
        "sampling",
        description="How pairs that are linked often weigh more in training: sampling (more likely to be "
        "sampled under `max_train_per_domain`), duplication (a pair linked 5 times occurs 5 times), none",
    )
    max_train_per_domain: int | None = Field(
        None, ge=1, description="Maximum number of training pairs per domain, sampled at random"
    )
    max_eval_per_domain: int | None = Field(
        None, ge=1, description="Maximum number of positive pairs per domain in validation, and in test"
    )
    max_validation_per_domain: int | None = Field(
        None,
        ge=1,
        description="A lower maximum for validation, which is evaluated many times during training",
    )
    seed: Seed = 0
    engine: EngineName = Field(
        LOCAL,
        description="Engine that joins the citations: local[CORES] (DuckDB; default: all cores), or Spark as "
        "spark[CORES] or spark://HOST:PORT (all its machines must see the corpus and `scratch`)",
    )
    memory: Memory = Field(
        None,
        description="Memory limit of the engine, such as 4GB; the rest goes to `scratch`. Default: as the "
        "engine decides (DuckDB: 80% of the machine's memory)",
    )
    scratch: Path | None = Field(
        None, description="Folder for intermediate tables, removed at the end. Default: beside the output"
    )

    _check_fractions = field_validator("fractions", mode="before")(check_shares)

    @model_validator(mode="after")
    def _check_together(self) -> PairsConfig:
        if self.train_within not in (AUTO_LEVEL, self.within) and not self.trained_levels:
            raise ValueError(f"`train_within={self.train_within}` is wider than `within={self.within}`")
        together = "`within` or `train_within`" if self.needs_mentions else ""
        together = "`split=article`" if self.split == "article" else together
        if together and self.relation != "co-citation":
            raise ValueError(
                f"{together} needs `relation=co-citation`, where an article cites both papers of a pair; "
                f"with {self.relation}, leave it out"
            )
        least = type(self).model_fields["negatives_min_cited"].default
        if self.negatives != "cited" and self.negatives_min_cited != least:
            raise ValueError(f"`negatives_min_cited` is for `negatives=cited`, not {self.negatives}")
        if (self.max_validation_per_domain or 0) > (self.max_eval_per_domain or math.inf):
            raise ValueError(
                f"`max_validation_per_domain` ({self.max_validation_per_domain:,}) is a lower maximum than "
                f"`max_eval_per_domain` ({self.max_eval_per_domain:,}), and may not be greater"
            )
        if self.relation != "coupling" and self.rare != type(self).model_fields["rare"].default:
            raise ValueError(f"`rare` is for `relation=coupling`, not {self.relation}")
        return self

    @property
    def needs_mentions(self) -> bool:
        """Whether the corpus must record where works are cited in a text."""
        return self.within != "article" or self.train_within not in (AUTO_LEVEL, "article")

    @property
    def trained_levels(self) -> tuple[Level, ...]:
        """Levels that training pairs are kept to, in the order of trial; none if no pair is left out."""
        if self.train_within == AUTO_LEVEL:
            return TRAINED_LEVELS if self.relation == "co-citation" and self.within == "article" else ()
        is_nearer = LEVELS.index(self.train_within) > LEVELS.index(self.within)
        return (self.train_within,) if is_nearer else ()

    @property
    def at_least(self) -> str:
        """Proximity and number of links that a pair needs, for a message."""
        near = f" within a {self.within}" if self.within != "article" else ""
        return f"{near} at least {self.min_count} times" if self.min_count > 1 else near

    @property
    def shares(self) -> tuple[float, float, float]:
        """`fractions`, or the default of the split."""
        train, validation, test = self.fractions or DEFAULT_FRACTIONS[self.split]
        return train, validation, test

    def max_per_domain(self, split: str) -> int | None:
        """Return the maximum number of positive pairs of a domain in a split; None for all."""
        if split == "train":
            return self.max_train_per_domain
        if split == "validation" and self.max_validation_per_domain is not None:
            return self.max_validation_per_domain
        return self.max_eval_per_domain

    def stored(self) -> dict[str, Any]:
        """Return the settings that a manifest holds: those that decide the bytes of the pairs."""
        return self.model_dump(mode="json", exclude={"domains", "engine", "memory", "scratch"})


class ImportPairsConfig(Config):
    """Settings of `import_pairs`."""

    anchor: str = Field("anchor", description="Column of the first text of each pair")
    positive: str = Field("positive", description="Column of the second text of each pair")
    subset: str | None = Field(None, description="Subset (configuration) of a hub dataset")
    fractions: list[float] = Field(
        [0.6, 0.2, 0.2],
        description="Shares of train,validation,test where no column `split` says where a pair belongs; no "
        "text is in two sets",
    )
    negatives: Literal["matched", "random"] = Field(
        "matched",
        description="Negatives of validation and test sets that have none: matched (the texts of the linked "
        "pairs paired anew), random (texts of the domain)",
    )
    seed: Seed = 0

    _check_fractions = field_validator("fractions", mode="before")(check_shares)


class SuggestDomainsConfig(Config):
    """Settings of `suggest_domains`."""

    by: Literal["auto", "subjects", "mesh", "keywords", "journals", "topics", "subfields", "fields"] = Field(
        "auto", description="Column whose values become domains; auto takes the one that sorts most papers"
    )
    most: int = Field(6, ge=2, le=100, description="Maximum number of domains")
    min_papers: int = Field(50, ge=1, description="Minimum number of papers of a domain")
