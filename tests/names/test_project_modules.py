"""Project modules: which they are, what they bring along, and when they are sent."""

import gc
import importlib
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from skyward_nb.names import project_modules
from skyward_nb.names.included_modules import located, roots
from skyward_nb.names.ledger import Ledger
from skyward_nb.names.project_modules import ProjectModules
from skyward_nb.node.imports import ProjectFinder, import_all
from skyward_nb.reports.source_lines import is_own
from skyward_nb.runtime.script_runner import _modules_below
from skyward_nb.words.errors import OptionError


class Project:
    """A folder on the notebook's path."""

    def __init__(self, folder):
        self.folder = folder
        self.clock = 1

    def write(self, path, text):
        file = self.folder / path
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(text)
        self.clock += 1
        os.utime(file, (self.clock, self.clock))


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    finders = list(sys.meta_path)
    yield Project(tmp_path)
    sys.meta_path[:] = finders
    for name in set(sys.modules) - before:
        del sys.modules[name]


def names(files):
    return [file.name for file in files]


def test_modules_with_what_they_import_deepest_first(project):
    project.write("sky_t_low.py", "X = 1")
    project.write("sky_t_mid.py", "def f():\n    import sky_t_low\n")
    project.write("sky_t_top.py", "import os, sky_t_mid\nfrom sky_t_low import X")
    project.write("sky_t_other.py", "")
    modules = ProjectModules()
    assert names(modules.changed(["sky_t_top"], (0,))) == ["sky_t_low", "sky_t_mid", "sky_t_top"]
    assert (
        names(modules.changed(["os", "pytest", "json.decoder", "nowhere", "__main__"], (0,))) == []
    )
    assert names(modules.changed(["skyward_nb"], (0,))) == []


def test_a_module_whose_file_is_said_by_a_path(project, monkeypatch):
    """As the folder of transformers is; Python's own loaders say it as text."""
    project.write("elsewhere/sky_t_loaded.py", "import sky_t_low")
    project.write("sky_t_low.py", "")
    file = project.folder / "elsewhere/sky_t_loaded.py"
    sys.modules["sky_t_loaded"] = module = ModuleType("sky_t_loaded")
    module.__spec__, module.__file__ = ModuleSpec("sky_t_loaded", None, origin=file), file
    assert names(ProjectModules().changed(["sky_t_loaded"], (0,))) == ["sky_t_low", "sky_t_loaded"]
    monkeypatch.chdir(project.folder)
    assert is_own("sky_t_loaded")
    module.__spec__ = ModuleSpec("sky_t_loaded", None, is_package=True)
    module.__spec__.submodule_search_locations = [file.parent]
    assert is_own("sky_t_loaded")
    assert "sky_t_loaded" in _modules_below(str(project.folder))


@pytest.mark.parametrize(
    "line",
    [
        "import os, sky_t_low",
        "import os, \\\n    sky_t_low as low",
        "import os; import sky_t_low",
        "if True: import sky_t_low.sub",
        "try:\n\tfrom sky_t_low.sub import (\n\t\tX,\n\t)\nfinally: pass",
        "from sky_t_low  import *",
    ],
)
def test_however_a_module_imports_another_one_it_comes_along(project, line):
    project.write("sky_t_low.py", "X = 1")
    project.write("sky_t_top.py", line)
    assert names(ProjectModules().changed(["sky_t_top"], (0,))) == ["sky_t_low", "sky_t_top"]


def test_what_is_no_import_brings_nothing(project):
    project.write("sky_t_low.py", "X = 1")
    text = "from . import sky_t_low\nimportant = 'x'  # import sky_t_low\nsky_t_low = 3\n"
    project.write("sky_t_top.py", text)
    assert names(ProjectModules().changed(["sky_t_top"], (0,))) == ["sky_t_top"]


def test_a_package_comes_as_a_whole_and_circles_end(project):
    project.write("sky_t_pk/__init__.py", "import sky_t_user")
    project.write("sky_t_pk/sub.py", "from . import __name__")
    project.write("sky_t_pk/__pycache__/x.py", "")
    project.write("sky_t_user.py", "import sky_t_pk.sub")
    found = ProjectModules().changed(["sky_t_pk.sub"], (0,))
    assert set(names(found)) == {"sky_t_pk", "sky_t_pk.sub", "sky_t_user"}
    assert {file.name for file in found if file.is_package} == {"sky_t_pk"}


def test_what_one_pool_has_read_another_one_reads_no_more(project, monkeypatch):
    project.write("sky_t_read.py", "X = 1")
    first = ProjectModules().changed(["sky_t_read"], (0,))
    read = []
    monkeypatch.setattr(project_modules, "_imports", lambda text: read.append(text) or [])
    assert ProjectModules().changed(["sky_t_read"], (0,)) == first
    assert not read
    project.write("sky_t_read.py", "X = 2")
    (again,) = ProjectModules().changed(["sky_t_read"], (0,))
    assert again.text == "X = 2" and read == ["X = 2"]


def test_sent_once_and_again_when_edited(project):
    project.write("sky_t_one.py", "X = 1")
    modules = ProjectModules()
    first = modules.changed(["sky_t_one"], (0,))
    assert names(modules.changed(["sky_t_one"], (0,))) == ["sky_t_one"], "not sent so far"
    modules.sent(first, (0,))
    assert modules.changed(["sky_t_one"], (0,)) == ()
    project.write("sky_t_one.py", "X = 22")
    (file,) = modules.changed(["sky_t_one"], (0,))
    assert file.text == "X = 22"
    assert modules.version(["sky_t_one"]) != ""
    assert modules.version(["os", "pytest"]) == ""
    modules.forget()
    assert names(modules.changed(["sky_t_one"], (0,))) == ["sky_t_one"]
    (project.folder / "sky_t_one.py").unlink()
    assert modules.changed(["sky_t_one"], (0,)) == ()


def test_a_function_that_a_decorator_made_goes_with_its_module_and_anew_when_that_is_edited(
    project, home_namespace
):
    """It is pickled by its name."""
    text = "import functools\n@functools.lru_cache\ndef cached(): return {}\n"
    project.write("sky_t_cached.py", text.format(1))
    ledger = Ledger(1, lambda _: None)

    def planned():
        module = importlib.import_module("sky_t_cached")
        home_namespace["cached"] = module.cached
        plan = ledger.plan(["cached"], home_namespace, (0,))
        ledger.sent(plan, (0,), 1)
        return names(plan.modules), [(row.name, row.status) for row in plan.rows]

    assert planned() == (["sky_t_cached"], [("cached", "sent")])
    assert planned() == ([], [("cached", "unchanged")])
    project.write("sky_t_cached.py", text.format(2))
    importlib.reload(sys.modules["sky_t_cached"])
    assert planned() == (["sky_t_cached"], [("cached", "sent")])


def test_a_module_that_does_not_parse_is_sent_as_it_is(project):
    project.write("sky_t_bad.py", "def f(:")
    assert names(ProjectModules().changed(["sky_t_bad"], (0,))) == ["sky_t_bad"]


def test_submodules_that_the_notebook_has_imported():
    importlib.import_module("xml.dom.minidom")
    importlib.import_module("xml.etree.ElementTree")
    modules = ProjectModules()
    found = modules.submodules(["xml"], {"dom", "minidom", "nothing"})
    assert found == ("xml.dom", "xml.dom.minidom")
    assert modules.submodules(["os", "sys"], {"path"}) == ()


def test_on_a_rank_sources_are_imported_and_renewed_in_place(project):
    project.write("sky_t_r.py", "def f(): return 1\nclass K:\n    def m(self): return 1\n")
    modules = ProjectModules()
    finder = ProjectFinder()
    finder.renew(modules.changed(["sky_t_r"], (0,)))
    (project.folder / "sky_t_r.py").rename(project.folder / "gone.py")
    there = importlib.import_module("sky_t_r")
    f, k = there.f, there.K()
    assert (f(), k.m()) == (1, 1)
    assert there.__file__ == str(project.folder / "sky_t_r.py")
    project.write("sky_t_r.py", "def f(): return 2\nclass K:\n    def m(self): return 2\n")
    finder.renew(modules.changed(["sky_t_r"], (0,)))
    assert (f(), k.m(), type(k) is there.K, there.f is f) == (2, 2, True, True)
    project.write("sky_t_r.py", "1 / 0")
    with pytest.raises(ZeroDivisionError) as caught:
        finder.renew(modules.changed(["sky_t_r"], (0,)))
    assert "sky_t_r" in caught.value.__notes__[0]
    assert (f(), there.f()) == (2, 2), "as it was"
    project.write("sky_t_r.py", "def f(): return 3\nclass K: pass\n")
    finder.renew(modules.changed(["sky_t_r"], (0,)))
    assert f() == 3


def test_packages_on_a_rank_and_modules_imported_for_their_parents(project):
    project.write("sky_t_p/__init__.py", "from .a import A")
    project.write("sky_t_p/a.py", "A = 5")
    project.write("sky_t_p/b.py", "B = 6")
    finder = ProjectFinder()
    finder.renew(ProjectModules().changed(["sky_t_p"], (0,)))
    import_all(["sky_t_p.b"])
    assert sys.modules["sky_t_p"].b.B == 6
    assert finder.get_source("sky_t_p.a") == "A = 5"
    assert finder.get_source("nowhere") is None
    with pytest.raises(ModuleNotFoundError):
        import_all(["sky_t_p.c"])


RENEWED = {
    "super in a method that had none": (
        "class B:\n    def m(self): return 1\nclass K(B): pass\n",
        "class B:\n    def m(self): return 1\nclass K(B):\n    def m(self): return super().m() + 1\n",
        lambda k, m: k.m() == 2 and type(k) is m.K,
    ),
    "a method gone, a property come": (
        "class K:\n    def m(self): return 1\n",
        "class K:\n    @property\n    def p(self): return type(self)\n",
        lambda k, m: not hasattr(k, "m") and k.p is m.K,
    ),
    "other bases": (
        "class K: pass\n",
        "class K(dict): pass\n",
        lambda k, m: type(k) is not m.K and issubclass(m.K, dict),
    ),
    "an abstract class": (
        "import abc\nclass A(abc.ABC):\n    @abc.abstractmethod\n    def m(self): ...\nclass K(A):\n"
        "    def m(self): return 1\n",
        "import abc\nclass A(abc.ABC):\n    def m(self): ...\nclass K(A):\n    def m(self): return 2\n",
        lambda k, m: k.m() == 2 and isinstance(k, m.A) and m.A() is not None,
    ),
    "a function that became a closure": (
        "def f(): return 1\nclass K: pass\n",
        "def deco(f):\n    def g(): return f() + 1\n    return g\n@deco\ndef f(): return 1\nclass K: pass\n",
        lambda k, m: m.f() == 2 and type(k) is m.K,
    ),
    "an enumeration": (
        "import enum\nclass E(enum.Enum):\n    X = 1\nclass K:\n    e = E.X\n",
        "import enum\nclass E(enum.Enum):\n    X = 1\n    # edited\nclass K:\n    e = E.X\n",
        lambda k, m: m.E.X is m.K.e or m.E(1) == m.E.X,
    ),
    "tables of classes, and instances made by the module": (
        "class K:\n    def __init__(self): super().__init__()\n    def m(self): return 1\n"
        "T = {'k': K}\nL = [K]\nS = {K}\nI = K()\n",
        "class K:\n    def __init__(self): super().__init__()\n    def m(self): return 2\n"
        "T = {'k': K}\nL = [K]\nS = {K}\nI = K()\n",
        lambda k, m: (
            m.T["k"] is m.L[0] is m.K is type(k) is type(m.I)
            and {m.K} == m.S
            and m.T["k"]().m() == k.m() == 2
        ),
    ),
    "methods of an enumeration": (
        "import enum\nclass E(enum.Enum):\n    X = 1\n    def m(self): return 1\nclass K:\n    e = E.X\n",
        "import enum\nclass E(enum.Enum):\n    X = 1\n    def m(self): return 2\nclass K:\n    e = E.X\n",
        lambda k, m: m.E.X.m() == 2 and m.E(1) is m.E.X,
    ),
    "a class within a class": (
        "class K:\n    class In:\n        def m(self): return 1\n    def __init__(self): self.i = self.In()\n",
        "class K:\n    class In:\n        def m(self): return 2\n    def __init__(self): self.i = self.In()\n",
        lambda k, m: k.i.m() == 2 and isinstance(k.i, m.K.In),
    ),
    "slots": (
        "class K:\n    __slots__ = ('a',)\n    def m(self): return 1\n",
        "class K:\n    __slots__ = ('a',)\n    def m(self): return 2\n",
        lambda k, m: k.m() == 2 and type(k) is m.K,
    ),
    "a name gone": (
        "X = 1\nclass K: pass\ndef f(): pass\n",
        "class K: pass\n",
        lambda k, m: not hasattr(m, "f"),
    ),
}


@pytest.mark.parametrize("case", RENEWED)
def test_definitions_of_an_edited_module_stay_the_objects_they_are(project, case):
    before, after, holds = RENEWED[case]
    modules, finder = ProjectModules(), ProjectFinder()
    project.write("sky_t_e.py", before)
    finder.renew(modules.changed(["sky_t_e"], (0,)))
    module = importlib.import_module("sky_t_e")
    k = module.K()
    project.write("sky_t_e.py", after)
    finder.renew(modules.changed(["sky_t_e"], (0,)))
    assert holds(k, module)


def test_whenever_objects_were_collected_all_that_refers_to_a_class_refers_to_the_one_that_stays(
    project,
):
    """Referrers come in the order of the collector's generations."""
    before, after, holds = RENEWED["tables of classes, and instances made by the module"]
    threshold = gc.get_threshold()
    try:
        for number in range(40):
            gc.set_threshold(1 + number)
            modules, finder, name = ProjectModules(), ProjectFinder(), f"sky_t_c{number}"
            project.write(f"{name}.py", before)
            finder.renew(modules.changed([name], (0,)))
            module = importlib.import_module(name)
            k = module.K()
            project.write(f"{name}.py", after)
            finder.renew(modules.changed([name], (0,)))
            assert holds(k, module), number
    finally:
        gc.set_threshold(*threshold)


def test_one_broken_module_does_not_hold_up_another_for_good(project):
    project.write("sky_t_x.py", "V = 1")
    project.write("sky_t_y.py", "V = 1")
    modules, finder = ProjectModules(), ProjectFinder()
    both = ["sky_t_x", "sky_t_y"]
    finder.renew(modules.changed(both, (0,)))
    x, y = map(importlib.import_module, both)
    project.write("sky_t_x.py", "1 / 0")
    project.write("sky_t_y.py", "V = 2")
    with pytest.raises(ZeroDivisionError):
        finder.renew(modules.changed(both, (0,)))
    project.write("sky_t_x.py", "V = 3")
    finder.renew(modules.changed(both, (0,)))
    assert (x.V, y.V) == (3, 2)


def test_a_module_that_comes_into_being_later(project):
    modules = ProjectModules()
    assert modules.changed(["sky_t_later"], (0,)) == ()
    project.write("sky_t_later.py", "V = 1")
    importlib.invalidate_caches()
    assert names(modules.changed(["sky_t_later"], (0,))) == ["sky_t_later"]


# ── what an image includes ──────────────────────────────────────────────────────────────


def test_included_modules_are_found_by_name_and_by_path(project, tmp_path_factory):
    far = Project(tmp_path_factory.mktemp("far"))
    far.write("sky_t_far.py", "import sky_t_near")
    far.write("sky_t_pk/__init__.py", "")
    far.write("sky_t_pk/deep.py", "")
    far.write("sky_t_plain/some.py", "")
    project.write("sky_t_near.py", "")
    project.write("sky_t_own/sub.py", "")
    folder = far.folder
    found = located(
        ["sky_t_near", "sky_t_own.sub", "./sky_t_far.py", "sky_t_pk", f"{folder}/sky_t_plain", "json",
         "msgspec", f"{folder}/sky_t_pk/__init__.py"],
        folder,
    )  # fmt: skip
    assert found == (
        str(project.folder / "sky_t_near.py"), str(project.folder / "sky_t_own"),
        str(folder / "sky_t_far.py"), str(folder / "sky_t_pk"), str(folder / "sky_t_plain"), "json",
        "msgspec",
    )  # fmt: skip
    assert located(found, project.folder) == found
    assert set(roots(found)) == {
        "sky_t_near", "sky_t_own", "sky_t_far", "sky_t_pk", "sky_t_plain",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sky_t_nowhere", r"no module sky_t_nowhere to import here, and neither sky_t_nowhere\.py"),
        ("sky_t_own.nowhere", r"sky_t_own has no nowhere"),
        ("./sky_t_nowhere.py", "there is no /"),
        ("sky_t_own/notes.txt", "give a .py file or the folder"),
        ("./sky_t_empty", "no .py file in"),
        ("./sky-t.py", "'sky-t' cannot be imported"),
        ("./json.py", "take the place of json"),
        ("./skyward_nb.py", "take the place of skyward_nb"),
        ("./other/sky_t_own", "is a module 'sky_t_own' already"),
    ],
)
def test_what_cannot_be_included_is_refused(project, text, says):
    for path in ("sky_t_own/sub.py", "sky_t_own/notes.txt", "sky-t.py", "json.py", "skyward_nb.py"):
        project.write(path, "")
    project.write("other/sky_t_own/sub.py", "")
    (project.folder / "sky_t_empty").mkdir()
    with pytest.raises(OptionError, match=says):
        located(["sky_t_own", text], project.folder)


def test_included_modules_go_to_each_rank_once(project, tmp_path_factory):
    far = Project(tmp_path_factory.mktemp("far"))
    far.write("sky_t_far.py", "import sky_t_near")
    project.write("sky_t_near.py", "")
    modules = ProjectModules(roots([str(far.folder / "sky_t_far.py")]))
    first = modules.changed((), (0, 1))
    assert names(first) == ["sky_t_near", "sky_t_far"]
    modules.sent(first, (0, 1))
    assert modules.changed((), (0, 1)) == ()
    assert names(modules.changed((), (1, 2))) == ["sky_t_near", "sky_t_far"]
    far.write("sky_t_far.py", "X = 2")
    assert modules.changed((), (0, 1)) == ()
    assert names(modules.changed(["sky_t_far"], (0, 1))) == ["sky_t_far"]
    modules.forget()
    assert names(modules.changed((), (0,))) == ["sky_t_far"]


def test_a_run_on_some_ranks_leaves_the_modules_of_others_to_later_ones(project):
    project.write("sky_t_near.py", "X = 1")
    ledger = Ledger(2, lambda _: None, [str(project.folder / "sky_t_near.py")])
    plan = ledger.plan((), {}, (0,))
    assert names(plan.modules) == ["sky_t_near"]
    ledger.sent(plan, (0,))
    assert ledger.plan((), {}, (0,)).modules == ()
    assert names(ledger.plan((), {}, (0, 1)).modules) == ["sky_t_near"]
