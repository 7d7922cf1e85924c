"""Patching what is imported, and leaving everything as it was."""

import importlib
import subprocess
import sys
import warnings

import pytest

from skyward_nb.runtime import event_sink, hooks

MODULES = ("tqdm.std", "tqdm.notebook", "tqdm.rich", "tqdm.gui", "tqdm.tk")


@pytest.fixture
def fresh():
    """tqdm as if never imported; afterwards the one there was."""
    pytest.importorskip("tqdm")
    before = forget_tqdm()
    yield
    forget_tqdm()
    sys.modules.update(before)


def forget_tqdm():
    names = [name for name in sys.modules if name.partition(".")[0] == "tqdm"]
    return {name: sys.modules.pop(name) for name in names}


@pytest.fixture
def events():
    told = []
    event_sink.connect(told.append)
    yield told
    event_sink.connect(None)


def a_loop():
    from tqdm import tqdm

    assert list(tqdm("abc")) == ["a", "b", "c"]


def test_a_package_imported_later_is_hooked(fresh, events, capsys):
    with hooks.installed():
        assert "tqdm" not in sys.modules
        a_loop()
    assert (events[-1].done, events[-1].over) == (3, True)
    assert capsys.readouterr() == ("", "")


def test_a_package_imported_before_is_hooked(fresh, events, capsys):
    from tqdm import tqdm

    with hooks.installed():
        list(tqdm("abc"))
    assert (events[-1].done, events[-1].over) == (3, True)
    assert capsys.readouterr() == ("", "")


def test_leaving_restores_every_object(fresh, events):
    modules = []
    for name in MODULES:
        try:
            modules.append(importlib.import_module(name))
        except ImportError:  # rich, or tkinter, is not everywhere
            continue
    before = [dict(vars(module.tqdm)) for module in modules]
    finders = list(sys.meta_path)
    with hooks.installed():
        assert vars(modules[0].tqdm)["__init__"] is not before[0]["__init__"]
        a_loop()
    for module, was in zip(modules, before, strict=True):
        now = dict(vars(module.tqdm))
        # tqdm makes its lock and its watching thread with its first bar.
        for each in (was, now):
            for own in ("_lock", "monitor"):
                each.pop(own, None)
        assert now.keys() == was.keys()
        assert [name for name in was if now[name] is not was[name]] == []
    assert sys.meta_path == finders


def test_a_module_imported_within_is_restored_too(fresh, events, capsys):
    with hooks.installed():
        from tqdm.std import tqdm

        assert "_skyward_shown" in vars(tqdm)
    assert "_skyward_shown" not in vars(tqdm)
    assert "runtime" not in vars(tqdm)["close"].__module__
    a_loop()
    assert events == []
    assert "3/3" in capsys.readouterr().err


def test_a_module_has_its_own_loader(fresh, events):
    with hooks.installed():
        import tqdm.std
    assert type(tqdm.std.__loader__).__name__ == "SourceFileLoader"
    assert tqdm.std.__spec__.loader is tqdm.std.__loader__


def test_a_package_loaded_anew_is_hooked_anew(fresh, events, capsys):
    with hooks.installed():
        import tqdm.std

        importlib.reload(tqdm.std)
        list(tqdm.std.tqdm("abc"))
    assert events[-1].done == 3
    assert capsys.readouterr() == ("", "")


def test_bars_that_go_on_are_closed_by_leaving(fresh, events, capsys):
    with hooks.installed():
        from tqdm.notebook import tqdm

        bar = tqdm(total=3)
        bar.update(2)
    assert (events[-1].done, events[-1].over) == (2, True)
    bar.update(1)
    bar.close()
    assert capsys.readouterr() == ("", "")


def test_installed_within_itself_does_nothing_more(fresh, events):
    with hooks.installed():
        with hooks.installed():
            a_loop()
        told = {event.bar for event in events}
        a_loop()
    # How often each is told depends on how long it takes.
    assert len(told) == 1
    assert len({event.bar for event in events}) == 2


@pytest.fixture
def another_tqdm(fresh, tmp_path, monkeypatch):
    """A package of that name, of a version that nobody knows."""
    (tmp_path / "tqdm").mkdir()
    (tmp_path / "tqdm" / "__init__.py").write_text("__version__ = '9.0'\nfrom .std import tqdm\n")
    (tmp_path / "tqdm" / "std.py").write_text(
        "class tqdm:\n    def __init__(self, items): self.items = items\n"
        "    def __iter__(self): return iter(self.items)\n"
        "    def refresh(self): pass\n    def display(self): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(hooks, "_told", set())


def test_a_version_that_we_do_not_know_stays_as_it_is(another_tqdm, events):
    with hooks.installed():
        with pytest.warns(
            RuntimeWarning, match=r"tqdm 9\.0 is new to .*its progress may not be shown.*close"
        ):
            a_loop()
        from tqdm.std import tqdm

        assert "_skyward_shown" not in vars(tqdm)
        assert "runtime" not in tqdm.__init__.__module__
    assert events == []


def test_not_even_where_warnings_are_errors_does_the_import_fail(another_tqdm, events):
    with hooks.installed(), warnings.catch_warnings():
        warnings.simplefilter("error")
        a_loop()


def test_an_import_that_fails_fails_as_it_would(fresh, tmp_path, monkeypatch):
    (tmp_path / "tqdm").mkdir()
    (tmp_path / "tqdm" / "__init__.py").write_text("")
    (tmp_path / "tqdm" / "std.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with hooks.installed():
        with pytest.raises(ZeroDivisionError):
            importlib.import_module("tqdm.std")
        with pytest.raises(ModuleNotFoundError, match=r"No module named 'tqdm\.rich'"):
            importlib.import_module("tqdm.rich")


def test_the_package_alone_imports_no_hooks():
    code = (
        "import sys, skyward_nb; assert 'skyward_nb.runtime.hooks' not in sys.modules;"
        "import skyward_nb.runtime.hooks as h, contextlib\n"
        "with h.installed(): print([m for m in sys.modules if m.endswith('_bars') or m == 'tqdm'])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
