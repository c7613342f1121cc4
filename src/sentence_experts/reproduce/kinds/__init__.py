"""The kinds of recipes, by the `kind` of their protocol."""

from __future__ import annotations

from sentence_experts.reproduce.experiment import Experiment
from sentence_experts.reproduce.kinds.language_models import AnalysisExperiment, LanguageModelExperiment
from sentence_experts.reproduce.kinds.pairs import PairsExperiment
from sentence_experts.reproduce.kinds.tasks import TasksExperiment

KINDS: dict[str, type[Experiment]] = {
    "pairs": PairsExperiment,
    "tasks": TasksExperiment,
    "language_models": LanguageModelExperiment,
    "analysis": AnalysisExperiment,
}
