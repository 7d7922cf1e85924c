"""Types and precisions of numbers that the notebook has set are the ranks', also where they import the package later."""

import importlib.util
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from skyward_nb.names.rank_versions import RankVersions
from skyward_nb.runtime import hooks, number_settings

CHANGES = {
    "jax": {"jax.jax_enable_x64": "True", "jax.jax_default_matmul_precision": "float32"},
    "torch": {"torch.default_dtype": "float64", "torch.float32_matmul_precision": "high"},
    "keras": {"keras.floatx": "float64", "keras.dtype_policy": "mixed_bfloat16"},
}
LIBRARIES = [each for each in CHANGES if importlib.util.find_spec(each)]

TOLD_AND_TAKEN = """
import importlib, os, sys
os.environ.setdefault("KERAS_BACKEND", "torch")
from skyward_nb.runtime import hooks, number_settings

for name, changes in {changes}.items():
    def own():
        return {{k: v for k, v in number_settings.as_they_are().items() if k in changes}}
    defaults = {{k: number_settings.DEFAULTS[k] for k in changes}}
    if name == "jax":
        # What is imported later has it then.
        with hooks.installed():
            number_settings.apply({{"jax.jax_enable_x64": "True"}})
            assert "jax" not in sys.modules
            import jax.numpy as jnp
            assert jnp.arange(2.0).dtype == "float64"
        number_settings.apply(defaults)
    library = importlib.import_module(name)
    assert own() == defaults, own()
    if name == "keras":
        # Keras, when it is asked for its policy, makes and keeps one: float types that are set later would have no effect.
        library.config.set_floatx("float64")
        assert library.layers.Dense(1).compute_dtype == "float64"
        library.config.set_floatx("float32")
    number_settings.apply(changes)
    assert own() == changes, own()
    number_settings.apply(defaults)
    if name == "keras":
        # The first layer sets one, too, which the float type decides no more.
        library.layers.Dense(1)
        number_settings.apply({{"keras.floatx": "float64"}})
        assert library.layers.Dense(1).compute_dtype == "float64"
        number_settings.apply(defaults)
    assert own() == defaults, own()
    print(name)
"""


@pytest.mark.skipif(not LIBRARIES, reason="JAX, PyTorch and Keras are not installed")
def test_what_was_set_is_told_and_taken_and_nothing_else():
    """In a process of its own, as these settings are those of all tests else."""
    code = TOLD_AND_TAKEN.format(changes={each: CHANGES[each] for each in LIBRARIES})
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == LIBRARIES


_KERAS = SimpleNamespace(config=SimpleNamespace(floatx=lambda: "float64"))


def test_another_threads_policy_is_not_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras", _KERAS)
    found: list[dict[str, str]] = []
    thread = threading.Thread(target=lambda: found.append(number_settings.as_they_are()))
    thread.start()
    thread.join()
    assert found[0]["keras.floatx"] == "float64"
    assert "keras.dtype_policy" not in found[0]


def test_a_library_of_another_version_is_no_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", object())
    monkeypatch.setattr(number_settings, "_waiting", {})
    monkeypatch.setattr(hooks, "_told", set())
    assert not [name for name in number_settings.as_they_are() if name.startswith("torch.")]
    with pytest.warns(RuntimeWarning, match=r"torch .* is new to skyward_nb: numbers may have"):
        number_settings.apply({"torch.default_dtype": "float64", "a.later_one": "1"})


def test_what_ranks_have_that_got_nothing_is_assumed():
    versions = RankVersions({"a": "default"})
    assert versions.lacking({"a": "default", "b": "1"}, (0,)) == ["b"]
    versions.note({"a": "set"}, (0,))
    assert versions.lacking({"a": "set"}, (0,)) == []
    assert versions.lacking({"a": "set"}, (0, 1)) == ["a"]
    assert versions.lacking({"a": "default"}, (0,)) == ["a"]
