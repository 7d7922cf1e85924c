"""A cloud for a test, empty at first; afterwards nothing of it is left."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cloud import table
from cloud.cases import all_cases
from cloud.people import People
from cloud.played import Played
from cloud.quotas import PLENTY, code
from cloud.sky import Cloud
from cluster.box import why_no_boxes
from leaks import leaves_nothing

from skyward_nb.providers.aws import (
    baking,
    boot,
    launch,
    quoting,
    rental_records,
    stopping,
    termination,
    waking,
)
from skyward_nb.reports import baked_images

if TYPE_CHECKING:
    from cloud.renter import Renter

_why_no_boxes = cache(why_no_boxes)
_NEEDED = ("boto3", "moto", "flask", "flask_cors")


def why_no_cloud() -> str:
    """Why no API can be played here; empty if it can."""
    lacks = [each for each in _NEEDED if importlib.util.find_spec(each) is None]
    return (
        f"{', '.join(lacks)} is not installed: pip install 'skyward-nb[aws-test]'" if lacks else ""
    )


@pytest.fixture(scope="session")
def cloud_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """One process for all tests: it takes seconds to start."""
    if why := why_no_cloud():
        pytest.skip(why)
    from cloud import retries

    retries.at_once()
    made = Cloud(tmp_path_factory.mktemp("cloud"))
    yield made
    made.close()


def _ask(server: Cloud, patch: pytest.MonkeyPatch, own: Path) -> None:
    """Have this process, and what it starts, ask this cloud; what they keep lies in `own`."""
    quoting.forget()
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION"):
        patch.delenv(name, raising=False)
    for name, value in server.env(own).items():
        patch.setenv(name, value)


def _used(
    server: Cloud, monkeypatch: pytest.MonkeyPatch, own: Path, *, machines: bool
) -> Iterator[Cloud]:
    server.reset(machines=machines)
    _ask(server, monkeypatch, own)
    yield server
    server.reset(machines=False)


@pytest.fixture
def api(cloud_server, monkeypatch, tmp_path) -> Iterator[Cloud]:
    """The API of AWS without machines: what is launched is words alone."""
    yield from _used(cloud_server, monkeypatch, tmp_path, machines=False)


@pytest.fixture
def renter(api: Cloud, monkeypatch: pytest.MonkeyPatch) -> type[Renter]:
    """Who launches against the API alone, which knows at once whether machines run, and have ended."""
    from cloud.renter import Renter

    for module in (termination, launch):
        monkeypatch.setattr(module, "_PAUSE", 0.02)
    monkeypatch.setattr(termination, "_LOOKS", (0.01, *termination._LOOKS))
    return Renter


@pytest.fixture
def quick(monkeypatch):
    """Logins to machines that are words alone."""
    from cloud.warm import LineThatObeys

    lines = [LineThatObeys(), LineThatObeys()]

    async def log_in_again(*_: object):
        return lines

    monkeypatch.setattr(boot, "log_in_again", log_in_again)
    monkeypatch.setattr(stopping, "_LOOKS", (0.01, 0.01))
    monkeypatch.setattr(waking, "_PAUSE", 0.01)
    return lines


@pytest.fixture
def quick_images(monkeypatch):
    """EC2 is asked again at once."""
    monkeypatch.setattr(baking, "_LOOKS", (0.0,) * 8)
    monkeypatch.setattr(baking, "_AGAIN", (0.0,) * 3)
    monkeypatch.setattr(baking, "_SEEN_LATE", 0.0)
    monkeypatch.setattr(baked_images, "_PAUSE", 0.01)


@pytest.fixture
def one_rented(api, renter, quick_images):
    """A pool with one machine, against the API alone."""
    from cloud.warm import ACCOUNT

    made = renter("default-abc", nodes=1)
    made.launch()
    made.entry.note(account=ACCOUNT, user="ubuntu", state="up")
    yield made
    api.calm()
    if rental_records.find("default-abc") is not None:
        assert not made.end()


@pytest.fixture
def cloud(cloud_server, monkeypatch, tmp_path) -> Iterator[Cloud]:
    """The API of AWS, and a machine that one can log in to for each instance."""
    if why := _why_no_boxes():
        pytest.skip(why)
    yield from _used(cloud_server, monkeypatch, tmp_path, machines=True)


@pytest.fixture
def offered(cloud, monkeypatch) -> Cloud:
    """A cloud with one offer for all that is asked for."""
    from cloud.offered import quote_of

    monkeypatch.setattr(quoting, "quote_of", quote_of)
    return cloud


# ── faults ──────────────────────────────────────────────────────────────────────────────

_OPTION = "--cloud-faults"


def pytest_addoption(parser):
    parser.addoption(
        _OPTION,
        metavar="PATH",
        help="play every case of a call of AWS that goes wrong, not a sample, and write what came of it",
    )


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_make_scheduler(config, log):
    """Cases are played by all processes, each of which has a cloud of its own."""
    from xdist.scheduler.load import LoadScheduling

    return LoadScheduling(config, log) if config.getoption(_OPTION, default=None) else None


def pytest_sessionfinish(session, exitstatus):
    path = session.config.getoption(_OPTION, default=None)
    if path is None or hasattr(session.config, "workeroutput"):
        return
    own = Played(session.config.rootpath)
    known, cases = own.codes(), all_cases()
    # A table of some of them would pass for one of all.
    if all(str(each) in known for each in cases):
        Path(path).write_text(table.written([(each, known[str(each)]) for each in cases]))
        own.forget()


@pytest.fixture
def quotas(shared_cloud: Cloud) -> Iterator[None]:
    """They are afterwards as before."""
    yield
    shared_cloud.quota(code("c6i.large", spot=True), PLENTY)


@pytest.fixture(scope="session")
def played(request) -> Played | None:
    """Where it is noted what came of cases, if all are played."""
    return (
        Played(request.config.rootpath) if request.config.getoption(_OPTION, default=None) else None
    )


@pytest.fixture(scope="module")
def shared_cloud(cloud_server) -> Iterator[Cloud]:
    """A cloud that tests of a module use one after another, each of which leaves nothing in it."""
    if why := _why_no_boxes():
        pytest.skip(why)
    cloud_server.reset()
    yield cloud_server
    cloud_server.reset(machines=False)


@pytest.fixture(scope="module")
def account(shared_cloud, tmp_path_factory) -> Iterator[Path]:
    """For all tests of a module, what `cloud` does for one: they ask the shared cloud, and keep things in this folder."""
    own = tmp_path_factory.mktemp("account")
    with pytest.MonkeyPatch.context() as patch:
        _ask(shared_cloud, patch, own)
        yield own


@pytest.fixture(scope="session")
def all_people(cloud_server) -> Iterator[People]:
    """One process that all people are forked from: what it imports takes a second."""
    made = People(cloud_server)
    yield made
    made.close()


@pytest.fixture
def people(shared_cloud, all_people) -> People:
    """Who uses the shared cloud, each as a process of their own."""
    return all_people


@pytest.fixture
def pool(kept):
    """The pool that a module has `kept`, as those before and after have it, too; each leaves it whole."""
    whole = kept.whole()
    with leaves_nothing():
        yield whole
        kept.left_whole()
