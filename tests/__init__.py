"""Tests, laid out as the package; a package itself, so that processes that a test starts can import it."""
