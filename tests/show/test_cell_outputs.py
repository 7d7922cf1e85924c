"""What a cell has shown is taken back only where all of it is a picture's own."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from skyward_nb.show.cell_outputs import CellOutputs
from skyward_nb.show.kept_pictures import find_value, keep, keep_value
from skyward_nb.show.kernel_status import BusyStatus
from skyward_nb.show.lab_cell import LabCell


class Kernel:
    """Sends nothing, and notes it, in the place of ipykernel's."""

    iopub_socket = "iopub"

    def __init__(self) -> None:
        self.sent: list[tuple[str, object]] = []
        self.session = SimpleNamespace(send=self._note)
        self.request = "first"

    def _note(self, stream, what, content=None, parent=None, **_):
        self.sent.append((what if isinstance(what, str) else what["msg_type"], content))
        return "sent"

    def get_parent(self):
        return {
            "header": {"msg_id": self.request},
            "metadata": {"cellId": "c1", "deletedCells": []},
            "content": {"store_history": True},
        }

    def send_response(self, socket, kind, content):
        return self.session.send(socket, kind, content, self.get_parent())

    def shows(self, kind="display_data", request=None):
        """As IPython sends a display, or what was printed."""
        parent = {"msg_id": request or self.request}
        return self.session.send("iopub", {"msg_type": kind, "parent_header": parent})


def a_cell(kernel, *, execution_count=3):
    """A cell after the one in which the extension was loaded, and its picture."""
    outputs = CellOutputs.in_lab(kernel)
    assert outputs is not None
    kernel.request = "second"
    shell = SimpleNamespace(kernel=kernel, execution_count=execution_count)
    return shell, LabCell(outputs, kernel.get_parent(), BusyStatus(shell))


def test_a_picture_that_is_alone_is_taken_back_once():
    kernel = Kernel()
    _, cell = a_cell(kernel)
    assert kernel.shows() == "sent"
    kernel.shows()
    cell.has_shown()
    kernel.shows("update_display_data")
    kernel.shows("status")
    kernel.shows("stream", request="first")  # a thread of another cell prints
    assert cell.take_back()
    assert kernel.sent[-1] == ("clear_output", {"wait": True})
    assert not cell.take_back()


@pytest.mark.parametrize(
    "kind", ["stream", "display_data", "execute_result", "error", "input_request", "clear_output"]
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_what_else_a_cell_shows_stays(kind, when):
    kernel = Kernel()
    _, cell = a_cell(kernel)
    if when == "before":
        kernel.shows(kind)
    kernel.shows()
    kernel.shows()
    cell.has_shown()
    if when == "after":
        kernel.send_response("iopub", kind, {})
    sent = len(kernel.sent)
    assert not cell.take_back()
    assert len(kernel.sent) == sent


def test_what_an_output_widget_catches_is_not_a_cell_s_own():
    kernel = Kernel()
    _, cell = a_cell(kernel)
    for data in ([1], None, {"state": "odd"}, {"state": {"value": 1}}):
        kernel.send_response("iopub", "comm_msg", {"comm_id": "1", "data": data})
    state = {"method": "update", "state": {"msg_id": "second"}}
    kernel.send_response("iopub", "comm_msg", {"comm_id": "1", "data": state})
    kernel.shows()
    kernel.shows()
    cell.has_shown()
    assert not cell.take_back()


def test_nothing_is_taken_back_once_the_cell_has_ended_or_from_another_one():
    kernel = Kernel()
    shell, cell = a_cell(kernel)
    kernel.shows()
    kernel.shows()
    cell.has_shown()
    shell.execution_count += 1
    assert not cell.take_back()
    shell.execution_count -= 1
    kernel.request = "third"
    assert not cell.take_back()


def test_of_the_cell_in_which_counting_begins_it_is_not_known_what_it_has_shown():
    kernel = Kernel()
    outputs = CellOutputs.in_lab(kernel)
    cell = LabCell(
        outputs,
        kernel.get_parent(),
        BusyStatus(SimpleNamespace(kernel=kernel, execution_count=1)),
    )
    kernel.shows()
    kernel.shows()
    cell.has_shown()
    assert not cell.take_back()


def test_a_kernel_is_watched_once_and_left_as_it_was():
    kernel = Kernel()
    send = kernel.session.send
    outputs = CellOutputs.in_lab(kernel)
    assert CellOutputs.in_lab(kernel) is outputs
    threads = [threading.Thread(target=kernel.shows) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs.count() == 1 + 8
    CellOutputs.forget(kernel)
    CellOutputs.forget(kernel)
    assert kernel.session.send == send
    CellOutputs.forget(None)
    assert CellOutputs.in_lab(None) is None


def test_what_a_cell_shows_as_its_value_is_kept_as_that_of_its_run(monkeypatch, tmp_path):
    monkeypatch.setenv("SKYWARD_LOG_DIR", str(tmp_path))
    keep("far-3fa2b1/7", {"text/plain": "a picture"})
    kernel = Kernel()
    _, cell = a_cell(kernel)
    shown = {"data": {"text/plain": "[0-1] 5"}, "metadata": {"image/png": {"width": 300}}}
    value = {"msg_type": "execute_result", "content": shown | {"execution_count": 3}}
    kernel.session.send("iopub", value | {"parent_header": {"msg_id": "second"}})
    assert find_value("far-3fa2b1/7") is None, "of before the run's end"
    cell.keep_value_of("far-3fa2b1/7")
    kernel.session.send("iopub", value | {"parent_header": {"msg_id": "third"}})
    assert find_value("far-3fa2b1/7") is None, "of another cell"
    # The run of another cell ends meanwhile, in the background.
    CellOutputs.in_lab(kernel).keep_value_of("far-3fa2b1/8", "fourth")
    kernel.session.send("iopub", value | {"parent_header": {"msg_id": "second"}})
    assert find_value("far-3fa2b1/7") == shown


@pytest.mark.parametrize("odd", [{1: complex(1)}, {"text/plain": "x\udc80"}, {"json": object()}])
def test_a_value_that_is_no_plain_json_is_not_kept_and_no_error(monkeypatch, tmp_path, odd):
    monkeypatch.setenv("SKYWARD_LOG_DIR", str(tmp_path))
    keep("far-3fa2b1/7", {"text/plain": "a picture"})
    keep_value("far-3fa2b1/7", {"data": odd})
    assert find_value("far-3fa2b1/7") is None


def test_a_mark_names_the_cell_and_the_widget():
    kernel = Kernel()
    _, cell = a_cell(kernel)
    mark = cell.mark("model")["skyward_nb"]
    assert mark == {"cell": "c1", "request": "second", "name": cell.name, "live": "model"}
