"""Which packages nodes will lack, by what is installed here."""

import pytest

from skyward_nb.options.framework_choice import NotebookContext, modules_used
from skyward_nb.options.lacked_packages import lacked_note, lacked_packages
from skyward_nb.words.image import Image
from skyward_nb.words.spec import PoolSpec

FAR = PoolSpec(provider="ssh")


def far(*pip, **image):
    return PoolSpec(provider="ssh", image=Image(pip=pip, **image))


@pytest.mark.parametrize(
    ("modules", "spec", "lacks"),
    [
        # What ranks have without being asked, the standard library, and what those packages need.
        (["os.path", "msgspec", "IPython", "traitlets", "dateutil", "skyward_nb"], FAR, {}),
        # Of what is not here, nobody knows whose package has that name.
        (["pytest", "sky_t_nowhere"], FAR, {"pytest": "pytest"}),
        (["pytest", "pluggy", "_pytest.main"], far("pytest>=1"), {}),
        (["yaml", "cv2.aruco"], FAR, {"cv2": "opencv-python-headless", "yaml": "pyyaml"}),
        # A package of which it is not known what it needs, an interpreter that is there, and this machine.
        (["pytest"], far("sky-t-nowhere"), {}),
        (["pytest"], far("git+https://host/x.git"), {}),
        (["pytest"], far(interpreter="/opt/python"), {}),
        (["pytest"], PoolSpec(), {}),
    ],
)
def test_modules_that_nodes_will_lack(modules, spec, lacks):
    if "yaml" in lacks:
        lacks = {name: package.lower() for name, package in lacks.items()}
    assert lacked_packages(modules, spec) == lacks


def test_what_to_type_is_said():
    words = lacked_note(["pytest", "bs4"], FAR)
    assert words == (
        "nodes will not have bs4, pytest, which this code uses: pip=beautifulsoup4,pytest on the line installs it"
    )
    assert lacked_note(["os"], FAR) == ""


def test_modules_of_values_that_a_cell_reads_count():
    def uses():
        return pytest.approx(1)

    uses.__globals__["__name__"], before = "__main__", __name__
    try:
        known = NotebookContext({"pytest": pytest, "f": uses}, (), {}, {}, "own".__eq__)
        found = modules_used(known, ["numpy.linalg", "own.part"], ["f", "elsewhere"])
    finally:
        uses.__globals__["__name__"] = before
    assert {"numpy", "pytest"} <= found
    assert "own" not in found
