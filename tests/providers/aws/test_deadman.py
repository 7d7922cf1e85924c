"""The timer of a machine, run for real: with a `poweroff` that only says so."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from waiting import until

from skyward_nb.providers.aws import user_data
from skyward_nb.providers.aws.user_data import LeaseTerms, script_for
from skyward_nb.providers.ssh.private_keys import new_pair

SCRIPT = Path(user_data.__file__).with_name("deadman.sh")


@pytest.fixture
def timer(tmp_path):
    """Starts the timer; `off` appears when the machine would end."""
    bins = tmp_path / "bin"
    bins.mkdir()
    off = tmp_path / "off"
    for name in ("systemctl", "poweroff", "shutdown"):
        (bins / name).write_text(f"#!/bin/sh\necho {name} >> {off}\n")
        (bins / name).chmod(0o755)
    lease = tmp_path / "lease"
    lease.touch()
    started = []

    def start(boot=1000, idle=1000, deadline=0, script=SCRIPT, machine=""):
        tag = tmp_path / "board_asset_tag"
        tag.write_text(machine)
        words = ["sh", str(script), str(lease), *map(str, (boot, idle, deadline, 1))]
        env = {
            "PATH": f"{bins}:{os.environ['PATH']}",
            "SKYWARD_DEADMAN_STATE": str(tmp_path / "state"),
            "SKYWARD_DEADMAN_MACHINE": str(tag),
        }
        started.append(
            subprocess.Popen(
                words, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True
            )
        )
        return started[-1]

    start.off, start.lease, start.state = off, lease, tmp_path / "state"
    yield start
    for each in started:
        os.killpg(each.pid, 9)
        each.wait()
        each.stdout.close()


def test_a_machine_that_nobody_comes_to_ends(timer):
    timer(boot=1)
    until(lambda: timer.off.exists() and timer.off.read_text())
    assert timer.off.read_text() == "systemctl\n"


@pytest.mark.extensive
def test_a_lease_that_is_renewed_keeps_it(timer):
    process = timer(boot=12, idle=12)
    for _ in range(10):
        time.sleep(0.5)
        os.utime(timer.lease)
        assert not timer.off.exists()
    until(timer.off.exists)
    assert "nobody has needed it" in process.stdout.readline()


@pytest.mark.extensive
def test_a_clock_that_is_wrong_changes_nothing(timer):
    timer(boot=12, idle=12)
    for day in range(9):
        time.sleep(0.5)
        os.utime(timer.lease, (0, 86400 * (20 - day)))
        assert not timer.off.exists()


def test_its_time_is_over_however_often_it_is_renewed(timer):
    process = timer(deadline=2)
    end = time.monotonic() + 20
    while not timer.off.exists():
        os.utime(timer.lease)
        assert time.monotonic() < end
        time.sleep(0.1)
    assert "its time is over" in process.stdout.readline()


def test_a_machine_that_was_booted_again_ends(timer):
    timer.state.mkdir()
    (timer.state / "boot").write_text("another 3\n")
    process = timer()
    until(timer.off.exists)
    assert "booted again" in process.stdout.readline()


def test_a_timer_that_is_started_again_goes_on(timer):
    timer(boot=1000)
    until((timer.state / "boot").exists)
    again = timer(boot=1000, deadline=1)
    until(timer.off.exists)
    assert "its time is over" in again.stdout.readline()


@pytest.mark.parametrize("machine", ["i-0123456789abcdef0", "Amazon EC2", ""])
def test_its_own_machine_ends_when_it_is_booted_again(timer, machine):
    timer(machine=machine)
    note = timer.state / "boot"
    until(lambda: note.exists() and note.read_text())
    _, armed, owner = note.read_text().split()
    assert owner == (machine if machine.startswith("i-") else "-")
    note.write_text(f"another {armed} {owner}\n")
    process = timer(machine=machine)
    until(timer.off.exists)
    assert "booted again" in process.stdout.readline()


def test_a_machine_of_its_image_is_not_ended(timer):
    timer.state.mkdir()
    (timer.state / "boot").write_text("another 3 i-0123456789abcdef0\n")
    process = timer(boot=0, machine="i-0fedcba9876543210")
    assert "a copy of that of i-0123456789abcdef0" in process.stdout.readline()
    assert not timer.off.exists() and process.poll() is None


def test_what_a_machine_is_told_has_room():
    script = told(LeaseTerms(1800, 600, 14400))
    assert len(script) < user_data.MOST / 2
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)
    unit = script[script.index("[Unit]") : script.index("[Service]")]
    assert "StartLimitIntervalSec=0" in unit, "it is started again however often it ends"
    assert script.index("deadman.sh") < script.index("authorized_keys")
    assert "deadman.sh /var/lib/skyward/lease 1800 600 14400 5" in script


def test_what_lay_on_the_disk_of_an_image_counts_no_more():
    script = told(LeaseTerms(1800, 600))
    gone = script.index("rm -f /var/lib/skyward/boot /var/lib/skyward/terms")
    assert gone < script.index("systemctl restart --no-block skyward-deadman.service")


def told(lease):
    """What a machine is told at its boot."""
    pair = new_pair("")
    return script_for(
        "ubuntu", lease, authorized=new_pair("me").public, private=pair.private, public=pair.public
    )


@pytest.mark.parametrize("shell", ["sh", "dash", "bash"])
def test_each_shell_can_read_what_a_machine_is_told(shell):
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell} here")
    for script in (told(LeaseTerms(1800, 600)), SCRIPT.read_text()):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze here")
def test_systemd_takes_the_service_of_the_timer(tmp_path):
    script = told(LeaseTerms(1800, 600, 14400))
    head, _, rest = script.partition("skyward-deadman.service <<'END_OF_UNIT'\n")
    assert head.rstrip().endswith("cat > /etc/systemd/system/"), "it is written for systemd alone"
    unit = tmp_path / "skyward-deadman.service"
    unit.write_text(rest.partition("END_OF_UNIT\n")[0])

    def verified():
        ran = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True
        )
        return ran.returncode, [line for line in ran.stderr.splitlines() if unit.stem in line]

    assert verified() == (0, [])
    unit.write_text(unit.read_text().replace("Restart=", "Restarts="))
    assert "Unknown key" in str(verified()), "it would be seen"
    words = unit.read_text().partition("ExecStart=")[2].splitlines()[0].split()
    assert words[:2] == ["/bin/sh", f"{user_data.STATE}/deadman.sh"]
    assert tuple(words[2:]) == LeaseTerms(1800, 600, 14400).words


def test_the_timer_that_is_sent_is_the_timer(timer, tmp_path):
    sent = tmp_path / "sent.sh"
    sent.write_text(user_data._spare(SCRIPT.read_text()))
    timer(boot=1, script=sent)
    until(timer.off.exists)
