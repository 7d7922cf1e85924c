"""Every block of README and docs: cells run and show what the page says, the other ones are understood."""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
import sys
import tomllib

import pytest
from IPython.core.inputtransformer2 import TransformerManager
from kernels import Kernel, Ran

from docs.blocks import ROOT, Block, blocks, blocks_of, not_shown, pages
from skyward_nb.cli.command_table import read
from skyward_nb.kernel.kernelspecs import read as installation
from skyward_nb.options.option_help import VERBS
from skyward_nb.options.option_line import parse, parse_script, parse_settings, parse_verb
from skyward_nb.options.option_table import BY_NAME, TAKES
from skyward_nb.options.torchrun_line import read_torchrun

BLOCKS = [(page, block) for page in pages() for block in blocks_of(page)]
EVERY = pytest.mark.parametrize(
    ("page", "block"), BLOCKS, ids=[f"{page}:{block.line}" for page, block in BLOCKS]
)
LONG = {
    "docs/coming-from/dask.md": "functions/test_mapping.py",
    "docs/coming-from/ipyparallel.md": "notebook/test_cells.py",
    "docs/coming-from/ray.md": "functions/test_running.py",
    "docs/coming-from/skyward.md": "dialects/test_older.py",
    "docs/coming-from/torchrun.md": "plugins/test_torch.py",
    "docs/howto/environments.md": "notebook/test_image.py",
    "docs/howto/functions.md": "functions/test_running.py",
    "docs/howto/hangs.md": "notebook/test_check.py",
    "docs/howto/kernel.md": "kernel/test_pool_kernel.py",
    "docs/howto/profiling.md": "notebook/test_profile.py",
    "docs/howto/scripts.md": "cli/test_run.py",
    "docs/howto/workshops.md": "notebook/test_first_hour.py",
    "docs/tutorial/frameworks.md": "plugins/test_torch.py",
    "docs/tutorial/progress.md": "notebook/test_output.py",
}
"""Pages whose cells run with `--all` alone, and a test that shows the same each time."""
_LANGUAGES = {"python", "sh", "toml", "text", "json", "yaml"}


def cells(page: str) -> list[Block]:
    return [each for each in blocks_of(page) if each.language == "python" and not each.not_run]


def pages_with_cells():
    for page in pages():
        if cells(page):
            yield pytest.param(page, marks=[pytest.mark.extensive] * (page in LONG))


@pytest.mark.parametrize("page", pages_with_cells())
def test_cells_run_and_show_what_the_page_says(fresh, page, tmp_path):
    fresh.run(f"%cd -q {tmp_path}")
    for block in cells(page):
        where = f"{page}:{block.line}"
        if missing := [each for each in imported(block) if importlib.util.find_spec(each) is None]:
            pytest.skip(f"{', '.join(missing)} is not installed")
        ran = run_and_type(fresh, block, where)
        assert (ran.error[0] if ran.error else "") == block.raises, f"{where}: {ran.traceback}"
        shown = "\n".join([ran.picture, ran.stdout, ran.stderr, ran.result or "", ran.traceback])
        assert not_shown(block.shows, shown) == [], f"{where} shows\n{shown}"


def run_and_type(kernel: Kernel, block: Block, where: str) -> Ran:
    """Run a cell, and answer at its prompts what a person answers on the page."""
    message = kernel.begin(block.code)
    answers = block.typed
    if "breakpoint()" in block.code and sys.version_info >= (3, 13):
        # pdb stops at that line then, not after it.
        answers = ((answers[0][0], "n"), *answers)
    asked: list[str] = []
    for _, answer in answers:
        asked.append(kernel.client.get_stdin_msg(timeout=120)["content"]["prompt"])
        kernel.client.input(answer)
    ran = kernel.finish(message, 120)
    assert [each.split("\n")[-1] for each in asked] == [prompt for prompt, _ in answers], where
    ran.streams["stdout"] = "\n".join([*asked, ran.stdout])
    return ran


def imported(block: Block) -> set[str]:
    """The packages that a cell imports."""
    return set(re.findall(r"^(?:import|from) (\w+)", block.code, re.MULTILINE))


@EVERY
def test_a_block_is_understood(page, block):
    assert block.language in _LANGUAGES, "say what it is: python is a cell that runs"
    understand = globals().get(f"understand_{block.language}")
    if understand is not None:
        understand(block.code)


def understand_python(code: str) -> None:
    line, body = re.fullmatch(r"(?:%%sky_remote(.*)\n)?((?s:.*))", code).groups("")
    if "{" not in line:  # what stands in braces is known once it runs
        parse(line)
    for verb, rest in re.findall(r"^%sky (\w+) *(.*)$", body, re.MULTILINE):
        assert verb in VERBS, f"%sky {verb}"
        if verb in ("push", "pull"):
            parse_verb(verb, rest.partition(" ")[2])
        elif verb == "run":
            assert parse_script(rest)[1]
        elif verb in TAKES:
            parse_verb(verb, rest)
        elif verb == "up":
            parse(rest)
        elif verb == "config":
            parse_settings(rest)
    text = TransformerManager().transform_cell(body)
    compile(text, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def understand_sh(code: str) -> None:
    """Of what a terminal is told: commands of ours, and targets of make."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:2] == ["skyward-nb", "torchrun"]:
            read("torchrun", list(read_torchrun(words[2:], "").pool_words))
        elif words[:1] == ["skyward-nb"] and words[1] != "run":
            read(words[1], words[2:])
        elif words[:1] == ["skyward-nb"]:
            script = next(i for i, word in enumerate(words) if word.endswith((".py", ".yaml")))
            read("run", words[2:script])
        elif words[:4] == ["python", "-m", "skyward_nb.kernel", "install"]:
            assert installation(words[4:]).options
        elif words[:1] == ["make"]:
            assert {word for word in words[1:] if "=" not in word} <= targets, line


def understand_toml(code: str) -> None:
    found = tomllib.loads(code)
    table = found.get("tool", {}).get("skyward", {} if "tool" in found else found)
    assert set(table) <= set(BY_NAME)


def test_what_runs_seldom_is_shown_by_another_test():
    assert set(LONG) <= set(pages())
    assert all((ROOT / "tests" / guard).exists() for guard in LONG.values())


def test_readme_is_short_and_begins_with_what_to_copy():
    lines = [block.code for block in blocks_of("README.md") if block.language == "sh"]
    assert [len(each.splitlines()) for each in lines] == [2, 4]
    assert len(cells("README.md")) == 3
    prose = re.sub(r"```.*?```", "", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert len(prose.split()) <= 650


PAGE = """
```python
print("loss 0.1 of", rank)
```
```text
loss … of 3
rank 1> p x
7
rank 1> q
```

<!-- raises: ValueError -->
```python
int("a")
```

<!-- not run: it rents -->
```python
rent()
```
"""


def test_what_stands_beside_a_block():
    first, second, third = blocks(PAGE)
    assert (first.line, first.shows) == (3, ("loss … of 3", "7"))
    assert first.typed == (("rank 1> ", "p x"), ("rank 1> ", "q"))
    assert (second.raises, second.not_run, second.typed) == ("ValueError", "", ())
    assert third.not_run == "it rents"


@pytest.mark.parametrize(
    ("line", "shown", "is_there"),
    [
        ("loss … of 3", "[0] loss 0.1 of 3 ranks", True),
        ("loss … of 3", "loss\nof 3", False),
        ("a (b)", "x a (b) y", True),
    ],
)
def test_what_a_cell_shows(line, shown, is_there):
    assert (not_shown((line,), shown) == []) == is_there
