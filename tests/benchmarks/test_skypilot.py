"""A pool on machines of SkyPilot beside `ssh` to them, by the config that SkyPilot writes: `make bench`.

SkyPilot itself has recorded answers; its machine is an sshd of this one. What is measured is the line to them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_figures import of_engine
from leaks import places
from skypilot.program import FakeSky
from sshds import lacks, sshd

from skyward_nb.pool.pool import Pool
from skyward_nb.providers.provider_table import PROVIDERS
from skyward_nb.words.image import Image
from skyward_nb.words.provider_access import SkyPilotAccess
from skyward_nb.words.spec import PoolSpec

pytestmark = [pytest.mark.skipif(bool(lacks()), reason=lacks()), pytest.mark.timeout(900)]


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    environ = {**places(), "SKYWARD_CACHE_DIR": str(tmp_path / "cache")}
    monkeypatch.setenv("HOME", str(tmp_path))
    with sshd(tmp_path / "sshd", environ) as machine:
        fake = FakeSky(tmp_path / "sky", machine)
        spec = PoolSpec(
            name="bench", provider="sky", nodes=1, grace=20.0, image=Image(interpreter=sys.executable),
            skypilot=SkyPilotAccess(infra="gcp", executable=str(fake.path)),
        )  # fmt: skip
        made = Pool(spec, PROVIDERS["sky"](), lambda _: None)
        made.start(lambda _: None)
        try:
            yield made
        finally:
            made.close()


def test_skypilot(pool, figure):
    cluster = f"skyward-{pool.pool_id}"
    config = str(Path("~/.sky/generated/ssh").expanduser() / cluster)
    of_engine(
        "SkyPilot", "ssh", [["ssh", "-F", config, "-o", "LogLevel=ERROR", cluster]], pool, figure
    )
