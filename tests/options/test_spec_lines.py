"""Which pool an option line asks for: what does not go together, and what is up and is another."""

import pytest

from skyward_nb.options.option_line import parse
from skyward_nb.options.specs import spec_of
from skyward_nb.words.errors import OptionError
from skyward_nb.words.spec import PoolSpec


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nodes=2 mesh=fsdp:2", "mesh=fsdp:2 needs framework=torch, or jax, or keras:jax"),
        (
            "nodes=2 mesh=fsdp:2 framework=tensorflow",
            "or keras:jax: framework=tensorflow has no meshes",
        ),
        (
            "nodes=3 framework=jax env=JAX_NUM_CPU_DEVICES=4 mesh=fsdp:4,tp:3",
            "mesh=fsdp:4,tp:3: each of 3 ranks has 4 of the 12 devices, and of the 4 parts of the "
            "data rank 0 has 0, 1; rank 1 has 1, 2. They must share a part wholly or not at all: a "
            "last axis tp whose size divides 4, or is a multiple of it, does that.",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(line, says):
    with pytest.raises(OptionError) as raised:
        spec_of(PoolSpec(), parse(line).pool)
    assert str(raised.value).endswith(says)
