"""A simulated corpus: JATS files with planted topics and citations, for tests and a demo without articles.

Nothing in it is real, and every file says so: the journal is "Simulated Journal", DOIs begin with
`10.5555/simulated.`, titles and abstracts call themselves simulated. The words are ordinary terms of each
field, strung together at random.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

from sentence_experts.corpus.identifiers import SIMULATED_DOI
from sentence_experts.errors import UsageError
from sentence_experts.storage import write_text

JOURNAL = "Simulated Journal"

# Field (a subject heading) -> the words of each topic.
TOPICS: dict[str, tuple[str, ...]] = {
    "Neuroscience": (
        "hippocampus memory place-cell theta recall navigation synaptic potentiation consolidation "
        "dentate interneuron replay",
        "retina photoreceptor contrast ganglion visual cortex orientation receptive-field saccade "
        "luminance bipolar amacrine",
        "dopamine reward striatum craving reinforcement basal-ganglia motivation habit prediction-error "
        "accumbens tegmental effort",
    ),
    "Cell biology": (
        "mitosis spindle kinetochore centrosome chromosome-segregation anaphase microtubule checkpoint "
        "aneuploidy cyclin septin cytokinesis",
        "autophagy lysosome phagophore starvation mitophagy vesicle-trafficking endosome cargo-receptor "
        "proteostasis aggregate ubiquitin vacuole",
        "actin lamellipodium migration adhesion cortex-tension myosin filopodium wound-closure integrin "
        "polarity protrusion stress-fibre",
    ),
    "Biophysics and structural biology": (
        "potassium channel gating voltage-sensor permeation pore selectivity-filter patch-clamp "
        "inactivation lipid-bilayer conductance toxin",
        "ribosome translation cryo-microscopy elongation tRNA peptide-exit decoding initiation-factor "
        "stalling codon subunit nascent-chain",
        "protease crystal catalysis active-site substrate allostery conformational-change inhibitor "
        "enzyme-kinetics folding ligand hydrolysis",
    ),
    "Developmental biology and stem cells": (
        "limb morphogen patterning digit bud outgrowth gradient apical-ridge mesenchyme chondrogenesis "
        "proximal segment",
        "haematopoietic stem-cell niche marrow self-renewal lineage progenitor quiescence "
        "transplantation erythroid differentiation clone",
        "gastrulation embryo mesoderm organiser axis convergence notochord epiblast somite induction "
        "blastopore germ-layer",
    ),
    "Genomics and evolutionary biology": (
        "selection adaptation population allele-frequency sweep drift polymorphism fitness-landscape "
        "migration-rate admixture recombination demography",
        "transposon genome-assembly repeat silencing insertion element-family retrotransposon "
        "methylation genome-size host-defence copy-number burst",
        "enhancer chromatin transcription-factor regulatory-variation expression-level promoter "
        "accessibility binding-site histone-mark nucleosome motif reporter",
    ),
    "Microbiology and infectious disease": (
        "malaria parasite erythrocyte-invasion gametocyte mosquito sporozoite artemisinin schizont "
        "rosetting transmission merozoite vector",
        "biofilm quorum-sensing antibiotic resistance plasmid persister efflux matrix bacterial-growth "
        "swarming secretion conjugation",
        "influenza virus haemagglutinin neutralising-antibody vaccine antigenic-drift replication "
        "polymerase infection interferon capsid entry",
    ),
}  # fmt: skip
_VERBS = [
    "shapes", "limits", "drives", "predicts", "precedes", "restores",
    "weakens", "amplifies", "delays", "requires",
]  # fmt: skip
_MEASURES = [
    "imaging", "sequencing", "recordings", "modelling", "screening", "titration",
    "mutants", "tracing", "simulation", "profiling",
]  # fmt: skip
_QUALITIES = [
    "early", "late", "transient", "robust", "graded", "sparse",
    "coordinated", "local", "global", "variable",
]  # fmt: skip
_FRAMES = (
    "How {a} and {b} interact is poorly understood.",
    "We combined {m} with {n} to follow {a} over time.",
    "In this simulated study, {q} {a} {v} {b} and {c}.",
    "Loss of {b} left {a} unchanged but altered {c}.",
    "{q} changes in {c} were explained by {a}, not by {d}.",
    "A simple account in which {d} {v} {a} agreed with {m}.",
    "Across conditions, {a} {v} {d} whenever {b} was {q}.",
    "These simulated results link {a} to {c} through {b}.",
)
_OUTSIDE_WORKS = 110  # number per topic; they are cited by few articles, as most works are
_METHODS = 6  # cited by all fields, as methods papers are

_Work = tuple[str, str, int]  # DOI, title, year


def simulate_corpus(out: Path | str, seed: int = 0, articles: int = 1440) -> Path:
    """Write `articles` simulated JATS files into the folder `out`, spread evenly over six fields and their
    topics.

    Each article cites some 17 others of its topic, one of another topic of its field, eleven works outside
    the corpus that its topic shares, and a methods paper or two. Equal arguments give equal bytes.

    Raises:
        UsageError: fewer than one article per topic.
    """
    topics = [(field, words.split()) for field, several in TOPICS.items() for words in several]
    if articles < len(topics):
        raise UsageError(
            f"a simulated corpus needs at least {len(topics)} articles, one per topic, got {articles}"
        )
    dice = random.Random(f"simulated corpus {seed}")
    works: list[_Work] = []
    abstracts = []
    for number in range(articles):
        words = _spell_out(topics[number % len(topics)][1])
        year = 2005 + dice.randrange(8)
        works.append((f"{SIMULATED_DOI}{number + 1:05d}", _make_title(dice, words), year))
        abstracts.append(" ".join(_make_sentences(dice, words)))
    for number, (work, abstract) in enumerate(zip(works, abstracts, strict=True)):
        topic = number % len(topics)
        references = _draw_references(dice, topics, topic, work, works)
        article = _make_jats(dice, *topics[topic], work, abstract, references)
        write_text(Path(out) / f"simulated-{number + 1:05d}.xml", article)
    return Path(out)


def _spell_out(words: list[str]) -> list[str]:
    return [word.replace("-", " ") for word in words]


def _make_title(dice: random.Random, words: list[str]) -> str:
    a, b, c = dice.sample(words, 3)
    return f"Simulated {dice.choice(_QUALITIES)} {a} {dice.choice(_VERBS)} {b} and {c}"


def _make_sentences(dice: random.Random, words: list[str]) -> Iterator[str]:
    for frame in (*_FRAMES, *dice.sample(_FRAMES, 4)):
        a, b, c, d = dice.sample(words, 4)
        m, n = dice.sample(_MEASURES, 2)
        text = frame.format(a=a, b=b, c=c, d=d, m=m, n=n, q=dice.choice(_QUALITIES), v=dice.choice(_VERBS))
        yield text[0].upper() + text[1:]


def _draw_references(
    dice: random.Random, topics: list[tuple[str, list[str]]], topic: int, article: _Work, works: list[_Work]
) -> list[_Work]:
    """Return the works that an article of a topic cites."""
    count, (field, words) = len(topics), topics[topic]
    own = [work for work in works[topic::count] if work is not article]
    others = [other for other in range(count) if other != topic and topics[other][0] == field]
    elsewhere = [work for other in others for work in works[other::count]]
    references = dice.sample(own, min(17, len(own))) + dice.sample(elsewhere, min(1, len(elsewhere)))
    place = [name for name, _ in topics[:topic]].count(field)
    for outside in dice.sample(range(_OUTSIDE_WORKS), 11):
        # Every outside work has its own title, the same wherever it is cited.
        name = f"{list(TOPICS).index(field)}-{place}-{outside}"
        title = _make_title(random.Random(f"simulated work {name}"), _spell_out(words))
        references.append((f"{SIMULATED_DOI}outside.{name}", title, 1985 + outside % 20))
    for method in dice.sample(range(_METHODS), dice.randrange(1, 3)):
        title = f"Simulated method {method + 1} for all fields"
        references.append((f"{SIMULATED_DOI}method.{method}", title, 1998))
    dice.shuffle(references)
    return references


def _make_jats(
    dice: random.Random, field: str, words: list[str], work: _Work, abstract: str, references: list[_Work]
) -> str:
    listed = "\n".join(
        f'<ref id="r{number}"><element-citation publication-type="journal"><year>{year}</year>'
        f"<article-title>{escape(title)}</article-title><source>{JOURNAL}</source>"
        f'<pub-id pub-id-type="doi">{doi}</pub-id></element-citation></ref>'
        for number, (doi, title, year) in enumerate(references, start=1)
    )
    keywords = "".join(f"<kwd>{word}</kwd>" for word in _spell_out(dice.sample(words, 3)))
    doi, title, year = work
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<!-- Simulated article: generated by sentence-experts, no real work is described. -->
<article article-type="research-article" xml:lang="en"><front>
<journal-meta><journal-title-group><journal-title>{JOURNAL}</journal-title></journal-title-group></journal-meta>
<article-meta><article-id pub-id-type="doi">{doi}</article-id>
<article-categories>
<subj-group subj-group-type="display-channel"><subject>Simulated article</subject></subj-group>
<subj-group subj-group-type="heading"><subject>{field}</subject></subj-group></article-categories>
<title-group><article-title>{escape(title)}</article-title></title-group>
<pub-date date-type="pub"><year>{year}</year></pub-date>
<permissions><license><ali:license_ref xmlns:ali="http://www.niso.org/schemas/ali/1.0/">\
http://creativecommons.org/publicdomain/zero/1.0/</ali:license_ref></license></permissions>
<abstract><p>{escape(abstract)}</p></abstract>
<kwd-group kwd-group-type="author-keywords">{keywords}</kwd-group></article-meta></front>
<body><sec><title>Simulated</title><p>This article is simulated.</p></sec></body>
<back><ref-list>
{listed}
</ref-list></back></article>
"""
