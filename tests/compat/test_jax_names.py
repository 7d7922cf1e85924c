"""What JAX does with the names that are used of it."""

import sys

import pytest
from compat.installed_code import version
from later import Later, needs

from skyward_nb.compat import jax_private

pytestmark = needs("jax")
jax = Later("jax")


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    if "jax" not in sys.modules:
        monkeypatch.setenv("JAX_PLATFORMS", "cpu")


def test_gloo_can_be_told_where_to_listen():
    from jaxlib import _jax

    text = _jax.make_gloo_tcp_collectives.__doc__ or ""
    what = f"jax {version('jax')}: gloo takes no hostname any more, and listens on any address"
    assert "hostname" in text, what
    with jax_private.gloo_listening_on("127.0.0.1"):
        changed = _jax.make_gloo_tcp_collectives
        assert changed.keywords == {"hostname": "127.0.0.1"}
    assert _jax.make_gloo_tcp_collectives is changed.func


def test_options_are_by_the_names_of_variables():
    assert jax.numpy
    assert "jax_platforms" in jax_private.options()


def test_a_type_can_be_made_weak():
    array = jax.numpy.asarray([1.0])
    assert not array.weak_type
    assert jax_private.of_a_weak_type(array).weak_type


def test_arrays_and_keys_are_of_the_kinds_that_are_known():
    """`pickling/reducers` knows them by module and name."""
    array, key = type(jax.numpy.zeros(1)), type(jax.random.key(0))
    assert (array.__module__.partition(".")[0], array.__name__) == ("jaxlib", "ArrayImpl")
    families = {(each.__module__.partition(".")[0], each.__name__) for each in key.__mro__}
    assert ("jax", "PRNGKeyArray") in families
