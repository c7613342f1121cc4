"""Options derived from settings classes: every type, defaults, files, and errors that name the flag."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from pydantic import Field

import sentence_experts
from sentence_experts.cli import console, main
from sentence_experts.cli.console import VERB_BY_FUNCTION, name_flags, name_verbs
from sentence_experts.cli.options import add_verb
from sentence_experts.config import PHRASES, Config
from sentence_experts.errors import InputError, UsageError

LIBRARY = Path(sentence_experts.__file__).parent
NO_VERBS = {
    "sentence-experts corpus",
    "sentence-experts output",
    "sentence-experts pairs",
    "--no-deps",
}  # names of formats and of a Spark session, and an option of pip


class Loading(Config):
    device: str | None = Field(None, description="cpu, cuda, ...")
    packed: bool = Field(True, description="Leave padding out")


class Settings(Config):
    top_k: int = Field(2, ge=1, description="Number of experts per token")
    scale: float = Field(20.0, gt=0, description="Scale of similarities")
    pooling: Literal["mean", "cls"] | None = Field(None, description="Pooling")
    layers: Literal["all", "none"] | list[int] = Field("all", description="Blocks with experts")
    experts: list[str] = Field([], description="Names of experts")
    subjects: Annotated[list[str], PHRASES] = Field([], description="Subjects")
    numbers: list[int] | None = Field(None, description="Some numbers")
    prefixes: dict[str, str] = Field({}, description="Instruction per route")
    weights: dict[str, float] | None = Field(None, description="Weight per expert")
    seeds: dict[str, list[str]] = Field({}, description="Models per label")
    fractions: tuple[float, float, float] = Field((0.8, 0.1, 0.1), description="Shares")
    cache: Path | None = Field(None, description="Folder of vectors")
    swap: bool = Field(True, description="Swap the texts of a pair")
    shuffle: bool | None = Field(None, description="Shuffle")


def app_with(received: dict[str, Any]) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    def work(
        model: Annotated[str, typer.Argument(metavar="MODEL")], config: Settings, loading: Loading
    ) -> None:
        received.update(model=model, config=config, loading=loading)
        if model == "bad":
            raise UsageError(
                "`top_k=5` and `packed=False` do not fit `model`, nor `unknown`; `scale` is free"
            )

    add_verb(app, work)
    return app


def run(*arguments: str) -> dict[str, Any]:
    received: dict[str, Any] = {}
    app_with(received)([*arguments], standalone_mode=False)
    return received


def test_defaults_without_flags() -> None:
    received = run("m")
    assert received == {"model": "m", "config": Settings(), "loading": Loading()}


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["--top-k", "3"], "top_k", 3),
        (["-k", "3"], "top_k", 3),
        (["--scale", "1.5"], "scale", 1.5),
        (["--pooling", "cls"], "pooling", "cls"),
        (["--layers", "none"], "layers", "none"),
        (["--layers", "0, 2,4"], "layers", [0, 2, 4]),
        (["--experts", "a, b", "--experts", "c"], "experts", ["a", "b", "c"]),
        (["--numbers", "1,2"], "numbers", [1, 2]),
        (
            ["--subjects", "Education, Medical,Sleep", "--subjects", "Rice"],
            "subjects",
            ["Education, Medical", "Sleep", "Rice"],
        ),
        (["--prefixes", "q=find: a, b", "--prefixes", "d=x=y"], "prefixes", {"q": "find: a, b", "d": "x=y"}),
        (["--weights", "a=2,b=1"], "weights", {"a": 2.0, "b": 1.0}),
        (["--seeds", "A=1", "--seeds", "A=2"], "seeds", {"A": ["1", "2"]}),
        (["--fractions", "0.5,0.25,0.25"], "fractions", (0.5, 0.25, 0.25)),
        (["--cache", "x/y"], "cache", Path("x/y")),
        (["--no-swap"], "swap", False),
        (["--shuffle"], "shuffle", True),
        (["--no-shuffle"], "shuffle", False),
    ],
)
def test_values_of_each_type(arguments: list[str], field: str, value: object) -> None:
    assert getattr(run("m", *arguments)["config"], field) == value


def test_each_config_gets_its_own_settings() -> None:
    received = run("m", "--no-packed", "--device", "cpu", "--top-k", "4")
    assert received["loading"] == Loading(device="cpu", packed=False)
    assert received["config"] == Settings(top_k=4)


def test_flags_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("top_k: 7\nscale: 3\ndevice: cpu\n")
    received = run("m", "--config", str(file), "--scale", "5")
    assert received["config"] == Settings(top_k=7, scale=5)
    assert received["loading"].device == "cpu"


def test_errors_of_the_file_name_it(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("top_q: 7\n")
    with pytest.raises(InputError, match=r"settings\.yaml: top_q: no such setting; did you mean top_k"):
        run("m", "--config", str(file))
    file.write_text("top_k: 0\n")
    with pytest.raises(InputError, match=r"settings\.yaml: top_k: .*greater than or equal to 1.*got 0"):
        run("m", "--config", str(file))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--top-k", "0"], "--top-k: .*greater than or equal to 1.*got 0"),
        (["--pooling", "max"], "--pooling: .*'mean' or 'cls'.*got 'max'"),
        (["--prefixes", "query"], "--prefixes: 'query' is not of the form NAME=VALUE"),
        (["--prefixes", "q=a", "--prefixes", "q=b"], "--prefixes: 'q' is given twice"),
        (["--weights", "a=many"], "--weights: .*number"),
        (["--numbers", "1,b"], "--numbers: .*integer"),
        (["--device", "cpu", "--device=cpu"], "--device is given twice"),
        (["-k", "1", "--top-k", "2"], "--top-k is given twice"),
        (["--config", "a.yaml", "--config", "b.yaml"], "--config is given twice"),
    ],
)
def test_bad_values_name_the_flag(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run("m", *arguments)


def test_parameters_of_the_library_become_flags() -> None:
    with pytest.raises(UsageError) as caught:
        run("bad")
    assert str(caught.value) == "--top-k 5 and --no-packed do not fit MODEL, nor `unknown`; --scale is free"
    assert name_flags("`top_k`", []) == "`top_k`"
    assert name_verbs("make it with `fetch_corpus`") == "make it with `sentence-experts corpus fetch`"


def test_library_messages_name_no_flag_and_no_verb() -> None:
    for file in sorted(LIBRARY.rglob("*.py")):
        if file.parent.name != "cli":
            # The commands in a model's card are other programs'.
            text = re.sub(r"```bash.*?```", "", file.read_text("utf-8"), flags=re.DOTALL)
            found = re.findall(r"sentence-experts [a-z]+|(?<=[ `])--[a-z][a-z-]+", text)
            assert set(found) <= NO_VERBS, file


def test_every_verb_that_notes_name_is_there() -> None:
    for name, verb in VERB_BY_FUNCTION.items():
        assert name in sentence_experts.__all__ or hasattr(sentence_experts.CorpusFolder, name)
        assert verb.split()[0] in main.VERBS


def test_help_has_descriptions_choices_and_defaults(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    run("--help")
    text = " ".join(capsys.readouterr().out.split())
    for part in (
        "--top-k",
        "cpu, cuda, ...",
        "Number of experts per token. Default: 2",
        "mean|cls",
        "--no-swap",
        "NAME=VALUE",
        "N,N,...",
    ):
        assert part in text


def test_help_and_notes_name_flags_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    def teach(
        models: Annotated[list[str] | None, typer.Argument(metavar="MODEL")] = None,
        int8: Annotated[bool, Field(description="Not with `texts`, nor `int4`")] = False,
        texts: Annotated[Path | None, typer.Option(help="Texts; `int8=False` is better")] = None,
        steps: Annotated[int, typer.Option(help="Steps")] = 100,
    ) -> None:
        """Teach."""
        logging.getLogger("sentence_experts.x").warning("lower `steps`, or `models`")

    add_verb(app, teach)
    app(["--help"], standalone_mode=False)
    text = capsys.readouterr().out
    assert re.search(r"^Usage: .*\[OPTIONS\] \[MODEL\]\.\.\.$", text, re.MULTILINE)
    for part in ("Not with --texts, nor `int4`", "; --no-int8 is better", "Steps [default: 100]"):
        assert part in " ".join(text.split())
    console.show_logs()
    app([], standalone_mode=False)
    assert "warning: lower --steps, or MODEL" in capsys.readouterr().err
    logging.getLogger("sentence_experts.x").warning("lower `steps`")
    assert "warning: lower `steps`" in capsys.readouterr().err  # no verb runs any more


def test_a_tilde_behind_an_equals_sign_is_the_home(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    app = typer.Typer()

    def show(out: Annotated[Path, typer.Option(help="Place")]) -> None:
        """Show."""
        typer.echo(out)

    add_verb(app, show)
    app(["--out=~/corpus"], standalone_mode=False)
    assert capsys.readouterr().out == "/home/me/corpus\n"


def test_settings_of_several_functions_are_declared_once() -> None:
    """One name with one description has one declaration; equal texts are not typed twice."""
    texts: dict[str, list[str]] = {}
    for file in LIBRARY.rglob("*.py"):
        joined = re.sub(r'"\s*\n\s*"', "", file.read_text())
        for text in re.findall(r'(?:description|help)="([^"]{12,})"', joined):
            texts.setdefault(text, []).append(file.name)
    assert {text: files for text, files in texts.items() if len(files) > 1} == {}
