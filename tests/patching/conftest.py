"""What all tests of patching share."""

import pytest

from mlx_norms.patching import taken


@pytest.fixture(autouse=True)
def modules_are_not_looked_at(monkeypatch):
    """By reports, of which tests make thousands; test_taken.py is about what they find there."""
    monkeypatch.setattr(taken, "names", lambda: ())
