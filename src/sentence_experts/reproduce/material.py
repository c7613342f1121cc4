"""The articles of the small scale and of the demo: real ones if they are at hand, else simulated ones."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentence_experts.errors import InputError
from sentence_experts.recipes import RECIPES
from sentence_experts.yaml_files import read_settings

ARCHIVES = ("corpora/elife_jats.tar.xz", "corpora/pmc_crops_jats.tar.xz")
DEFAULT_DATA = Path("../shared/data")
DATA_VARIABLE = "SENTENCE_EXPERTS_DATA"


@dataclass(frozen=True)
class Material:
    """Articles, and settings that suit them.

    Attributes:
        sources: for `import_corpus`.
        simulated: whether `simulate_corpus` has to write them first.
        name: in words.
        rules: the domain rules.
        pairs: settings of `compile_pairs`.
        queries: domain -> a search in its papers.
    """

    sources: tuple[Path, ...]
    simulated: bool
    name: str
    rules: Path
    pairs: dict[str, Any]
    queries: dict[str, str]

    @classmethod
    def find(cls, folder: Path, data: Path | None) -> Material:
        """Return the real articles in `data`; without, simulated ones that belong in `folder`."""
        place = RECIPES / "material"
        content = read_settings(place / ("simulated.yaml" if data is None else "real.yaml"))
        sources = (folder,) if data is None else tuple(data / archive for archive in ARCHIVES)
        return cls(sources, data is None, **{**content, "rules": place / content["rules"]})

    @property
    def domains(self) -> list[str]:
        """The domains of the rules, in their order: one expert each."""
        return list(read_settings(self.rules)["domains"])


def data_folder() -> Path | None:
    """Return the folder with both archives: SENTENCE_EXPERTS_DATA, or ../shared/data; None without.

    Raises:
        InputError: SENTENCE_EXPERTS_DATA is set, but the archives are not there.
    """
    named = os.environ.get(DATA_VARIABLE)
    folder = Path(named) if named else DEFAULT_DATA
    missing = [archive for archive in ARCHIVES if not (folder / archive).is_file()]
    if named and missing:
        absent = folder / missing[0]
        raise InputError(
            f"{DATA_VARIABLE} is {named}, but {absent} is not there; unset it to use a simulated corpus"
        )
    return None if missing else folder
