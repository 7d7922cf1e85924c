"""Where sshd forwards no sockets, programs there reach them, and each is a session; with a real sshd."""

import asyncio
import errno
import os
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from providers.lines import Loop, stream_to
from sshds import lacks, sshd
from waiting import until

from skyward_nb.node.value_service import ValueService
from skyward_nb.providers.far import relay
from skyward_nb.providers.host import RELAY
from skyward_nb.providers.ssh.script_session import ScriptSession
from skyward_nb.store.blobs import BlobStore, digest_of
from skyward_nb.store.receive_window import ReceiveWindow
from skyward_nb.store.remote_store import RemoteStore

pytestmark = pytest.mark.skipif(bool(lacks()), reason=lacks())


@pytest.fixture
def far(tmp_path):
    options = {"AllowStreamLocalForwarding": "no", "MaxSessions": 3}
    (tmp_path / RELAY).write_text(f'exec {sys.executable} -I -S {relay.__file__} "$1"\n')
    with sshd(tmp_path / "sshd", {}, **options) as server:
        line = Loop(server)
        yield line
        line.close()


@pytest.fixture
def listener(tmp_path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "agent.sock"))
        made.listen()
        made.settimeout(20)
        yield made


@pytest.fixture
def values(far, tmp_path):
    """A service of values there, and its store."""
    store = BlobStore(tmp_path / "memory", tmp_path / "disk", spare=0)
    store.memory.mkdir(parents=True)
    service = ValueService(tmp_path, store)

    async def do(work):
        work(asyncio.get_running_loop())

    far.do(do(service.listen))
    yield store
    far.do(do(service.close))


def test_values_take_one_session_and_leave_one_for_scripts(
    far, listener, values, tmp_path, monkeypatch
):
    monkeypatch.setattr(ReceiveWindow, "delay", 0.05)  # over a long way values go in many streams
    near, there = stream_to(far, listener)
    path = str(tmp_path / "values.sock")
    store = RemoteStore(lambda: far.do(far.line.way(path)), patience=60.0)
    data = [os.urandom(9 << 20) for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        assert all(threads.map(lambda each: store.put(digest_of([each]), [each]), data))
        store.fetch([digest_of([each]) for each in data])
        assert [store.map(digest_of([each])) for each in data] == data
    assert far.run("echo on", limit=20).out == b"on\n"
    with pytest.raises(OSError, match="sessions for one") as raised:
        far.do(far.line.way(path))
    assert raised.value.errno == errno.EBUSY
    store.close()
    for each in (near, there):
        each.close()


def test_streams_that_are_opened_together_on_a_new_connection_all_work(far, listener):
    async def both():
        path = listener.getsockname()
        await far.line.connect()
        return await asyncio.gather(*(far.line.stream(path) for _ in range(2)))

    ends = []

    def take():
        for _ in range(2):
            ends.append(listener.accept()[0])

    taking = threading.Thread(target=take)
    taking.start()
    try:
        opened = far.do(both())
    finally:
        taking.join()
    for each in (*opened, *ends):
        each.close()


def test_a_stream_does_not_wait_for_a_long_script_nor_a_short_script(far, listener, tmp_path):
    """As while packages are installed after the line was cut."""
    end = tmp_path / "end"
    script = f"touch {tmp_path}/begun; while [ ! -e {end} ]; do sleep 0.1; done; echo long"
    long = asyncio.run_coroutine_threadsafe(far.line.run(script), far.loop)
    try:
        until((tmp_path / "begun").exists)
        near, there = stream_to(far, listener)
        assert far.run("echo short", limit=25).out == b"short\n"
        assert not long.done()
    finally:
        end.touch()
    assert long.result(20).out == b"long\n"
    near.close()
    there.close()


def test_a_stream_is_refused_where_nobody_listens(far, listener, tmp_path):
    nobody = str(tmp_path / "nobody.sock")
    with pytest.raises(ConnectionRefusedError):
        far.do(far.line.stream(nobody))
    near, there = stream_to(far, listener)
    with pytest.raises(ConnectionRefusedError):
        far.do(far.line.stream(nobody))
    near.close()
    there.close()


def test_where_sshd_forwards_a_socket_that_is_gone_takes_no_session(
    tmp_path, listener, monkeypatch
):
    with sshd(tmp_path / "sshd", {}, MaxSessions=1) as server:
        far = Loop(server)
        near, there = stream_to(far, listener)
        monkeypatch.setattr(ScriptSession, "open", None)
        monkeypatch.setattr(far.line._connection, "create_session", None)
        with pytest.raises(ConnectionRefusedError):
            far.do(far.line.stream(str(tmp_path / "nobody.sock")))
        for each in (near, there):
            each.close()
        far.close()
