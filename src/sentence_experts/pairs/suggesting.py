"""`suggest_domains`: domains that the papers of a corpus fall into."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from sentence_experts.config import with_settings
from sentence_experts.corpus.corpus_folder import Corpus, CorpusFolder
from sentence_experts.errors import InputError
from sentence_experts.names import DOMAIN
from sentence_experts.pairs.config import SuggestDomainsConfig
from sentence_experts.pairs.domains import COLUMNS, descriptor_of, values_of
from sentence_experts.progress import announce
from sentence_experts.storage import write_new_text, write_text

_TRIED_PER_DOMAIN = 4  # number of values of a column that are tried for each domain
# Maximum share of the papers with a value: one that most papers have separates nothing.
_MAX_SHARE = 0.6
# Columns in the order of preference, if several sort as many papers.
_BY = ("subjects", "subfields", "fields", "mesh", "topics", "keywords", "journals")


@with_settings(SuggestDomainsConfig)
def suggest_domains(
    corpus: Corpus,
    out: Path | str | None = None,
    config: SuggestDomainsConfig | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Suggest a first `domains.yaml` for `compile_pairs`, of the subjects, headings or topics of a corpus.

    The values are chosen one by one, always the one with most papers that are in no domain yet. Merge,
    rename and drop domains as your question needs.

    Args:
        corpus: a corpus, or its folder.
        out: the file to write; without, only the rules are returned.
        config: the settings; `settings` override its fields, by name.
        overwrite: whether to replace `out`.

    Returns:
        The rules, as `compile_pairs` takes them for `domains`.

    Raises:
        InputError: nothing sorts the papers into two domains, or `out` exists.

    Example:
        >>> from sentence_experts import import_corpus
        >>> words = ["Rice", "Sleep"] * 4
        >>> rows = [{"id": str(n), "title": "T", "subjects": [w]} for n, w in enumerate(words)]
        >>> suggest_domains(import_corpus(papers=rows), min_papers=3)
        {'domains': {'sleep': {'subjects': ['Sleep']}, 'rice': {'subjects': ['Rice']}}}
    """
    config = SuggestDomainsConfig.of(config, **settings)
    if out is not None and Path(out).exists() and not overwrite:
        raise InputError(f"{out} exists; give another `out`, or `overwrite` to replace it")
    folder = CorpusFolder.of(corpus)
    tried = {by: _choose(folder, by, config) for by in (_BY if config.by == "auto" else (config.by,))}
    by = max(tried, key=lambda key: sum(tried[key].values()))
    if len(tried[by]) < 2:
        raise InputError(
            f"no {'column' if config.by == 'auto' else config.by} sorts the papers into two domains of "
            f"{config.min_papers:,} papers or more; lower `min_papers`, or write the rules with words of "
            "titles (`title`)"
        )
    rules: dict[str, dict[str, list[str]]] = {}
    lines = ["several: first      # papers in several domains: first | drop | each", "domains:"]
    for value, count in tried[by].items():
        name, rule = _make_name(value, rules), {by: [value]}
        rules[name] = rule
        written = yaml.safe_dump(rule, default_flow_style=True, allow_unicode=True, width=1000).strip()
        key = yaml.safe_dump(name).splitlines()[0]  # in quotes if it is "yes" or "on"
        lines.append(f"  {key}: {written}  # {count:,} papers, without those of the domains above")
    if out is not None:
        (write_text if overwrite else write_new_text)(Path(out), "\n".join(lines) + "\n")
    return {"domains": rules}


@announce("choosing domains")
def _choose(corpus: CorpusFolder, by: str, config: SuggestDomainsConfig) -> dict[str, int]:
    """Choose values: value -> the number of papers that it adds to the values before it."""
    common: dict[str, int] = {}
    spelling: dict[str, str] = {}  # the most common one; rules are matched without regard to case
    for value, count in corpus.count_values(COLUMNS[by], _TRIED_PER_DOMAIN * config.most).items():
        first = spelling.setdefault(value.casefold(), value)
        common[first] = common.get(first, 0) + count
    most = _MAX_SHARE * pq.read_metadata(corpus.papers).num_rows
    having: dict[str, set[int]] = {
        value: set() for value, count in common.items() if config.min_papers <= count <= most
    }
    with pq.ParquetFile(corpus.papers) as file:
        batches = file.iter_batches(columns=[COLUMNS[by]])
        for number, paper in enumerate(paper for batch in batches for paper in batch.to_pylist()):
            for value in values_of(paper, COLUMNS[by]):
                value = descriptor_of(value) if by == "mesh" else value
                if (papers := having.get(spelling.get(value.casefold(), value))) is not None:
                    papers.add(number)
    chosen: dict[str, int] = {}
    taken: set[int] = set()
    while having and len(chosen) < config.most:
        best = max(having, key=lambda value: (len(having[value] - taken), common[value], value))
        new = having.pop(best) - taken
        if len(new) < config.min_papers:
            break
        chosen[best] = len(new)
        taken |= new
    return chosen


def _make_name(value: str, taken: Collection[str]) -> str:
    """Make the name of a domain, such as `cell_biology` of "Cell biology"."""
    name = re.sub(r"[^a-z0-9]+", "_", value.lower()).strip("_")[:40].rstrip("_")
    name = name if re.fullmatch(DOMAIN.pattern, name) else f"domain_{name}".rstrip("_")
    return next(each for each in (name, *(f"{name}_{n}" for n in range(2, 1000))) if each not in taken)
