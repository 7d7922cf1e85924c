"""Which address of each machine all the others reach. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

from skyward_nb.protocol.parts import Endpoint
from skyward_nb.words.findings import Reached

_MOST_TOLD = 4


class Apart(Exception):
    """Machines do not reach one another; the text says which, and where it was tried."""


def meeting_places(
    names: Sequence[str],
    doors: Mapping[int, Sequence[Endpoint]],
    reached: Mapping[int, Sequence[Reached]],
) -> tuple[Endpoint, ...]:
    """Of each machine, by number, the first door at which all others reach it; of one family all.

    `names` are the machines', for the words of `Apart`, which is raised where there is no such.
    """
    open_to = {
        machine: {each.to for each in ways if not each.trouble} for machine, ways in reached.items()
    }
    everyone = range(len(names))
    for family in (4, 6) if open_to.keys() == {*everyone} else ():
        found = [_first(number, doors[number], open_to, family) for number in everyone]
        if all(found):
            return tuple(door for door in found if door is not None)
    raise Apart(_told(names, doors, reached))


def _first(
    machine: int, doors: Sequence[Endpoint], open_to: Mapping[int, set[int]], family: int
) -> Endpoint | None:
    others = [reached for other, reached in open_to.items() if other != machine]
    for door in doors:
        if ipaddress.ip_address(door.address).version == family and all(
            door.number in reached for reached in others
        ):
            return door
    return None


def _told(
    names: Sequence[str],
    doors: Mapping[int, Sequence[Endpoint]],
    reached: Mapping[int, Sequence[Reached]],
) -> str:
    """Who does not reach whom."""
    said: list[str] = []
    for number, name in enumerate(names):
        there = doors.get(number)
        if there is None or number not in reached:
            said.append(f"{name} did not say whom it reaches")
            continue
        if not there:
            said.append(f"{name} has no address of a private network")
            continue
        for other, ways in reached.items():
            mine = [each for each in ways if each.to in {door.number for door in there}]
            if other != number and all(each.trouble for each in mine):
                tried = _tried(there, mine)
                said.append(f"{names[other]} does not reach {name} ({tried})")
    if not said:
        return "no address of each machine is reached by all the others"
    more = f"; and {len(said) - _MOST_TOLD} more pairs" * (len(said) > _MOST_TOLD)
    return "; ".join(said[:_MOST_TOLD]) + more


def _tried(doors: Sequence[Endpoint], ways: Sequence[Reached]) -> str:
    trouble = {each.to: each.trouble for each in ways}
    return ", ".join(f"{door.address}: {trouble.get(door.number, 'not tried')}" for door in doors)
