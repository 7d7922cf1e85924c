"""What a program is to say, and one that is played as a person runs it: in a `python` of its own."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from absent import without
from scripts import run

HERE = Path(__file__).parent
_NUMBER = r"-?\d+\.\d+(?:e-?\d+)?"


@dataclass(frozen=True)
class Program:
    """What a script `needs`, and what it is to print: these lines, or what `holds` of all of it."""

    says: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    holds: Callable[[str], bool] = lambda _: True
    tells: str = ""
    """What is on standard error."""
    lacks: tuple[str, ...] = ()
    """What is not installed there, as Keras imports all that it finds; a program alike to it has it all."""
    alike: str = ""
    """A program, or a test `folder/file::test`, that plays the same path in less time: this one runs with `--all` alone."""


def numbers(out: str, after: str) -> list[float]:
    """The numbers of the line that begins so."""
    line = next(line for line in out.splitlines() if line.startswith(after))
    return [float(number) for number in re.findall(_NUMBER, line.removeprefix(after))]


def ranks_of(out: str, word: str) -> set[int]:
    """The ranks of which a line of output with this word is shown."""
    return {int(rank) for rank in re.findall(rf"^\[rank (\d+)\] .*{word}", out, re.MULTILINE)}


def falls(after: str, below: float) -> Callable[[str], bool]:
    """Whether the loss in the line that begins so falls, at last below a bound."""

    def holds(out: str) -> bool:
        first, last, *_ = numbers(out, after)
        return last < first and last < below

    return holds


def names(programs: dict[str, Program]) -> list:
    """The programs as parameters of a test; those that are alike to another one run with `--all`."""
    return [
        pytest.param(name, marks=[pytest.mark.extensive] * bool(program.alike))
        for name, program in programs.items()
    ]


def play(name: str, program: Program, folder: Path) -> None:
    """Run a program, and look whether it says what it is to say."""
    for package in program.needs:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    env = {"PYTHONPATH": without(folder, *program.lacks)} if program.lacks else {}
    ran = run(HERE / name, timeout=200, env=env)
    assert ran.returncode == 0, ran.stderr
    for line in program.says:
        assert line in ran.stdout
    assert program.holds(ran.stdout), ran.stdout
    assert program.tells in ran.stderr
    assert "Traceback" not in ran.stderr
