"""What is wrong with a command shows before torch is imported, and so in under a second."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.samples import make_pairs_folder, make_tiny_encoder

# A command, EMPTY for an empty argument -> part of the message; MODEL has the routes crops and neuro,
# PAIRS the domains.
WRONG = {
    "encode nowhere/model/x --input texts.txt --out v.npy": "no such model folder",
    "encode MODEL --input nowhere.txt --out v.npy": "no such file",
    "encode MODEL --input texts.csv --column x --out v.npy": "no column 'x'",
    "encode MODEL --input texts.txt --out v.npy": "needs a route",
    "encode MODEL --input texts.txt --out v.npy --route x": "no route 'x'",
    "encode MODEL --input EMPTY --out v.npy": "--input: empty",
    "encode MODEL --input texts.txt --out v.npy --route crops --device meta": "computes nothing",
    "encode MODEL --input texts.txt --out v.npy --route crops --revision x": "--revision has no effect here",
    "encode MODEL --input texts.txt --out v.npy --route crops --max-resident-bytes 0": "--max-resident-bytes",
    "corpus import EMPTY --out o": "an argument: empty",
    "corpus import . --out .": ". is read: give another --out",
    "train MODEL --pairs PAIRS --out o --seed 4294967296": "--seed",
    "search MODEL --corpus nowhere rice --route crops": "holds no corpus",
    "evaluate PLAIN ./nowhere --pairs PAIRS --out o": "no such model folder",
    "evaluate MODEL --pairs nowhere --out o": "no pairs here",
    "evaluate MODEL --pairs PAIRS --route-map crops=x --out o": "no model has that route",
    "evaluate OTHER --pairs PAIRS --out o": "no route for domain",
    "compare MODEL ./nowhere": "no such model folder",
    "compare MODEL OTHER": "no route in common",
    "compare MODEL MODEL --texts texts.csv --column x": "no column 'x'",
    "similarity PLAIN --texts texts.txt --out o": "two routes or more",
    "similarity MODEL --texts texts.txt --routes crops,x --out o": "no route 'x'",
    "similarity MODEL --texts nowhere.txt --out o": "no such file",
    "audit ./nowhere --pairs PAIRS --out o": "no such model folder",
    "extend ./nowhere --experts a,b --out o": "no such model folder",
    "extend a+/c --experts a,b --out o": "a+/c: no such folder, and no name of a hub model",
    "extend PLAIN --out o": "name at least one route",
    "extend PLAIN --domains nowhere --out o": "no pairs here",
    "extend PLAIN --tasks nowhere --out o": "no such file or folder",
    "add-route ./nowhere skin --out o": "no such model folder",
    "drop-route ./nowhere skin --out o": "no such model folder",
    "train ./nowhere --pairs PAIRS --out o": "no such model folder",
    "train MODEL --pairs nowhere --out o": "no pairs here",
    "train MODEL --pairs PAIRS --batch-size 1 --out o": "--batch-size",
    "fit PLAIN nowhere.csv --by x --out o": "no such file",
    "fit PLAIN texts.csv --by x --out o": "--by: no column 'x'; the columns are text",
    "fit PLAIN texts.csv --out o": "--by: name at least one label column",
    "fit PLAIN texts.csv --by text --text x --out o": "--text: no column 'x'",
    "fit PLAIN texts.csv --by text --group x --out o": "--group: no column 'x'",
    "fit PLAIN texts.csv --by none=text --by text --out o": "route name 'none': all, auto and none mean",
    "fit PLAIN texts.csv --by=5=text --out o": "name it: ROUTE=text",
    "tune MODEL --tasks nowhere --out o": "no pairs here",
    "tune MODEL --pairs PAIRS --space nowhere.yaml --out o": "no such file",
    "auto-route nowhere/a/model --pairs PAIRS": "no such model folder",
    "export ./nowhere --average --out o": "no such model folder",
    "export MODEL --route x --out o": "no route 'x'",
    "moee make ./nowhere --out o": "no such model folder",
    "moee encode ./nowhere --input texts.txt --out v.npy": "no such model folder",
    "moee analyse ./nowhere --pairs texts.csv --out o": "lacks the columns",
}
CODE = """
import io, json, sys
from sentence_experts.cli import console
from sentence_experts.cli.main import main
for command in json.load(sys.stdin):
    console.notes.file = said = io.StringIO()
    try:
        main(command)
    except SystemExit as stop:
        heavy = [name for name in ("torch", "transformers") if name in sys.modules]
        print(json.dumps([stop.code, said.getvalue(), heavy]))
    if heavy:
        break
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, minilm: str) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "texts.txt").write_text("a text\nanother\n")
    (folder / "texts.csv").write_text("text\na text\nanother\n")
    make_pairs_folder(folder / "PAIRS")
    for name, experts in (("MODEL", ("crops", "neuro")), ("OTHER", ("roads", "ships")), ("PLAIN", ())):
        make_tiny_encoder(folder / name, minilm, experts)
    return folder


def test_wrong_arguments_show_before_torch_is_imported(place: Path) -> None:
    split = [command.split() for command in WRONG]
    commands = json.dumps([["" if word == "EMPTY" else word for word in words] for words in split])
    done = subprocess.run(
        [sys.executable, "-c", CODE], input=commands, capture_output=True, text=True, cwd=place, check=True
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    for (command, message), (status, said, heavy) in zip(WRONG.items(), answers, strict=False):
        assert message in said, command
        assert status in (1, 2), command
        assert not heavy, command
    assert len(answers) == len(WRONG)
