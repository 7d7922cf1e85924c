"""Results on their way back from a machine: what was edited here meanwhile stays, and nothing is left in its store."""

from __future__ import annotations

import contextlib
import errno
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from skyward_nb.node import folder_service
from skyward_nb.pool import folder_transfer
from skyward_nb.pool.folder_transfer import FolderTransfer
from skyward_nb.reports.fetched_files import told
from skyward_nb.store.blobs import BlobStore
from skyward_nb.store.value_messages import ValuePacked
from skyward_nb.words.folder_entry import FolderError
from skyward_nb.workdir.machine_folder import MachineFolder
from skyward_nb.workdir.working_folder import FOLDERS, WorkingFolder

_environment = threading.Lock()


class NearMachine:
    """A machine whose copies and store are folders here; it stands for its `RemoteStore`, too."""

    def __init__(self, folder: Path) -> None:
        self._copies = folder / "copies"
        self.copy = MachineFolder(self._copies, "project-1").path
        self._store = BlobStore(folder / "store")
        self.put, self.map = self._store.put, self._store.map
        self.name = f"the machine in {folder.name}"

    def ask_folder(self, ask: Any, kind: type, tick: Any) -> Any:
        # Machines are asked at once, and the folder of copies is told to each by the environment of all.
        with _environment, pytest.MonkeyPatch.context() as there:
            there.setenv(FOLDERS, str(self._copies))
            answer = folder_service.answer(ask, self._store)
        assert isinstance(answer, kind), answer
        return answer

    def fetch(self, digests, tick):
        """They are here."""

    def drop(self, digests):
        for each in digests:
            (self._store.memory / each).unlink()

    @property
    def kept(self) -> int:
        return len(list(self._store.memory.iterdir()))


class Transfer:
    """A folder here, its machine, and the way between them."""

    def __init__(self, folder: Path) -> None:
        self.here = folder / "project"
        self.here.mkdir()
        self.machine = NearMachine(folder)
        self.machines = {0: self.machine}
        stores = SimpleNamespace(
            elsewhere=lambda ranks: self.machines,
            of=lambda ranks: self.machine,
            telling=lambda text, size, watch: contextlib.nullcontext(lambda: watch(None)),
        )
        closing = SimpleNamespace(reaching=contextlib.nullcontext)
        self._transfer = FolderTransfer(SimpleNamespace(stores=stores), closing)  # pyright: ignore[reportArgumentType]

    def send(self, **options: Any) -> Any:
        folder = WorkingFolder(self.here, "project-1", **options)
        return self._transfer.send(folder, [0], lambda _: None)

    def bring(self, *patterns: str, watch: Any = lambda _: None) -> tuple[str, ...]:
        folder = WorkingFolder(self.here, "project-1", fetch=patterns)
        return told(folder, self._transfer.bring(folder, [0], watch))


@pytest.fixture
def pair(tmp_path, monkeypatch) -> Transfer:
    monkeypatch.setenv(FOLDERS, str(tmp_path / "copies"))
    return Transfer(tmp_path)


def test_what_was_fetched_is_not_sent_over_a_newer_result(pair):
    """As of a script that goes on, and is started again."""
    (pair.here / "main.py").write_text("v1")
    pair.send()
    result = pair.machine.copy / "snapshot.pt"
    for fetched, newer in (("epoch 5", "epoch 10"), ("epoch 15", "epoch 20")):
        result.write_text(fetched)
        pair.bring("*.pt")
        assert (pair.here / "snapshot.pt").read_text() == fetched
        result.write_text(newer)
        pair.send()
        pair.send()
        assert result.read_text() == newer
    (pair.here / "snapshot.pt").write_text("edited here")
    pair.send()
    assert result.read_text() == "edited here"
    (pair.here / "snapshot.pt").write_text("epoch 15")  # put back
    pair.send()
    assert result.read_text() == "epoch 15"
    (pair.here / "snapshot.pt").unlink()
    result.write_text("epoch 25")
    pair.send()
    assert result.read_text() == "epoch 25", "nobody sent that"


def test_each_machine_keeps_its_own_file_of_a_path(pair, tmp_path):
    (pair.here / "main.py").write_text("v1")
    (tmp_path / "second").mkdir()
    pair.machines[1] = second = NearMachine(tmp_path / "second")
    second._store, second.put, second.map = pair.machine._store, pair.machine.put, pair.machine.map
    pair.send()
    results = [each.copy / "out.txt" for each in pair.machines.values()]
    for result, text in zip(results, ("first", "second"), strict=True):
        result.write_text(text)
    for _ in range(2):
        pair.bring("*.txt")
        assert (pair.here / "out.txt").read_text() == "first"
        assert (pair.here / "out.node1.txt").read_text() == "second"
        pair.send()


@pytest.mark.parametrize("fails_at", ["asked", "sending"])
def test_a_machine_that_is_not_reached_keeps_no_files_of_others(pair, tmp_path, fails_at):
    (pair.here / "main.py").write_text("v1")
    (tmp_path / "second").mkdir()
    pair.machines[1] = second = NearMachine(tmp_path / "second")
    second._store, second.put, second.map = pair.machine._store, pair.machine.put, pair.machine.map
    pair.send()
    for place, each in enumerate(pair.machines.values()):
        (each.copy / f"out{place}.txt").write_text("12345")
    answer = pair.machine.ask_folder

    def fail(*_):
        raise TimeoutError(errno.ETIMEDOUT, "nothing came for 60 s")

    def lost_when_sending(ask, kind, tick):
        return answer(ask, kind, tick) if kind is not ValuePacked else fail()

    pair.machine.ask_folder = fail if fails_at == "asked" else lost_when_sending
    lost = (
        f"of the machine in {tmp_path.name}: nothing came for 60 s; what else it has did not come: "
        "`%sky fetch` tries again"
    )
    assert pair.bring("*.txt") == ("brought out1.txt (5 B)", lost)
    pair.machine.ask_folder = answer
    assert pair.bring("*.txt") == ("brought out0.txt (5 B)",)
    (pair.machine.copy / "same.txt").write_text("first")
    pair.bring("*.txt")
    (second.copy / "same.txt").write_text("second")
    pair.machine.ask_folder = fail
    assert pair.bring("*.txt") == ("brought same.node1.txt (6 B)", lost)
    assert (pair.here / "same.txt").read_text() == "first", "that machine's own"
    (second.copy / "same.txt").write_text("first")
    assert pair.bring("*.txt") == (lost,)
    pair.machine.ask_folder = second.ask_folder = fail
    with pytest.raises(
        FolderError,
        match=r"fetch=\*\.txt: .*: nothing came.*in second: nothing came for 60 s; `%sky fetch`",
    ):
        pair.bring("*.txt")


def test_a_file_that_is_gone_by_now_hinders_no_other(pair, monkeypatch):
    """As of a training that keeps its last checkpoints."""
    (pair.here / "main.py").write_text("v1")
    pair.send()
    for name in ("1.pt", "2.pt"):
        (pair.machine.copy / name).write_text(name)
    read = MachineFolder.read

    def read_late(self, parts):
        (pair.machine.copy / "1.pt").unlink(missing_ok=True)
        return read(self, parts)

    monkeypatch.setattr(MachineFolder, "read", read_late)
    assert pair.bring("*.pt") == ("brought 2.pt (4 B)",)
    assert sorted(each.name for each in pair.here.iterdir()) == ["2.pt", "main.py"]


def test_what_was_sent_does_not_come_back_over_a_newer_edit(pair):
    (pair.here / "main.py").write_text("v1")
    pair.send()
    (pair.here / "main.py").write_text("v2, edited here")
    (pair.machine.copy / "model.pt").write_text("weights")
    assert pair.bring("**") == ("brought model.pt (7 B)",)
    assert (pair.here / "main.py").read_text() == "v2, edited here"
    assert pair.bring("main.py") == ("main.py: all of it is here already, or as it was sent",)


def test_what_changed_here_and_there_comes_beside_it(pair):
    state = pair.here / "state.json"
    state.write_text("0")
    pair.send()
    there = pair.machine.copy / "state.json"
    there.write_text("1")
    assert pair.bring("*.json") == ("brought state.json (1 B)",)
    there.write_text("2")
    assert pair.bring("*.json") == ("brought state.json (1 B)",), "nobody edited what was brought"
    assert state.read_text() == "2"
    state.write_text("edited")
    there.write_text("3")
    assert pair.bring("*.json") == (
        "brought state.json.fetched (1 B)",
        "state.json was edited here since it was sent, and stays: the script's is state.json.fetched",
    )
    assert state.read_text() == "edited"
    assert (pair.here / "state.json.fetched").read_text() == "3"


def test_a_result_is_not_written_through_a_link_out_of_the_folder(pair, tmp_path):
    (pair.here / ".skyignore").write_text("runs\n")
    (pair.here / "runs").symlink_to(tmp_path)
    pair.send()
    (pair.machine.copy / "runs").mkdir()
    (pair.machine.copy / "runs" / "m.pt").write_text("x")
    (pair.machine.copy / "n.pt").write_text("x")
    brought, refused = pair.bring("runs/*", "n.pt")
    assert brought == "brought n.pt (1 B)" and "runs/m.pt would be written to" in refused
    assert not (tmp_path / "m.pt").exists()


def test_an_interrupted_fetch_leaves_nothing_in_the_machines_store(pair, monkeypatch):
    pair.send()
    (pair.machine.copy / "m.pt").write_text("x")

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pair.machine, "fetch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pair.bring("m.pt")
    assert pair.machine.kept == 0


def test_a_large_file_goes_there_in_several_values(pair, monkeypatch):
    monkeypatch.setattr(folder_transfer, "_GROUP", 4)
    for name in ("large", "same"):
        (pair.here / name).write_text("0123456789")
    (pair.here / "empty").touch()
    pair.send()
    there = {path.name: path.read_text() for path in pair.machine.copy.iterdir()}
    assert there == {"large": "0123456789", "same": "0123456789", "empty": ""}
    assert pair.machine.kept == 0
