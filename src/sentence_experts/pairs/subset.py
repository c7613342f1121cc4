"""A random part of a dataset's training pairs, as a pairs dataset of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from sentence_experts.errors import UsageError
from sentence_experts.pairs.dataset import PairsFolder, check_replaceable
from sentence_experts.storage import replacing_folder, sha256_file, write_json, write_parquet, write_text

TRAIN = "train.parquet"


def write_training_sample(pairs: PairsFolder, out: Path, share: float, seed: int = 0) -> PairsFolder:
    """Write a dataset with a share of each domain's training pairs, and everything else as in `pairs`.

    Source: Hallee et al. 2024 (preprint), 3.3, which searched for settings on a random tenth.

    Args:
        pairs: the whole dataset.
        out: the folder to write, whole or not at all.
        share: how much of a domain's pairs is drawn, above 0 and up to 1; at least one pair.
        seed: same seed, same pairs.

    Raises:
        UsageError: `share` is out of range, or `out` holds something else.
    """
    if not 0 < share <= 1:
        raise UsageError(f"a sample of {share:g} of the training pairs: give a share above 0 and up to 1")
    check_replaceable(out)
    table = pairs.split("train")
    domains = np.array(table["domain"].to_pylist(), dtype=object)
    rng = np.random.default_rng(seed)
    manifest = {**pairs.manifest, "files": dict(pairs.manifest["files"]), "domains": {}}
    drawn = []
    for domain, counts in sorted(pairs.manifest["domains"].items()):
        rows = np.flatnonzero(domains == domain)
        kept = rng.permutation(rows)[: max(1, round(share * len(rows)))]
        drawn.append(kept)
        train = {**counts.get("train", {}), "positives": len(kept)}
        train.pop("papers", None)  # not counted anew
        manifest["domains"][domain] = {**counts, "train": train}
    with replacing_folder(out) as folder:
        shutil.copytree(pairs.path, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("README.md"))
        write_parquet(folder / TRAIN, table.take(np.sort(np.concatenate(drawn))))
        manifest["files"][TRAIN] = sha256_file(folder / TRAIN)
        manifest["sample_of"] = {"pairs": pairs.fingerprint(), "share": share, "seed": seed}
        write_json(folder / "manifest.json", manifest)
        write_text(
            folder / "README.md",
            f"A random {share:.0%} of each domain's training pairs, drawn with seed {seed} from the dataset "
            f"{pairs.fingerprint()[:12]}; validation and test are whole.\n",
        )
    return PairsFolder.open(out)
