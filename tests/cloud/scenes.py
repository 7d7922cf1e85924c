"""What is done in each scene of which a call goes wrong, and what comes before it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cloud.cases import POOLS
from cloud.people import Begun, Ended, Person
from cloud.quotas import code
from cloud.sky import Cloud


@dataclass(frozen=True)
class Scene:
    """What somebody does whose calls are meant: `begin` is what they do before, `go_on` the rest."""

    begin: Callable[[Cloud, Person], Begun | None]
    go_on: Callable[[Cloud, Person, Begun | None], Ended]


def scene_of(name: str) -> Scene:
    if name in POOLS:
        return Scene(nothing, lambda cloud, person, _: person.does("pool", **POOLS[name]))
    if name in _SCENES:
        return _SCENES[name]
    has_record = name == "sweep"
    return Scene(
        lambda cloud, person: leave(cloud, person, has_record=has_record),
        lambda cloud, person, _: person.does("sweep"),
    )


def nothing(cloud: Cloud, person: Person) -> None:
    """Nobody has anything."""


def without_spot(cloud: Cloud, person: Person) -> None:
    """The account may have no machine as spot."""
    cloud.quota(code("c6i.large", spot=True), 0)


def stopped(cloud: Cloud, person: Person) -> None:
    """Somebody has a machine that is stopped."""
    ended = person.does("pool", nodes=1, warm=7200)
    assert ended.code == 0 and "1 machine stopped until" in ended.said, ended


def baked(cloud: Cloud, person: Person) -> None:
    """Somebody has an image."""
    ended = person.does("pool", nodes=1, image="torch")
    assert ended.code == 0 and "image torch in us-east-1: ami-" in ended.said, ended


def half_baked(cloud: Cloud, person: Person) -> None:
    """Somebody is killed who has just asked for an image, and whose machine ends then."""
    cloud.kill("CreateImage", "sent", skip=1)
    assert person.does("pool", nodes=1, image="torch").code == -9
    assert cloud.calm()
    cloud.leases_run_out()


def with_two(cloud: Cloud, person: Person) -> Begun:
    """Somebody has two machines."""
    return person.begin("replaced").up()


def without_one(cloud: Cloud, person: Person, begun: Begun | None) -> Ended:
    """EC2 takes one of them back."""
    assert begun is not None
    cloud.machines[0].reclaim()
    return begun.ended()


def leave(cloud: Cloud, person: Person, *, has_record: bool) -> None:
    """Somebody is killed who has machines in groups of both kinds, with Elastic IP addresses."""
    cloud.kill("TerminateInstances", "before")
    assert person.does("pool", **POOLS["cards"]).code == -9
    assert cloud.calm()
    if not has_record:
        (entry,) = Path(person.env["SKYWARD_STATE_DIR"]).glob("aws/*/record.json")
        shutil.rmtree(entry.parent)


_SCENES = {
    "quota": Scene(without_spot, lambda cloud, person, _: person.does("pool", **POOLS["spot"])),
    # Its user-data fails on who is not there.
    "boot": Scene(nothing, lambda cloud, person, _: person.does("pool", user="nobody-here")),
    "replacement": Scene(with_two, without_one),
    "stopped": Scene(nothing, lambda cloud, person, _: person.does("pool", nodes=1, warm=7200)),
    "started": Scene(stopped, lambda cloud, person, _: person.does("pool", nodes=1, warm=7200)),
    "ended": Scene(stopped, lambda cloud, person, _: person.does("sweep", now=True)),
    "baked": Scene(nothing, lambda cloud, person, _: person.does("pool", nodes=1, image="torch")),
    "unbaked": Scene(baked, lambda cloud, person, _: person.does("unbake", name="torch")),
    "half baked": Scene(half_baked, lambda cloud, person, _: person.does("sweep")),
}
