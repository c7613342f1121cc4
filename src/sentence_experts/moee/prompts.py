"""Prompts that make a language model summarize a text in its last token (MoEE, Table 4).

A prompt is a template with one `{text}`. The vector is read after the prompt's last words, so a long text is
truncated at its own end and the prompt stays whole.

The published code words them differently from the paper, and changes the texts: `PUBLISHED`, `as_published`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sentence_experts.errors import InputError, UsageError

SLOT = "{text}"
PROMPTEOL, NO_PROMPT = "prompteol", "none"
# The paper's numbers 1 to 9 in their order; the quotation marks of the first are as in its section 2.
_INSTRUCTIONS = {
    "style": "describe the style of @ - *",
    "sentiment": "describe the sentiment of @ (positive, neutral, or negative) - *",
    "tone": "describe the tone of @ - * (e.g., formal, informal, humorous, serious)",
    "intent": "describe the intent behind @ (e.g., request, suggestion, command) - *",
    "complexity": "rate the complexity of @ (simple, moderate, complex) - *",
    "subjectivity": "describe whether @ is subjective or objective - *",
    "language": "describe the language style of @ (e.g., academic, conversational, literary) - *",
    "grammar": "describe the grammatical structure of @ (simple, compound, complex) - *",
}
PROMPTS: dict[str, str] = {
    PROMPTEOL: f'This sentence: "{SLOT}" means in one word:',
    **{
        name: f"In one word, {instruction}:".replace("@", "the following sentence").replace("*", SLOT)
        for name, instruction in _INSTRUCTIONS.items()
    },
}

# The same prompts as the published code has them, where "none" quotes the text too.
_OPEN_QUOTES = (PROMPTEOL, "style")  # end in a quotation mark that nothing closes
PUBLISHED: dict[str, str] = {
    NO_PROMPT: f'"{SLOT}"',
    **{
        name: template.replace(SLOT, f'"{SLOT}"').replace(f'"{SLOT}":', f'"{SLOT}" :')
        for name, template in PROMPTS.items()
    },
    PROMPTEOL: f'This sentence : "{SLOT}" means in one word:',
}
PUBLISHED.update({name: f'{PUBLISHED[name]}"' for name in _OPEN_QUOTES})
_SENTENCE_ENDS = (".", "?", "!", '"', "'")

Tokenise = Callable[[str], Sequence[int]]


def as_published(text: str) -> str:
    """Return a text as the published code puts it into a prompt.

    A full stop is added unless it ends in one of . ? ! " ', quotation marks become single ones and
    underscores spaces.

    Example:
        >>> as_published('a "big" house')
        "a 'big' house."
    """
    ended = text if text.endswith(_SENTENCE_ENDS) else f"{text}."
    return ended.replace('"', "'").replace("_", " ")


@dataclass(frozen=True)
class Prompt:
    """The words before and after a text.

    Attributes:
        head, tail: the words.
        published: whether texts are changed as the published code does (`as_published`).
    """

    head: str
    tail: str
    published: bool = False

    @classmethod
    def of(cls, name_or_template: str, published: bool = False) -> Prompt:
        """Return a prompt by its name (`PROMPTS`, "none"), or a template with one `{text}`.

        `published`: named prompts and texts are as in the published code.
        """
        named = PUBLISHED if published else {NO_PROMPT: SLOT, **PROMPTS}
        template = named.get(name_or_template, name_or_template)
        if template.count(SLOT) != 1:
            known = ", ".join((*PROMPTS, NO_PROMPT))
            raise UsageError(f"prompt {name_or_template!r}: choose {known}, or a template with one {SLOT}")
        head, tail = template.split(SLOT)
        return cls(head, tail, published)

    @property
    def template(self) -> str:
        """The prompt with `{text}` in it."""
        return f"{self.head}{SLOT}{self.tail}"

    def token_ids(
        self, text: str, tokenise: Tokenise, limit: int | None, find_ends: Tokenise | None = None
    ) -> list[int]:
        """Tokenize the text within the prompt, at most `limit` tokens; a longer text loses its end.

        It is cut behind a token, where `find_ends` gives the character behind each token of a text: cut
        within one, it may have more tokens than a longer piece, and depend on the end that is lost.
        """
        text = as_published(text) if self.published else text

        def ids(characters: int) -> list[int]:
            return list(tokenise(f"{self.head}{text[:characters]}{self.tail}"))

        whole = ids(len(text))
        if limit is None or len(whole) <= limit:
            return whole
        if (alone := len(ids(0))) > limit:
            raise InputError(
                f"the prompt alone has {alone} tokens, and the model reads {limit}; choose a shorter one"
            )
        places: Sequence[int] = range(len(text))
        if find_ends is not None:
            ends = {end - len(self.head) for end in find_ends(f"{self.head}{text}{self.tail}")}
            places = [0, *sorted(end for end in ends if 0 < end < len(text))]
        fits, too_long = 0, len(places)
        while too_long - fits > 1:
            middle = (fits + too_long) // 2
            fits, too_long = (middle, too_long) if len(ids(places[middle])) <= limit else (fits, middle)
        return ids(places[fits])
