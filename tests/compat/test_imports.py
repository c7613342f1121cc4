"""What is imported later is the real thing, and nothing of the stand-ins is left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.samples import make_tiny_encoder, write_corpus
from sentence_experts.compat.imports import COMPILER, PACKAGES
from sentence_experts.compat.torch import LightMeta


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, minilm: str) -> Path:
    """A small model with experts."""
    return make_tiny_encoder(tmp_path_factory.mktemp("tiny") / "model", minilm, ("copd", "x-ray"))


RUN = """
import gc
import sys
from sentence_experts.cli.main import main

def run(*arguments):
    try:
        main(list(arguments))
    except SystemExit as stop:
        return stop.code or 0
"""

ENCODE_AND_SEARCH = (
    RUN
    + """
model, folder, names = sys.argv[1], sys.argv[2], sys.argv[3].split(",")
open(f"{folder}/texts.txt", "w").write("rice in drought\\nsleep\\n")
made = ["encode", model, "--input", f"{folder}/texts.txt", "--route", "copd", "--out", f"{folder}/v.npy"]
assert run("encode", "minilm", "--input", f"{folder}/texts.txt", "--out", f"{folder}/plain.npy") == 0
assert run(*made) == 0
assert run("search", model, "--corpus", folder, "--route", "copd", "sleep") == 0
assert gc.isenabled() and gc.get_freeze_count() > 100_000  # what was imported is looked through no more
print("imported:", *[name for name in names if name in sys.modules])
print("stand-ins:", *[n for n, m in sys.modules.items() if type(m).__module__.startswith("sentence_experts")])

# The same process goes on to use all of it.
import torch._dynamo  # first of all: its parts import each other, in an order that deferring must not change
import datasets, pandas, peft, scipy.stats, sklearn.metrics
import sentence_experts
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.util import similarity

assert similarity.pairwise_distances([[0.0], [2.0]])[0, 1] == 2
assert sklearn.metrics.pairwise_distances([[0.0], [2.0]])[0, 1] == 2
assert pandas.DataFrame({"a": [1]}).shape == (1, 1)
assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item() == 2
assert not isinstance(torch.ones(1), torch.distributed.tensor.DTensor)
encoder = sentence_experts.load(model)
rows = datasets.Dataset.from_dict({"anchor": ["[COPD] a", "[COPD] b"], "positive": ["[COPD] c", "[COPD] d"]})
arguments = SentenceTransformerTrainingArguments(f"{folder}/run", max_steps=1, report_to=[], use_cpu=True)
SentenceTransformerTrainer(
    encoder, arguments, train_dataset=rows, loss=MultipleNegativesRankingLoss(encoder)
).train()
print("trained")
"""
)


def test_encode_and_search_import_little_and_leave_no_trace(model: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    names = ",".join((*PACKAGES, COMPILER, "mteb"))
    done = subprocess.run(
        [sys.executable, "-c", ENCODE_AND_SEARCH, str(model), str(tmp_path), names],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert "imported:" in lines, done.stdout
    assert "stand-ins:" in lines, done.stdout
    assert lines[-1] == "trained"


FAILURES = (
    RUN
    + """
model, folder = sys.argv[1:]
open(f"{folder}/t.csv", "w").write("title,text\\na,b\\n")
table, out = ["--input", f"{folder}/t.csv"], ["--out", f"{folder}/v.npy"]
wrong = [
    ["encode", model, *table, "--column", "text", *out],
    ["encode", model, *table, "--column", "text", "--route", "x", *out],
    ["encode", model, *table, "--column", "x", "--route", "copd", *out],
    ["encode", model, "--input", f"{folder}/none.csv", "--route", "copd", *out],
    ["encode", model, *table, "--column", "text", "--route", "copd", "--routes", "x", *out],
    ["encode", model, *table, "--column", "text", "--route", "copd", "--precision", "x", *out],
    ["encode", f"{folder}/none", *table, "--column", "text", *out],
    ["search", model, "--corpus", folder, "--route", "x", "sleep"],
    ["search", model, "--corpus", f"{folder}/none", "--route", "copd", "sleep"],
    ["search", model, "--corpus", folder, "sleep"],
    ["similarity", model, "--texts", f"{folder}/t.csv", "--routes", "copd,x", "--out", folder],
    ["export", model, "--route", "x", "--out", f"{folder}/dense"],
]
for arguments in wrong:
    assert run(*arguments), arguments
    assert "torch" not in sys.modules, arguments
"""
)


def test_what_is_wrong_is_known_before_torch_is_imported(model: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", FAILURES, str(model), str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.count("error: ") == done.stderr.count("\n") == 12


def on_meta() -> list[torch.Tensor]:
    torch.nn.init.normal_(weight := torch.empty(3, 2))
    return [weight, torch.arange(5), torch.arange(1.0, 2.0, 0.25), torch.empty_like(weight)]


@pytest.mark.parametrize("made", range(4))
def test_tensors_on_no_device_are_those_of_torch(made: int) -> None:
    def described(tensor: torch.Tensor) -> Any:
        return tensor.shape, tensor.dtype, tensor.device, tensor.stride()

    with torch.device("meta"):
        expected = on_meta()[made]
    with LightMeta(), torch.device("meta"):
        found = on_meta()[made]
    assert described(found) == described(expected)
    with LightMeta():
        assert torch.empty_like(found, device="cpu").device.type == "cpu"
        assert torch.nn.init.ones_(torch.zeros(2)).tolist() == [1, 1]


def test_a_server_imports_no_torch_before_its_models() -> None:
    code = "import sys, sentence_experts.serve.library; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
