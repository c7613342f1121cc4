"""Wrong arguments are one line; what can be known without a model shows before torch is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.command_line import run
from helpers.samples import make_pairs_folder, make_tiny_encoder, write_corpus

# A command, EMPTY for an empty argument -> part of the message; MODEL has the routes crops and neuro,
# PAIRS the domains. No torch is imported for these.
EARLY = {
    "encode nowhere/model/x --input texts.txt --out v.npy": "no such model folder",
    "encode MODEL --input nowhere.txt --out v.npy": "no such file",
    "encode MODEL --input texts.csv --column x --out v.npy": "no column 'x'",
    "encode MODEL --input texts.txt --out v.npy": "needs a route",
    "encode MODEL --input texts.txt --out v.npy --route x": "no route 'x'",
    "encode MODEL --input EMPTY --out v.npy": "--input is empty",
    "encode MODEL --input texts.txt --out v.npy --route crops --device meta": "computes nothing",
    "encode MODEL --input texts.txt --out v.npy --route crops --revision x": "--revision has no effect here",
    "encode MODEL --input texts.txt --out v.npy --max-resident-experts 0": "--max-resident-experts",
    "corpus import EMPTY --out o": "an argument is empty",
    "corpus import . --out .": ". is read: give another --out",
    "corpus import . --out o --years 2015": "--years: too few values",
    "train MODEL --pairs PAIRS --out o --seed 4294967296": "--seed",
    "search MODEL --corpus nowhere rice --route crops": "holds no corpus",
    "evaluate PLAIN ./nowhere --pairs PAIRS --out o": "no such model folder",
    "evaluate MODEL --pairs nowhere --out o": "no pairs here",
    "evaluate MODEL --pairs PAIRS --route-map crops=x --out o": "no model has that route",
    "evaluate OTHER --pairs PAIRS --out o": "no route for domain",
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
    "export ./nowhere --average --out o": "no such model folder",
    "export MODEL --route x --out o": "no route 'x'",
    "moee make ./nowhere --out o": "no such model folder",
    "moee encode ./nowhere --input texts.txt --out v.npy": "no such model folder",
    "moee analyse ./nowhere --pairs texts.csv --out o": "lacks the columns",
}
# Command -> exit status, part of the message.
WRONG = {
    "encode MODEL --input two.csv --out o.npy": (
        1,
        "the column with the texts (--column); columns are id",
    ),
    "encode MODEL --input texts.txt --route crops --out o.txt": (2, "must end in"),
    "encode MODEL --out o.npy": (2, "--input"),
    "evaluate --pairs PAIRS --out o --baseline tfidf --name x": (
        2,
        "'x' is not of the form LABEL=MODEL",
    ),
    "evaluate --pairs PAIRS --out o --baseline tfidf --route-map sky=x": (2, "the domains are crops, neuro"),
    "evaluate MODEL --pairs PAIRS --out o --pooling MODEL=max": (2, "--pooling: Input should be 'mean',"),
    "evaluate MODEL --out o": (2, "give one of --pairs, --mteb and --tasks (got none)"),
    "evaluate MODEL --out o --pairs p --mteb STS12": (2, "(got --pairs and --mteb)"),
    "evaluate MODEL --out o --mteb STS12 --linked-only": (2, "--linked-only is for pairs, not for tasks"),
    "evaluate MODEL --out o --mteb STS12 --baseline tfidf": (
        2,
        "--baseline: TF-IDF is for pairs, since",
    ),
    "extend PLAIN --out o --experts a --layers x": (2, "alternate"),
    "extend PLAIN --out o --experts a --layers 7": (2, "0 to 1"),
    "extend PLAIN --out o --experts a --prefixes a": (2, "ROUTE=INSTRUCTION"),
    "extend PLAIN --out o --experts a --route x": (2, "'token', 'prefix'"),
    "extend PLAIN --out o --experts a --route none": (2, "--router learned"),
    "add-route MODEL a --out o --seed-from base": (2, "give --base"),
    "drop-expert MODEL a --out o": (2, "no route or expert 'a'"),
    "export MODEL --out o": (2, "give one of --route, --average and --format onnx"),
    "search MODEL --corpus CORPUS rice --route crops -k 0": (2, "-k"),
    "search MODEL --corpus CORPUS EMPTY --route crops": (2, "empty"),
    "search MODEL --corpus CORPUS": (2, "give QUERY or --like"),
    "search MODEL --corpus CORPUS rice --like a --route crops": (2, "give QUERY or --like, not both"),
    "search MODEL --corpus CORPUS rice --year 2020..2010 --route crops": (
        2,
        "'2020..2010': the first year",
    ),
    "search MODEL --corpus CORPUS rice --route crops=1,x=1": (2, "MODEL has no route 'x'; its routes: crops"),
    "search MODEL --corpus CORPUS rice --ris --csv --route crops": (2, "give one of --csv and --ris"),
    "similarity MODEL --texts texts.txt --out texts.txt": (2, "--out must be a folder"),
    "similarity MODEL --texts two.csv --out o": (1, "--column"),
    "train m --out o": (2, "give --pairs, --tasks or both"),
    "train m --out o --pairs p --warmup 0.2 --warmup-steps 3": (2, "--warmup and --warmup-steps"),
    "train m --out o --pairs p --temperatures copd=0": (2, "--temperatures: copd: Input should be greater"),
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
    (folder / "two.csv").write_text("id,text\n1,a text\n")
    write_corpus(folder / "CORPUS")
    make_pairs_folder(folder / "PAIRS")
    for name, experts in (("MODEL", ("crops", "neuro")), ("OTHER", ("roads", "ships")), ("PLAIN", ())):
        make_tiny_encoder(folder / name, minilm, experts)
    return folder


def words_of(command: str) -> list[str]:
    return ["" if word == "EMPTY" else word for word in command.split()]


@pytest.mark.slow
def test_wrong_arguments_show_before_torch_is_imported(place: Path) -> None:
    commands = json.dumps([words_of(command) for command in EARLY])
    done = subprocess.run(
        [sys.executable, "-c", CODE], input=commands, capture_output=True, text=True, cwd=place, check=True
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    for (command, message), (status, said, heavy) in zip(EARLY.items(), answers, strict=False):
        assert message in said, command
        assert status in (1, 2), command
        assert not heavy, command
    assert len(answers) == len(EARLY)


@pytest.mark.parametrize("command", WRONG)
def test_wrong_arguments_are_one_line_and_leave_nothing(
    place: Path, command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    before = sorted(place.rglob("*"))
    status, message = WRONG[command]
    found, said, error = run(capsys, *words_of(command))
    assert (found, said) == (status, ""), error
    assert message in error
    assert error.count("\n") == 1
    assert error.startswith("error: ")
    assert sorted(place.rglob("*")) == before
