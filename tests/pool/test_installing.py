"""Packages for a pool of this machine that is up: what this Python lacks is put beside it, for ranks alone."""

import asyncio
import subprocess
import sys
import venv
from importlib.metadata import version
from importlib.util import find_spec

import pytest
from later import needs
from msgspec.structs import replace
from pools import found, values
from providers.wheels import wheel
from waiting import until

import skyward_nb as sky
from skyward_nb.options.specs import extended
from skyward_nb.pool import installing
from skyward_nb.pool.installing import InstalledPackages, dry_words
from skyward_nb.protocol.commands import UseEnvironment
from skyward_nb.providers.package_folder import packages_in
from skyward_nb.providers.provider_protocol import InstalledEnvironment
from skyward_nb.words.errors import MissingDependency, StartError
from skyward_nb.words.image import Image
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.spec import PoolSpec


@pytest.fixture(autouse=True)
def packages(tmp_path, monkeypatch):
    """A folder of packages, the only one that uv finds."""
    monkeypatch.setenv("SKYWARD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    wheel(tmp_path / "wheels", "sky-t-one", "1.0", "msgspec")
    wheel(tmp_path / "wheels", "sky-t-two", "2.0", "sky-t-one>=1")
    wheel(tmp_path / "wheels", "sky-t-apart", "1.0", "msgspec<0.1")


def become(pool, *pip, **options):
    return pool.become(extended(pool.spec, PoolOptions(pip=pip, **options)), lambda _: None)


def test_a_forgotten_package_is_installed_and_ranks_begin_anew(make):
    pool = make()
    values(pool, "x = 1\nx")
    words, lost = become(pool, "sky-t-two").notes
    assert words.startswith("installed in ")
    assert words.endswith(": sky-t-one 1.0, sky-t-two 2.0; ranks began anew with it")
    assert lost == "lost with the earlier ranks: x"
    read = "import sky_t_one, sky_t_two\nsky_t_one.VERSION, sky_t_two.VERSION, n"
    assert values(pool, read, {"n": 3}) == [("1.0", "2.0", 3)] * 2
    assert find_spec("sky_t_one") is None

    # What this Python has needs no other ranks, and neither has what they have.
    pids = pool.pids
    assert become(pool, "msgspec", "sky-t-one").notes == ()
    assert pool.pids == pids
    pool.restart(lambda _: None)
    assert values(pool, "import sky_t_two\n1") == [1] * 2
    pool.leave()
    again = found(pool)
    again.attach(lambda _: None)
    assert again.spec.image.pip == ("sky-t-two", "msgspec", "sky-t-one")
    assert values(again, "import sky_t_two\nsky_t_two.VERSION") == ["2.0"] * 2
    again.close()


@pytest.mark.extensive
def test_a_new_pool_has_them_at_once_also_where_machines_are_elsewhere(make):
    with sky.Compute(name="of-python", pip="sky-t-one") as compute:

        @sky.function
        def versions(*names):
            return tuple(__import__(name).VERSION for name in names)

        assert versions("sky_t_one") >> compute == ("1.0",)
        compute.install("sky-t-two")
        compute.install("sky-t-two")
        assert versions("sky_t_one", "sky_t_two") >> compute == ("1.0", "2.0")
    far = make(provider="fake")
    values(far, "x = 1\nx")
    (words, _) = become(far, "sky-t-one").notes
    assert " on 2 machines: sky-t-one 1.0; " in words
    assert values(far, "import sky_t_one\nsky_t_one.VERSION") == ["1.0"] * 2


def test_an_installation_that_fails_leaves_the_pool_as_it_was(make):
    pool = make(nodes=1)
    values(pool, "x = 1\nx")
    pids, spec = pool.pids, pool.spec
    for package, says in (
        ("sky-t-nowhere", "sky-t-nowhere was not found"),
        ("sky-t-apart", "your requirements are unsatisfiable"),
        (f"msgspec!={version('msgspec')}", "No solution found"),
    ):
        with pytest.raises(MissingDependency) as refused:
            become(pool, package)
        assert says in " ".join(refused.value.__notes__[0].split())
        assert (values(pool, "x"), pool.pids, pool.spec) == ([1], pids, spec)


def test_a_line_that_is_cut_is_mended_while_packages_are_installed(make, monkeypatch):
    pool = make(provider="fake")
    (machine, _), (link, _) = pool.context.generations.machines, pool.lines.links
    install = machine.install

    async def slowly(*given):
        machine.cut()
        await asyncio.to_thread(until, lambda: not link.is_open)
        machine.mend()
        await asyncio.to_thread(until, lambda: link.is_greeted)
        return await install(*given)

    monkeypatch.setattr(machine, "install", slowly)
    become(pool, "sky-t-one")
    assert values(pool, "import sky_t_one\nsky_t_one.VERSION") == ["1.0"] * 2


OTHER = """
import sys
sys.path[:0] = {paths}
from pools import found
from skyward_nb.options.specs import extended
from skyward_nb.words.pool_options import PoolOptions

class Pool:
    pool_id = {pool_id!r}

pool = found(Pool)
pool.attach(lambda _: None)
try:
    pool.become(extended(pool.spec, PoolOptions(pip=("sky-t-one",))), lambda _: None)
except Exception as error:
    print(error)
pool.leave()
"""


def test_a_notebook_of_another_environment_adds_no_packages_to_a_pool_here(make, tmp_path):
    """What its own Python has, ranks of the other one may lack."""
    pool = make(nodes=1)
    values(pool, "x = 1\nx")
    pids = pool.pids
    pool.leave()
    other = tmp_path / "other"
    venv.create(other, system_site_packages=False)
    script = OTHER.format(paths=[path for path in sys.path if path], pool_id=pool.pool_id)
    ran = subprocess.run(
        [other / "bin/python", "-c", script], capture_output=True, text=True, timeout=120
    )
    says = f"runs in {sys.executable}, and this notebook or script in {other}/bin/python"
    assert says in ran.stdout, ran.stderr
    again = found(pool)
    again.attach(lambda _: None)
    assert (again.pids, values(again, "x"), again.spec.image.pip) == (pids, [1], ())
    again.close()


@needs("torch")
def test_packages_that_a_framework_does_not_start_with_are_told_to_be_unused(make, monkeypatch):
    pool = make(nodes=1)
    begin = pool.context.generations.begin
    calls = iter([StartError("default", "rank 0: no such device")])

    def fails_once(*given, **more):
        for error in calls:
            raise error
        return begin(*given, **more)

    monkeypatch.setattr(pool.context.generations, "begin", fails_once)
    with pytest.raises(StartError) as raised:
        become(pool, "sky-t-one", framework=("torch",))
    (told,) = raised.value.__notes__
    assert told == (
        "pip=sky-t-one is not in use either: the pool is as before; pip=sky-t-one without framework= adds it"
    )
    pool.restart(lambda _: None)
    assert values(pool, "1") == [1]
    assert become(pool, "sky-t-one").installed.packages == ("sky-t-one 1.0",)
    # Ranks begin anew in what their agent says that they have, whatever would be made for their spec now.
    (link,) = pool.lines.links
    present = link.environment
    assert packages_in(present.folder) == ["sky-t-one==1.0"]
    calls = iter([StartError("default", "rank 0: no such device")])
    with pytest.raises(StartError):
        become(pool, "sky-t-two", framework=("torch",))
    assert link.environment == present
    pool.restart(lambda _: None)
    assert values(pool, "import sky_t_one\nsky_t_one.VERSION") == ["1.0"]


@pytest.mark.extensive
def test_an_environment_that_does_not_start_is_told_and_the_earlier_one_is_used(make):
    pool = make(nodes=1)
    (link,) = pool.lines.links
    for python, says in (
        ("/nowhere/bin/python", "/nowhere/bin/python does not start: No such file"),
        ("/bin/false", "skyward_nb cannot be imported here"),
    ):
        pool.lines.tell(link, UseEnvironment(python))
        with pytest.raises(StartError, match=says):
            pool.restart(lambda _: None)
        pool.lines.tell(link, UseEnvironment())
        pool.restart(lambda _: None)
        assert values(pool, "1") == [1]


@pytest.mark.extensive
def test_names_that_went_with_ranks_for_an_environment_that_does_not_start_are_told(
    make, monkeypatch
):
    pool = make(nodes=1)
    values(pool, "x = 1\nx")
    (link,) = pool.lines.links
    broken = InstalledEnvironment(UseEnvironment("/bin/false"), UseEnvironment(), ("p 1.0",))
    made = InstalledPackages(0.0, broken.installed, {link: broken})
    with monkeypatch.context() as patched:
        patched.setattr(installing, "install", lambda *_: made)
        with pytest.raises(StartError) as failed:
            become(pool, "sky-t-one")
    assert failed.value.__notes__ == ["lost with the earlier ranks: x"]
    assert not pool.spec.image.pip
    pool.restart(lambda _: None)
    assert values(pool, "'x' in globals()") == [False]


@pytest.mark.parametrize(
    ("provider", "says"),
    [
        (
            "local",
            "packages of Debian would have to be on this machine, where apt= installs nothing: git",
        ),
        ("ssh", "packages of Debian would be installed first; ranks stay as they are: git"),
    ],
)
def test_what_would_be_installed_is_said(provider, says):
    before = PoolSpec(provider=provider, image=Image(pip=["a"], apt=["b"]))
    after = replace(before, image=before.image.having(None, ["c"], ["git"]))
    pip = "would be installed first, and ranks begin anew with it: c"
    assert dry_words(after, before) == (pip, says)
    assert dry_words(before, before) == ()
