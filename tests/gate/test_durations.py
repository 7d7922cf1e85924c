"""What is made of the durations of tests: the order of files, the limit of one, the table."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from durations import (
    BLOCK,
    TOGETHER,
    ByFile,
    by,
    file_of,
    folder_of,
    last_in,
    order,
    table,
    too_long,
)

TESTS = {
    "tests/pool/test_pool.py::test_a[1-2::3]": 31.0,
    "tests/pool/test_pool.py::test_b": 30.5,
    "tests/words/test_spec.py::test_c": 0.25,
    "tests/functions/test_compute.py::test_d": 12.0,
}


def test_files_that_start_nothing_come_first_then_the_longest():
    expected = {"pure.py": 0.3, "short.py": 4.0, "long.py": 40.0}
    places = order({"short.py", "long.py", "pure.py", "new.py"}, expected)
    assert sorted(places, key=places.__getitem__) == ["pure.py", "new.py", "long.py", "short.py"]


def test_a_file_above_its_limit_is_named():
    assert too_long(TESTS, 60) == {"tests/pool/test_pool.py": 61.5}
    assert too_long(TESTS, 62) == {}


def test_seconds_are_summed_by_file_and_by_folder():
    assert by(TESTS, file_of)["tests/pool/test_pool.py"] == 61.5
    assert list(by(TESTS, folder_of)) == ["pool", "functions", "words"]


def test_the_table_tells_tests_seconds_and_what_they_start():
    lines = table(TESTS).splitlines()
    assert lines[2] == "| `tests/pool/` | 2 | 62 | pools of local ranks |"
    assert lines[4] == "| `tests/words/` | 1 | 0 | nothing |"
    assert lines[-1] == "| all | 4 | 74 | |"


def test_a_matrix_is_divided_into_blocks_of_neighbours_and_other_files_are_not():
    config = pytest.Config.fromdictargs({"tx": ["2*popen"]}, [])
    scopes = ByFile(config)._split_scope
    cases = [f"tests/faults/test_matrix.py::test_it_ends_as_stated[{n}]" for n in range(BLOCK + 2)]
    first, *_, last = map(scopes, cases)
    assert first == scopes(cases[BLOCK - 1]) != scopes(cases[BLOCK]) == last
    assert scopes(cases[0]) == first, "also when it is asked for again"
    others = {scopes(f"tests/words/test_spec.py::test_c[{n}]") for n in range(3 * BLOCK)}
    assert len(others) == 1


def test_files_of_a_folder_that_share_what_they_start_go_to_one_process():
    scopes = ByFile(pytest.Config.fromdictargs({"tx": ["2*popen"]}, []))._split_scope
    assert scopes("tests/lab/test_lab.py::test_a") == scopes("tests/lab/test_picture.py::test_b")
    assert scopes("tests/pool/test_pool.py::test_a") != scopes(
        "tests/pool/test_run_clock.py::test_b"
    )


def test_files_of_another_folder_are_shared_by_two():
    scopes = ByFile(pytest.Config.fromdictargs({"tx": ["2*popen"]}, []))._split_scope
    files = [f"tests/cloud/test_{name}.py" for name in ("aws", "leftovers", "market", "policy")]
    first, second, third, fourth = (scopes(f"{name}::test_a") for name in files)
    assert (first, second) == (third, fourth)
    assert first != second
    cases = [scopes(f"{files[1]}::test_a[{n}]") for n in range(2 * BLOCK)]
    assert cases[0] == second
    assert cases[-1] not in (first, second)


def test_files_that_use_frameworks_themselves_go_to_one_process():
    scopes = ByFile(pytest.Config.fromdictargs({"tx": ["2*popen"]}, []))._split_scope
    assert len({scopes(f"{name}::test_a") for name in TOGETHER}) == 1
    root = Path(__file__).parents[2]
    assert not [name for name in TOGETHER if not (root / name).exists()]


def test_the_figures_of_one_environment_do_not_replace_those_of_another():
    root = Path(__file__).parents[2]
    of_all = root / "build" / "durations.json"
    assert last_in(root / ".venv") == last_in(Path("/usr")) == of_all
    assert last_in(root / "build" / "minor-3.12") == root / "build/minor-3.12/durations.json"


def test_a_long_file_fails_a_run_that_passes(tmp_path):
    """With `--file-limit`, which `make test` does not give: a loaded machine would fail each run."""
    (tmp_path / "conftest.py").write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "import durations\n"
        "durations.FILE_LIMIT = 0.0\n"
        "from pathlib import Path\n"
        "durations.LAST = Path(__file__).parent / 'build' / 'last.json'\n"
        "durations.folder_of = lambda nodeid: '.'\n"
        "pytest_plugins = ['durations']\n"
        "def pytest_addoption(parser): parser.addoption('--all', action='store_true')\n"
    )
    (tmp_path / "test_one.py").write_text("def test_one(): pass\n")

    def run(*options):
        words = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", f"--rootdir={tmp_path}"]
        return subprocess.run([*words, *options, str(tmp_path)], capture_output=True, text=True)

    alone = run()
    assert alone.returncode == 0, alone.stdout
    limited = run("--file-limit")
    assert limited.returncode == 1
    # How long it takes is the machine's.
    assert re.search(r"ERROR test_one.py takes \d+ s, and may take 0", limited.stdout)
    assert (tmp_path / "build" / "last.json").exists()
    assert not (tmp_path / "build" / "last-all.json").exists()
    # The table is of `make test`: a run of all keeps its figures apart.
    (tmp_path / "build" / "last.json").unlink()
    assert run("--all").returncode == 0
    assert [each.name for each in (tmp_path / "build").iterdir()] == ["last-all.json"]
