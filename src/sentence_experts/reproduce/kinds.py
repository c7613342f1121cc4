"""The kinds of recipes: on linked pairs (Hallee et al.), on tasks (MoTE), on language models (MoEE)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sentence_experts
from sentence_experts.corpus.corpus_folder import DOMAINS
from sentence_experts.errors import InputError, UsageError
from sentence_experts.evaluation.results import PAIR_WEIGHTED_MEAN, POOLED
from sentence_experts.moee.vectors import PARTS
from sentence_experts.reproduce.experiment import CALLS, MTEB, Experiment, Found, Model, evaluate
from sentence_experts.reproduce.material import (
    ARCHIVES,
    DATA_VARIABLE,
    Material,
    data_folder,
    draw_language_model,
    find_rated_pairs,
)
from sentence_experts.reproduce.published import ALL_DOMAINS, AVERAGES, Published, PublishedFigure
from sentence_experts.tasks.task_file import TaskFile
from sentence_experts.yaml_files import parse_yaml, read_settings

# Pair settings that depend on the articles at hand; how pairs are made and split is the protocol's.
SIZES = ("unit", "min_count", "max_train_per_domain", "max_eval_per_domain", "max_validation_per_domain")
PERCENT = 100
TRUST = "trust_remote_code"
# Names in task files for folders that only a run knows.
DATA, CORPORA = f"${{{DATA_VARIABLE}}}", "${CORPORA}"
DRAWN = "drawn"  # a small language model with random weights


class PairsExperiment(Experiment):
    """A recipe of models trained on linked pairs."""

    result = "evaluation.json"

    def find_data(self, corpus: Path | None) -> None:
        """Import and compile the articles at hand, or compile the user's corpus."""
        protocol = self.protocol
        self.folder = self.root / "pairs"
        if self.small and corpus is not None:
            raise UsageError("`corpus` is for `scale=full`; the small scale has its own articles")
        if self.small:
            self._compile_articles_at_hand()
        elif corpus is None:
            raise UsageError(
                "`scale=full` needs `corpus`, the articles of the paper: fetch them (`fetch_corpus`) with "
                f"{protocol.plan}, or import your own, with the domains of {protocol.domains}"
            )
        else:
            self.routes = {domain: domain for domain in read_settings(protocol.domains)["domains"]}
            self.differences = [f"data: the corpus {corpus}, not the authors' files"]
            # A fetched corpus knows which query found each paper.
            rules = {} if (corpus / DOMAINS).is_file() else {"domains": protocol.domains}
            self.add("compile_pairs", protocol.pairs, corpus=corpus, out=self.folder, **rules)

    def _compile_articles_at_hand(self) -> None:
        protocol = self.protocol
        material = Material.find(self.root.parent / "simulated", data_folder())
        content = read_settings(material.rules)
        self.routes = protocol.small.domains
        rules = {here: self.named("small.domains", here, content["domains"]) for here in self.routes.values()}
        used = {name: rules[name] for name in content["domains"] if name in rules}
        corpus = self.root.parent / ("corpus-simulated" if material.simulated else "corpus")
        if material.simulated:
            self.add("simulate_corpus", out=material.sources[0])
        self.add("import_corpus", sources=list(material.sources), out=corpus)
        sizes = {key: material.pairs[key] for key in SIZES if key in material.pairs}
        settings = {**protocol.pairs, **sizes, **protocol.small.pairs}
        if settings.get("split") == material.pairs["split"]:
            # The same split without shares: those that leave enough pairs in each set here.
            settings.setdefault("fractions", material.pairs["fractions"])
        stand_ins = ", ".join(f"{here} for {paper}" for paper, here in self.routes.items())
        self.differences = [f"data: {material.name}", f"domains: {stand_ins}"]
        self.note_changes("pairs", protocol.pairs, settings)
        domains = {**content, "domains": used}
        self.add("compile_pairs", settings, corpus=corpus, out=self.folder, domains=domains)

    def extension(self, route: str | None) -> dict[str, Any]:
        """Return an expert per domain."""
        return {"experts": list(self.routes.values()) if route is None else [route]}

    def find(self, figure: PublishedFigure, evaluations: Mapping[str, Any]) -> Found | None:
        """Return the model's metric on the figure's domain, or over all."""
        rows = {*self.left_out, *(model.name for model in self.models)}
        if figure.table not in self.recipe.tables or figure.row not in rows:
            return None
        own = (one for one in self.models if one.name == figure.row)
        model = next((one for one in own if one.route in (None, figure.domain)), None)
        if model is None:
            return Found()
        if figure.group not in evaluations:
            return None
        view = _find_results(evaluations[figure.group], model.label)
        if figure.domain == ALL_DOMAINS:
            view = view[view_of(figure, self.published)]
        else:
            view = view["domains"].get(self.routes.get(str(figure.domain)))
        if view is None:  # no pair of the domain was measured
            return Found(model)
        ends = view["intervals"].get(figure.metric)
        return Found(model, view["metrics"][figure.metric], (ends["low"], ends["high"]) if ends else None)


def view_of(figure: PublishedFigure, published: Published) -> str:
    """Return the view of a figure of all domains: how it was averaged."""
    means = published.means_of_domains
    is_mean = figure.row in means["rows"] and figure.metric in means["metrics"]
    return (PAIR_WEIGHTED_MEAN if is_mean else POOLED).kind


class TasksExperiment(Experiment):
    """A recipe of models trained on tasks."""

    def find_data(self, corpus: Path | None) -> None:
        """Import and compile the data at hand, or compile the published task file."""
        source: Any = self.protocol.tasks
        self.folder = self.root / "tasks"
        self.routes = {task.name: task.name for task in TaskFile.read(source).trainable()}
        words = "the public hub datasets nearest to those that the paper refers to"
        published = settings = self.protocol.compile
        if self.small:
            data, corpora, small = data_folder(), self.root.parent / "corpora", self.protocol.small
            words = f"{self._import_corpora(data, corpora)}, not the paper's datasets"
            template = self.protocol.file.parent / (small.simulated if data is None else small.tasks)
            source = fill_in(template, {DATA: data or Path(), CORPORA: corpora})
            settings = {**published, **small.compile}
        self.differences = [f"data: {words}"]
        self.note_changes("tasks", published, settings)
        self.add("compile_tasks", settings, source=source, out=self.folder)

    def _import_corpora(self, data: Path | None, corpora: Path) -> str:
        """Import the articles at hand, and return the data in words."""
        if data is None:
            articles = self.root.parent / "simulated"
            self.add("simulate_corpus", out=articles)
            self.add("import_corpus", sources=[articles], out=corpora / "simulated")
            return "SIMULATED articles (no real data was found)"
        for name, archive in zip(("elife", "crops"), ARCHIVES, strict=True):
            self.add("import_corpus", sources=[data / archive], out=corpora / name)
        return "eLife and PMC articles, Banking77, tweet emotion, 20 Newsgroups, STS-B"

    def find(self, figure: PublishedFigure, evaluations: Mapping[str, Any]) -> Found | None:
        """Return the figure of the column's model, or of its models of one task each, in percent."""
        if figure.table not in self.recipe.tables:
            return None
        models = self._in_column(figure.table, figure.column)
        if not models:
            return Found()
        (evaluation,) = evaluations.values()
        table = next(table for table in self.published.tables if table.table == figure.table)
        tasks = [task for task in table.rows or self.published.tasks if task not in AVERAGES]
        value, interval = self._value(figure.row, models, tasks, evaluation)
        gain = None
        if figure.gain and (others := self._in_column(figure.table, str(table.gains_over))):
            over, _ = self._value(figure.row, others, tasks, evaluation)
            gain = None if value is None or over is None else value - over
        return Found(models[0], value, interval, gain)

    def notes(self, evaluations: Mapping[str, Any]) -> list[str]:
        """Return the number of datasets of each type that were measured, beside the paper's."""
        (evaluation,) = evaluations.values()
        tasks = self.published.tasks.items()
        counts = [f"{name} {_count_datasets(evaluation, name)} for {task.datasets}" for name, task in tasks]
        return [f"datasets measured: {', '.join(counts)}"]

    def _in_column(self, table: str, column: str) -> list[Model]:
        return [one for one in self.models if one.run is not None and one.run.columns.get(table) == column]

    def _value(
        self, row: str, models: list[Model], tasks: Sequence[str], evaluation: Mapping[str, Any]
    ) -> tuple[float | None, tuple[float, float] | None]:
        """Return the value and interval of a row; an average is over the datasets of `tasks`."""
        if row in AVERAGES:
            found = [
                (_count_datasets(evaluation, one), self._value(one, models, (), evaluation)[0])
                for one in tasks
            ]
            values = [(count, value) for count, value in found if value is not None]
            datasets = sum(count for count, _ in values)
            return (sum(count * value for count, value in values) / datasets if values else None), None
        # If there is a model per task, the one that was trained on this, or on what it is read as.
        trained_on = self.published.tasks[row].read_as or row
        model = next(one for one in models if one.route in (None, trained_on))
        measured = _find_results(evaluation, model.label)["types"].get(mteb_type(row))
        if measured is None:
            return None, None
        ends = measured["interval"]
        return PERCENT * measured["value"], (PERCENT * ends[0], PERCENT * ends[1]) if ends else None


def mteb_type(task: str) -> str:
    """Return the type that mteb measures a paper's type of task as."""
    return "STS" if task == "sts" else task.title().replace("_", "")


def fill_in(template: Path, folders: Mapping[str, Path]) -> dict[str, Any]:
    """Return the content of a task file with the folders in place of their names."""
    if not template.is_file():
        raise InputError(f"{template}: no such file")
    text = template.read_text(encoding="utf-8")
    for name, folder in folders.items():
        text = text.replace(name, str(folder.resolve()))
    content: dict[str, Any] = parse_yaml(text, str(template))
    return content


def _find_results(evaluation: Mapping[str, Any], label: str) -> dict[str, Any]:
    """Return the results of one model."""
    found: dict[str, Any] = next(each for each in evaluation["models"] if each["label"] == label)
    return found


def _count_datasets(evaluation: Mapping[str, Any], task: str) -> int:
    """Return the number of datasets of a type of task that were measured."""
    return sum(each["kind"] == mteb_type(task) for each in evaluation["tasks"])


class LanguageModelExperiment(Experiment):
    """A recipe on a language model: an evaluation under each prompt, without training.

    Or one on the models that are measured beside it, its `baselines`.
    """

    def find_data(self, corpus: Path | None) -> None:
        """Compile the test sets at hand; the full scale loads mteb's."""
        words = "mteb's present versions of the datasets that the paper names"
        if self.small:
            data = find_rated_pairs(data_folder()).parents[1]
            words = "tweet emotion, 20 Newsgroups and STS12-16 at hand, not the paper's 20 datasets"
            self.folder = self.root / "tasks"
            source = fill_in(self.protocol.file.parent / self.protocol.small.tasks, {DATA: data})
            self.add("compile_tasks", source=source, out=self.folder)
        self.differences = [f"data: {words}"]

    def plan(self) -> None:
        """Plan an evaluation under each prompt, or of the baselines."""
        if not self.recipe.model:
            super().plan()
            return
        shared = self.find_model()
        chosen = {key: text for key, text in self.recipe.instructions.items() if ("." in key) == self.small}
        if chosen:
            shared["instructions"] = chosen
        ((_, settings),) = self.evaluate_settings().items()
        for prompt in self.protocol.prompts:
            out = self.report / prompt
            self.evaluations[prompt] = out / self.result
            given: dict[str, Any] = {"data": settings.get(MTEB) or self.folder, "out": out, "prompt": prompt}
            self.add("evaluate_language_model", **shared, **given, states=self.root / "states")

    def find_model(self) -> dict[str, Any]:
        """Return the language model, a folder or hub id, and how it is read."""
        recipe, small = self.recipe, self.protocol.small
        hub = model = self.named("model", recipe.model, self.published.models)["hub"]
        if self.small and small.base == DRAWN:
            model = str(self.root / "random-olmoe")
            self.add("draw_language_model", pairs=find_rated_pairs(data_folder()), out=Path(model))
        elif self.small:
            model = str(self.protocol.file.parent / small.base)
        self.models = [Model(recipe.model, recipe.model, (model,), other_base=self.small)]
        if self.small:
            self.differences.append(f"base: {Path(model).name} for {hub}")
        published = {**self.protocol.read, **recipe.read}
        read = {**published, **small.read} if self.small else published
        if TRUST in read:
            raise InputError(
                f"{self.protocol.file}: read.{TRUST}: only the user can allow this; write "
                "`needs_remote_code: true`"
            )
        self.note_changes("reading", published, read)
        if self.trusts_code and not self.small:
            read = {**read, TRUST: True}
        return {"model": model, "read": read}

    def find(self, figure: PublishedFigure, evaluations: Mapping[str, Any]) -> Found | None:
        """Return the average of a model in percent; the mean is over the measured types."""
        if (figure.model or "") != self.recipe.model or figure.group:
            return None
        model: Model | None = self.models[0]
        key = str(figure.prompt)
        if not self.recipe.model:
            model = next((each for each in self.models if each.name == figure.row), None)
            (key,) = evaluations
        if model is None:
            return Found()
        if key not in evaluations:
            return None
        types = _find_results(evaluations[key], figure.row)["types"]
        kinds = list(types) if figure.column in AVERAGES else [mteb_type(figure.column)]
        values = [PERCENT * float(types[kind]["value"]) for kind in kinds if kind in types]
        return Found(model, sum(values) / len(values) if values else None)


class AnalysisExperiment(LanguageModelExperiment):
    """An analysis of a language model on rated pairs (sections 3.2, 4.4 and 4.5), at both scales."""

    def find_data(self, corpus: Path | None) -> None:
        """Name the rated pairs; there is nothing to compile."""
        self.differences = ["data: STS12, the test set at hand"]

    def plan(self) -> None:
        """Plan the analysis."""
        pairs = find_rated_pairs(data_folder())
        self.evaluations["analysis"] = self.report / "analysis.json"
        settings, shared = self.protocol.analyse, self.find_model()
        self.add("analyse_language_model", settings, **shared, pairs=pairs, out=self.report)

    def find(self, figure: PublishedFigure, evaluations: Mapping[str, Any]) -> Found | None:
        """Return the agreement of clusters, or a mean correlation between prompts."""
        (analysis,) = evaluations.values()
        measured = {**analysis["clusters"]["agreement"], **analysis["between_prompts"]["means"]}
        return Found(self.models[0], measured[figure.column]) if figure.model == self.recipe.model else None


def evaluate_language_model(
    model: str,
    data: Any,
    out: Path,
    prompt: str,
    read: Mapping[str, Any],
    states: Path,
    instructions: Mapping[str, str] | None = None,
) -> None:
    """Evaluate hidden states, routing weights and their combinations; texts are read once for all.

    `instructions`: task -> what stands in front of its texts, inside the prompt.
    """
    embedder = sentence_experts.MoeEmbedder(model, prompt=prompt, cache=states, **read)
    settings: dict[str, Any] = {}
    if instructions:
        embedder.prompts = dict(instructions)
        settings["route_map"] = {task: task for task in instructions}
    evaluate({part: embedder.with_parts(part) for part in PARTS}, data, out, **settings)


def analyse_language_model(
    model: str, pairs: Path, out: Path, read: Mapping[str, Any], **settings: Any
) -> None:
    """Compare hidden states and routing weights on rated pairs, and write the report."""
    embedder = sentence_experts.MoeEmbedder(model, **read)
    sentence_experts.write_report(
        sentence_experts.analyse(embedder, pairs, out=out, **settings), out, keep=True
    )


CALLS |= {
    call.__name__: call for call in (draw_language_model, evaluate_language_model, analyse_language_model)
}
KINDS: dict[str, type[Experiment]] = {
    "pairs": PairsExperiment,
    "tasks": TasksExperiment,
    "language_models": LanguageModelExperiment,
    "analysis": AnalysisExperiment,
}
