"""A script in a process that goes on after it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def after(folder, script, then):
    """What a process prints that runs a script in a folder, and then some code."""
    (folder / "beside.py").write_text("")
    (folder / "script.py").write_text(script)
    code = f"from skyward_nb.runtime.script_runner import run\nPATH, FOLDER = {str(folder / 'script.py')!r}, {str(folder)!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", code + then], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_all_is_as_it_was(tmp_path):
    said = after(
        tmp_path,
        "import os, sys\nos.chdir('/')\nsys.argv.append('x')\nsys.path.append('/nowhere')\n"
        "try:\n    input('?')\nexcept EOFError as error:\n    print(error)\n",
        "import atexit, builtins, os, sys\n"
        "builtins.get_ipython = 'kept'\n"
        "def state():\n"
        "    names = [vars(builtins).get(n) for n in ('get_ipython', 'display', 'exit', 'quit', 'input')]\n"
        "    return [*sys.argv], [*sys.path], os.getcwd(), names, atexit.register, sys.modules['__main__']\n"
        "before = state()\n"
        "run(PATH, ['a'], FOLDER)\n"
        "print(state() == before, 'beside' in sys.modules)\n",
    )
    assert said[0].startswith(
        f"input() in {tmp_path / 'script.py'}: a script on ranks has no keyboard"
    )
    assert said[1:] == ["True False"]


def test_modules_beside_it_are_its_own_and_installed_ones_are_not(tmp_path):
    """Also those of an environment in the same folder, whose C code is not loaded twice."""
    installed = tmp_path / ".venv" / "lib" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "installed.py").write_text("")
    said = after(
        tmp_path,
        f"import sys; sys.path.append({str(installed)!r}); import beside, installed, module_of_a_cell\n"
        "print(module_of_a_cell.VALUE)\n",
        "import pathlib, sys\nsys.path.append(FOLDER)\nfile = pathlib.Path(FOLDER, 'module_of_a_cell.py')\n"
        "file.write_text('VALUE = 1')\nimport module_of_a_cell as before\n"
        "file.write_text('VALUE = \"of another text\"')\nrun(PATH, [], FOLDER)\n"
        "print('beside' in sys.modules, 'installed' in sys.modules, sys.modules['module_of_a_cell'] is before)\n",
    )
    assert said == ["of another text", "False True True"]


def test_all_is_as_it_was_after_an_exception_too(tmp_path):
    said = after(
        tmp_path,
        "import atexit, beside\natexit.register(print, 'end')\nraise KeyError('mine')\n",
        "import os, sys\n"
        "before = [*sys.argv], [*sys.path], os.getcwd()\n"
        "try:\n    run(PATH, [], FOLDER)\n"
        "except KeyError as error:\n    print(error)\n"
        "print(before == ([*sys.argv], [*sys.path], os.getcwd()))\n",
    )
    assert said == ["end", "'mine'", "True"]


def test_what_is_registered_after_the_script_ends_with_the_process(tmp_path):
    said = after(
        tmp_path,
        "import atexit, builtins\nbuiltins.late = atexit.register\n",
        "run(PATH, [], FOLDER)\nlate(print, 'with the process')\nprint('after the script')\n",
    )
    assert said == ["after the script", "with the process"]


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("", "none"),
        ("None", "none"),
        ("0", "none"),
        ("7", "7"),
        ("'words'", "1"),
        ("False", "none"),
    ],
)
def test_only_an_end_that_is_not_well_is_raised(tmp_path, end, code):
    said = after(
        tmp_path,
        f"import sys\nsys.exit({end})\n",
        "try:\n    run(PATH, [], FOLDER)\nexcept SystemExit as ending:\n    print(ending.code)\n"
        "else:\n    print('none')\n",
    )
    assert said == [code]


def test_executors_work_in_the_process_after_it(tmp_path):
    said = after(
        tmp_path,
        "from concurrent.futures import ThreadPoolExecutor\n"
        "held = ThreadPoolExecutor(1)\nheld.submit(print, 'in it')\n",
        "run(PATH, [], FOLDER)\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(1) as executor:\n    print(executor.submit(lambda: 'after it').result())\n",
    )
    assert said == ["in it", "after it"]


def test_where_its_folder_is_not_there_it_runs_in_that_of_the_rank(tmp_path):
    said = after(
        tmp_path,
        "import os\nprint(os.getcwd())\n",
        f"import os\nos.chdir({str(tmp_path)!r})\nrun(PATH, [], '/nowhere')\n",
    )
    assert said == [str(tmp_path)]


def test_a_process_that_ends_with_its_script_runs_its_finalizers_and_keeps_its_names(tmp_path):
    """Destroying names may hang: that of a process group waits for the GIL of another thread."""
    said = after(
        tmp_path,
        "import tempfile\nclass Group:\n    def __del__(self): print('destroyed')\n"
        "group, made = Group(), tempfile.TemporaryDirectory()\nprint(made.name)\n",
        "import os, tempfile\nmine = tempfile.TemporaryDirectory()\nrun(PATH, [], FOLDER, called='script.py')\n"
        "print(os.path.exists(mine.name), flush=True)\nos._exit(0)\n",
    )
    assert said[1:] == ["True"] and not Path(said[0]).exists()
