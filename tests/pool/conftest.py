"""What tests of pools share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skyward_nb.pool import registry


@pytest.fixture(scope="module", autouse=True)
def patient() -> Iterator[None]:
    """Who asks an agent for its status waits for one that is held up: else there is none of a pool that goes on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_ANSWER", 60.0)
        yield
