"""Folders of pools: made private, swept when nobody lives in them."""

import os
import shutil
import stat
import subprocess
import sys

import pytest

from skyward_nb.providers import folders, orphans
from skyward_nb.providers.orphans import Swept
from skyward_nb.store.blobs import BlobStore
from skyward_nb.system import processes
from skyward_nb.words.errors import RuntimeFolderError


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("SKYWARD_RUNTIME_DIR", str(tmp_path / "run"))
    yield tmp_path / "run"
    store = folders.store_root()
    for left in store.glob("*"):
        left.rmdir()
    if store.exists():
        store.rmdir()


def test_folders_are_private(root):
    made = folders.make_folders("p", "p-1")
    for folder in (made.runtime, made.store):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_root_that_the_end_of_another_pool_removes_meanwhile_is_made_again(root, monkeypatch):
    looks = []

    def is_ours(folder):
        looks.append(folder)
        if len(looks) == 1:
            folder.rmdir()
        return orphans.is_ours(folder)

    monkeypatch.setattr(folders, "is_ours", is_ours)
    made = folders.make_folders("p", "p-1")
    assert made.runtime.is_dir()
    folders.remove_folders(made)


def test_the_dead_are_swept_and_the_living_are_not(root):
    dead, alive = (folders.make_folders(name, name) for name in ("dead", "alive"))
    dead.let_go()
    for name in ("making", "never"):
        (root / name).mkdir()
    os.utime(root / "never", (0, 0))
    (folders.store_root() / "orphan").mkdir()
    folders.sweep()
    assert {path.name for path in root.iterdir()} == {"alive", "making"}
    assert {path.name for path in folders.store_root().iterdir()} == {"alive"}
    (root / "making").rmdir()
    folders.remove_folders(alive)


MADE = """
import os
from pathlib import Path
from skyward_nb.providers import agent_process, folders
made = folders.make_folders("p", "p-1")
agent = agent_process.AgentProcess(made)
if {when!r} == "before":
    os.kill(os.getpid(), 9)
agent_process.subprocess.Popen = lambda *_, **__: os.kill(os.getpid(), 9)
agent.start(600, 0, [])
"""


@pytest.mark.parametrize("when", ["before", "at"])
def test_what_a_killed_maker_leaves_is_dead_at_once(root, when):
    maker = subprocess.run([sys.executable, "-c", MADE.format(when=when)])
    assert maker.returncode == -9
    assert folders.is_gone(root / "p-1")
    assert (root / "p-1" / "agent.log").exists() is (when == "at")
    assert folders.sweep().folders == 1
    assert not (root / "p-1").exists()


FORKS = """
import os, signal, time
from skyward_nb.providers import folders
made = folders.make_folders("p", "p-1")
pid = os.fork()
if not pid:
    signal.pause()
made.let_go()
for _ in range(1000):
    if folders.is_gone(made.runtime):
        break
    time.sleep(0.01)
print(folders.is_gone(made.runtime))
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
folders.remove_folders(made)
"""


def test_a_fork_of_the_maker_holds_no_folder(root):
    run = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True)
    assert run.stdout == "True\n"


def test_what_was_swept_is_counted(root):
    dead = [folders.make_folders("p", f"p-{number}") for number in range(2)]
    for each in dead:
        each.let_go()
    (dead[0].store / "a").write_bytes(bytes(1000))
    dead[0].spill.mkdir(parents=True)
    (dead[0].spill / "b").write_bytes(bytes(500))
    swept = folders.sweep()
    assert swept == Swept(folders=2, values=1500, processes=0)
    assert str(swept) == "2 folders of pools that are gone, 1.5 kB of values"
    assert not folders.sweep()
    assert not folders.store_root().exists()


@pytest.mark.parametrize(
    ("swept", "text"),
    [
        (Swept(), "nothing is left over"),
        (Swept(1, 0, 1), "1 folder of pools that are gone, 1 process"),
        (
            Swept(2, 1_200_000_000, 3),
            "2 folders of pools that are gone, 1.2 GB of values, 3 processes",
        ),
    ],
)
def test_what_was_swept_can_be_read(swept, text):
    assert str(swept) == text
    assert bool(swept) is (swept != Swept())


SLEEP = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]


@pytest.fixture
def start():
    """Start a process with this mark, and wait until it is what it was started to be."""
    started = []

    def begin(mark, command=SLEEP):
        env = os.environ | ({} if mark is None else {processes.MARK: str(mark)})
        started.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE))
        started[-1].stdout.readline()
        return started[-1]

    yield begin
    for each in started:
        each.kill()
        each.wait()
        each.stdout.close()


def test_processes_of_the_dead_are_ended_and_no_others(root, start):
    dead, alive, new = (folders.make_folders("p", name) for name in ("dead", "alive", "new"))
    dead.let_go()
    marked = start(dead.runtime)
    gone = start(root / "gone")
    noted = start(None)
    reused = start(None)
    others = [start(alive.runtime), start(new.runtime), start("/elsewhere/p-1"), start(None)]
    known = processes.known(reused.pid)
    processes.note(dead.runtime, [processes.known(noted.pid)], anew=True)
    # Its number was another's once.
    processes.note(dead.runtime, [processes.ProcessIdentity(reused.pid, known.started - 1)])
    with (dead.runtime / "processes").open("a") as file:
        file.write("17")  # whoever wrote this was killed in the middle of it
    assert folders.sweep() == Swept(folders=1, values=0, processes=3)
    assert [each.wait() for each in (marked, gone, noted)] == [-9, -9, -9]
    assert [each.poll() for each in [reused, *others]] == [None] * 5
    for each in (alive, new):
        folders.remove_folders(each)


@pytest.mark.skipif(os.getuid() != 0, reason="root alone can make a space of mounts")
def test_processes_of_containers_are_left_alone(root, start):
    """Their pools' folders are called as ours are, and lie elsewhere."""
    dead = folders.make_folders("p", "dead")
    dead.let_go()
    others = [start(mark, ["unshare", "--mount", *SLEEP]) for mark in (dead.runtime, root / "gone")]
    assert folders.sweep() == Swept(folders=1)
    assert [each.poll() for each in others] == [None, None]


def test_a_list_of_another_boot_or_another_container_says_nothing(root, start):
    dead = folders.make_folders("p", "dead")
    dead.let_go()
    child = start(None)
    known = processes.known(child.pid)
    (dead.runtime / "processes").write_text(f"another\n{known.pid} {known.started}\n")
    assert folders.sweep() == Swept(folders=1)
    assert child.poll() is None


def test_without_a_dead_folder_no_process_is_looked_at(root, monkeypatch):
    def never():
        raise AssertionError

    new = folders.make_folders("p", "new")
    monkeypatch.setattr(processes, "marked", never)
    assert not folders.sweep()
    with pytest.raises(AssertionError):
        folders.sweep(thoroughly=True)
    folders.remove_folders(new)


def test_nobody_ends_what_he_stands_on(root):
    """A notebook started by a rank carries the rank's mark."""
    dead = folders.make_folders("p", "dead")
    dead.let_go()
    sweep = "from skyward_nb.providers import folders; print(folders.sweep())"
    through = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {sweep!r}], check=True)"
    )
    env = os.environ | {processes.MARK: str(dead.runtime)}
    done = subprocess.run(
        [sys.executable, "-c", through], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "1 folder of pools that are gone\n"


def test_a_tracker_may_tidy_up_before_it_is_ended(root, start, monkeypatch):
    # As much as it needs on a busy machine, where it may be about to start.
    monkeypatch.setattr(processes, "TIDYING", 60.0)
    dead = folders.make_folders("p", "dead")
    dead.let_go()
    made = (
        "from multiprocessing import shared_memory\nimport time\n"
        "block = shared_memory.SharedMemory(create=True, size=64)\n"
        "print(block.name, flush=True)\ntime.sleep(600)"
    )
    env = os.environ | {processes.MARK: str(dead.runtime)}
    with subprocess.Popen([sys.executable, "-c", made], env=env, stdout=subprocess.PIPE) as child:
        name = child.stdout.readline().decode().strip()
        assert (folders.Path("/dev/shm") / name).exists()
        assert folders.sweep().processes == 2
    assert not (folders.Path("/dev/shm") / name).exists()


def test_values_of_other_roots_go_when_nobody_can_want_them(root, tmp_path, monkeypatch, start):
    monkeypatch.setenv("SKYWARD_STORE_DIR", str(tmp_path))
    uid = os.getuid()
    names = [
        f"skyward_nb-{uid}-00000001/old", f"skyward_nb-{uid}/older", f"skyward_nb-{uid}-00000001/new",
        f"skyward_nb-{uid}-00000001/used", f"skyward_nb-{uid}-other/old", f"else-{uid}-00000001/old",
        f"skyward_nb-{uid}-00000002/open",
    ]  # fmt: skip
    for name in names:
        folder = tmp_path / name
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700)
        (folder / "value").write_bytes(bytes(10))
        if not name.endswith("new"):
            os.utime(folder / "value", (0, 0))
            os.utime(folder, (0, 0))
    (tmp_path / f"skyward_nb-{uid}-00000002/open").chmod(0o755)
    start(None, [*SLEEP, str(tmp_path / names[3])])
    assert folders.sweep() == Swept(folders=2, values=20)
    assert {name for name in names if (tmp_path / name).exists()} == set(names[2:])
    assert not (tmp_path / f"skyward_nb-{uid}").exists()


@pytest.fixture
def elsewhere(root, tmp_path, monkeypatch):
    """Have this be another host or container from now on, where the same path is another folder."""
    monkeypatch.setenv("SKYWARD_STORE_DIR", str(tmp_path / "memory"))
    monkeypatch.setenv("SKYWARD_SPILL_DIR", str(tmp_path / "home"))

    def go(how):
        if how == "another host":
            monkeypatch.setattr(processes, "boot", lambda: "of another machine")
        else:
            root.rename(tmp_path / "there")
        root.mkdir(mode=0o700, exist_ok=True)

    return go


@pytest.mark.parametrize("how", ["another host", "another container"])
def test_values_in_folders_that_are_shared_are_not_swept_from_elsewhere(root, elsewhere, how):
    alive = folders.make_folders("p", "p-1")
    alive.spill.mkdir(parents=True)
    for folder in (alive.store, alive.spill):
        (folder / "value").write_bytes(bytes(10))
    elsewhere(how)
    shutil.rmtree(root)
    assert not folders.sweep(thoroughly=True)
    assert (alive.store / "value").exists() and (alive.spill / "value").exists()
    again = folders.make_folders("p", "p-1")
    assert again.runtime == alive.runtime
    assert again.store != alive.store and again.spill != alive.spill
    for each in (alive, again):
        each.let_go()
    for name in ("memory", "home"):
        shutil.rmtree(root.parent / name)


def test_what_was_spilled_before_a_boot_goes_when_nobody_can_want_it(root, elsewhere):
    left = folders.make_folders("p", "p-1")
    BlobStore(left.store, left.spill).folder_for(10, on_disk=True)
    (left.spill / "value").write_bytes(bytes(10))
    for path in (left.spill / "value", left.spill, left.store):
        os.utime(path, (0, 0))
    elsewhere("another host")
    left.let_go()
    shutil.rmtree(left.runtime)
    assert folders.sweep() == Swept(folders=1, values=10)
    assert not left.spill.parent.exists() and not left.store.parent.exists()


def test_folders_of_others_and_links_are_left_alone(root, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "lock").touch()
    root.mkdir()
    (root / "link").symlink_to(tmp_path / "elsewhere")
    assert not folders.sweep()
    assert (tmp_path / "elsewhere" / "lock").exists()


def test_a_root_that_others_could_change_is_refused(root, tmp_path):
    """Where all may make folders, another user's link could have the root be anywhere."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    root.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RuntimeFolderError, match="symbolic link"):
        folders.make_folders("p", "p-1")
    assert not [*(tmp_path / "elsewhere").iterdir()]
    root.unlink()
    root.mkdir()
    root.chmod(0o770)
    with pytest.raises(RuntimeFolderError, match=f"chmod 700 {root}"):
        folders.make_folders("p", "p-1")
    root.chmod(0o700)
    folders.remove_folders(folders.make_folders("p", "p-1"))


def test_a_path_too_long_for_a_socket_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("SKYWARD_RUNTIME_DIR", str(tmp_path / ("x" * 100)))
    with pytest.raises(RuntimeFolderError, match="too long"):
        folders.make_folders("p", "p-1")
    assert not folders.store_root().exists()


def test_a_file_in_the_way_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SKYWARD_RUNTIME_DIR", str(tmp_path / "file"))
    with pytest.raises(RuntimeFolderError, match="SKYWARD_RUNTIME_DIR"):
        folders.make_folders("p", "p-1")
