"""Which instance is which machine: their addresses, their lives, all on one street."""

from __future__ import annotations

import itertools
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from cloud.machine import Launch, Machine
from cluster.street import Street

_FIRST, _LAST = 11, 250
_NEIGHBOURS = {"base_reachable_time_ms": 500, "delay_first_probe_time": 0, "retrans_time_ms": 300}
"""How this machine asks who has an address: often, at once, three times. A login to a machine that has ended
fails within one or two seconds, not after the 20 that it may take where nobody says that there is none."""


class Machines:
    """The machines that there are. `powered_off` is told which instance ended by itself."""

    def __init__(self, folder: Path, powered_off: Callable[[str], None]) -> None:
        self._folder = folder
        self._powered_off = powered_off
        self._street: Street | None = None
        self._places: dict[str, int] = {}
        # Those of machines that are gone are had again late: neighbours remember them for a while.
        self._all_places = itertools.cycle(range(_FIRST, _LAST))
        self._lock = threading.RLock()
        self._busy: list[threading.Thread] = []
        self._failed: set[str] = set()
        self.machines: dict[str, Machine] = {}
        self._disks: dict[str, bytes] = {}
        """Of machines that are stopped."""
        self.troubles: list[str] = []
        """What went wrong with the fixture itself."""
        self.boots: Callable[[str], bool] = lambda instance: True
        """Whether a machine comes up; one that does not has an address that nobody answers at."""
        self.consoles: dict[str, str] = {}
        """What machines that are gone had said."""

    @property
    def street(self) -> Street:
        with self._lock:
            if self._street is None:
                self._street = Street()
                for name, value in _NEIGHBOURS.items():
                    Path("/proc/sys/net/ipv4/neigh", self._street.link, name).write_text(f"{value}")
            return self._street

    def addresses(self, instance: str) -> tuple[str, str]:
        """The public and the private address that an instance has from now on."""
        with self._lock:
            taken = set(self._places.values())
            place = next(each for each in self._all_places if each not in taken)
            self._places[instance] = place
            return self.street.address("front", place), self.street.address("back", place)

    def front(self, instance: str) -> str:
        """The public address of an instance that has been launched."""
        with self._lock:
            return self.street.address("front", self._places[instance])

    def own(self) -> str:
        """The address from which machines see whoever asks the API here."""
        return self.street.address("front", 1)

    def boot(self, launch: Launch, *, again: bool = False) -> None:
        """A machine comes up, in its own time; `again` with the disk that it had."""
        disk = self._disks.pop(launch.instance, b"") if again else b""
        self._goes_on(lambda: self._boot(launch, disk))

    def disk(self, instance: str) -> bytes:
        """What a machine has on its disk, one that is stopped, too."""
        with self._lock:
            made = self.machines.get(instance)
        return made.disk() if made is not None else self._disks.get(instance, b"")

    def stop(self, instance: str) -> None:
        """A machine goes off, and its disk stays."""
        self._disks[instance] = self.disk(instance)
        self.end(instance)
        self.settled()

    def _boot(self, launch: Launch, disk: bytes) -> None:
        with self._lock:
            place = self._places.get(launch.instance)
        if place is None or not self.boots(launch.instance):
            return
        made: Machine | None = None
        try:
            made = Machine(
                self.street,
                place,
                launch,
                self._folder,
                lambda: self._powered_off(launch.instance),
                disk,
            )
            with self._lock:
                is_wanted = launch.instance in self._places
                if is_wanted:
                    self.machines[launch.instance] = made
            if is_wanted:
                made.boot()
            else:
                made.close()
        except Exception:
            with self._lock:
                # One that is ended while it comes up has its address until it is closed.
                is_wanted = launch.instance in self._places and (
                    made is None or self.machines.get(launch.instance) is made
                )
            if is_wanted:
                self.troubles.append(traceback.format_exc())

    def end(self, instance: str) -> None:
        """Pull the plug of a machine, in its own time."""
        with self._lock:
            made = self.machines.pop(instance, None)
            if made is None:
                self._places.pop(instance, None)
                return
        self._goes_on(lambda: self._end(instance, made))

    def _end(self, instance: str, made: Machine) -> None:
        try:
            self.consoles[instance] = made.console()
        except OSError:
            """It had ended while it came up."""
        made.close()
        # Only now may somebody else have its address.
        with self._lock:
            self._places.pop(instance, None)

    def _goes_on(self, what: Callable[[], None]) -> None:
        thread = threading.Thread(target=what, daemon=True)
        with self._lock:
            self._busy = [each for each in self._busy if each.is_alive()]
            self._busy.append(thread)
            thread.start()

    def settled(self) -> None:
        """Wait until what has begun to come up or to end has done so."""
        with self._lock:
            busy = list(self._busy)
        for each in busy:
            each.join()

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.machines))

    def close(self) -> None:
        """Nothing is left of any of them."""
        for each in list(self._places):
            self.end(each)
        self.settled()
        for each in list(self.machines):
            self.end(each)
        self.settled()
        if self._street is not None:
            self._street.close()
            self._street = None
