"""What the demo runs: every step is a command that a user could type."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import yaml

from sentence_experts.errors import InputError

HERE = Path(__file__).parent
ARCHIVES = ("corpora/elife_jats.tar.xz", "corpora/pmc_crops_jats.tar.xz")
DEFAULT_DATA = Path("../shared/data")


@dataclass(frozen=True)
class Material:
    """What the demo works on."""

    name: str
    sources: tuple[Path, ...]
    rules: Path
    pairs: tuple[str, ...]
    queries: tuple[tuple[str, str], ...]

    @property
    def domains(self) -> list[str]:
        """The domains of the rules, in their order: one expert each."""
        return list(yaml.safe_load(self.rules.read_text(encoding="utf-8"))["domains"])


def real_articles(data: Path) -> Material:
    """Whole eLife articles and PMC articles on crops: titles of works that are cited together."""
    return Material(
        name="real articles (eLife and PMC)",
        sources=tuple(data / archive for archive in ARCHIVES),
        rules=HERE / "real_domains.yaml",
        pairs=(
            *("--relation", "co-citation", "--unit", "title", "--split", "article"),
            *("--fractions", "0.6,0.08,0.32", "--negatives-min-cited", "2"),
            *("--max-train-per-domain", "480", "--max-eval-per-domain", "250"),
            *("--max-validation-per-domain", "60"),
        ),
        queries=(
            ("crops", "drought tolerance of pearl millet"),
            ("neuroscience", "how memories are replayed during sleep"),
            ("health", "how malaria parasites evade the immune system"),
        ),
    )


def simulated_articles(folder: Path) -> Material:
    """Articles that the package makes up: they show that everything works, and nothing about science."""
    return Material(
        name="a SIMULATED corpus (no real article was found)",
        sources=(folder,),
        rules=HERE / "simulated_domains.yaml",
        pairs=(
            *("--relation", "co-citation", "--unit", "title", "--split", "article"),
            *("--fractions", "0.5,0.2,0.3", "--negatives-min-cited", "1"),
            *("--max-train-per-domain", "500", "--max-eval-per-domain", "100"),
        ),
        queries=(
            ("neuroscience", "hippocampus memory replay"),
            ("cell_biology", "spindle checkpoint in mitosis"),
            ("genomics", "allele frequency under selection"),
        ),
    )


def data_folder() -> Path | None:
    """The folder with both archives: SENTENCE_EXPERTS_DATA, or ../shared/data; None where there is none.

    Raises:
        InputError: SENTENCE_EXPERTS_DATA is set, but the archives are not there.
    """
    named = os.environ.get("SENTENCE_EXPERTS_DATA")
    folder = Path(named) if named else DEFAULT_DATA
    missing = [archive for archive in ARCHIVES if not (folder / archive).is_file()]
    if not missing:
        return folder
    if named:
        raise InputError(f"SENTENCE_EXPERTS_DATA is {named}, but {folder / missing[0]} is not there")
    return None


def commands(material: Material, out: Path, steps: int, seed: int, base: str = "minilm") -> list[list[str]]:
    """The command lines, without the program's name, in order; `base` is the pretrained model."""
    corpus, pairs, untrained, runs = out / "corpus", out / "pairs", out / "untrained", out / "runs"
    experts = ",".join(material.domains)
    training = [
        "--pairs",
        str(pairs),
        "--max-steps",
        str(steps),
        "--batch-size",
        "32",
        "--batches",
        "homogeneous",
    ]
    training += ["--eval-steps", str(max(1, steps // 4)), "--seed", str(seed), "--resume"]
    dense, mixture = runs / "dense", runs / "experts"
    return [
        ["corpus", "import", *map(str, material.sources), "--out", str(corpus)],
        [
            *("pairs", str(corpus), "--domains", str(material.rules), *material.pairs),
            *("--seed", str(seed), "--out", str(pairs)),
        ],
        # The control: the same domain tokens, data and steps, but one MLP for all domains.
        [
            *("extend", base, "--experts", experts, "--layers", "none"),
            *("--out", str(untrained / "dense"), "--overwrite"),
        ],
        ["extend", base, "--experts", experts, "--out", str(untrained / "experts"), "--overwrite"],
        ["train", str(untrained / "dense"), "--out", str(dense), *training],
        ["train", str(untrained / "experts"), "--out", str(mixture), *training],
        [
            *("evaluate", str(mixture / "model"), str(dense / "model"), "--pairs", str(pairs)),
            *("--baseline", "tfidf", "--baseline", base, "--out", str(out / "evaluation")),
            *("--name", f"experts={mixture / 'model'}", "--name", f"dense, tokens={dense / 'model'}"),
            *("--name", f"base={base}"),
        ],
        *(
            [
                *("search", str(mixture / "model"), "--corpus", str(corpus), query),
                *("--route", route, "--unit", "title", "-k", "5"),
            ]
            for route, query in material.queries
        ),
    ]
