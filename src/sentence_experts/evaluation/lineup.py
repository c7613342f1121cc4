"""Which models an evaluation is of: under what label, with which pooling and routes, which are runs of one.

Options that concern one model name it by its label, or by the folder or hub id it comes from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sentence_experts.errors import UsageError
from sentence_experts.evaluation.baselines import ANY_DOMAIN
from sentence_experts.models.sources import source_name

TFIDF = "tfidf"


@dataclass(frozen=True)
class Entry:
    """One run of one model: `label` is its own, `model` the label of the model of which it is a run."""

    label: str
    model: str
    source: str
    is_baseline: bool = False

    @property
    def is_tfidf(self) -> bool:
        """Whether this is the TF-IDF baseline, and no encoder."""
        return self.is_baseline and self.source == TFIDF

    def is_called(self, name: str) -> bool:
        """Whether an option that names `name` means this entry."""
        return name in (self.label, self.model, self.source)


def line_up(
    models: Sequence[str],
    baselines: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
    seeds: Sequence[tuple[str, str]] = (),
) -> list[Entry]:
    """The entries in the order models, models of several seeds, baselines.

    Args:
        models: folders or hub ids.
        baselines: the same, or "tfidf".
        names: label -> one of these; one of them under two labels is evaluated twice.
        seeds: (label, folder or hub id) of each run; runs of one label are one model.

    Raises:
        UsageError: a name for something that is not there, or TF-IDF as a model.
    """
    if TFIDF in (*models, *(source for _, source in seeds)):
        raise UsageError("tfidf is no model that was trained: give it as --baseline tfidf")
    labels: dict[str, list[str]] = {}
    for label, source in (names or {}).items():
        if source not in (*models, *baselines):
            raise UsageError(f"--name {label}={source}: no such model or baseline on this command")
        labels.setdefault(source, []).append(label)

    def called(source: str, otherwise: str) -> list[str]:
        return labels.get(source, [otherwise])

    entries = [
        Entry(label, label, source) for source in models for label in called(source, source_name(source))
    ]
    counts: Counter[str] = Counter()
    for label, source in seeds:
        counts[label] += 1
        entries.append(Entry(f"{label} #{counts[label]}", label, source))
    for source in baselines:
        usual = "TF-IDF" if source == TFIDF else source_name(source)
        entries += [Entry(label, label, source, is_baseline=True) for label in called(source, usual)]
    return entries


def runs_by_model(entries: Iterable[Entry]) -> dict[str, list[str]]:
    """Label of each model that has runs of its own -> the labels of its runs."""
    runs: dict[str, list[str]] = {}
    for entry in entries:
        if entry.label != entry.model:
            runs.setdefault(entry.model, []).append(entry.label)
    return runs


def option_of(entry: Entry, options: Mapping[str, str]) -> str | None:
    """What `options` (label or source -> value) says of this entry."""
    return next((value for name, value in options.items() if entry.is_called(name)), None)


def check_names(entries: Sequence[Entry], named: Mapping[str, str], option: str) -> None:
    """Every encoder that an option names is there.

    Raises:
        UsageError: one is not.
    """
    encoders = [entry for entry in entries if not entry.is_tfidf]
    for name, value in named.items():
        if not any(entry.is_called(name) for entry in encoders):
            known = ", ".join(dict.fromkeys(entry.model for entry in encoders)) or "none"
            raise UsageError(f"{option} {name}={value}: no such model; models: {known}")


@dataclass(frozen=True)
class RouteMap:
    """Routes that were named: for all models that have the route, and for single models.

    Attributes:
        of_all: domain -> route.
        of_one: label or source -> domain -> route.
    """

    of_all: Mapping[str, str]
    of_one: Mapping[str, Mapping[str, str]]

    @classmethod
    def read(cls, assignments: Mapping[str, str], domains: Sequence[str]) -> RouteMap:
        """From `DOMAIN` or `MODEL:DOMAIN` -> route; "*" is every domain.

        Raises:
            UsageError: no such domain.
        """
        of_all: dict[str, str] = {}
        of_one: dict[str, dict[str, str]] = {}
        for key, route in assignments.items():
            # Models and domains may hold colons themselves, so the end of the key is compared.
            fitting = [domain for domain in (*domains, ANY_DOMAIN) if f":{key}".endswith(f":{domain}")]
            if not fitting:
                raise UsageError(f"--route-map {key}={route}: the domains are {', '.join(domains)}")
            domain = max(fitting, key=len)
            model = key.removesuffix(domain).removesuffix(":")
            (of_one.setdefault(model, {}) if model else of_all)[domain] = route
        return cls(of_all, of_one)

    def of(self, entry: Entry, routes: Iterable[str]) -> dict[str, str]:
        """Domain -> route for this entry, whose model has `routes`."""
        known = set(routes)
        found = {domain: route for domain, route in self.of_all.items() if route in known}
        for model, named in self.of_one.items():
            if entry.is_called(model):
                found |= named
        return found
