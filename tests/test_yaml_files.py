from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sentence_experts.config import Config
from sentence_experts.corpus.config import FetchConfig
from sentence_experts.errors import InputError
from sentence_experts.pairs.domains import DomainRules
from sentence_experts.tasks.task_file import TaskFile
from sentence_experts.yaml_files import parse_yaml, read_settings, read_yaml

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("aé \n:#'", max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab:", max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(plain)
def test_what_pyyaml_writes_is_read_as_it_was(value: object) -> None:
    assert parse_yaml(yaml.safe_dump(value), "x") == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "line 3: the key 'a' occurs twice"),
        ("x: {a: 1, 'a': 2}", "line 1: the key 'a' occurs twice"),
        ("- " * 5000 + "x", "nested too deep"),
        ("[" * 5000 + "]" * 5000, "nested too deep"),
        ("{a: " * 5000 + "1" + "}" * 5000, "nested too deep"),
        ("a: " + "9" * 5000, "cannot be read"),
        ("a: 2020-99-99", "cannot be read"),
        ("a: !!python/object/apply:os.getcwd []", "cannot be read"),
        ("a: 1\n---\nb: 2", "cannot be read"),
        ("a: \x07", "cannot be read"),
        ("? [a]\n: 1", "cannot be read"),
    ],
)
def test_what_yaml_lets_pass_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse_yaml(text, "x.yaml")
    assert str(caught.value).startswith("x.yaml: ")
    assert len(str(caught.value).splitlines()) == 1


def test_merge_keys_and_aliases_keep_working() -> None:
    text = "base: &base {a: 1, b: 2}\none: {<<: *base, b: 3}\ntwo: *base"
    assert parse_yaml(text, "x") == {
        "base": {"a": 1, "b": 2},
        "one": {"a": 1, "b": 3},
        "two": {"a": 1, "b": 2},
    }


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_with_a_mark_are_read(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.yaml").write_bytes("name: Zürich".encode(encoding))
    assert read_yaml(tmp_path / "a.yaml") == {"name": "Zürich"}


def test_files_that_are_no_text_are_named(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes("a: 1\nname: Zürich".encode("latin-1"))
    with pytest.raises(InputError, match=r"a\.yaml: cannot be read .*no text in UTF-8 at character 12"):
        read_yaml(file)
    with pytest.raises(InputError, match="not a file"):
        read_yaml(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        read_yaml(tmp_path / "none")
    file.write_text("1: a")
    with pytest.raises(InputError, match="the key 1 is not text"):
        read_settings(file)


class _Settings(Config):
    a: int = 0


@pytest.mark.parametrize("read", [DomainRules.of, TaskFile.read, _Settings.read])
@pytest.mark.parametrize("text", ["{a: 1, a: 1}", "[" * 1500])
def test_every_yaml_file_goes_through_the_one_reader(tmp_path: Path, read, text: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(InputError, match=r"x\.yaml: (line 1|nested)"):
        read(tmp_path / "x.yaml")


@pytest.mark.parametrize("value", ["5", "true", "[null]", "{0: a}", "[[a]]"])
def test_settings_of_a_wrong_kind_are_one_line(tmp_path: Path, value: str) -> None:
    (tmp_path / "x.yaml").write_text(f"source: {value}")
    with pytest.raises(InputError, match=r"x\.yaml: source: "):
        FetchConfig.read(tmp_path / "x.yaml")
