"""`%sky run`: scripts and modules on the notebook's own pool."""

import pytest
from kernels import ready

HELPER = "VALUE = 1\n"
MAIN = """\
import os, sys
import helper
if '--fail' in sys.argv:
    1 / 0
if '--exit' in sys.argv:
    sys.exit(3)
print(__name__, sys.argv[1:], helper.VALUE, os.environ['WORLD_SIZE'], os.getcwd() == os.path.dirname(__file__))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("project")
    (path / "main.py").write_text(MAIN)
    (path / "helper.py").write_text(HELPER)
    (path / "package").mkdir()
    (path / "package" / "__init__.py").touch()
    (path / "package" / "train.py").write_text(
        "import sys, helper\nprint(__name__, sys.argv[1:], helper.VALUE)\n"
    )
    return path


@pytest.fixture(scope="module")
def notebook(folder):
    with ready(f"import os; os.chdir({str(folder)!r})\n%load_ext skyward_nb") as running:
        ran = running.run("%%sky_remote nodes=2\nimport helper\nkept = 'a name of the ranks'")
        assert ran.status == "ok", ran.traceback
        yield running


def test_a_script_runs_as_main_and_names_stay(notebook):
    ran = notebook.run("%sky run main.py --epochs 3 nodes=7")
    assert ran.status == "ok", ran.traceback
    assert "[0-1] __main__ ['--epochs', '3', 'nodes=7'] 1 2 True" in ran.picture
    assert notebook.run("%%sky_remote\nkept").result == "[0-1] 'a name of the ranks'"


def test_a_module_of_another_text_is_read_anew(notebook, folder):
    assert notebook.run("%%sky_remote\nhelper.VALUE").result == "[0-1] 1"
    (folder / "helper.py").write_text("VALUE = 'another text'\n")
    ran = notebook.run("%sky run -m package.train --help")
    assert "[0-1] __main__ ['--help'] another text" in ran.picture, ran.traceback


def test_a_script_that_fails_names_its_own_line(notebook):
    ran = notebook.run("%sky run main.py --fail")
    assert ran.status == "error"
    assert 'main.py", line 4, in <module>' in ran.traceback
    assert "main.py, line 4: 1 / 0" in ran.picture
    assert "script_runner" not in ran.picture + ran.traceback
    ran = notebook.run("%sky run ranks=1 main.py --exit")
    assert ran.status == "error" and "SystemExit" in ran.traceback and "3" in ran.traceback
    assert notebook.run("%%sky_remote\nkept").status == "ok"


def test_one_in_the_background_has_a_handle(notebook):
    ran = notebook.run("%sky run detach out=job main.py")
    assert ran.status == "ok", ran.traceback
    assert notebook.run("job.wait(), job.status").result == "(True, 'finished')"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "a script is missing: %sky run [option ...] FILE [ARG ...]"),
        ("-m", "a module is missing"),
        ("nosuch.py", "there is no script nosuch.py"),
        ("package", "there is no __main__.py in the folder package"),
        ("-m nosuch.inner", "there is no module nosuch.inner: Python finds no nosuch"),
        ("-m helper.inner", "there is no module helper.inner: helper is not a package"),
        ("-m package", "package is a package without a __main__.py"),
        ("-m sys", "there is no module sys"),
        ("push=kept main.py", "push= is not an option of a script"),
        ("out=job main.py", "a script has no value"),
        ("--lr 3 main.py", "there is no option 'lr'"),
    ],
)
def test_what_cannot_be_run_is_said_before_anything_begins(notebook, line, said):
    ran = notebook.run(f"%sky run {line}")
    assert said in ran.streams["stderr"], ran.traceback


def test_a_script_with_a_syntax_error_shows_it(notebook, folder):
    (folder / "bad.py").write_text("x = 1\ny = (\n")
    ran = notebook.run("%sky run bad.py")
    assert ran.status == "error" and "SyntaxError" in ran.traceback and "bad.py" in ran.traceback
