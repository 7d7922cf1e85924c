"""That the kernel is busy is said again after widgets were made, and only while the cell runs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from skyward_nb.show.kernel_status import BusyStatus


class Kernel:
    """Notes what it sends, in the place of ipykernel's."""

    def __init__(self, store_history: bool) -> None:
        self.iopub_socket = "iopub"
        self.said: list[tuple[str, str, str]] = []
        self._store_history = store_history

    def get_parent(self):
        return {"content": {"store_history": self._store_history}}

    def send_response(self, socket, kind, content):
        self.said.append((socket, kind, content["execution_state"]))


def shown(*, store_history=True):
    shell = SimpleNamespace(kernel=Kernel(store_history), execution_count=4)
    status = BusyStatus(shell)
    status.widgets_made(10.0)
    return shell, status


def test_busy_is_said_again_and_again_after_widgets_were_made():
    shell, status = shown()
    said = shell.kernel.said
    assert not status.is_due(10.4)
    for now, count in ((10.4, 0), (10.5, 1), (11.9, 1), (12.0, 2), (15.0, 3), (25.0, 4), (60.0, 4)):
        status.say_if_due(now)
        assert said == [("iopub", "status", "busy")] * count, now
    status.widgets_made(60.0)
    assert status.is_due(60.5)
    status.say_if_due(80.0)
    assert len(said) == 5
    assert not status.is_due(90.0)


@pytest.mark.parametrize("how", ["the cell has ended", "the cell has no number"])
def test_nothing_is_said_of_a_cell_that_may_have_ended(how):
    shell, status = shown(store_history=how == "the cell has ended")
    shell.execution_count += how == "the cell has ended"
    status.say_if_due(10.5)
    status.say_if_due(12.0)
    assert shell.kernel.said == []
    assert not status.is_due(20.0)
