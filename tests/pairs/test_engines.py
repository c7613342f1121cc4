"""Engines that link works: limits that hold, scratch that goes away, errors that help."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from helpers.compile_pairs import RULES, SMALL, Compile, link_graph
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.errors import SentenceExpertsError, UsageError
from sentence_experts.pairs.compile import compile_pairs
from sentence_experts.pairs.config import PairsConfig
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.pairs.sql_engine import open_engine
from sentence_experts.storage import NoSpaceError


def limits(**settings: object) -> PairsConfig:
    return PairsConfig.model_validate(settings)


def test_duckdb_gets_its_limits(tmp_path: Path) -> None:
    with open_engine(limits(memory="300MB", engine="local[1]"), tmp_path / "pairs") as engine:
        memory, threads, folder = (
            engine.rows(f"SELECT current_setting('{name}') AS value")["value"][0].as_py()
            for name in ("memory_limit", "threads", "temp_directory")
        )
    assert memory.startswith("286.1 MiB")
    assert threads == 1
    assert folder.startswith(str(tmp_path))


def test_too_little_memory_is_a_clear_error(tmp_path: Path) -> None:
    with open_engine(limits(memory="5MB", engine="local[1]"), tmp_path / "pairs") as engine:
        rows = engine.store(pa.table({"number": pa.array(range(3_000_000), pa.int64())}))
        with pytest.raises(SentenceExpertsError, match="`memory`"):
            engine.rows(f"SELECT number, count(*) FROM {rows} GROUP BY number ORDER BY number")


def test_full_disk_is_not_taken_for_a_damaged_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_full(*_: object) -> None:
        raise duckdb.IOException("Async write failed: Could not write file: No space left on device")

    with open_engine(limits(), tmp_path / "pairs") as engine:
        rows = engine.store(pa.table({"number": [1]}))
        monkeypatch.setattr(engine, "_write", is_full)
        with pytest.raises(NoSpaceError, match=r"scratch.*make room"):
            engine.rows(f"SELECT * FROM {rows}")


def test_scratch_folder_is_beside_out_or_as_set_and_is_removed(tmp_path: Path) -> None:
    chosen = limits(scratch=str(tmp_path / "chosen"))
    for settings, home in ((limits(), tmp_path / "deep"), (chosen, tmp_path / "chosen")):
        with open_engine(settings, tmp_path / "deep" / "pairs") as engine:
            engine.store(pa.table({"number": [1]}))
            assert len(list(home.glob(".pairs.*.scratch.*/*.parquet"))) == 1
        assert not list(home.iterdir())


def test_a_scratch_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UsageError, match="`scratch="),
        open_engine(limits(scratch=str(tmp_path / "file")), tmp_path / "pairs"),
    ):
        pass


@pytest.mark.parametrize(
    "settings", [{"engine": "sqlite"}, {"memory": "much"}, {"engine": "local[0]"}, {"engine": "ray"}]
)
def test_invalid_settings_are_errors(settings: dict) -> None:
    with pytest.raises(UsageError, match=f"^`{next(iter(settings))}`: "):
        limits(**settings)


@pytest.mark.slow
def test_limits_change_no_byte(compiled: Compile, corpus: CorpusFolder, tmp_path: Path) -> None:
    little = limits(memory="200MB", engine="local[1]", scratch=str(tmp_path / "scratch"), domains=RULES)
    limited = compile_pairs(corpus, little, tmp_path / "limited", **SMALL)
    for file in sorted(limited.path.iterdir()):
        assert file.read_bytes() == (compiled().path / file.name).read_bytes(), file.name
    other = compile_pairs(corpus, limits(domains=RULES, seed=1), **SMALL)
    assert other.fingerprint() != limited.fingerprint()


@pytest.mark.slow
def test_long_lists_link_nothing_and_are_counted(compiled: Compile, corpus: CorpusFolder) -> None:
    """The longest lists of the corpus, left out, take their pairs with them; the rest stays."""
    lengths = duckdb.sql(
        f"select count(*) as length from '{corpus.citations}' group by citing order by length desc"
    ).fetchall()
    longest = lengths[0][0] - 1
    behind = duckdb.sql(
        f"""with c as (select distinct citing, cited from '{corpus.citations}' where citing <> cited
        and cited in (select paper_id from '{corpus.papers}' where length(trim(abstract)) > 0) and citing in
        (select citing from '{corpus.citations}' group by citing having count(*) > {longest}))
        select count(distinct citing), count(*) from c"""
    ).fetchall()[0]
    with link_graph(corpus, PairsConfig(unit="abstract", max_references=longest)) as graph:
        left_out = graph.counts["left_out_by_max_references"]
        assert left_out == {"papers": behind[0], "citations": behind[1]}
        capped = graph.pairs.count.sum()
    with link_graph(corpus, PairsConfig(unit="abstract")) as graph:
        assert graph.counts["left_out_by_max_references"] is None
        assert capped < graph.pairs.count.sum()
    pairs: Pairs = compiled(unit="abstract", max_references=longest)
    assert pairs.manifest["left_out_by_max_references"] == left_out
