"""What runs on the ranks in each moment, and how a rank brings its fault about: code, as text.

Ranks and test speak by files in one folder: `go` lets the victim do it, `end` lets all the others
come to their end, `child` holds the process id of what the victim started.
"""

from __future__ import annotations

import os
from pathlib import Path

from faults.matrix import Case, Fault, Moment

PAYLOAD = 4_000_000
"""Bytes that are on their way when something goes wrong while they are sent."""

_START_CHILD = """
import subprocess
child = subprocess.Popen(['sleep', '600'], start_new_session=True)
with open(os.path.join(where, 'child.new'), 'w') as file:
    file.write(str(child.pid))
os.rename(os.path.join(where, 'child.new'), os.path.join(where, 'child'))
"""

_DEEDS = {
    Fault.SEGFAULT: "import ctypes\nctypes.string_at(0)",
    Fault.EXITS: "os._exit(3)",
    Fault.RAISES: "raise ValueError('on purpose')",
    Fault.HANGS_UP: "os.closerange(3, 1000)\ntime.sleep(60)",
    Fault.DEAF: """
open(os.path.join(where, 'deaf'), 'w').close()
until = time.monotonic() + 30
while time.monotonic() < until:
    try:
        time.sleep(0.01)
    except KeyboardInterrupt:
        pass
""",
    Fault.CHILD: f"{_START_CHILD}\nos.kill(os.getpid(), 9)",
    Fault.AGENT_KILLED_CHILD: _START_CHILD,
}

_ACT = """
def act(where={where!r}, victim={victim}):
    import os, time
    rank = int(os.environ['RANK'])
    if rank == victim and {does}:
        while not os.path.exists(os.path.join(where, 'go')):
            time.sleep({pause})
{deed}
    while not os.path.exists(os.path.join(where, 'end')):
        time.sleep({pause})
"""

_CELLS = {
    Moment.IDLE: "import threading\nprint('on')\nif {does}: threading.Thread(target=act, daemon=True).start()\nprint('end')\nrank",
    Moment.SENDING: "print('on', len(payload[0]))\nprint('end')\nrank",
    Moment.RUNNING: "print('on')\nact()\nprint('end')\nrank",
    Moment.PRINTING: """
import threading
if {does} and rank == {victim} and not {raises}: threading.Thread(target=act, daemon=True).start()
printed = 0
while not os.path.exists(os.path.join({where!r}, 'end')):
    for _ in range(50):
        print(printed)
        printed += 1
    time.sleep(0.0005 * int(os.environ['WORLD_SIZE']))
    if {raises} and rank == {victim} and os.path.exists(os.path.join({where!r}, 'go')): act()
printed
""",
    Moment.COLLECTIVE: """
import torch, torch.distributed as dist
print('on')
total = torch.tensor([rank])
if rank == {absent}: act()
dist.all_reduce(total)
print('end')
rank
""",
    Moment.GATHERING: """
class Home:
    def __reduce__(self):
        act()
        return int, (rank,)
print('on')
print('end')
Home()
""",
    Moment.STOPPING: """
try:
    print('on')
    while True: time.sleep({pause})
except KeyboardInterrupt:
    print('stopping')
    act()
    raise
""",
}

_HEAD = "import os, time\nrank, kept = int(os.environ['RANK']), {kept}\n"
KEPT = 41
AFTER = "print('on')\nprint('end')\nint(__import__('os').environ['RANK'])"
CHECK = "import os\nint(os.environ['RANK']), globals().get('kept')"


class Script:
    """The code of one case; `where` is an empty folder of its own."""

    def __init__(self, case: Case, where: Path) -> None:
        self.where = where
        deed = _DEEDS.get(case.fault, "")
        self._words = {
            "where": str(where),
            "victim": case.victim,
            "absent": case.absent,
            "does": bool(deed),
            # An interrupt reaches the main thread, and so does what it shall ignore.
            "raises": case.fault in (Fault.RAISES, Fault.DEAF),
            "pause": 0.002 * max(1, case.size // 4),
            "kept": KEPT,
        }
        body = "\n".join(f"        {line}" for line in deed.splitlines()) or "        pass"
        self._act = _ACT.format(**self._words, deed=body)
        self._moment = case.moment

    @property
    def cell(self) -> str:
        """The cell that brings the moment about."""
        head = _HEAD.format(**self._words)
        return head + self._act + _CELLS[self._moment].format(**self._words)

    @property
    def namespace(self) -> dict[str, object]:
        """What the cell reads of the notebook."""
        if self._moment is not Moment.SENDING:
            return {}
        return {"payload": (os.urandom(PAYLOAD), _DoneWhenRebuilt(f"{self._act}\nact()"))}

    def touch(self, name: str) -> None:
        """Let ranks know."""
        (self.where / name).touch()

    def has(self, name: str) -> bool:
        """Whether a rank has let us know."""
        return (self.where / name).exists()

    @property
    def child(self) -> int:
        """What the victim started."""
        return int((self.where / "child").read_text())


class _DoneWhenRebuilt:
    """Where it is rebuilt, a text is executed: so a rank is as long at it as it shall be."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return exec, (self._text, {})
