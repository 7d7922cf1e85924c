"""What a person is told where names outlive their ranks, in a real kernel."""

from __future__ import annotations

TRAIN = """%%sky_remote nodes=2 checkpoint={place} resume
import os, signal, time, psutil
import skyward_nb as sky
try:
    count
except NameError:
    count = 0
if count == 0 and sky.is_head():
    # As Slurm tells the agent that its machine's time is nearly over.
    psutil.Process(os.getppid()).parent().send_signal(signal.SIGUSR2)
while count < 100_000:
    count += 1
    time.sleep(0.01)
count"""


def test_a_cell_that_is_stopped_at_a_notice_goes_on_on_other_ranks(fresh, tmp_path):
    place = tmp_path / "kept"
    fresh.run(f"place = {str(place)!r}\nimport os\nos.environ['SKYWARD_NOTICES'] = 'signal:6'")
    ran = fresh.run(TRAIN)
    assert ran.status == "error"
    assert (
        "the cell was stopped so that ranks can keep their names: local is taken back"
        in ran.picture
    )
    assert "names are kept in the checkpoint of " in ran.picture
    assert fresh.run("%sky down").status == "ok"
    ran = fresh.run(
        "%%sky_remote nodes=2 checkpoint={place} resume\nassert 0 < count < 100_000 and os.sep"
    )
    assert ran.status == "ok", ran
    assert "goes on from the checkpoint of " in ran.picture
    ran = fresh.run("%%sky_remote checkpoint=/somewhere/else\n1")
    assert "is up with checkpoint=" in ran.traceback
    ran = fresh.run("%sky up pool=other resume")
    assert "resume needs a checkpoint to go on from: add checkpoint=..." in ran.stderr
