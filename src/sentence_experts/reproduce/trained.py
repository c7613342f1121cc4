"""Recipes that train models: on linked pairs (Hallee et al.), and on tasks (MoTE)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from sentence_experts.reproduce.material import ARCHIVES, DATA_VARIABLE, Material, data_folder
from sentence_experts.reproduce.published import ALL_DOMAINS, AVERAGES, Published, PublishedFigure, checked
from sentence_experts.reproduce.recipe import Protocol
from sentence_experts.tasks.task_file import TaskFile
from sentence_experts.yaml_files import read_settings

# Pair settings that depend on the articles at hand; how pairs are made and split is the protocol's.
SIZES = (
    "unit",
    "min_count",
    "max_train_per_domain",
    "max_eval_per_domain",
    "max_validation_per_domain",
)
# The paper's type of task -> the type that mteb measures it as.
MTEB_TYPES = {
    "retrieval": "Retrieval",
    "classification": "Classification",
    "clustering": "Clustering",
    "reranking": "Reranking",
    "pair_classification": "PairClassification",
    "sts": "STS",
    "summarization": "Summarization",
}
PERCENT = 100
# Names in task files for folders that only a run knows.
DATA, CORPORA = f"${{{DATA_VARIABLE}}}", "${CORPORA}"
CORPUS_NAMES = ("elife", "crops")  # of the corpora made of ARCHIVES


class PairsExperiment(Experiment):
    """A recipe of models trained on linked pairs."""

    result = "evaluation.json"

    def _find_data(self, corpus: Path | None) -> None:
        """Import and compile the articles at hand, or compile the user's corpus."""
        protocol = self.recipe.protocol
        self.folder = self.root / "pairs"
        if self.small and corpus is not None:
            raise UsageError("`corpus` is for `scale=full`; the small scale has its own articles")
        if not self.small and corpus is None:
            raise UsageError(
                "`scale=full` needs `corpus`: a corpus of the articles that the paper's queries find"
            )
        rules: Any = protocol.domains
        settings = protocol.pairs
        if corpus is None:
            corpus, rules, settings = self._articles_at_hand(protocol)
        else:
            self.routes = {domain: domain for domain in protocol.queries}
            self.differences = [f"data: the corpus {corpus}, not the authors' files"]
            if (corpus / DOMAINS).is_file():  # a fetched corpus knows which query found each paper
                rules = None
                self._check_domains(corpus)
        given = {} if rules is None else {"domains": rules}
        self._add("compile_pairs", settings, corpus=corpus, out=self.folder, **given)

    def _articles_at_hand(self, protocol: Protocol) -> tuple[Path, dict[str, Any], dict[str, Any]]:
        """Return the corpus, the rules of the domains in use, and the settings of the pairs."""
        material = Material.find(self.root.parent / "simulated", data_folder())
        self.routes = protocol.small.domains
        if missing := sorted(set(self.routes.values()) - set(material.domains)):
            raise InputError(f"small.domains: {material.name} have no {', '.join(missing)}")
        content = read_settings(material.rules)
        used = {name: rule for name, rule in content["domains"].items() if name in self.routes.values()}
        corpus = self.root.parent / ("corpus-simulated" if material.simulated else "corpus")
        if material.simulated:
            self._add("simulate_corpus", out=material.sources[0])
        self._add("import_corpus", sources=list(material.sources), out=corpus)
        settings = _small_pairs(protocol, material)
        stand_ins = ", ".join(f"{here} for {paper}" for paper, here in self.routes.items())
        self.differences = [f"data: {material.name}", f"domains: {stand_ins}"]
        self.differences += changed_settings("pairs", protocol.pairs, settings)
        return corpus, {**content, "domains": used}, settings

    def _check_domains(self, corpus: Path) -> None:
        known = set(pq.read_table(corpus / DOMAINS)["domain"].to_pylist())
        if missing := sorted(set(self.routes) - known):
            raise InputError(f"{corpus}: was fetched without the paper's domain {', '.join(missing)}")

    def check_corpus(self) -> None:
        """Check the user's corpus, and the MeSH descriptors of the domain rules.

        Raises:
            InputError: one of them is missing.
        """
        arguments = self.steps[0].arguments
        CorpusFolder.open(arguments["corpus"])
        rules = arguments.get("domains")
        descriptors = None if rules is None else DomainRules.read(rules).mesh_descriptors
        if descriptors is not None and not descriptors.is_file():
            raise InputError(
                f"{rules}: mesh_descriptors: {descriptors} is not there; it is NLM's file of MeSH "
                "headings (https://www.nlm.nih.gov/databases/download/mesh.html)"
            )

    def extension(self, route: str | None) -> dict[str, Any]:
        """Return an expert per domain."""
        return {"experts": list(self.routes.values()) if route is None else [route]}

    def applies(self, figure: PublishedFigure, evaluations: Mapping[str, Any]) -> bool:
        """Whether the recipe has the row, and measures on the set of pairs."""
        rows = {model.name for model in self.models} | {baseline.name for baseline in self.left_out}
        return figure.table in self.recipe.tables and figure.group in evaluations and figure.row in rows

    def models_of(self, figure: PublishedFigure) -> list[Model]:
        """Return the model of the row; some rows have a model per domain."""
        return [one for one in self.models if one.name == figure.row and one.route in (None, figure.domain)]

    def ours(self, figure: PublishedFigure, models: list[Model], evaluations: Mapping[str, Any]) -> OwnFigure:
        """Return the model's metric on the figure's domain, or over all."""
        result = of_label(evaluations[figure.group], models[0].label)
        if figure.domain == ALL_DOMAINS:
            view = result[view_of(figure, self.published)]
        else:
            view = result["domains"][self.routes[str(figure.domain)]]
        ends = view["intervals"].get(figure.metric)
        return OwnFigure(view["metrics"][figure.metric], None, (ends["low"], ends["high"]) if ends else None)


def view_of(figure: PublishedFigure, published: Published) -> str:
    """Return how a figure of all domains was averaged."""
    means = published.means_of_domains
    is_mean = figure.row in means.rows and figure.metric in means.metrics
    return (PAIR_WEIGHTED_MEAN if is_mean else POOLED).kind


def how_to_get_the_corpus(protocol: Protocol) -> list[str]:
    """Return the steps to get `corpus`, line by line: the paper's queries and the functions to call."""
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
    """Return the protocol's pair settings, with as many pairs as the material gives."""
    sizes = {key: material.pairs[key] for key in SIZES if key in material.pairs}
    merged = {**protocol.pairs, **sizes, **protocol.small.pairs}
    if "fractions" not in merged and merged.get("split") == material.pairs["split"]:
        # The same split without shares: those that leave enough pairs in each set here.
        merged["fractions"] = material.pairs["fractions"]
    checked(PairsConfig, merged, protocol.file, "pairs with small.pairs")
    return merged


class TasksExperiment(Experiment):
    """A recipe of models trained on tasks."""

    def _find_data(self, corpus: Path | None) -> None:
        """Import and compile the data at hand, or compile the published task file."""
        recipe, protocol = self.recipe, self.recipe.protocol
        source: Any = Path(str(protocol.tasks))
        self.folder = self.root / "tasks"
        self.routes = {task.name: task.name for task in TaskFile.read(source).trainable()}
        words = "the public hub datasets nearest to those that the paper refers to"
        if self.small:
            data, corpora = data_folder(), self.root.parent / "corpora"
            words = f"{self._import_corpora(data, corpora)}, not the paper's datasets"
            folders = {DATA: data or Path(), CORPORA: corpora}
            source = filled_in(protocol.small_file(data is not None), folders)
        settings = recipe.compile_settings(self.small)
        changed = changed_settings("tasks", recipe.compile_settings(False), settings)
        self.differences = [f"data: {words}", *changed]
        self._add("compile_tasks", settings, source=source, out=self.folder)

    def _import_corpora(self, data: Path | None, corpora: Path) -> str:
        """Import the articles at hand, and return the data in words."""
        if data is None:
            articles = self.root.parent / "simulated"
            self._add("simulate_corpus", out=articles)
            self._add("import_corpus", sources=[articles], out=corpora / "simulated")
            return "SIMULATED articles (no real data was found)"
        for name, archive in zip(CORPUS_NAMES, ARCHIVES, strict=True):
            self._add("import_corpus", sources=[data / archive], out=corpora / name)
        return "eLife and PMC articles, Banking77, tweet emotion, 20 Newsgroups, STS-B"

    def applies(self, figure: PublishedFigure, evaluations: Mapping[str, Any]) -> bool:
        """Whether the table is the recipe's."""
        return figure.table in self.recipe.tables

    def models_of(self, figure: PublishedFigure) -> list[Model]:
        """Return the models of the column: one, or one per trained task."""
        return self._in_column(figure.table, figure.column)

    def ours(self, figure: PublishedFigure, models: list[Model], evaluations: Mapping[str, Any]) -> OwnFigure:
        """Return the models' figure for the row's task, in percent."""
        (evaluation,) = evaluations.values()
        tasks = self.published.averaged(figure.table)
        value, interval = self._value(figure.row, models, tasks, evaluation)
        gain = None
        gains_over = str(self.published.table(figure.table).gains_over) if figure.gain else ""
        if figure.gain and (others := self._in_column(figure.table, gains_over)):
            over, _ = self._value(figure.row, others, tasks, evaluation)
            gain = None if value is None or over is None else value - over
        return OwnFigure(value, gain, interval)

    def notes(self, evaluations: Mapping[str, Any]) -> list[str]:
        """Return the number of datasets of each type that were measured, beside the paper's."""
        (evaluation,) = evaluations.values()
        counts = [
            f"{task} {_datasets(evaluation, task)} for {published.datasets}"
            for task, published in self.published.tasks.items()
        ]
        return [f"datasets measured: {', '.join(counts)}"]

    def _in_column(self, table: str, column: str) -> list[Model]:
        return [one for one in self.models if one.run is not None and one.run.columns.get(table) == column]

    def _value(
        self, row: str, models: list[Model], tasks: Sequence[str], evaluation: Mapping[str, Any]
    ) -> tuple[float | None, tuple[float, float] | None]:
        """Return the value and interval of a row; an average is over the datasets of `tasks`."""
        if row in AVERAGES:
            values = []
            for task in tasks:
                value = self._value(task, models, tasks, evaluation)[0]
                if value is not None:
                    values.append((_datasets(evaluation, task), value))
            datasets = sum(count for count, _ in values)
            return (sum(count * value for count, value in values) / datasets if values else None), None
        # Of models of one task each, the one that was trained on this, or on what it is read as.
        trained_on = self.published.tasks[row].read_as or row
        model = next(one for one in models if one.route in (None, trained_on))
        measured = of_label(evaluation, model.label)["types"].get(MTEB_TYPES[row])
        if measured is None:
            return None, None
        ends = measured["interval"]
        return PERCENT * measured["value"], (PERCENT * ends[0], PERCENT * ends[1]) if ends else None


def filled_in(template: Path, folders: Mapping[str, Path]) -> dict[str, Any]:
    """Return the content of a task file with the folders in place of their names."""
    text = template.read_text(encoding="utf-8")
    for name, folder in folders.items():
        text = text.replace(name, str(folder.resolve()))
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def _datasets(evaluation: Mapping[str, Any], task: str) -> int:
    """Return the number of datasets of a type of task that were measured."""
    return sum(each["kind"] == MTEB_TYPES[task] for each in evaluation["tasks"])


def of_label(evaluation: Mapping[str, Any], label: str) -> dict[str, Any]:
    """Return the results of one model."""
    found: dict[str, Any] = next(each for each in evaluation["models"] if each["label"] == label)
    return found
