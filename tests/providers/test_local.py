"""This machine as a pool: what it says where it has not what is asked for."""

import pytest

from skyward_nb.providers import local
from skyward_nb.words.accelerators import Accelerator
from skyward_nb.words.errors import AcceleratorError
from skyward_nb.words.spec import PoolSpec


def test_accelerators_that_are_not_here_are_named_with_the_ways_on(monkeypatch):
    monkeypatch.setattr(local, "gpus", list)
    spec = PoolSpec(accelerator=Accelerator("A100"))
    with pytest.raises(AcceleratorError, match=r"`simulate` .* hosts=") as told:
        local.LocalProvider().check(spec)
    assert "only" not in str(told.value)
