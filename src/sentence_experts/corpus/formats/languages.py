"""Languages of papers: their codes, by names and other codes."""

from __future__ import annotations

import re

from sentence_experts.corpus.formats.markup import clean

_LANGUAGES = {
    name: code
    for code, names in {
        "en": "english eng american british ukenglish usenglish", "de": "german ger deu ngerman",
        "fr": "french fre fra", "es": "spanish spa", "it": "italian ita", "pt": "portuguese por",
        "ru": "russian rus", "zh": "chinese chi zho", "ja": "japanese jpn", "nl": "dutch dut nld",
        "pl": "polish pol", "tr": "turkish tur", "ko": "korean kor", "sv": "swedish swe",
    }.items()
    for name in names.split()
}  # fmt: skip


def read_language(stated: str | None) -> str | None:
    """Return the two letters of a language by its name or code, others as they are; None of an unknown one.

    >>> read_language("eng"), read_language("English; French"), read_language("cze"), read_language("und")
    ('en', 'en', 'cze', None)
    """
    text = clean(re.split("[;|,]", stated or "")[0])
    low = (text or "").lower().replace("_", "-").partition("-")[0]
    code = _LANGUAGES.get(low, low if len(low) == 2 and low.isalpha() else text)
    return None if low in ("und", "undefined", "undetermined", "unknown", "n/a", "?") else code
