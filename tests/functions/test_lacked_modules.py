"""Functions are looked at before machines are paid for, as cells are: what they use and nodes will not have is told."""

from __future__ import annotations

import subprocess
import sys
from types import FunctionType

import pytest

from skyward_nb.functions import lacked_modules
from skyward_nb.functions.function import Function, known_functions
from skyward_nb.functions.lacked_modules import lacked_by_functions
from skyward_nb.words.image import Image
from skyward_nb.words.spec import PoolSpec

FAR = PoolSpec(provider="ssh")


def uses_a_name():
    return pytest.approx(1)


def imports_within():
    import yaml

    return yaml


def plain(numbers):
    return sum(numbers)


@pytest.fixture
def known(monkeypatch):
    """Only these functions are of the program."""

    def of(*functions):
        for each in functions:
            assert each in known_functions() or Function(each)
        monkeypatch.setattr(lacked_modules, "known_functions", lambda: list(functions))
        monkeypatch.setattr(lacked_modules, "is_own", __name__.partition(".")[0].__eq__)

    return of


def test_what_functions_use_and_nodes_lack_is_told_with_what_to_type(known):
    known(uses_a_name, imports_within, plain)
    said = lacked_by_functions({}, FAR)
    assert said == (
        "nodes will not have pytest, yaml, which uses_a_name, imports_within use: "
        "sky.Compute(pip=['pytest', 'pyyaml']) installs it"
    )


def test_functions_of_one_name_in_two_modules_are_both_looked_at(known):
    other = FunctionType(plain.__code__, {}, uses_a_name.__name__)
    other.__module__ = f"{__name__}.other"
    known(uses_a_name, other)
    assert "will not have pytest, which uses_a_name uses" in lacked_by_functions({}, FAR)


@pytest.mark.parametrize(
    "spec",
    [
        PoolSpec(),  # this machine
        PoolSpec(provider="ssh", image=Image(interpreter="/opt/python")),
        PoolSpec(provider="ssh", image=Image(pip=("pytest", "pyyaml"))),
    ],
)
def test_nothing_is_said_where_nothing_lacks(known, spec):
    known(uses_a_name, imports_within)
    assert not lacked_by_functions({}, spec)
    known(plain)
    assert not lacked_by_functions({}, FAR)


def test_functions_of_other_packages_do_not_count(known, monkeypatch):
    known(uses_a_name)
    monkeypatch.setattr(lacked_modules, "is_own", lambda root: False)
    assert not lacked_by_functions({}, FAR)


_PROGRAM = """
import skyward_nb as sky
import yaml
from skyward_nb.functions import compute

@sky.function
def read(text):
    return yaml.safe_load(text)

def stop(spec, display):
    raise SystemExit("nothing was rented")

compute.make_sure = stop
with sky.Compute(provider="aws"):
    pass
"""


def test_a_program_is_told_before_it_is_asked_for_money(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(_PROGRAM)
    ran = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, check=False, timeout=60
    )
    said = ran.stdout + ran.stderr
    assert "nothing was rented" in said, said
    assert "nodes will not have yaml, which read uses: sky.Compute(pip=['pyyaml'])" in said
