"""Where a recipe runs: small on the real or simulated articles at hand, full on the user's own corpus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from sentence_experts.corpus.simulate import simulate_corpus
from sentence_experts.corpus.tables import DOMAINS, CorpusFolder
from sentence_experts.demo.plan import Material, data_folder, real_articles, simulated_articles
from sentence_experts.errors import InputError, UsageError
from sentence_experts.pairs.config import PairsConfig
from sentence_experts.pairs.domains import DomainRules
from sentence_experts.reproduce.experiment import FULL, SCALES, SMALL
from sentence_experts.reproduce.pairs.recipe import Protocol, Recipe
from sentence_experts.reproduce.reading import checked
from sentence_experts.storage import write_text

# What the small scale takes from its articles, since it belongs to how many there are and to what is known of
# them. How pairs are made and split is the protocol's.
OF_THE_MATERIAL = (
    "unit",
    "min_count",
    "negatives_min_cited",
    "max_train_per_domain",
    "max_eval_per_domain",
    "max_validation_per_domain",
)


@dataclass(frozen=True)
class Setting:
    """The corpus, domains and folders of a run of a recipe.

    Attributes:
        root: folder of all recipes of the same protocol and scale; they share pairs and trained models.
        material: the articles of the small scale, to be imported to `corpus`; None at full scale.
        rules: the domain rules file; None where a fetched corpus knows whose query found each paper.
        domains: the paper's domain -> the domain here.
        pairs: settings of the pairs dataset.
        data: the data in words.
    """

    scale: str
    root: Path
    corpus: Path
    material: Material | None
    rules: Path | None
    domains: Mapping[str, str]
    pairs: Mapping[str, Any]
    data: str

    @property
    def small(self) -> bool:
        """Whether this is the small scale."""
        return self.scale == SMALL

    @property
    def pairs_folder(self) -> Path:
        """Where the pairs dataset goes."""
        return self.root / "pairs"

    def prepare(self) -> None:
        """Write what the first command needs, or at full scale see that the user has brought it.

        At small scale these are simulated articles, and rules with the domains in use.

        Raises:
            InputError: no corpus, one fetched for other domains, or not the MeSH descriptors that the rules
                name.
        """
        if self.material is None or self.rules is None:
            self._check_what_was_brought()
            return
        rules = yaml.safe_load(self.material.rules.read_text(encoding="utf-8"))
        used = {name: rule for name, rule in rules["domains"].items() if name in self.domains.values()}
        write_text(self.rules, yaml.safe_dump({**rules, "domains": used}, sort_keys=False))
        simulated = simulated_articles(self.root.parent / "simulated")
        if self.material == simulated:
            simulate_corpus(simulated.sources[0], seed=0)

    def _check_what_was_brought(self) -> None:
        corpus = CorpusFolder.open(self.corpus)
        if self.rules is None:
            missing = sorted(set(self.domains) - _domains_of(corpus))
            if missing:
                raise InputError(
                    f"{self.corpus}: was fetched without the paper's domain {', '.join(missing)}"
                )
            return
        descriptors = DomainRules.read(self.rules).mesh_descriptors
        if descriptors is not None and not descriptors.is_file():
            raise InputError(
                f"{self.rules}: mesh_descriptors: {descriptors} is not there; it is NLM's file of MeSH "
                "headings (https://www.nlm.nih.gov/databases/download/mesh.html)"
            )


def _domains_of(corpus: CorpusFolder) -> set[str]:
    found = corpus.domains
    return set(pq.read_table(found, columns=["domain"])["domain"].unique().to_pylist()) if found else set()


def setting_for(recipe: Recipe, scale: str, corpus: Path | None, out: Path) -> Setting:
    """The setting of a recipe.

    Raises:
        UsageError: an unknown scale, `corpus` missing at full scale or given at small scale.
        InputError: SENTENCE_EXPERTS_DATA is set, but the articles are not there; or the protocol's pair
            settings do not go together with those of the small scale.
    """
    if scale not in SCALES:
        raise UsageError(f"--scale {scale!r}: choose one of {', '.join(SCALES)}")
    protocol = recipe.protocol
    root = out / scale / protocol.name
    if scale == SMALL:
        if corpus is not None:
            raise UsageError("--corpus is for --scale full; the small scale brings its own articles")
        return _small(protocol, root)
    if corpus is None:
        raise UsageError(
            "--scale full needs --corpus: a corpus of the articles that the paper's queries find"
        )
    return Setting(
        scale=FULL,
        root=root,
        corpus=corpus,
        material=None,
        rules=None if (corpus / DOMAINS).is_file() else protocol.domains,
        domains={domain: domain for domain in protocol.queries},
        pairs=protocol.pairs,
        data=f"the corpus {corpus}, not the authors' files",
    )


def _small(protocol: Protocol, root: Path) -> Setting:
    data = data_folder()
    material = simulated_articles(root.parent / "simulated") if data is None else real_articles(data)
    domains = protocol.small.domains
    missing = sorted(set(domains.values()) - set(material.domains))
    if missing:
        raise InputError(f"small.domains: no {', '.join(missing)} in {material.name}: {material.domains}")
    return Setting(
        scale=SMALL,
        root=root,
        corpus=root.parent / ("corpus-simulated" if data is None else "corpus"),
        material=material,
        rules=root / "domains.yaml",
        domains=domains,
        pairs=_small_pairs(protocol, _settings(material.pairs)),
        data=material.name,
    )


def _small_pairs(protocol: Protocol, material: Mapping[str, str]) -> dict[str, Any]:
    """The protocol's pairs, as many as the material gives."""
    of_the_material = {key: value for key, value in material.items() if key in OF_THE_MATERIAL}
    merged = {**protocol.pairs, **of_the_material, **protocol.small.pairs}
    if "fractions" not in merged and merged.get("split") == material.get("split"):
        # The same split with no shares of its own: those that leave enough in each set here.
        merged["fractions"] = material.get("fractions")
    return checked(PairsConfig, merged, protocol.file, "pairs with small.pairs").model_dump(
        exclude_unset=True
    )


def _settings(flags: tuple[str, ...]) -> dict[str, str]:
    """`--min-count 2` and its like as settings."""
    pairs = zip(flags[::2], flags[1::2], strict=True)
    return {flag.removeprefix("--").replace("-", "_"): value for flag, value in pairs}


def how_to_get_the_corpus(protocol: Protocol) -> list[str]:
    """What to do for `--corpus`, line by line: the papers' queries and the commands."""
    queries = [f"  {domain}: {query.text()}" for domain, query in protocol.queries.items()]
    least = min(query.min_citations for query in protocol.queries.values())
    return [
        f"queries of PubMed Central (https://www.ncbi.nlm.nih.gov/pmc/), papers cited {least}x:",
        *queries,
        "fetch them, or see first with --dry-run how many there are:",
        f"  sentence-experts corpus fetch --config {protocol.plan} --out CORPUS",
        "or, of articles that you have:",
        "  sentence-experts corpus import ARTICLES... --out CORPUS",
        f"whose domains are {protocol.domains}, by MeSH headings, which JATS seldom has: give them in a "
        "table (corpus import --papers, column mesh), and put NLM's descriptors beside that file",
    ]
