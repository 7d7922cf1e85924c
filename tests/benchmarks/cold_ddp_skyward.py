"""Nothing running → four ranks have done one DDP step → nothing running, in a plain process."""

from pathlib import Path

from contenders import shell

ip = shell()
ip.run_line_magic("load_ext", "skyward_nb")
ip.user_ns["folder"] = str(Path(__file__).parent)
ip.run_cell_magic(
    "sky_remote",
    "nodes=4 framework=torch",
    "import sys; sys.path.insert(0, folder)\nimport ddp\nddp.one_step()",
)
ip.run_line_magic("sky", "down")
