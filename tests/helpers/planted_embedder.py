"""An embedder whose states are planted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sentence_experts.moee.vectors import Rows, States, joined


class PlantedEmbedder:
    """Takes states from `read(prompt, texts)`, and vectors from `combine(states, part)`."""

    alpha = 1.0
    fitted = None

    def __init__(
        self,
        read: Callable[[str, Sequence[str]], States],
        combine: Callable[[States, str], Rows] | None = None,
        prompt: str = "",
        part: str = "sum",
    ) -> None:
        self.read, self.prompt, self.part, self.parts = read, prompt, part, part
        self.combine = combine or (lambda states, part: joined(states.hidden, states.routing, part))

    def with_prompt(self, prompt: str) -> PlantedEmbedder:
        return PlantedEmbedder(self.read, self.combine, prompt, self.part)

    def with_parts(self, part: str) -> PlantedEmbedder:
        return PlantedEmbedder(self.read, self.combine, self.prompt, part)

    def states(self, texts: Sequence[str], what: str = "") -> States:
        return self.read(self.prompt, texts)

    def combined(self, states: States) -> Rows:
        return self.combine(states, self.part)
