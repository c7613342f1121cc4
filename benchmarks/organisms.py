"""Names of research organisms: one for each organism, and the words for them in a text.

Articles of eLife name their organisms by keywords from a list that the journal offers ("Mouse", "D.
melanogaster", "Viruses"), in either case; about twenty of 1,489 articles have names of their own. Those of
them that mean an organism of the list are here; the others, each in one article, stay as they are, as does
"frog", which need not be a Xenopus.
"""

from __future__ import annotations

import re

SAME = {
    "drosophila": "d. melanogaster",
    "drosophila melanogaster": "d. melanogaster",
    "fruit fly": "d. melanogaster",
    "s.cerevisae": "s. cerevisiae",
    "a. thaliana": "arabidopsis",
    "macaque monkey": "macaca mulatta",
    "n. crassa": "neurospora",
}

_PHRASES = (
    r"(?:budding|fission|baker's|brewer's) yeasts?|fruit fl(?:y|ies)|homo sapiens|mus musculus|"
    r"rattus norvegicus|gallus gallus|macaca \w+|thale cress|"
    r"[A-Z]\. ?(?:elegans|melanogaster|coli|cerevisi?ae|pombe|subtilis|thaliana|"
    r"laevis|tropicalis|rerio|musculus|sapiens|norvegicus|crassa|mulatta)"
)
_WORDS = (
    "mouse|mice|murine|rodents?|human|humans|patients?|people|participants|volunteers|men|women|drosophila|"
    "drosophilids?|melanogaster|fly|flies|insects?|yeasts?|cerevisiae|saccharomyces|pombe|"
    "schizosaccharomyces|fung(?:us|i|al)|coli|escherichia|bacteri(?:a|um|al)|bacillus|subtilis|salmonella|"
    "zebrafish|fish|fishes|teleosts?|danio|rerio|elegans|caenorhabditis|worms?|nematodes?|arabidopsis|"
    r"thaliana|plants?|\w*virus|\w*viruses|\w*viral|virions?|\w*phages?|hiv|hiv-\d|influenza|xenopus|frogs?|"
    "amphibians?|laevis|tropicalis|rats?|chickens?|chicks?|avian|birds?|macaques?|monkeys?|rhesus|primates?|"
    "dictyostelium|neurospora|plasmodium|malaria|mammals?|mammalian|vertebrates?|invertebrates?"
)
_ORGANISMS = re.compile(rf"\b(?:{_PHRASES}|{_WORDS})\b", re.IGNORECASE)


def normalised(name: str) -> str:
    """The name that stands for all names of an organism: in lower case, without doubled spaces."""
    lower = " ".join(name.split()).lower()
    return SAME.get(lower, lower)


def without_organisms(text: str) -> str:
    """The text with each word for an organism replaced by "organism"."""
    return _ORGANISMS.sub("organism", text)
