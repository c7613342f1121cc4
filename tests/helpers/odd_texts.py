"""Short texts with what tokenizers treat in special ways: spaces, brackets, accents, special tokens."""

TEXTS = [
    "",
    "lungs",
    "the heart pumps blood",
    "skin cancer grows slowly in the light " * 8,
    "naïve café 中文 ☃ \u200b zero width",
    "  leading spaces",
    "x [COPD] y and [copd] z",
    "[SEP] typed by hand, [PAD] too",
    "plants\n\tcrops  and   roots ",
    "(parenthesis first",
]
