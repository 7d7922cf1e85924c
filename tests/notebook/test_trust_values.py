"""`trust=values` in a notebook: every way that values come back, and what ranks that were taken over send."""

from __future__ import annotations

import pytest
from kernels import kernel
from later import needs

from skyward_nb.notebook.cells import is_cell_file

LINE = "%%sky_remote nodes=2 trust=values framework=none "
FORGE = """
import os, pickle
from skyward_nb.node import generator_channel, result_packer, error_interpreter
from skyward_nb.pickling import payload
class Evil:
    def __reduce__(self):
        return os.system, ("touch {broken}",)
evil = lambda name, value, salt: payload.pack(name, Evil())
result_packer.pack_plain = generator_channel.pack_plain = evil
def forge(error, store):
    return payload.pack("e", Evil()).stow(store)
error_interpreter.pack_exception = forge
"""


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    with kernel(cwd=tmp_path_factory.mktemp("trust")) as running:
        yield running


@needs("numpy", "pandas")
def test_values_come_back_by_every_way(book, tmp_path):
    ran = book.run(LINE + "out=got pull=table,kept\nimport numpy as np, pandas as pd, os\n"
                   "rank = int(os.environ['RANK'])\nkept = {'a': np.arange(3) + rank}\n"
                   "table = pd.DataFrame({'x': [rank, None]})\n(rank, np.ones(70_000))")  # fmt: skip
    assert ran.status == "ok", ran.traceback
    assert book.run("print(got[1][0], got[1][1].sum(), kept[1]['a'], len(table[0]))").stdout.split() == [
        "1", "70000.0", "[1", "2", "3]", "2",
    ]  # fmt: skip
    assert book.run("%sky pull kept as=own").status == "ok"
    assert book.run("print(own[0]['a'])").stdout.strip() == "[0 1 2]"
    ran = book.run(LINE + "out=got\nimport threading\n{'deep': [threading.Lock]}")
    assert ran.error[0] == "PayloadError"
    assert "trust=values takes numbers, text, arrays and tables" in ran.traceback
    assert "['deep'][0]" in ran.traceback
    ran = book.run(LINE + "\nraise KeyError('lost')")
    assert ran.error[0] == "KeyError"
    ran = book.run(LINE + "\nclass Own(Exception): pass\nraise Own('mine')")
    assert ran.error[0] == "RemoteError"
    assert "mine" in ran.traceback
    ran = book.run(
        LINE
        + "\nfrom IPython.display import HTML, display\ndisplay(HTML('<b>bold</b><script>1</script>'))"
    )
    pages = [each["text/html"] for each in (*ran.displays, *ran.others) if "text/html" in each]
    assert "&lt;script&gt;" in pages[-1]
    assert 'sandbox="allow-scripts"' in pages[-1]
    assert "<script>1" not in pages[-1]


def test_nothing_of_a_rank_that_was_taken_over_is_run(book, tmp_path):
    broken = tmp_path / "BROKEN"
    assert book.run(LINE + "\n" + FORGE.format(broken=broken) + "\nx = 1\nNone;").status == "ok"
    for line, code in (("out=got", "1"), ("pull=x", "x = 1"), ("", "raise OSError(1)")):
        ran = book.run(f"{LINE}{line}\n{code}")
        assert ran.error[0] in ("PayloadError", "OSError"), ran.traceback
        if ran.error[0] == "PayloadError":
            assert "it names posix.system: trust=values takes" in ran.traceback
        assert not broken.exists()
    # Nobody asked for it, so it stays there. What it is asked to show of itself is forged, too.
    ran = book.run(f"{LINE}\n1")
    assert ran.status == "ok", ran.traceback
    assert "it names posix.system: trust=values takes" in str(ran.displays)
    assert not broken.exists()
    assert book.run("%sky pull x").error[0] == "PayloadError"
    ran = book.run(
        "import skyward_nb as sky\n@sky.function\ndef one():\n    return 1\n@sky.function\ndef some():\n"
        "    yield 1\n"
        f"with sky.Compute(nodes=1, trust='values') as pool:\n    @sky.function\n    def break_in():\n"
        f"        exec({FORGE.format(broken=broken)!r}, globals())\n    try:\n        break_in() >> pool\n    except sky.PayloadError:\n        pass\n"
        "    for call in (one, lambda: some(), some):\n        try:\n"
        "            print(list(call() >> pool))\n"
        "        except Exception as error:\n            print(type(error).__name__, str(error)[:200])"
    )
    print(ran.stdout, ran.traceback)
    assert ran.stdout.count("posix.system") == 3
    assert not broken.exists()


def test_names_of_cell_files():
    assert is_cell_file("/tmp/ipykernel_12/345.py")
    assert is_cell_file("<ipython-input-3-0123abcd>")
    assert not is_cell_file("/usr/lib/python3.12/os.py")
