"""The domains of the works: by rules, by the query that found them, or one for all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.types as ir
import pyarrow as pa

from sentence_experts.errors import InputError
from sentence_experts.pairs.domains import DomainRules
from sentence_experts.pairs.engines import Engine
from sentence_experts.pairs.works import BEYOND_THE_CORPUS, domains_of_cited, within_years

ONE_DOMAIN = "all"
_FIELDS = ("paper_id", "title", "subjects", "mesh", "keywords", "journal", "year")


def domains_of_works(
    engine: Engine,
    unit: str,
    texts: ir.Table,
    papers: ir.Table,
    citations: ir.Table,
    given_rules: Path | Mapping[str, Any] | None,
    found_in: Path | None = None,
) -> ir.Table:
    """`paper_id, domain`: a row for each domain of each work of `texts` (`folded_texts`) that has any.

    Without rules, `found_in` tells which domain's query found each paper of a fetched corpus; without either,
    all works are of one domain. With titles, works outside the corpus count too.

    Raises:
        InputError: the rules cannot be read, or no paper falls into any of their domains.
    """
    # A paper without text is in no pair, but the works that it cites outside the corpus get its domain.
    votes = unit in BEYOND_THE_CORPUS
    years: dict[str, tuple[int, int]] = {}
    if given_rules is not None:
        rules = DomainRules.of(given_rules)
        batches = list(_classified(engine, papers if votes else papers.semi_join(texts, "paper_id"), rules))
        if not batches:
            name = "`domains`" if isinstance(given_rules, Mapping) else given_rules
            raise InputError(f"{name}: no paper of the corpus falls into any of its domains")
        inside = engine.stored(pa.concat_tables(batches))
        years = {name: rule.years for name, rule in rules.domains.items() if rule.years is not None}
    elif found_in is not None:
        inside = engine.read(found_in)
        inside = inside if votes else engine.kept(inside.semi_join(texts, "paper_id"))
    else:
        return engine.kept(texts.select("paper_id", domain=ibis.literal(ONE_DOMAIN)))
    if not votes:
        return inside
    outside = within_years(domains_of_cited(texts, papers, citations, inside), texts, years)
    of_works = inside.semi_join(texts, "paper_id").select("paper_id", "domain")
    return engine.kept(of_works.union(outside))


def _classified(engine: Engine, papers: ir.Table, rules: DomainRules) -> Iterator[pa.Table]:
    """The domains of the papers, batch by batch, without papers of no domain."""
    domains_of = rules.classifier()
    for batch in engine.batches(papers.select(*_FIELDS)):
        found = [(paper["paper_id"], domain) for paper in batch.to_pylist() for domain in domains_of(paper)]
        if found:
            ids, domains = zip(*found, strict=True)
            yield pa.table({"paper_id": pa.array(ids, pa.string()), "domain": pa.array(domains, pa.string())})
