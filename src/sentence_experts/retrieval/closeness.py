"""The nearness of a paper to a query, in words: measured by the cosines of texts with nothing in common.

The cosines of a library's own papers are no such measure: in a library of one subject all papers are near
each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Bounds of `Hit.nearness`, from the queries of benchmarks/results/closeness.md: the best papers of 95 in 100
# queries that a library answers lie above `FAIR`, of most queries on another subject below.
FAIR, CLOSE = 4.0, 6.0

UNRELATED = (
    "Drought tolerance of rice varieties", "Sleep and the consolidation of memory",
    "A randomised trial of aspirin after stroke", "Deep learning for image segmentation",
    "Trade routes of medieval Europe", "Bird migration across the Sahara",
    "Corrosion of steel in sea water", "Teaching reading in primary schools",
    "Dark matter in dwarf galaxies", "Inflation and the labour market",
    "Evolution of antibiotic resistance in hospitals", "Grammar of Bantu languages",
    "Carbon storage in peat bogs", "Genome assembly from long reads", "Anxiety among university students",
    "Fatigue of composite aircraft wings", "The novel in nineteenth-century Russia",
    "Soil fungi and plant nutrition", "Quantum error correction", "Voting behaviour in rural districts",
    "Insulin secretion of pancreatic islets", "Fisheries of the North Sea",
    "Recycling of lithium batteries", "Compilers for parallel programs",
    "Children's rights in family courts", "Coral bleaching under heat stress",
    "Pain after knee replacement", "Earthquake hazard of fault systems", "Marketing of organic food",
    "Theorems on prime numbers", "Bronze Age burial sites", "Hearing aids for older adults",
    "Crystal structure of zeolites", "Traffic noise in cities", "Wheat rust and its genes of resistance",
    "Philosophy of mind", "Malaria vaccines in infants", "Robots that learn to grasp",
    "Tax policy and investment", "Photosynthesis of algae", "Refugees and housing",
    "Dialysis in kidney failure", "Turbulence in pipe flow", "Honey bees and pesticides",
    "Encryption of medical records", "Opera in Venice", "Weather forecasts with neural networks",
    "Obesity and diet in adolescents", "Wolves and deer in national parks", "Wine fermentation by yeast",
    "Dementia care at home", "Superconductors at high pressure", "Cotton farming in India",
    "Social media and elections", "Dental implants", "River floods and dams",
    "Monetary policy of central banks", "Protein folding by simulation", "Football injuries",
    "Buddhist temples in Japan",
)  # fmt: skip


class Scale(NamedTuple):
    """The mean and standard deviation of the cosines of unrelated texts, under one route."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, cosines: NDArray[np.float32]) -> Scale:
        """Compute it from the cosines of each of `UNRELATED` with each."""
        unlike = cosines[~np.eye(len(UNRELATED), dtype=bool)]
        return cls(float(unlike.mean()), max(float(unlike.std()), 1e-6))

    def nearness(self, cosine: float) -> float:
        """Return the standard deviations by which a cosine lies above the cosines of unrelated texts."""
        return (cosine - self.mean) / self.deviation


def describe_nearness(nearness: float) -> str:
    """Return "close", "fair" or "weak"."""
    return "close" if nearness >= CLOSE else "fair" if nearness >= FAIR else "weak"


def is_nothing_close(hits: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether all papers found are about as far from the query as unrelated texts are."""
    return {hit.get("closeness") for hit in hits} == {"weak"}
