"""What becomes of a cell where every cell runs on ranks: tables without a kernel."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest
from IPython.core.inputtransformer2 import TransformerManager
from IPython.core.interactiveshell import InteractiveShell

from skyward_nb.cell.source import compile_cell
from skyward_nb.notebook.plain_cells import KnownShell, rewritten

SHELL = KnownShell(TransformerManager().transform_cell, {"bash", "sky_remote", "time"}, {"here"})
REMOTE = "get_ipython().run_cell_magic('sky_remote', '', "


def stretches(text: str) -> list[tuple[int, str]]:
    """(line, what stands there): a call of ranks as the lines that it sends, other lines as they are."""
    found = []
    for number, line in enumerate(rewritten(text, SHELL).split("\n"), 1):
        if line.startswith(REMOTE):
            call = ast.parse(line, mode="eval").body
            assert isinstance(call, ast.Call)
            body = ast.literal_eval(call.args[2])
            assert body.startswith("\n" * (number - 1))
            found.append((number, "ranks: " + body.strip("\n")))
        elif line.strip() and not line.startswith("#"):
            found.append((number, line))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\nx", [(1, "ranks: x = 1\nx")]),
        ("\n\nx = 1", [(3, "ranks: x = 1")]),
        ("%matplotlib inline", [(1, "%matplotlib inline")]),
        ("!ls", [(1, "!ls")]),
        ("!ls\nx = 1", [(1, "!ls"), (2, "ranks: x = 1")]),
        (
            "a = 1\n%sky vars\n\nb = 2\n!ls",
            [(1, "ranks: a = 1"), (2, "%sky vars"), (3, "ranks: b = 2"), (5, "!ls")],
        ),
        ("files = !ls\nlen(files)", [(1, "files = !ls"), (2, "ranks: len(files)")]),
        ("!echo a \\\n  b\nx", [(1, "!echo a   b"), (2, "ranks: x")]),
        ("if x:\n    !ls\n    %time f()", [(1, "ranks: if x:\n    !ls\n    %time f()")]),
        ("%time f()", [(1, "ranks: %time f()")]),
        ("%%time\nf()", [(1, "ranks: %%time\nf()")]),
        ("%%capture out\nf()", [(1, "ranks: %%capture out\nf()")]),
        ("%%bash\nls", [(1, "%%bash"), (2, "ls")]),
        ("%%sky_remote ranks=0\nx", [(1, "%%sky_remote ranks=0"), (2, "x")]),
        ("%%local\nx = 1\n!ls", [(2, "x = 1"), (3, "!ls")]),
        ("here?", [(1, "here?")]),
        ("there?", [(1, "ranks: there?")]),
        ("%%time?", [(1, "%%time?")]),
        ('text = """\n!ls\n%x\n"""', [(1, 'ranks: text = """\n!ls\n%x\n"""')]),
        ("f(\n%sky\n)", [(1, "ranks: f(\n%sky\n)")]),
        ("  x = 1\n  %sky vars", [(1, "ranks:   x = 1"), (2, "%sky vars")]),
        ("await f()", [(1, "ranks: await f()")]),
        ("# nothing\n\n", []),
        ("", []),
        ("s = 'a\u2028b\x0cc\x85'", [(1, "ranks: s = 'a\u2028b\x0cc\x85'")]),
        ("%%local\ns = 'a\u2028b'", [(2, "s = 'a\u2028b'")]),
        ("@d\ndef f(): pass\n%sky vars", [(1, "ranks: @d\ndef f(): pass"), (3, "%sky vars")]),
    ],
)
def test_python_goes_to_ranks_and_magics_stay_here_on_their_own_lines(text, expected):
    assert stretches(text) == expected


def test_cells_that_nothing_of_goes_to_ranks_are_left_as_they_are():
    for text in ("%sky vars\n!ls", "%%bash\nls", "# a\n", "\n", "%%sky_remote\nx"):
        assert rewritten(text, SHELL) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("%%locl\nx", "there is no cell magic %%locl; did you mean %%local? Nothing has run"),
        ("%%spark\nx", "there is no cell magic %%spark. Nothing has run"),
        ("%%local ranks=0\nx", "%%local takes no options: ranks=0"),
    ],
)
def test_what_is_no_magic_is_an_error_and_never_runs_here(text, words):
    code = rewritten(text, SHELL)
    assert words in code
    with pytest.raises(Exception, match="%%") as raised:
        exec(code, {})
    assert type(raised.value).__name__ == "UsageError"


def test_trouble_is_the_error_of_cells_for_ranks_alone():
    assert "no such option" in rewritten("x = 1", SHELL, "no such option")
    assert rewritten("%sky help", SHELL, "no such option") == "%sky help"


def compiled(text: str, body: str):
    return compile_cell(
        text,
        body,
        transform=InteractiveShell().transform_cell,
        transform_ast=lambda tree: tree,
        name_file=lambda code, _: f"<{code}>",
    )


def test_a_stretch_has_the_lines_of_its_cell_and_the_cell_is_its_file():
    text = "x = 1\n%sky vars\n\ny = 2\n1 / 0"
    cell = compiled(text, "\n\n\ny = 2\n1 / 0")
    assert cell.text == text
    assert cell.filename == f"<{text}>"
    assert cell.body is not None
    assert cell.last is not None
    assert [
        max(line for *_, line in code.co_lines() if line) for code in (cell.body, cell.last)
    ] == [
        4,
        5,
    ]


@pytest.mark.parametrize("body", ["x = 1\n\nx", "\nx = 1", "", "\n\n1 / 0\n"])
def test_the_body_of_a_magic_is_one_line_below_it(body):
    cell = compiled(f"%%sky_remote\n{body}", body)
    assert cell.text == f"%%sky_remote\n{body}"
    code = cell.last or cell.body
    if code is not None:
        line = max(n for n, each in enumerate(cell.text.splitlines(), 1) if each.strip())
        assert max(line for *_, line in code.co_lines() if line) == line


def test_loading_the_extension_imports_no_pools():
    """What a notebook begins with is waited for by everybody; pools are imported with the first cell on ranks."""
    code = (
        "import sys\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "before = {*sys.modules}\n"
        "shell.run_line_magic('load_ext', 'skyward_nb')\n"
        "rooms = {each.split('.')[1] for each in {*sys.modules} - before if each.startswith('skyward_nb.')}\n"
        "print(*sorted(rooms & {'pool', 'protocol', 'names', 'pickling', 'picture', 'view', 'hangs', 'functions'}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "\n"


def test_what_cannot_be_read_here_goes_to_ranks_whole():
    """An exception would leave the cell without an answer: IPython knows of it only once it runs."""
    deep = f"x = {'-' * 200_000}1"
    assert rewritten(deep, SHELL).startswith(REMOTE)

    def fails(_: str) -> str:
        raise RuntimeError("a transformer of one's own")

    assert rewritten("x = 1", KnownShell(fails, set(), set())) == f"{REMOTE}'x = 1')"
