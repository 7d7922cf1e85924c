"""Which pool an option line asks for: what does not go together, and what is up and is another."""

import pytest

from skyward_nb.notebook.options import parse
from skyward_nb.notebook.specs import spec_of
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
    ],
)
def test_what_does_not_go_together_is_refused(line, says):
    with pytest.raises(OptionError) as raised:
        spec_of(PoolSpec(), parse(line).pool)
    assert str(raised.value).endswith(says)
