"""Modules that ranks lack, with what installs them."""

from __future__ import annotations

import importlib.metadata

import pytest

from skyward_nb.protocol.events import RankDone
from skyward_nb.protocol.message_parts import Failure
from skyward_nb.reports.missing_modules import of_missing_modules
from skyward_nb.system.distributions import distribution_of
from skyward_nb.words.spec import PoolSpec
from skyward_nb.workdir.working_folder import WorkingFolder

LOCAL, ELSEWHERE = PoolSpec(name="p"), PoolSpec(name="p", provider="ssh")


def end(rank, message, type_name="ModuleNotFoundError"):
    failure = Failure(type_name=type_name, message=message, value=None, at=None, traceback=())
    return RankDone(run=1, rank=rank, failure=failure)


def test_what_installs_it_is_named(tmp_path):
    failed = [end(rank, "No module named 'hydra'") for rank in (0, 1)]
    folder = WorkingFolder(tmp_path, "key")
    assert of_missing_modules(failed, LOCAL, None) == (
        "ranks 0-1 lack the module hydra, as this Python does: pip install hydra-core, or "
        "pip=hydra-core on the line, which installs it for ranks alone",
    )
    wanted = "rank 1 lacks the module hydra: pip=hydra-core on the line installs it, and the pool stays up"
    assert of_missing_modules(failed[1:], ELSEWHERE, folder) == (wanted,)
    (tmp_path / "hydra.py").touch()
    (told,) = of_missing_modules(failed, ELSEWHERE, folder)
    assert f"hydra.py is in {tmp_path}, and .gitignore, .skyignore or folder=none keeps it" in told


@pytest.mark.parametrize(
    ("message", "type_name"),
    [
        ("No module named 'torch.nosuch'", "ModuleNotFoundError"),
        ("No module named 'hydra'", "ValueError"),
        ("said by a package of its own", "ModuleNotFoundError"),
    ],
)
def test_of_nothing_else_is_anything_said(message, type_name):
    assert of_missing_modules([end(0, message, type_name)], ELSEWHERE, None) == ()


def test_a_distribution_is_that_which_is_here(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "packages_distributions", lambda: {"pytest": ["of it"]})
    assert distribution_of("pytest.part") == "of it"
    assert distribution_of("nosuch_at_all.part") == "nosuch_at_all"


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (
            "backend='inductor' raised:\nRuntimeError: Failed to find C compiler. Please specify via CC",
            "need a C compiler, which rank 1 lacks: apt=g++ on the line installs it",
        ),
        (
            "/tmp/x/main.c:5:10: fatal error: Python.h: No such file or directory",
            "need the headers of Python (Python.h), which rank 1 lacks: apt=python3.",
        ),
    ],
)
def test_what_a_compiler_lacks_is_told(message, says):
    (told,) = of_missing_modules([end(1, message, "InductorError")], ELSEWHERE, None)
    assert says in told
    (told,) = of_missing_modules([end(1, message, "InductorError")], LOCAL, None)
    assert "`sudo apt-get install " in told
