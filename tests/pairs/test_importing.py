"""Tables of pairs from users."""

from __future__ import annotations

import json
import shutil
import unicodedata
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sentence_experts.cli.main import main
from sentence_experts.errors import InputError, UsageError
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.pairs.importing import import_pairs
from sentence_experts.pairs.splits import TooFewPairsError, fold_texts

SETS = ("train", "validation", "test")


def questions(count: int = 60, answers: int = 60) -> pd.DataFrame:
    """Pairs of a question and an answer in two domains; several questions may have one answer."""
    rows = [
        {"anchor": f"Question {n}?", "positive": f"Answer {n % answers}.", "domain": "ab"[n % answers % 2]}
        for n in range(count)
    ]
    return pd.DataFrame(rows)


def texts(pairs: Pairs, split: str) -> set[str]:
    table = pairs.split(split).to_pandas()
    return {text.casefold().strip() for text in [*table["anchor"], *table["positive"]]}


def test_no_text_is_in_two_sets_and_none_is_lost() -> None:
    table = questions(90, 30)
    table.loc[0, "anchor"] = " question 31?"  # the same text as another row's, but for its case and blanks
    pairs = import_pairs(table)
    counts = {name: int((pairs.split(name)["label"].to_numpy() == 1).sum()) for name in SETS}
    assert sum(counts.values()) == 90
    assert counts["train"] > counts["test"] > 8
    assert not texts(pairs, "train") & texts(pairs, "test")
    assert not texts(pairs, "train") & texts(pairs, "validation")
    assert not texts(pairs, "validation") & texts(pairs, "test")
    assert pairs.domains == ["a", "b"]


@pytest.mark.parametrize("negatives", ["matched", "random"])
def test_made_negatives_are_a_question_and_another_answer(negatives: str) -> None:
    pairs = import_pairs(questions(90, 30), negatives=negatives)
    linked = set(zip(questions(90, 30)["anchor"], questions(90, 30)["positive"], strict=True))
    for name in ("validation", "test"):
        table = pairs.split(name).to_pandas()
        for domain, rows in table.groupby("domain"):
            false = rows[rows["label"] == 0]
            assert len(false) == (rows["label"] == 1).sum(), domain
            assert false["anchor"].str.startswith("Question").all()
            assert false["positive"].str.startswith("Answer").all()
            assert not linked & set(zip(false["anchor"], false["positive"], strict=True))
            if negatives == "matched":  # each text is as often in one class as in the other
                true = rows[rows["label"] == 1]
                for column in ("anchor", "positive"):
                    assert sorted(false[column]) == sorted(true[column])


def test_one_large_group_is_cut_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """A chain links all texts: some pairs must go, but no text is in two sets."""
    caplog.set_level("INFO")
    pairs = import_pairs([{"anchor": f"Text {n}", "positive": f"Text {n + 1}"} for n in range(200)])
    assert not texts(pairs, "train") & texts(pairs, "test")
    assert "pairs were left out: their texts are in two sets" in caplog.text
    assert pairs.manifest["imported"]["left_out"] < 60


def test_given_labels_splits_and_negatives_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    table = (
        questions(40, 40)
        .drop(columns="domain")
        .assign(split=np.repeat(["train", "dev"], 20), label=[1, 1, 1, 0] * 10)
    )
    pairs = import_pairs(table)
    assert [pairs.split(name).num_rows for name in SETS] == [20, 20, 0]
    assert (pairs.split("validation")["label"].to_numpy() == 0).sum() == 5
    triples = questions(40, 40).drop(columns="domain").assign(negative=[f"Wrong {n}." for n in range(40)])
    pairs = import_pairs(triples)
    test = pairs.split("test").to_pandas()
    assert test[test["label"] == 0]["positive"].str.startswith("Wrong").all()
    assert (test["label"] == 0).sum() == (test["label"] == 1).sum()
    assert pairs.split("train")["negative"].null_count == 0
    leaking = questions(4, 2).drop(columns="domain").assign(split=["train", "train", "test", "test"])
    import_pairs(leaking)
    assert "2 texts of test pairs are in training pairs too" in caplog.text
    import_pairs(leaking.assign(split=["train", "train", "dev", "dev"]))
    assert "2 texts of validation pairs are in training pairs too" in caplog.text
    import_pairs(leaking.assign(split=["dev", "dev", "test", "test"]))
    assert "2 texts of test pairs are in validation pairs too" in caplog.text


def test_settings_and_cells_that_say_nothing_are_told(caplog: pytest.LogCaptureFixture) -> None:
    table = questions(40, 40).assign(domain=["COPD", "copd"] * 20)
    stated = table.assign(negative=[f"Wrong {n}." for n in range(40)])
    stated.loc[stated.index % 4 < 2, "negative"] = '["Wrong.", "Bad."]'
    split = table.assign(split=np.repeat(["train", "dev"], 20))
    shares = [0.4, 0.3, 0.3]
    lists = 'column negative: 20 values are lists of texts, each read as one text, such as ["Wrong.'
    no_shares = "`fractions` has no effect"
    no_negatives = "`negatives=random` has no effect, as the rows state negatives"
    for given, settings, told in (
        (split, {"fractions": shares}, {no_shares}),
        (split, {"negatives": "random"}, set()),
        (table, {"fractions": shares, "negatives": "random"}, set()),
        (stated, {"negatives": "random"}, {no_negatives, lists}),
        (stated, {}, {lists}),
    ):
        import_pairs(given, **settings)
        assert "domains differ in case alone (1), such as 'COPD' and 'copd'" in caplog.text
        assert {each for each in (no_shares, no_negatives, lists) if each in caplog.text} == told
        caplog.clear()


def test_ratings_are_refused() -> None:
    rows = [{"anchor": "a", "positive": "b", "score": 4.5}, {"anchor": "c", "positive": "d", "score": 0.0}]
    with pytest.raises(InputError, match=r"holds ratings from 0 to 4\.5.*a task of the kind sts"):
        import_pairs(rows)
    with pytest.raises(InputError, match="the column label holds ratings"):
        import_pairs(pd.DataFrame(rows).rename(columns={"score": "label"}))
    with pytest.raises(InputError, match="lacks the column anchor"):
        import_pairs([{"question": "a", "answer": "b"}])
    with pytest.raises(TooFewPairsError, match="set got none of its 1 pairs"):
        import_pairs(questions(2))


def test_a_column_that_seems_to_rate_pairs_is_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    rated = questions().assign(similarity=[n % 6 for n in range(60)])
    import_pairs(rated)
    assert "not read: the column similarity; every row counts as linked" in caplog.text
    caplog.clear()
    import_pairs(rated.assign(label=1))
    assert "counts as linked" not in caplog.text


def test_names_of_columns_and_sets_are_read_in_any_case(caplog: pytest.LogCaptureFixture) -> None:
    rows = questions().rename(columns={"anchor": "Anchor", "positive": "POSITIVE", "domain": "Route"})
    assert import_pairs(rows).hashes() == import_pairs(questions()).hashes()
    sets = np.repeat(["train", "validation", "test"], 20)
    written = np.repeat([" Train", "Dev", "TEST"], 20)
    assert import_pairs(rows.assign(Split=written)).hashes() == import_pairs(rows.assign(split=sets)).hashes()
    plain = questions().assign(split=written)
    assert Pairs.of(plain).hashes() == Pairs.of(questions().assign(split=sets)).hashes()
    caplog.set_level("INFO")
    import_pairs(questions().assign(route="c", split="train"))
    assert "not read: the column route" in caplog.text
    assert "there are no pairs for validation and test" in caplog.text


def test_labels_that_a_data_frame_wrote_as_floats(tmp_path: Path) -> None:
    table = questions().assign(label=[1.0, 0.0] * 30)
    whole = import_pairs(table.astype({"label": int})).hashes()
    for kind in ("string", "string[pyarrow]", "object", bool):
        written = table["label"].astype(kind if kind is bool else str).astype(kind)
        assert import_pairs(table.assign(label=written)).hashes() == whole
    table.to_csv(tmp_path / "floats.csv", index=False)
    table.astype({"label": int}).to_csv(tmp_path / "whole.csv", index=False)
    assert import_pairs(tmp_path / "floats.csv").hashes() == import_pairs(tmp_path / "whole.csv").hashes()


def test_a_list_in_a_cell_is_one_clear_error() -> None:
    for column in ("negative", "label", "domain"):
        rows = [{**row, column: ["x", "y"]} for row in questions().to_dict("records")]
        with pytest.raises(InputError, match=f"column {column}"):
            import_pairs(rows)


def test_rated_pairs_are_not_trained_on_unseen() -> None:
    """Neither through `import_pairs` nor as a table that `train` takes."""
    with pytest.raises(InputError, match=r"train: .* the column score holds ratings from 0 to 5"):
        Pairs.of(questions().assign(score=[n % 6 for n in range(60)]))
    assert Pairs.of(questions().assign(score=0.5, label=1)).split("train").num_rows == 60


def test_a_dataset_of_the_hub_is_read_with_its_splits(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    table = questions(80, 80)
    splits = {"train": table[:40], "dev": table[40:60], "test": table[60:], "extra": table[:5]}
    folder = tmp_path / "dataset"
    folder.mkdir()
    for name, rows in splits.items():
        rows.to_json(folder / f"{name}.jsonl", orient="records", lines=True)
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files:\n"
        + "".join(f"  - split: {name}\n    path: {name}.jsonl\n" for name in splits)
        + "---\n"
    )
    pairs = import_pairs(folder)
    given = pd.concat([table[:40].assign(split="train"), table[40:60].assign(split="dev")])
    given = pd.concat([given, table[60:].assign(split="test")])
    assert pairs.hashes() == import_pairs(given).hashes()
    whole = datasets.Dataset.from_pandas(table, preserve_index=False)
    assert import_pairs(whole).hashes() == import_pairs(table).hashes()
    with pytest.raises(InputError, match="hub dataset 'nobody/nothing' cannot be loaded"):
        import_pairs("nobody/nothing")
    with pytest.raises(UsageError, match="`subset` is for hub datasets"):
        import_pairs(table, subset="pair")


def test_the_datasets_of_the_domain_experts_are_one_set_of_pairs(tmp_path: Path) -> None:
    """Built by the names of their code: `a`, `b` and `label`, in the splits train, valid and test."""
    pytest.importorskip("datasets")
    given = []
    for number, (name, domain) in enumerate({"skincancer": "cancer", "copd": "copd"}.items()):
        table = questions(60, 60).rename(columns={"anchor": "a", "positive": "b"})[["a", "b"]]
        row = np.arange(60)  # all training pairs are linked
        table = (table + f" {name}").assign(label=np.where(row < 30, 1, row % 3 != number))
        data = tmp_path / "published" / f"abstract_domain_{name}" / "data"
        data.mkdir(parents=True)
        for split, rows in {"train": table[:30], "valid": table[30:45], "test": table[45:]}.items():
            rows.to_parquet(data / f"{split}-00000-of-00001.parquet")
        split = ["train"] * 30 + ["validation"] * 15 + ["test"] * 15
        named = table.rename(columns={"a": "anchor", "b": "positive"})
        given.append(named.assign(split=split, domain=domain))
    pairs = import_pairs(tmp_path / "published")
    assert pairs.domains == ["cancer", "copd"], "as the tokens of their checkpoints are called"
    assert pairs.hashes() == import_pairs(pd.concat(given[::-1])).hashes()
    assert import_pairs(data.parent).hashes() == import_pairs(given[1]).hashes()
    (tmp_path / "published" / "abstract_domain_cvd").mkdir()
    pd.DataFrame({"a": ["one"], "c": ["two"]}).to_parquet(
        tmp_path / "published" / "abstract_domain_cvd" / "train.parquet"
    )
    with pytest.raises(InputError, match="abstract_domain_cvd, train lacks the columns b, label;"):
        import_pairs(tmp_path / "published")
    shutil.rmtree(tmp_path / "published" / "abstract_domain_cvd")
    for file in data.glob("*.parquet"):
        pd.read_parquet(file).assign(domain="mine", anchor="x").to_parquet(file)
    assert import_pairs(tmp_path / "published").hashes() == pairs.hashes(), "other columns are not read"


def test_blank_doubled_and_unread_parts_of_a_table_are_left_out_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    rows = questions().to_dict("records")
    louder = {**rows[4], "anchor": rows[4]["anchor"].upper()}
    exchanged = {**rows[5], "anchor": rows[5]["positive"], "positive": rows[5]["anchor"]}
    itself = {**rows[6], "positive": rows[6]["anchor"]}
    lacking = [{**rows[0], "anchor": " "}, {**rows[0], "positive": None}]
    twice = [*rows, rows[3], *lacking, louder, exchanged, itself]
    messy = pd.DataFrame(twice).assign(rating=3)
    assert import_pairs(messy).hashes() == import_pairs(rows).hashes()
    assert "as they repeat another row, in either order: 3" in caplog.text
    assert "as their two texts are the same: 1" in caplog.text
    assert f"as they lack a text: 2 (row {len(rows) + 2}, {len(rows) + 3})" in caplog.text
    assert "not read: the column rating" in caplog.text
    assert next(each for each in caplog.records if "repeat" in each.message).levelname == "WARNING"
    caplog.clear()
    import_pairs(questions().assign(label=1, score=0.5))
    assert "not read: the column score" in caplog.text


@pytest.mark.parametrize("count", [-1, "many", 1.5])
def test_a_count_that_is_no_number_of_links_is_refused(count: Any) -> None:
    with pytest.raises(InputError, match="column count: "):
        import_pairs(questions().assign(count=count))


@pytest.mark.parametrize("label", [float, str, bool, Decimal, "{:.2f}".format, lambda each: str(bool(each))])
def test_labels_may_be_written_in_many_ways(tmp_path: Path, label: Callable[[int], Any]) -> None:
    rows = questions().assign(label=[int(n % 3 > 0) for n in range(60)])
    other = rows.assign(label=[label(each) for each in rows["label"]])
    dropped = pd.Categorical([*map(str, other["label"]), "unsure"])[:-1]  # a category that no row has
    assert import_pairs(other.assign(label=dropped)).hashes() == import_pairs(rows).hashes()
    other.to_csv(tmp_path / "rows.csv", index=False)
    for each in (other, tmp_path / "rows.csv"):
        assert import_pairs(each).hashes() == import_pairs(rows).hashes()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"anchor": ""}, "no row with both texts"),
        ({"label": 0}, "no linked pair"),
        ({"label": ["1"] * 59 + ["yes"]}, r"column label: a label of a pair is 1 .*, not .yes."),
    ],
)
def test_a_table_without_pairs_is_refused(changed: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        import_pairs(questions().assign(**changed))
    with pytest.raises(InputError, match="no row with both texts"):
        import_pairs(questions().head(0))


def test_pairs_without_negatives_are_told(caplog: pytest.LogCaptureFixture) -> None:
    rows = [
        {"anchor": f"{split} query {query}", "positive": f"{split} document {document}", "split": split}
        for split in ("train", "validation", "test")
        for query in range(6)
        for document in {query, query + 1, query + 2, query // 2, 7}  # many of 8 documents
    ]
    pairs = import_pairs(rows)
    counts = pairs.manifest["imported"]["not_matched"]["all"]
    given = sum(row["split"] == "test" for row in rows)
    left = given - counts["test"]["left_out"]
    assert pairs.manifest["domains"]["all"]["test"]["positives"] == left < given
    assert (
        "too few unlinked pairs can be made of the works of the linked pairs: all (validation)" in caplog.text
    )


def test_columns_may_change_places_with_their_ids() -> None:
    rows = [
        {"anchor": f"a {n}", "positive": f"p {n}", "anchor_id": f"A{n}", "positive_id": f"P{n}"}
        for n in range(20)
    ]
    for anchor, positive in (("positive", "anchor"), ("Positive", "ANCHOR")):
        frame = import_pairs(rows, anchor=anchor, positive=positive).to_pandas()
        for end in ("anchor", "positive"):
            assert (frame[f"{end}_id"].str.lower().str[0] == frame[end].str[0]).all()
    rows = [{"query": f"q {n}", "positive": f"p {n}", "positive_id": f"P{n}"} for n in range(20)]
    frame = import_pairs(rows, anchor="positive", positive="query").to_pandas()
    assert (frame["anchor_id"].str.lower().str[0] == "p").all()
    assert not frame["positive_id"].str.startswith("P").any()
    with pytest.raises(UsageError, match="`anchor` and `positive` are one column, 'positive'"):
        import_pairs(rows, anchor="positive")


def test_own_pairs_train_and_evaluate_in_two_commands(
    tmp_path: Path, minilm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "questions.csv"
    questions(48, 48).rename(columns={"anchor": "Question", "positive": "Answer"}).to_csv(table, index=False)

    def run(*arguments: object) -> None:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        assert not ended.value.code

    pairs, model = tmp_path / "pairs", tmp_path / "run"
    run("pairs", "import", table, "--anchor", "question", "--positive", "answer", "--out", pairs)
    assert "test (+/-)" in capsys.readouterr().out
    run(
        "train",
        minilm,
        "--pairs",
        pairs,
        "--out",
        model,
        "--max-steps",
        1,
        "--batch-size",
        4,
        "--max-length",
        16,
    )
    run(
        "evaluate",
        model / "model",
        "--pairs",
        pairs,
        "--bootstrap",
        0,
        "--max-length",
        16,
        "--out",
        tmp_path / "e",
    )
    found = json.loads(next((tmp_path / "e").glob("*.json")).read_text())
    assert found


def test_pairs_that_rows_contradict_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "sentence_experts")
    linked = questions(60).assign(label=1)
    false = linked.head(10).assign(label=0)
    pairs = import_pairs(pd.concat([linked, false]))
    assert "(texts of one id are one): 20" in caplog.text
    assert sum(int((pairs.split(name)["label"].to_numpy() == 1).sum()) for name in SETS) == 50
    stated = questions(60)
    stated["negative"] = [text if n < 5 else f"Other {n}." for n, text in enumerate(stated["positive"])]
    pairs = import_pairs(stated)
    assert "(texts of one id are one): 5" in caplog.text
    for name in ("validation", "test"):
        table = pairs.split(name).to_pandas()
        assert table.groupby(["anchor", "positive"])["label"].nunique().max() == 1


def test_texts_count_in_contradictions_whatever_their_ids(caplog: pytest.LogCaptureFixture) -> None:
    linked = questions(60).assign(label=1)
    false = linked.head(10).assign(label=0, anchor=linked["anchor"].str.upper())
    same = linked.head(3).assign(positive=linked["anchor"] + "!")
    table = pd.concat([linked, false, same])
    table["anchor_id"] = [f"row {n}, left" for n in range(len(table))]
    table["positive_id"] = [f"row {n}, right" for n in range(len(table))]
    pairs = import_pairs(table)
    assert "(texts of one id are one): 20" in caplog.text
    assert "their two texts are the same: 3" in caplog.text
    assert sum(int((pairs.split(name)["label"].to_numpy() == 1).sum()) for name in SETS) == 50
    made = {(row["anchor"], row["positive"]) for name in SETS for row in pairs.split(name).to_pylist()}
    assert not made & set(zip(linked["anchor"][:10], linked["positive"][:10], strict=True))


def test_a_mapping_of_splits_keeps_them(caplog: pytest.LogCaptureFixture) -> None:
    table = questions(60)
    number = table.assign(label=1, split="of another division")
    parts = {"train": number[:40], "dev": pl.DataFrame(number[40:50].to_dict("records")), "test": number[50:]}
    pairs = import_pairs(parts | {"test": parts["test"].assign(label=1.0)})
    assert set(pairs.split("train")["anchor"].to_pylist()) == set(table["anchor"][:40])
    labelled = import_pairs({"train": table[:40], "test": table[40:].assign(label=[0, 0, 1, 1] * 5)})
    assert labelled.split("test")["label"].to_pylist().count(0) == 10
    assert "every row of train counts as linked" in caplog.text
    assert "not read: the column split; the tables are of train, validation, test" in caplog.text
    with pytest.raises(InputError, match="holds ratings from 0 to 4"):
        import_pairs({"train": table[:40].assign(label=1), "test": table[40:].assign(score=[0, 4] * 10)})
    assert texts(pairs, "test") == {
        text.lower() for text in table[["anchor", "positive"]][50:].to_numpy().ravel()
    }


def test_splits_of_a_mapping_may_differ_in_their_types_and_names(caplog: pytest.LogCaptureFixture) -> None:
    table = questions(60)
    parts = {
        "Train": table[:40].assign(domain=[1] * 40, label="1", anchor_id=range(40)),
        "DEV": table[40:50].assign(domain=["1"] * 10, label=1, anchor_id=[f"{n}" for n in range(40, 50)]),
        "test": table[50:].assign(domain=[1.0] * 10, label=1.0, negative=None),
    }
    pairs = import_pairs(parts)
    assert pairs.domains == ["1"]
    linked = {name: int(pc.sum(pairs.split(name)["label"]).as_py()) for name in SETS}
    assert linked == {"train": 40, "validation": 10, "test": 10}
    read = Pairs.of(parts)
    assert {name: read.split(name).num_rows for name in SETS} == linked
    known = datasets.DatasetDict(
        {
            "train": datasets.Dataset.from_pandas(table, preserve_index=False),
            "unsupervised": datasets.Dataset.from_pandas(table, preserve_index=False),
        }
    )
    assert Pairs.of(known).split("train").num_rows == 60
    assert Pairs.of({"train": table, "unsupervised": table}).split("train").num_rows == 60
    assert "left out: the split unsupervised" in caplog.text
    with pytest.raises(InputError, match="the splits unsupervised, none of train, validation, test"):
        import_pairs(datasets.DatasetDict({"unsupervised": known["train"]}))


def test_pairs_are_not_imported_again(tmp_path: Path) -> None:
    pairs = import_pairs(questions(60), out=tmp_path / "pairs")
    for source in (pairs, tmp_path / "pairs"):
        with pytest.raises(UsageError, match="pairs already"):
            import_pairs(source)


def test_empty_rows_of_a_spreadsheet_are_not_read(tmp_path: Path) -> None:
    table = questions(60).assign(split=["train"] * 40 + ["dev"] * 10 + ["test"] * 10)
    (tmp_path / "pairs.csv").write_text(table.to_csv(index=False) + ",,,\n" * 3)
    assert Pairs.of(tmp_path / "pairs.csv").split("train").num_rows == 40
    assert import_pairs(tmp_path / "pairs.csv").split("train").num_rows == 40


def test_each_split_of_a_mapping_has_both_texts() -> None:
    table = questions(60).rename(columns={"anchor": "Query"})
    parts = {"train": table[:50], "test": table[50:].drop(columns="Query")}
    with pytest.raises(InputError, match="the table, test lacks the column Query, "):
        import_pairs(parts, anchor="Query")


def test_a_text_of_unseen_characters_is_none(caplog: pytest.LogCaptureFixture) -> None:
    table = questions(60)
    table.loc[5, "positive"] = "\u200b \u00ad"
    import_pairs(table)
    assert "as they lack a text: 1 (row 6)" in caplog.text


def test_texts_of_signs_are_several_texts() -> None:
    signs = pa.chunked_array([["?", "!", " ! ", "A ?", None]])
    assert fold_texts(signs).to_pylist() == ["?", "!", "!", "a", None]


def test_texts_in_two_unicode_forms_are_one_text() -> None:
    """Encoders read both forms alike, so neither may be in another split than the other."""
    forms = [unicodedata.normalize(form, "café au lait") for form in ("NFC", "NFD")]
    assert len(set(forms)) == 2
    assert len(set(fold_texts(pa.chunked_array([forms])).to_pylist())) == 1


def test_a_stated_negative_that_another_row_links_is_no_negative(caplog: pytest.LogCaptureFixture) -> None:
    rows = [
        row
        for n in range(30)
        for row in (
            {"anchor": f"question {n}", "positive": f"answer {n}", "negative": f"Also {n}!"},
            {"anchor": f"question {n}", "positive": f"also {n}", "negative": f"wrong {n}"},
        )
    ]
    pairs = import_pairs(rows)
    assert "or link their negative (texts of one id are one): 30" in caplog.text
    for name in ("validation", "test"):
        table = pairs.split(name).to_pandas()
        labels = table.groupby(["anchor", "positive"])["label"].nunique()
        assert len(labels) > 4
        assert (labels == 1).all()
    assert pairs.split("train").to_pandas()["negative"].str.startswith("wrong").all()


@pytest.mark.parametrize("seed", range(4))
def test_a_mined_negative_of_training_is_in_no_other_set(seed: int) -> None:
    mined = (np.arange(300) + np.random.default_rng(0).integers(1, 300, 300)) % 300
    rows = [
        {"anchor": f"Question {n}", "positive": f"Answer {n}", "negative": f"ANSWER {other}."}
        for numbers in (mined, (mined + 1) % 300)
        for n, other in enumerate(numbers)
        if n != other
    ]
    pairs = import_pairs(rows, seed=seed)
    train = pairs.split("train").to_pandas()
    assert len(train) > 20
    negatives = {text.strip(".").lower() for text in train["negative"].dropna()}
    assert negatives
    assert not train.duplicated(["anchor", "positive", "negative"]).any()
    for name in ("validation", "test"):
        assert not negatives & {text.lower() for text in texts(pairs, name)}


def test_a_pair_is_evaluated_once_however_many_negatives_it_has() -> None:
    rows = [
        {"anchor": f"question {n}", "positive": f"answer {n}", "negative": f"wrong {n} {k % 4}"}
        for n in range(30)
        for k in range(5)
    ]
    pairs = import_pairs(rows)
    assert not pairs.split("train").to_pandas().duplicated(["anchor", "positive", "negative"]).any()
    for name in ("validation", "test"):
        table = pairs.split(name).to_pandas()
        assert not table.duplicated(["anchor", "positive"]).any()
        assert (table["label"] == 0).sum() == 4 * (table["label"] == 1).sum() > 0


@pytest.mark.parametrize("space", ["\u00a0", "\u2009", "\u200b ", "\u00ad ", "\t", " \u2028"])
def test_texts_that_differ_in_unseen_characters_are_one(space: str) -> None:
    rows = [{"anchor": f"question {n // 2} thing", "positive": f"reply {n}"} for n in range(80)]
    for row in rows[1::2]:
        row["anchor"] = row["anchor"].replace(" ", space)
    for number, row in enumerate(rows):
        other = {"anchor": f"q {number}", "anchor_id": f"q{number // 2}" + " " * (number % 2)}
        rows[number] = row if space != "\t" else {**row, **other}
    pairs = import_pairs(rows)
    ids = [set(pairs.split(name)["anchor_id"].to_pylist()) for name in SETS]
    assert len(set.union(*ids)) == sum(map(len, ids)) == 40


def test_a_negative_that_another_row_links_by_its_id_is_no_negative() -> None:
    rows = []
    for n in range(12):
        rows += [
            {
                "anchor": f"query {n}",
                "positive": f"document {n} long",
                "anchor_id": f"q{n}",
                "positive_id": f"d{n}",
            },
            {
                "anchor": f"other {n}",
                "positive": f"document {n}",
                "anchor_id": f"o{n}",
                "positive_id": f"d{n}",
            },
            {"anchor": f"query {n}", "positive": f"third {n}", "anchor_id": f"q{n}", "positive_id": f"t{n}"},
            {"anchor": f"free {n}", "positive": f"fourth {n}", "anchor_id": f"f{n}", "positive_id": f"u{n}"},
        ]
        rows[-2]["negative"] = f"Document {n}."
        rows[-1]["negative"] = f"unlike {n}"
    pairs = import_pairs(rows)
    assert set(pairs.split("train")["negative"].drop_null().to_pylist()) <= {f"unlike {n}" for n in range(12)}
    for name in ("validation", "test"):
        table = pairs.split(name).to_pandas()
        assert not table[table["label"] == 0]["positive"].str.startswith("Document").any()


@pytest.mark.parametrize("seed", range(3))
def test_pairs_about_which_rows_disagree_are_no_negatives(seed: int) -> None:
    draw = np.random.default_rng(seed)
    rows = [{"anchor": f"q {n}", "positive": f"a {n}", "label": 1, "split": SETS[n % 3]} for n in range(24)]
    disputed = {(int(left), int(right)) for left, right in draw.integers(0, 24, (150, 2)) if left != right}
    rows += [
        {"anchor": f"q {left}", "positive": f"a {right}", "label": label, "split": SETS[left % 3]}
        for left, right in sorted(disputed)
        for label in (0, 1)
    ]
    if seed == 2:  # the disputed ones under other ids
        rows[:24] = [{**row, "anchor_id": f"q{n}", "positive_id": f"a{n}"} for n, row in enumerate(rows[:24])]
        rows[24:] = [
            {**row, "anchor_id": f"other {row['anchor']}", "positive_id": row["positive"]}
            for row in rows[24:]
        ]
    pairs = import_pairs(rows)
    for name in ("validation", "test"):
        table = pairs.split(name).to_pandas()
        made = table[table["label"] == 0]
        found = {
            (int(a.split()[1]), int(b.split()[1]))
            for a, b in zip(made["anchor"], made["positive"], strict=True)
        }
        assert found
        assert not found & disputed


def test_ids_of_pairs_are_read_without_white_space_around_them() -> None:
    rows = [
        {"anchor": f"q {n}", "positive": f"a {n}", "anchor_id": f"{n}.0 ", "positive_id": 100 + n}
        for n in range(40)
    ]
    assert set(import_pairs(rows).split("train")["anchor_id"].to_pylist()) <= {str(n) for n in range(40)}
    large = [{**row, "anchor_id": 2**63 + number} for number, row in enumerate(rows)]
    table = pa.Table.from_pylist(
        large, pa.schema([*[(n, pa.string()) for n in ("anchor", "positive")], ("anchor_id", pa.uint64())])
    )
    assert import_pairs(table).split("train")["anchor_id"][0].as_py().startswith("92233720368547")
    rows[3]["anchor_id"] = " "
    with pytest.raises(InputError, match="'anchor_id' has rows without a value"):
        import_pairs(rows)


def test_a_negative_that_is_its_anchor_or_blank_is_none() -> None:
    rows = [{"anchor": f"q {n}", "positive": f"a {n}", "negative": f"w {n}"} for n in range(30)]
    rows[3]["negative"], rows[4]["negative"], rows[5]["negative"] = "Q 3.", "   ", "NA"
    pairs = import_pairs(rows, fractions=[0.2, 0.4, 0.4])
    for name in SETS:
        table = pairs.split(name).to_pandas()
        assert (table["anchor_id"] != table["positive_id"]).all()
        assert table["positive"].str.strip().astype(bool).all()
        assert not (table == "NA").any(axis=None)
        assert "q 3" not in set(table["anchor"])


def test_pairs_of_simulated_papers_are_known_as_such() -> None:
    rows = [
        {"anchor": f"q {n}", "positive": f"a {n}", "anchor_id": f"doi:10.5555/simulated.{n}",
         "positive_id": f"doi:10.5555/simulated.{n + 100}"}
        for n in range(20)
    ]  # fmt: skip
    assert import_pairs(rows).are_simulated


def test_ids_of_two_tables_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    """Question 5 and answer 5 are two texts; one would stand for both in negatives."""
    table = questions(40, 40).assign(anchor_id=range(40), positive_id=range(10, 50))
    with pytest.raises(
        InputError, match=r"30 ids have several texts, such as '10', as anchor and as positive"
    ):
        import_pairs(table)
    told = table.assign(anchor_id="q" + table["anchor_id"].astype(str))
    import_pairs(told)
    assert "several texts" not in caplog.text
    import_pairs(told.assign(anchor_id=["q1", "q1", *told["anchor_id"][2:]]))
    assert "1 ids have several texts, such as 'q1'; texts of one id count as one" in caplog.text


def test_a_stated_negative_counts_once_whatever_its_id() -> None:
    linked = questions(40, 40).assign(negative=[f"Wrong {n}." for n in range(40)], label=1)
    linked = linked.assign(anchor_id=[f"q{n}" for n in range(40)], positive_id=[f"a{n}" for n in range(40)])
    stated = linked.assign(
        positive=linked["negative"], negative=None, label=0, positive_id="x" + linked.anchor_id
    )
    pairs = import_pairs(pd.concat([linked, stated]).assign(split="test"))
    assert pairs.split("test")["label"].value_counts().to_pylist() == [
        {"values": 1, "counts": 40}, {"values": 0, "counts": 40},
    ]  # fmt: skip
