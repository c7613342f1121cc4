"""The versions of the libraries that a result can depend on."""

from __future__ import annotations

from importlib import metadata

LIBRARIES = ("sentence-experts", "sentence-transformers", "transformers", "torch", "scikit-learn", "numpy")


def library_versions(*more: str) -> dict[str, str]:
    """Library -> installed version, or "not installed"."""
    versions = {}
    for name in (*LIBRARIES, *more):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions
