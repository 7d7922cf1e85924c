"""Which workers of torchrun a forge may fork, by their variables."""

from __future__ import annotations

import pytest

from skyward_nb.runtime.worker_process import ForkWorker, why_not


@pytest.mark.parametrize(
    ("env", "words", "says"),
    [
        # threadpoolctl sets it in a rank that has torch loaded: in the second run of a pool.
        ({"KMP_DUPLICATE_LIB_OK": "True"}, ("main.py",), ""),
        ({"TORCH_LOGS": "all"}, ("-m", "train"), "TORCH_LOGS is read by imports"),
        (
            {"TORCHINDUCTOR_MAX_AUTOTUNE": "1"},
            ("main.py",),
            "TORCHINDUCTOR_MAX_AUTOTUNE is read by",
        ),
        ({"TORCHELASTIC_RUN_ID": "none"}, ("main.py",), ""),
        ({"LR": "3"}, ("-m", "train"), ""),
        ({}, ("-X", "dev"), "-X is an option of Python"),
    ],
)
def test_a_worker_is_forked_where_it_would_be_the_same(env, words, says):
    order = ForkWorker(words, env, "/", "", "", (0,), (0, 0))
    assert why_not(order, {}).startswith(says)
    assert bool(why_not(order, {})) == bool(says)
