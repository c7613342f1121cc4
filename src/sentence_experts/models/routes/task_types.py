"""The routes of mteb's task types, and prompts under their names in saved models, for a stock mteb."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

QUERY, DOCUMENT = ROLES = ("query", "document")
DOCUMENT_NAMES = (DOCUMENT, "passage")  # as models whose task file is not known call the role
# Types with a query and a document side; the other types have one.
TWO_SIDED = ("Retrieval", "Reranking", "InstructionRetrieval", "InstructionReranking")
# (type, role) -> route. MoTE, 4 (trained tasks) and 5.3 (re-ranking as search; pair classification, STS and
# summarization as classification). Ours: retrieval and re-ranking with instructions, and several labels.
ROUTE_OF_TYPE: Mapping[tuple[str, str | None], str] = {
    **{(kind, role): role for kind in TWO_SIDED for role in ROLES},
    ("Classification", None): "classification",
    ("MultilabelClassification", None): "classification",
    ("Clustering", None): "clustering",
    ("PairClassification", None): "classification",
    ("STS", None): "classification",
    ("Summarization", None): "classification",
}


def _key(kind: str, role: str | None) -> str:
    """Return mteb's name of the prompt for a task type: "STS", "Retrieval-query"."""
    return f"{kind}-{role}" if role else kind


def with_task_types(prompts: Mapping[str, str | None], default: str | None) -> dict[str, str | None]:
    """Add mteb's task types to a model's prompts: each has its route's prompt, or else the default prompt."""
    extended = dict(prompts)
    for (kind, role), route in ROUTE_OF_TYPE.items():
        name = route if prompts.get(route) else default
        if name is not None and prompts.get(name):
            extended.setdefault(_key(kind, role), prompts[name])
    return extended


def pair_queries(names: Iterable[str]) -> dict[str, str | None]:
    """Return the routes of queries among the names, with those of documents that are named alike, or None.

    >>> pair_queries(["search_query", "search_document", "retrieval.query", "retrieval.passage", "s2p_query"])
    {'search_query': 'search_document', 'retrieval.query': 'retrieval.passage', 's2p_query': None}
    """
    known = list(names)
    stems = {name: name.removesuffix(QUERY) for name in known if re.fullmatch(rf"(.*[\W_])?{QUERY}", name)}
    return {
        query: next((stem + of for of in DOCUMENT_NAMES if stem + of in known), None)
        for query, stem in stems.items()
    }


def without_task_types(prompts: Mapping[str, str | None], default: str | None) -> dict[str, str | None]:
    """Return a model's prompts without those that only repeat another one under the name of a task type."""
    types = {_key(*kind) for kind in ROUTE_OF_TYPE} - {default}
    others = {prompt for name, prompt in prompts.items() if name not in types}
    return {name: prompt for name, prompt in prompts.items() if name not in types or prompt not in others}
