"""Front ends are told apart by what they send with a cell."""

from types import SimpleNamespace

import pytest

from skyward_nb.show.front_ends import FrontEnd, front_end_of, present_front_end

VSCODE = {"cellId": "vscode-notebook-cell:/home/me/train.ipynb#W0sZmlsZQ%3D%3D"}
LAB = {"cellId": "5d1f2c7e", "deletedCells": [], "recordTiming": False}


@pytest.mark.parametrize(
    ("metadata", "meant"),
    [
        (VSCODE, FrontEnd.VSCODE),
        (LAB, FrontEnd.JUPYTERLAB),
        ({"cellId": "5d1f2c7e"}, FrontEnd.ANOTHER),
        ({}, FrontEnd.ANOTHER),
        (None, FrontEnd.ANOTHER),
    ],
)
def test_by_the_metadata_of_the_request(metadata, meant):
    assert front_end_of({"metadata": metadata}) is meant


def test_the_same_kernel_has_several():
    sent = {"metadata": LAB}
    shell = SimpleNamespace(kernel=SimpleNamespace(get_parent=lambda: sent))
    assert present_front_end(shell) is FrontEnd.JUPYTERLAB
    sent["metadata"] = VSCODE
    assert present_front_end(shell) is FrontEnd.VSCODE
    assert present_front_end(SimpleNamespace()) is FrontEnd.ANOTHER
