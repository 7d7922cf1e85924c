"""Images against the API alone that others have touched, or that are told of late: none that was finished is lost."""

from __future__ import annotations

import asyncio
import time

import pytest
from cloud.bakes import all_removed, bake

from skyward_nb.providers.aws import image_records, rental_records, sweep
from skyward_nb.reports import baked_images


def old():
    """The image's record, as if it had been made two hours ago."""
    (entry,) = image_records.entries()
    entry.note(created=time.time() - 7200)
    return entry


# ── other computers ─────────────────────────────────────────────────────────────────────


@pytest.fixture
def elsewhere(monkeypatch):
    """From here on this is another computer with the same home."""
    return lambda: monkeypatch.setattr(rental_records, "machine_mark", lambda: "another0machine")


def test_a_computer_that_shares_the_home_lists_an_image_and_removes_nothing(
    api, one_rented, elsewhere
):
    ami = bake(one_rented)
    old()
    elsewhere()
    found = asyncio.run(sweep.sweep())
    assert not found.images and not found.left
    assert f"image torch in us-east-1: {ami}, ready, 3 GB at most $0.150" in found.baked[0]
    assert api.left()["images"] == ["us-east-1 sky-torch"] and "snapshots" in api.left()
    assert "with its snapshots" in baked_images.remove("torch")
    all_removed(api)
