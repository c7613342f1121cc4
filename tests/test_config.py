"""Settings: one line for what is wrong with them, whichever way they are given."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field

from sentence_experts.config import Config
from sentence_experts.errors import InputError, UsageError
from sentence_experts.training.config import FitConfig


class Settings(Config):
    size: int = Field(1, ge=1)
    rate: float = Field(1.0, gt=0)
    weights: dict[str, float] = Field({})
    pages: list[int] | str = Field([])
    loud: bool | None = None


class LargeSettings(Settings):
    colour: str = "red"


def function(data: object = None, config: Settings | None = None, *, route: str | None = None, **settings):
    return Settings.of(config, **settings)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"siz": 2}, "`siz`: no such setting; did you mean size?"),
        ({"rout": "x"}, "`rout`: no such setting; did you mean route?"),
        ({"x": 2}, "`x`: no such setting; known: size, rate, weights, pages, loud, data, config, route"),
        ({"size": True}, "`size`: a number, not True"),
        ({"loud": "yes"}, "`loud`: True or False, not 'yes'"),
        ({"size": 0}, "`size`: Input should be greater than or equal to 1 (got 0)"),
        ({"weights": {"a": "much"}}, "`weights`: a: Input should be a valid number"),
        ({"pages": [1, "two"]}, "`pages`: 1: Input should be a valid integer"),
        ({"config": 3}, "`config` is a dict, a YAML file (.yaml) or Settings, not 3"),
        ({"config": "out"}, "`config` is a dict, a YAML file (.yaml) or Settings, not 'out'"),
        ({"config": {"siz": 2}}, "`siz`: no such setting; did you mean size?"),
    ],
)
def test_a_bad_setting_of_a_function_is_one_line(given: dict, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        function(**given)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_the_class_itself_and_a_file_say_the_same(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"`siz`: no such setting; did you mean size\?"):
        Settings(siz=2)
    (tmp_path / "s.yaml").write_text("siz: 2\n")
    with pytest.raises(InputError, match=r"s\.yaml: siz: no such setting; did you mean size\?"):
        Settings.read(tmp_path / "s.yaml")
    with pytest.raises(UsageError, match="`size`"):
        Settings.read(None, size=0)
    with pytest.raises(InputError, match=r"s\.yaml: siz: no such setting; did you mean size\?"):
        function(config=tmp_path / "s.yaml")
    (tmp_path / "s.yaml").write_text("size: 4\npages: all\n")
    assert function(config=str(tmp_path / "s.yaml"), size=5) == Settings(size=5, pages="all")


def test_a_single_name_is_taken_as_it_is() -> None:
    config = FitConfig(text="title, short", by=["use"])
    assert (config.text, config.by) == (["title, short"], ["use"])


@pytest.mark.parametrize("number", [".inf", "-.inf", ".nan"])
def test_infinite_numbers_are_refused(tmp_path: Path, number: str) -> None:
    (tmp_path / "settings.yaml").write_text(f"rate: {number}")
    with pytest.raises(UsageError, match="rate"):
        function(rate=float(number.replace(".", "")))
    with pytest.raises(InputError, match="rate: Input should be a finite number"):
        Settings.read(tmp_path / "settings.yaml")


def test_settings_of_a_larger_class_are_taken() -> None:
    assert Settings.of(LargeSettings(size=3, colour="blue"), pages="all") == Settings(size=3, pages="all")
