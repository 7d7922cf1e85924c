"""Tests in several processes: who runs what, what is told of it, and what becomes of a process that dies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]
_CONFTEST = f"""
import os, sys, warnings
sys.path.insert(0, {str(_TESTS)!r})
import durations, pytest, workers
durations.LAST = durations.Path(__file__).parent / "build" / "last.json"
pytest_plugins = ["durations", "workers"]

@pytest.fixture(scope="session", autouse=True)
def own(request, tmp_path_factory):
    pid = os.getpid()
    yield
    assert os.getpid() == pid
    request.config.stash[workers.BROUGHT].append((pid, str(tmp_path_factory.getbasetemp())))
    assert "untidy" not in os.environ

@pytest.fixture(scope="module")
def of_the_file():
    yield
    print("the file is over")

def pytest_sessionfinish(session):
    print("brought", sorted(session.config.stash[workers.BROUGHT]))
"""


@pytest.fixture
def run(tmp_path):
    """Runs tests of these files in two workers; what is told, and how it ended."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").write_text(_CONFTEST)

    def run(*options, **files):
        for name, text in files.items():
            (tmp_path / "tests" / f"test_{name}.py").write_text(text)
        words = [sys.executable, "-m", "pytest", "--workers", "2", "-c", "/dev/null", "-p", "no:cacheprovider"]  # fmt: skip
        ran = subprocess.run(
            [*words, f"--rootdir={tmp_path}", *options, "tests"],
            cwd=tmp_path,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            timeout=100,
        )
        return ran.returncode, ran.stdout + ran.stderr

    return run


_ONE_BY_ONE = """
import os, time, pytest, warnings, pathlib
def test_first(of_the_file, tmp_path):
    pathlib.Path("{name}").write_text(str(os.getpid()))
    while not pathlib.Path("{other}").exists():
        time.sleep(0.02)
def test_second():
    warnings.warn("{name} warns")
    assert pathlib.Path("{name}").read_text() == str(os.getpid()) != pathlib.Path("{other}").read_text()
"""


def test_each_file_is_run_by_one_process_beside_the_others_and_all_is_told_by_one(run):
    code, said = run(
        a=_ONE_BY_ONE.format(name="a", other="b"),
        b=_ONE_BY_ONE.format(name="b", other="a"),
        c="def test_words(of_the_file):\n    print('to be read')\n    assert 1 == 2",
    )
    assert code == 1, said
    assert "1 failed, 4 passed, 4 warnings" in said, "two of them are of the plugins, and told once"
    assert "UserWarning: a warns" in said
    assert "to be read" in said
    assert "the file is over" in said, "it is, before the next one begins"
    # Each has folders of its own, and told what it had.
    brought = said.partition("brought ")[2].splitlines()[0]
    assert brought.count("(") == 2
    assert brought.count("/w1'") == brought.count("/w2'") == 1


def test_the_test_of_a_process_that_dies_has_failed_and_the_others_are_run(run):
    dies = (
        "import os\ndef test_a(): pass\ndef test_b(): os.kill(os.getpid(), 9)\ndef test_c(): pass"
    )
    code, said = run(a=dies, b="def test_d(): pass")
    assert code == 1
    assert "1 failed, 3 passed" in said
    assert "ended by SIGKILL before this test did" in said
    assert "FAILED tests/test_a.py::test_b" in said


def test_what_fails_after_the_last_test_is_an_error(run):
    code, said = run(a="import os\ndef test_a(): os.environ['untidy'] = 'yes'")
    assert code == 1
    assert "1 passed, 2 warnings, 1 error" in said
    assert "ERROR tests/workers.py::w1" in said
    assert 'assert "untidy" not in os.environ' in said


def test_no_more_are_run_after_the_first_that_fails_where_that_is_asked_for(run):
    files = {f"n{n}": "def test_a(): pass" for n in range(9)}
    code, said = run("-x", a="def test_a():\n    assert 0", **files)
    assert code == 1
    assert "stopping after 1 failures" in said
    assert "10 passed" not in said
