"""Ways to break bytes and JSON values."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from fuzz_mutations import MUTATIONS

BYTES = ("truncate", "flip bits", "cut out", "repeat a part", "nuls", "noise", "twice", "blank before")
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 10**30, 1e308, 0.5, "", "\0", "x" * 5000, "²", "-1", "../x", "a\nb", "\u202e", "NaN",
    [], [[]], {}, {"a": []}, [None], ["x", 1], "9" * 5000, "\ud800",
)  # fmt: skip


def break_bytes(random: Random, data: bytes) -> bytes:
    """The bytes after one to three mutations."""
    for _ in range(random.choice((1, 1, 2, 3))):
        data = MUTATIONS[random.choice(BYTES)](random, data)
    return data


def break_value(random: Random, value: Any) -> Any:
    """A JSON value with some of its parts replaced, removed, doubled or nested."""
    if random.random() < 0.2 or not isinstance(value, dict | list) or not value:
        return random.choice(ODD)
    if isinstance(value, list):
        place = random.randrange(len(value))
        kept = [*value]
        how = random.randrange(4)
        if how == 0:
            del kept[place]
        elif how == 1:
            kept += kept * random.choice((1, 30))
        else:
            kept[place] = break_value(random, kept[place])
        return kept
    key = random.choice(sorted(value, key=str))
    changed = dict(value)
    how = random.randrange(5)
    if how == 0:
        del changed[key]
    elif how == 1:
        changed[random.choice(("x", "", key + " ", "\n"))] = changed[key]
    else:
        changed[key] = break_value(random, changed[key])
    return changed


def break_json(random: Random, value: Any) -> bytes:
    """JSON broken in its values, or in its bytes."""
    for _ in range(random.choice((1, 1, 2, 4))):
        value = break_value(random, value)
    data = json.dumps(value).encode()
    if random.random() < 0.1:
        deep = random.choice((50, 5000, 100_000))
        data = b"[" * deep + data + b"]" * deep
    return break_bytes(random, data) if random.random() < 0.3 else data
