"""The articles of the small scale and of the demo: real ones if they are at hand, else simulated ones."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentence_experts.corpus.simulate import simulate_corpus
from sentence_experts.errors import InputError
from sentence_experts.recipes import RECIPES
from sentence_experts.yaml_files import read_settings

ARCHIVES = ("corpora/elife_jats.tar.xz", "corpora/pmc_crops_jats.tar.xz")
DEFAULT_DATA = Path("../shared/data")
DATA_VARIABLE = "SENTENCE_EXPERTS_DATA"


@dataclass(frozen=True)
class Material:
    """Articles, and what suits them.

    Attributes:
        sources: what `import_corpus` takes.
        name: in words.
        rules: the domain rules.
        pairs: settings of `compile_pairs`.
        queries: domain -> what to search for.
    """

    sources: tuple[Path, ...]
    name: str
    rules: Path
    pairs: dict[str, Any]
    queries: dict[str, str]

    @classmethod
    def find(cls, folder: Path, data: Path | None) -> Material:
        """The real articles in `data`; without, simulated ones that `prepare` writes to `folder`."""
        place = RECIPES / "material"
        content = read_settings(place / ("simulated.yaml" if data is None else "real.yaml"))
        sources = [folder] if data is None else [data / archive for archive in ARCHIVES]
        return cls(tuple(sources), **{**content, "rules": place / content["rules"]})

    @property
    def domains(self) -> list[str]:
        """The domains of the rules, in their order: one expert each."""
        return list(read_settings(self.rules)["domains"])

    def prepare(self, seed: int = 0) -> None:
        """Write the articles, if they are simulated."""
        if self.rules.stem.startswith("simulated"):
            simulate_corpus(self.sources[0], seed)


def data_folder() -> Path | None:
    """The folder with both archives: SENTENCE_EXPERTS_DATA, or ../shared/data; None if there is none.

    Raises:
        InputError: SENTENCE_EXPERTS_DATA is set, but the archives are not there.
    """
    named = os.environ.get(DATA_VARIABLE)
    folder = Path(named) if named else DEFAULT_DATA
    missing = [archive for archive in ARCHIVES if not (folder / archive).is_file()]
    if not missing:
        return folder
    if named:
        absent = folder / missing[0]
        raise InputError(
            f"{DATA_VARIABLE} is {named}, but {absent} is not there; unset it to use a simulated corpus"
        )
    return None
