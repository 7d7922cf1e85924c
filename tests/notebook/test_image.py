"""`image=`, `python=`, `pip=` on an option line, in a real kernel."""

import sys

from kernels import ready


def test_an_image_of_the_notebook_is_what_ranks_have(tmp_path):
    (tmp_path / "sky_t_far.py").write_text("X = 41\n")
    line = "%%sky_remote nodes=2"
    with ready() as nb:
        made = (
            "import skyward_nb as sky\n"
            f"img = sky.Image(pip=['msgspec'], env={{'A': '1', 'B': '1'}}, "
            f"includes=[{str(tmp_path / 'sky_t_far.py')!r}])"
        )
        assert nb.run(made).status == "ok"
        refused = nb.run(f"{line} image=imgs\n1")
        assert "did you mean img?" in refused.stderr
        refused = nb.run(f"{line} pip=nowhere-at-all\n1")
        assert "pip install nowhere-at-all" in refused.traceback
        refused = nb.run(f"{line} python=3.1\n1")
        assert f"runs ranks with this Python, {sys.version_info.major}." in refused.stderr
        ran = nb.run(
            f"{line} image=img env=B=2 ranks=1\n"
            "import importlib, os\n"
            "importlib.import_module('sky_t_far').X + int(os.environ['A']), os.environ['B']"
        )
        assert ran.result == "[1] (42, '2')", ran.traceback
        assert nb.run(f"{line} image=img\nimport sky_t_far; sky_t_far.X").result.endswith("41")
        assert nb.run(f"{line} pip=msgspec\n1").status == "ok"
        refused = nb.run(f"{line} pip=nowhere-at-all\n1")
        assert "pip install nowhere-at-all" in refused.traceback
        again = nb.run(f"{line} pip=packaging\n1")
        assert again.status == "ok", again.traceback
