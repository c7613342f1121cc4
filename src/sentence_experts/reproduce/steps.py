"""The steps of a recipe: calls of public functions.

Each function leaves a finished output of the same settings and inputs as it is, continues an interrupted one
and refuses any other, so a recipe that is run again continues where it stopped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sentence_experts
from sentence_experts.corpus.simulate import simulate_corpus
from sentence_experts.errors import UsageError
from sentence_experts.moee.vectors import PARTS

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Step:
    """One call of a public function.

    Attributes:
        call: the name of a function of `CALLS`, or of a public one.
        arguments: its inputs and output.
        settings: the settings of its `Config`.
    """

    call: str
    arguments: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def run(self) -> None:
        """Call the function; an evaluation with other settings is replaced, as nothing is made from it.

        Raises:
            UsageError: its output was made with other settings.
        """
        function = CALLS.get(self.call) or getattr(sentence_experts, self.call)
        given = {**self.arguments, **self.settings}
        try:
            function(**given)
        except UsageError:
            if not self.call.startswith("evaluate"):
                raise
            function(**given, overwrite=True)

    def __str__(self) -> str:
        given = {**self.arguments, **self.settings}
        return f"{self.call}({', '.join(f'{name}={_plain(value)!r}' for name, value in given.items())})"


def run_steps(steps: Sequence[Step]) -> None:
    """Run the steps in their order.

    Raises:
        UsageError: an output was made with other settings.
    """
    for number, step in enumerate(steps, start=1):
        place = f"step {number} of {len(steps)}"
        logger.info(f"{place}: {step}")
        began = time.monotonic()
        step.run()
        logger.info(f"{place}: took {time.monotonic() - began:.0f} s")


def evaluate(models: Mapping[str, Any], data: Any, out: Path, **settings: Any) -> None:
    """Evaluate models, label -> folder or the folders of its seeds, and write the report."""
    evaluation = sentence_experts.evaluate(models, data, out=out, **settings)
    sentence_experts.write_report(evaluation, out)


def evaluate_language_model(
    model: str, data: Any, out: Path, prompt: str, read: Mapping[str, Any], states: Path, **settings: Any
) -> None:
    """Evaluate hidden states, routing weights and their combinations; texts are read once for all."""
    embedder = sentence_experts.MoeEmbedder(model, prompt=prompt, cache=states, **read)
    evaluate({part: embedder.with_parts(part) for part in PARTS}, data, out, **settings)


def analyse_language_model(
    model: str,
    pairs: Path,
    out: Path,
    read: Mapping[str, Any],
    states: Path,
    published: Path,
    **settings: Any,
) -> None:
    """Analyse hidden states and routing weights, also on the paper's pairs (`published_cases`)."""
    from sentence_experts.evaluation.moee.analysis import find_cases
    from sentence_experts.evaluation.moee.rated_pairs import RatedPairs
    from sentence_experts.reproduce.published import Published
    from sentence_experts.storage import write_json

    embedder, data = sentence_experts.MoeEmbedder(model, cache=states, **read), RatedPairs.read(pairs)
    analysis = sentence_experts.analyse(embedder, data, **settings)
    pairs_of_paper = [(case.first, case.second) for case in Published.read(published).cases]
    figures = {**analysis.figures, "published_cases": find_cases(embedder, data, pairs_of_paper)}
    sentence_experts.write_report(analysis, out)
    write_json(out / "analysis.json", {**figures, "settings": analysis.settings})


# Calls that are not public, or that need objects in the place of folders.
CALLS: dict[str, Callable[..., object]] = {
    call.__name__: call
    for call in (simulate_corpus, evaluate, evaluate_language_model, analyse_language_model)
}


def _plain(value: Any) -> Any:
    """Return the value with paths as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value
