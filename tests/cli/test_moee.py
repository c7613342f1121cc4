"""`sentence-experts moee`, and an embedder's folder as a model of the other verbs."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from helpers.small_language_models import WORDS, make_language_model
from helpers.task_samples import make_tasks_folder
from sentence_experts.cli.main import main
from sentence_experts.encoding.encoder import cosines
from sentence_experts.evaluation.moee.rated_pairs import RatedPairs
from sentence_experts.moee.embedder import MoeEmbedder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model, texts, and scored pairs."""
    folder = tmp_path_factory.mktemp("moee-verb")
    make_language_model(folder / "olmoe", "olmoe")
    generator = random.Random(0)
    words = [word for word in WORDS if word.isalpha()]

    def text() -> str:
        return " ".join(generator.choices(words, k=6))

    for name in ("dev", "sts"):
        rows = [{"anchor": text(), "positive": text(), "score": generator.random()} for _ in range(30)]
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "texts.txt").write_text("".join(f"{text()}\n" for _ in range(12)))
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(stop.value.code or 0), " ".join(captured.out.split()), " ".join(captured.err.split())


def test_made_folder_is_a_model(place, tmp_path, capsys):
    made = ("moee", "make", place / "olmoe", "--out", tmp_path / "emb", "--device", "cpu")
    status, out, error = run(
        capsys, *made, "--develop", place / "dev.jsonl", "--calibrate", place / "texts.txt"
    )
    assert status == 0, error
    assert "chosen" in error
    assert "standard scores fitted on 12 texts" in error
    assert "sum of" in out
    vectors = []
    for verb in (("moee", "encode"), ("encode",)):
        target = tmp_path / f"{len(verb)}.npy"
        status, _, error = run(
            capsys,
            *verb,
            tmp_path / "emb",
            "--input",
            place / "texts.txt",
            "--out",
            target,
            "--device",
            "cpu",
        )
        assert status == 0, error
        vectors.append(np.load(target))
    assert np.array_equal(*vectors)
    assert vectors[0].shape == (12, 28)
    status, _, error = run(capsys, *made)
    assert (status, "--overwrite" in error) == (2, True), error
    assert run(capsys, *made, "--overwrite")[0] == 0


def test_evaluate_reads_texts_once_for_all_parts(place, tmp_path, capsys):
    tasks = make_tasks_folder(tmp_path)
    command = ("moee", "evaluate", place / "olmoe", "--tasks", tasks, "--only", "sts", "--only", "reranking")
    status, out, error = run(capsys, *command, "--out", tmp_path / "out", "--device", "cpu")
    assert status == 0, error
    for part in ("olmoe-hs", "olmoe-rw", "olmoe-concat", "olmoe-sum"):
        assert part in out
    assert list((tmp_path / "out" / "states").rglob("0*.parquet"))
    found = json.loads((tmp_path / "out" / "tasks.json").read_text())
    scores = {model["label"]: model["tasks"]["sts.papers"]["value"] for model in found["models"]}
    assert len(set(scores.values())) == 4, scores


def test_alpha_of_folder_is_used(place, tmp_path, capsys):
    made = ("moee", "make", place / "olmoe", "--alpha", 5, "--device", "cpu", "--out", tmp_path / "emb")
    assert run(capsys, *made)[0] == 0
    tasks = make_tasks_folder(tmp_path)
    scores = []
    for name, model, more in (("a", tmp_path / "emb", ()), ("b", place / "olmoe", ("--alpha", 5))):
        command = ("moee", "evaluate", model, "--tasks", tasks, "--only", "sts", "--parts", "sum", *more)
        status, _, error = run(capsys, *command, "--out", tmp_path / name, "--device", "cpu")
        assert status == 0, error
        assert list((tmp_path / name / "states").rglob("0*.parquet"))  # read once also from a folder
        found = json.loads((tmp_path / name / "tasks.json").read_text())
        scores.append(found["models"][0]["tasks"]["sts.papers"]["value"])
    assert scores[0] == scores[1]
    analysis = ("moee", "analyse", tmp_path / "emb", "--pairs", place / "sts.jsonl", "--clusters", 3)
    assert run(capsys, *analysis, "--prompts", "style", "--out", tmp_path / "an", "--device", "cpu")[0] == 0
    assert json.loads((tmp_path / "an" / "analysis.json").read_text())["alpha"] == 5


def test_analyse_writes_one_page(place, tmp_path, capsys):
    pairs = ("--pairs", place / "sts.jsonl", "--pairs", place / "dev.jsonl", "--prompts", "prompteol,style")
    command = ("moee", "analyse", place / "olmoe", *pairs, "--clusters", 3, "--out", tmp_path / "out")
    status, out, error = run(capsys, *command, "--device", "cpu")
    assert status == 0, error
    assert "analysis.html" in out
    first = (tmp_path / "out" / "analysis.html").read_bytes()
    assert run(capsys, *command, "--device", "cpu")[0] == 0
    assert (tmp_path / "out" / "analysis.html").read_bytes() == first
    assert str(tmp_path).encode() not in first


@pytest.mark.slow
def test_the_published_way_is_one_flag_of_every_verb(place, tmp_path, capsys):
    """encode, make, evaluate and analyse take --standard faithful, and give what it gives in Python."""
    flags = ("--standard", "faithful", "--standard-batch", 5, "--device", "cpu")
    texts, model = (place / "texts.txt").read_text().splitlines(), place / "olmoe"
    settings = {"standard": "faithful", "standard_batch": 5, "parts": "concat"}
    embedder = MoeEmbedder(str(model), device="cpu", **settings)
    expected = embedder.encode(texts)
    made = ("moee", "make", model, "--parts", "concat", *flags, "--out", tmp_path / "emb")
    assert run(capsys, *made)[0] == 0
    given = ("--input", place / "texts.txt", "--parts", "concat", "--out")
    assert run(capsys, "moee", "encode", model, *given, tmp_path / "a.npy", *flags)[0] == 0
    assert run(capsys, "moee", "encode", tmp_path / "emb", *given, tmp_path / "b.npy")[0] == 0
    for name in ("a.npy", "b.npy"):
        assert np.load(tmp_path / name) == pytest.approx(expected, abs=1e-5)
    tasks = ("--tasks", make_tasks_folder(tmp_path), "--only", "sts", "--out", tmp_path / "measured")
    status, out, error = run(capsys, "moee", "evaluate", model, *tasks, *flags)
    assert (status, "olmoe-rw-faithful" in out) == (0, True), error
    pairs = ("--pairs", place / "sts.jsonl", "--prompts", "prompteol", "--clusters", 3)
    assert run(capsys, "moee", "analyse", model, *pairs, *flags, "--out", tmp_path / "analysis")[0] == 0
    found = json.loads((tmp_path / "analysis" / "analysis.json").read_text())
    recorded = {"standard": "faithful", "standard_batch": 5, "wording": "code", "weights": "logits"}
    assert {name: found["settings"][name] for name in recorded} == recorded
    data = RatedPairs.read(place / "sts.jsonl")
    for part in ("hs", "rw", "concat"):
        own = embedder.with_parts(part)
        scored = cosines(own.encode(data.first), own.encode(data.second))
        value = next(row["value"] for row in found["correlations"] if row["part"] == part)
        assert value == pytest.approx(spearmanr(scored, data.scores).statistic, abs=0.02)
    status, _, error = run(
        capsys, *made[:3], "--calibrate", place / "texts.txt", *flags, "--out", tmp_path / "c"
    )
    assert (status, "--calibrate fits standard scores once" in error) == (2, True), error


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("encode", "MODEL", "--input", "hole.txt", "--out", "v.npy"), 1, "hole.txt: text 2 is empty"),
        (("encode", "ENCODER", "--input", "texts.txt", "--out", "v.npy"), 1, "bert model without routers"),
        (("encode", "./none", "--input", "texts.txt", "--out", "v.npy"), 1, "no such model folder"),
        (("encode", "MODEL", "--input", "texts.txt", "--out", "v.npy", "--parts", "x"), 2, "--parts: Input"),
        (("make", "MODEL", "--out", "o", "--alpha", "1", "--develop", "dev.jsonl"), 2, "leave out --alpha"),
        (("evaluate", "MODEL", "--out", "o"), 2, "give one of --mteb and --tasks"),
        (("analyse", "MODEL", "--pairs", "sts.jsonl", "--score", "x", "--out", "o"), 1, "lacks the column x"),
        (("analyse", "MODEL", "--pairs", "sts.jsonl", "--parts", "rw", "--out", "o"), 2, "option: --parts"),
        (("evaluate", "MODEL", "--mteb", "moee", "--config", "c.yaml", "--out", "o"), 1, "parts: no such"),
    ],
)  # fmt: skip
def test_errors_are_one_line(place, tmp_path, capsys, monkeypatch, minilm, arguments, status, said):
    monkeypatch.chdir(tmp_path)
    for name in ("texts.txt", "dev.jsonl", "sts.jsonl"):
        (tmp_path / name).write_bytes((place / name).read_bytes())
    (tmp_path / "c.yaml").write_text("parts: rw")
    (tmp_path / "hole.txt").write_text("rice\n \nwheat\n")
    named = {"MODEL": str(place / "olmoe"), "ENCODER": minilm}
    found, _, error = run(capsys, "moee", *(named.get(one, one) for one in arguments))
    assert (found, said in error) == (status, True), error
    assert "Traceback" not in error
