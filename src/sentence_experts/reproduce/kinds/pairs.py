"""Recipes of models trained on linked pairs (Hallee et al.)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from sentence_experts.corpus.corpus_folder import DOMAINS, CorpusFolder
from sentence_experts.errors import InputError, UsageError
from sentence_experts.evaluation.results import PAIR_WEIGHTED_MEAN, POOLED
from sentence_experts.pairs.config import PairsConfig
from sentence_experts.pairs.domains import DomainRules
from sentence_experts.reproduce.experiment import Experiment, Model, OwnFigure, changed_settings
from sentence_experts.reproduce.material import Material, data_folder
from sentence_experts.reproduce.published import ALL_DOMAINS, Published, PublishedFigure, checked
from sentence_experts.reproduce.recipe import Protocol
from sentence_experts.reproduce.steps import Step
from sentence_experts.storage import write_text
from sentence_experts.yaml_files import read_yaml

# What the small scale takes from its articles: depends on their number and on what is known of them.
# How pairs are made and split is the protocol's.
OF_THE_MATERIAL = (
    "unit",
    "min_count",
    "max_train_per_domain",
    "max_eval_per_domain",
    "max_validation_per_domain",
)


class PairsExperiment(Experiment):
    """A recipe on pairs.

    Attributes:
        corpus: the corpus folder.
        rules: the domain rules; None if a fetched corpus knows whose query found each paper.
        material: the articles of the small scale.
    """

    result = "evaluation.json"
    takes_corpus = True
    needs = ("domains", "plan", "queries", "pairs", "train", "evaluate")

    @classmethod
    def check_protocol(cls, protocol: Protocol) -> None:
        """Check also that the domain rules, the queries and the small scale have the same domains."""
        super().check_protocol(protocol)
        domains = set(DomainRules.read(Path(str(protocol.domains))).domains)
        for key, names in (("queries", protocol.queries), ("small.domains", protocol.small.domains)):
            if set(names) != domains:
                known = ", ".join(sorted(domains))
                raise InputError(
                    f"{protocol.file}: {key}: {', '.join(names)}; {protocol.domains} has {known}"
                )

    def find_data(self, corpus: Path | None) -> None:
        """Import and compile the articles at hand, or compile the user's corpus."""
        protocol = self.recipe.protocol
        self.folder = self.root / "pairs"
        self.material: Material | None = None
        if self.small:
            if corpus is not None:
                raise UsageError("`corpus` is for `scale=full`; the small scale has its own articles")
            settings = self._find_material(protocol)
        elif corpus is None:
            raise UsageError(
                "`scale=full` needs `corpus`: a corpus of the articles that the paper's queries find"
            )
        else:
            self.corpus, settings = corpus, protocol.pairs
            self.rules = None if (corpus / DOMAINS).is_file() else protocol.domains
            self.routes = {domain: domain for domain in protocol.queries}
            self.words = f"the corpus {corpus}, not the authors' files"
        rules = {} if self.rules is None else {"domains": self.rules}
        arguments = {"corpus": self.corpus, "out": self.folder, **rules}
        self.steps.append(Step("compile_pairs", arguments, settings))

    def prepare(self) -> None:
        """Write simulated articles and the domains in use; or check the corpus of the user.

        Raises:
            InputError: no corpus, one fetched for other domains, or the rules lack their MeSH descriptors.
        """
        if self.material is not None and self.rules is not None:
            content = read_yaml(self.material.rules)
            used = {name: rule for name, rule in content["domains"].items() if name in self.routes.values()}
            write_text(self.rules, yaml.safe_dump({**content, "domains": used}, sort_keys=False))
            self.material.prepare()
            return
        domains = CorpusFolder.open(self.corpus).domains
        if self.rules is None:
            known = set(pq.read_table(domains)["domain"].to_pylist()) if domains else set()
            if missing := sorted(set(self.routes) - known):
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

    def extension(self, route: str | None) -> dict[str, Any]:
        """An expert per domain."""
        return {"experts": list(self.routes.values()) if route is None else [route]}

    def applies(self, figure: PublishedFigure, evaluations: Mapping[str, Any]) -> bool:
        """Whether the recipe has the row, and measures on the set of pairs."""
        rows = {model.name for model in self.models} | {baseline.name for baseline in self.left_out}
        return figure.table in self.recipe.tables and figure.group in evaluations and figure.row in rows

    def models_of(self, figure: PublishedFigure) -> list[Model]:
        """The model of the row; some rows have a model per domain."""
        return [one for one in self.models if one.name == figure.row and one.route in (None, figure.domain)]

    def ours(self, figure: PublishedFigure, models: list[Model], evaluations: Mapping[str, Any]) -> OwnFigure:
        """The model's metric on the figure's domain, or over all."""
        results = evaluations[figure.group]["models"]
        result = next(each for each in results if each["label"] == models[0].label)
        if figure.domain == ALL_DOMAINS:
            view = result[view_of(figure, self.published)]
        else:
            view = result["domains"][self.routes[str(figure.domain)]]
        ends = view["intervals"].get(figure.metric)
        return OwnFigure(view["metrics"][figure.metric], None, (ends["low"], ends["high"]) if ends else None)

    def _find_material(self, protocol: Protocol) -> dict[str, Any]:
        """Take the articles at hand; returns the settings of the pairs."""
        real = data_folder()
        self.material = Material.find(self.root.parent / "simulated", real)
        self.words, self.routes = self.material.name, protocol.small.domains
        if missing := sorted(set(self.routes.values()) - set(self.material.domains)):
            raise InputError(f"small.domains: {self.material.name} have no {', '.join(missing)}")
        self.corpus = self.root.parent / ("corpus-simulated" if real is None else "corpus")
        self.rules = self.root / "domains.yaml"
        self.writes_first = f"{self.rules}: the domains in use"
        sources = list(self.material.sources)
        self.steps.append(Step("import_corpus", {"sources": sources, "out": self.corpus}))
        settings = _small_pairs(protocol, self.material)
        stand_ins = ", ".join(f"{here} for {paper}" for paper, here in self.routes.items())
        self.unlike_published = [
            f"domains: {stand_ins}",
            *changed_settings("pairs", protocol.pairs, settings),
        ]
        return settings


def view_of(figure: PublishedFigure, published: Published) -> str:
    """How a figure of all domains was averaged."""
    means = published.means_of_domains
    is_mean = figure.row in means.rows and figure.metric in means.metrics
    return (PAIR_WEIGHTED_MEAN if is_mean else POOLED).kind


def how_to_get_the_corpus(protocol: Protocol) -> list[str]:
    """What to do for `corpus`, line by line: the paper's queries and the functions to call."""
    least = min(query.min_citations for query in protocol.queries.values())
    return [
        f"queries of PubMed Central (https://www.ncbi.nlm.nih.gov/pmc/), papers cited {least}x:",
        *(f"  {domain}: {query.text()}" for domain, query in protocol.queries.items()),
        f"fetch them: `fetch_corpus` with the settings of {protocol.plan}",
        f"or import your own articles: `import_corpus`; the domains are those of {protocol.domains}",
        "these domains are MeSH headings, which JATS files seldom have: give them as a table of papers with "
        "a column mesh, and put NLM's descriptors beside that file",
    ]


def _small_pairs(protocol: Protocol, material: Material) -> dict[str, Any]:
    """The protocol's pair settings, with as many pairs as the material gives."""
    of_the_material = {key: material.pairs[key] for key in OF_THE_MATERIAL if key in material.pairs}
    merged = {**protocol.pairs, **of_the_material, **protocol.small.pairs}
    if "fractions" not in merged and merged.get("split") == material.pairs["split"]:
        # The same split without shares: those that leave enough pairs in each set here.
        merged["fractions"] = material.pairs["fractions"]
    checked(PairsConfig, merged, protocol.file, "pairs with small.pairs")
    return merged
