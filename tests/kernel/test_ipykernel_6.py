"""Tab and tooltips in the kernel "Python on a pool" with ipykernel 6, which asks for them in another way than 7."""

from __future__ import annotations

import json

import pytest
from frontends.environments import python_of
from kernels import ready

from skyward_nb.kernel import kernelspecs

pytestmark = pytest.mark.extensive


@pytest.fixture
def notebook(prefix):
    python = python_of("headless")
    asked = kernelspecs.read(["--prefix", str(prefix), "--nodes", "2"])
    spec = kernelspecs.spec(asked)
    path = prefix / "share/jupyter/kernels" / kernelspecs.NAME / "kernel.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**spec, "argv": [python, *spec["argv"][1:]]}))
    with ready(kernel_name=kernelspecs.NAME) as running:
        yield running


def test_what_ranks_have_is_completed_and_told(notebook):
    ran = notebook.run("import ipykernel\nipykernel.__version__[0]")
    assert ran.result == "[0-1] '6'"
    assert notebook.run("x = 1").status == "ok"

    def answer(message):
        while True:
            reply = notebook.client.get_shell_msg(timeout=60)
            if reply["parent_header"].get("msg_id") == message:
                return reply["content"]

    assert answer(notebook.client.complete("x.bit_c"))["matches"] == ["x.bit_count"]
    assert "int" in answer(notebook.client.inspect("x"))["data"]["text/plain"]
