"""A sample of the training pairs is a pairs dataset like any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.samples import TOPICS, make_pairs_folder
from sentence_experts.errors import UsageError
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.pairs.subset import sample_training
from sentence_experts.storage import sha256_file


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    return Pairs.open(make_pairs_folder(tmp_path_factory.mktemp("whole"), pairs=40))


def rows(pairs: Pairs, split: str) -> list[dict]:
    return pairs.split(split).to_pylist()


def test_each_domain_gives_its_share_and_the_other_splits_stay_whole(
    whole: Pairs,
) -> None:
    sample = sample_training(whole, 0.25)
    drawn, every = rows(sample, "train"), rows(whole, "train")
    for domain in TOPICS:
        assert sum(row["domain"] == domain for row in drawn) == 10
    places = [every.index(row) for row in drawn]
    assert places == sorted(places)
    for split in ("validation", "test"):
        assert rows(sample, split) == rows(whole, split)
    assert sample.domains == whole.domains


def test_the_manifest_is_that_of_the_sample(whole: Pairs, tmp_path: Path) -> None:
    sample = sample_training(whole, 0.25, seed=3).save(tmp_path / "sample")
    assert sample.manifest["files"] == {
        name: sha256_file(sample.path / name) for name in whole.manifest["files"]
    }
    assert sample.fingerprint() != whole.fingerprint()
    assert sample.manifest["sample_of"] == {"pairs": whole.fingerprint(), "share": 0.25, "seed": 3}
    assert sample.manifest["domains"]["crops"]["train"]["positives"] == 10


def test_the_seed_decides_the_sample(whole: Pairs) -> None:
    one, again, other = (sample_training(whole, 0.25, seed).fingerprint() for seed in (0, 0, 1))
    assert one == again != other


def test_a_small_domain_keeps_a_pair(whole: Pairs) -> None:
    assert len(rows(sample_training(whole, 0.001), "train")) == len(TOPICS)


def test_what_makes_no_sense_is_refused(whole: Pairs, tmp_path: Path) -> None:
    for share in (0.0, 1.5):
        with pytest.raises(UsageError, match="share"):
            sample_training(whole, share)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("do not touch")
    with pytest.raises(UsageError, match="holds no pairs"):
        sample_training(whole, 0.5).save(tmp_path / "mine")
