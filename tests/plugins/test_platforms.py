"""A rank that has a GPU never computes on the CPU without a word: the start of the pool fails, and says what to install."""

import pytest
from gpus import Nvidia, gpu
from later import needs

from skyward_nb.words.accelerators import Accelerator
from skyward_nb.words.errors import StartError


@pytest.mark.parametrize(
    ("framework", "package"),
    [
        pytest.param("jax", "jax[cuda13]", marks=needs("jax")),
        pytest.param(
            "tensorflow",
            "tensorflow[and-cuda]",
            marks=[needs("tensorflow"), pytest.mark.extensive],
        ),
    ],
)
def test_a_build_for_cpus_is_refused_on_a_gpu(framework, package, make, tmp_path, monkeypatch):
    Nvidia(tmp_path, monkeypatch).have(gpu(0, mig="Disabled"))
    with pytest.raises(StartError) as raised:
        make(nodes=1, framework=(framework,), accelerator=Accelerator("A100"))
    text = str(raised.value)
    assert "would compute on the CPU" in text
    assert f'Install "{package}"' in text
