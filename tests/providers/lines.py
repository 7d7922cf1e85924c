"""A line to a host, as pools have it, for tests."""

import asyncio
import threading

from skyward_nb.providers.ssh.dialer import Dialer
from skyward_nb.providers.ssh.ssh_line import HostLine
from skyward_nb.words.hosts import SSHAccess, parse_hosts


class Loop:
    """A line to a host on a loop of its own thread, as pools have it."""

    def __init__(self, server):
        given = server.access()
        access = SSHAccess(**{**given, "hosts": parse_hosts(given["hosts"])})
        self.loop = asyncio.new_event_loop()
        # A test that fails before it has closed this is not waited for.
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.line = HostLine(access.hosts[0], Dialer(access))

    def do(self, work, limit=30):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(limit)

    def run(self, script, **options):
        return self.do(self.line.run(script, **options))

    def tasks(self):
        async def others():
            return asyncio.all_tasks() - {asyncio.current_task()}

        return self.do(others())

    def close(self):
        self.do(self.line.close())
        assert not self.tasks()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


def stream_to(far, listener):
    """Both ends of a stream of words: here, and on the host."""
    near = far.do(far.line.stream(listener.getsockname()))
    there, _ = listener.accept()
    for end in (near, there):
        end.settimeout(20)
    return near, there
