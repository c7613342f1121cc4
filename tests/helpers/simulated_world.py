"""A world of simulated articles in two domains, with citations among them, for tests of whole fetches."""

from __future__ import annotations

import re
from pathlib import Path

from helpers.replay_server import Article, Replay
from sentence_experts.corpus.simulate import simulate_corpus

DOMAINS = {"neuro": "Neuroscience", "cells": "Cell biology"}


def fill(world: Replay, folder: Path, articles: int = 90) -> None:
    """Put simulated articles into the bucket, and their queries.

    `neuro` and `cells` share two articles. Of the next of `neuro`, one has two versions, one is retracted,
    one forbids commercial use, one has XML that is not well-formed, and one is not in the bucket any more.
    """
    simulate_corpus(folder, articles=articles, seed=1)
    of_domain: dict[str, list[str]] = {name: [] for name in DOMAINS}
    for number, file in enumerate(sorted(folder.rglob("*.xml")), start=101):
        text = file.read_text()
        pmcid, pmid = f"PMC{number}", str(number + 5_000)
        ids = "".join(
            f'<article-id pub-id-type="{kind}">{one}</article-id>'
            for kind, one in (("pmid", pmid), ("pmc", number))
        )
        text = re.sub(r"(<article-id)", ids + r"\1", text, count=1)
        world.articles[pmcid] = Article(pmcid, pmid, [text.encode()])
        for name, subject in DOMAINS.items():
            if f"<subject>{subject}</subject>" in text:
                of_domain[name].append(pmcid)
    of_domain["cells"] += of_domain["neuro"][:2]
    for name, pmcids in of_domain.items():
        dated = [(pmcid[3:], f"20{10 + i % 10}/03/0{1 + i % 9}") for i, pmcid in enumerate(pmcids)]
        world.queries[f"({DOMAINS[name]}[MeSH]) AND open access[filter]"] = dated
    made_odd = [world.articles[pmcid] for pmcid in of_domain["neuro"][2:8]]
    newer = made_odd[0].xml[0].replace(b"</article-title>", b" (second version)</article-title>", 1)
    made_odd[0].xml.append(newer)
    made_odd[1].metadata = {"is_retracted": True}
    made_odd[2].metadata = {"license_code": "CC BY-NC"}
    made_odd[3].xml[0] = made_odd[3].xml[0].replace(b"</front>", b"", 1)
    del world.articles[made_odd[4].pmcid]
