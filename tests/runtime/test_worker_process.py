"""Which workers of torchrun a forge may fork, by their variables."""

from __future__ import annotations

import pytest

from skyward_nb.runtime.worker_process import ForkWorker, why_not

SET_BY_IMPORTS = {"KMP_DUPLICATE_LIB_OK": "True"}


@pytest.mark.parametrize(
    ("env", "words", "says"),
    [
        ({}, ("main.py",), ""),  # of a rank that was forked after the forge had imported torch
        (SET_BY_IMPORTS, ("main.py",), ""),  # of one that has imported it by itself
        ({"KMP_DUPLICATE_LIB_OK": "False"}, ("main.py",), "KMP_DUPLICATE_LIB_OK is read"),
        ({"TORCH_LOGS": "all"}, ("-m", "train"), "TORCH_LOGS is read by imports"),
        ({"LR": "3"}, ("-m", "train"), ""),
        ({}, ("-X", "dev"), "-X is an option of Python"),
    ],
)
def test_a_worker_is_forked_where_it_would_be_the_same(env, words, says):
    order = ForkWorker(words, env, "/", "", "", (0,), (0, 0))
    assert why_not(order, {}, SET_BY_IMPORTS).startswith(says)
    assert bool(why_not(order, {}, SET_BY_IMPORTS)) == bool(says)
