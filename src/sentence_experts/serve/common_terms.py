"""The words that a query and a paper have in common."""

from __future__ import annotations

from collections import Counter

from sentence_experts.retrieval.keywords import stems_of, telling_words

MAX_TERMS = 12


def stems(text: str) -> frozenset[str]:
    """Return the stems of a text's words, but for those that stand in any text."""
    return frozenset(stems_of([word.lower() for word in telling_words(text)]))


def common_terms(wanted: frozenset[str], text: str) -> list[str]:
    """Return the words of a text with one of these stems, as the text writes them; most frequent first.

    >>> query = stems("memory replays in sleep")
    >>> common_terms(query, "Replay of memories. The memories of rats are replayed.")
    ['Replay', 'replayed', 'memories']
    """
    counts: Counter[str] = Counter()
    forms: dict[str, dict[str, str]] = {}
    words = telling_words(text)
    for stem, word in zip(stems_of([word.lower() for word in words]), words, strict=True):
        if stem in wanted:
            counts[stem] += 1
            forms.setdefault(stem, {}).setdefault(word.lower(), word)
    return [form for stem, _ in counts.most_common() for form in forms[stem].values()][:MAX_TERMS]
