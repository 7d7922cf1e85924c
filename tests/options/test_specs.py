"""The spec of a pool, from what is asked for, and whether one that is up is that."""

import pytest
from msgspec.structs import replace

from skyward_nb.options.specs import check_fits, extended, spec_of
from skyward_nb.words.accelerators import Accelerator
from skyward_nb.words.errors import OptionError, PoolError
from skyward_nb.words.image import Image
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.spec import PoolSpec


def spec(**asked):
    return spec_of(PoolSpec(), PoolOptions(**asked))


def test_packages_are_added_to_those_of_the_image():
    image = Image(pip=["numpy"], env={"A": "1"})
    made = spec(image=image, pip=("torch",), apt=("git",), python="3.12", env={"A": "2"})
    assert made.image == Image(python="3.12", pip=["numpy", "torch"], apt=["git"], env={"A": "1"})
    assert made.variables == {"A": "2"}
    assert spec_of(made, PoolOptions(pip=("jax",))).image.pip == ("numpy", "torch", "jax")
    made = spec(image=image, python="~/env/bin/python")
    assert made.image == Image(interpreter="~/env/bin/python", pip=["numpy"], env={"A": "1"})


def test_an_image_sets_no_variable_of_which_each_rank_has_its_own():
    with pytest.raises(OptionError, match="cannot set RANK: each rank has its own"):
        spec(image=Image(env={"RANK": "3"}))


def test_modules_are_found_when_the_spec_is_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sky_t_helpers.py").write_text("X = 1")
    image = Image(includes=["sky_t_helpers.py"])
    made = spec(image=image)
    assert made.image.includes == (str(tmp_path / "sky_t_helpers.py"),)
    check_fits(made, PoolOptions(image=image))
    with pytest.raises(OptionError, match="there is no module sky_t_nowhere"):
        spec(image=Image(includes=["sky_t_nowhere"]))


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"image": "img"}, "image=img names a sky.Image of a notebook"),
        ({"image": [1]}, "not list"),
        ({"pip": "torch numpy"}, "takes a list"),
        ({"python": 3.12}, "as text"),
        ({"env": {"N": 4}}, "N must be a text, not int"),
        ({"env": "A=1"}, "not str"),
    ],
)
def test_what_is_none_is_refused(asked, says):
    with pytest.raises(OptionError, match=says):
        spec(**asked)


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"pip": ("torch",)},
        {"python": "3.12", "pip": ("numpy",)},
        {"image": Image(python="3.12", pip=["numpy", "torch"])},
        {"image": Image(python="3.12", pip=["numpy"]), "pip": ("torch",)},
        {"pool": "default", "nodes": 1},
    ],
)
def test_a_pool_that_is_up_fits_what_it_has(asked):
    check_fits(spec(image=Image(python="3.12", pip=["numpy", "torch"])), PoolOptions(**asked))


@pytest.mark.parametrize(
    "asked",
    [
        {"pip": ("jax",)},
        {"apt": ("git",)},
        {"python": "3.11"},
        {"image": Image()},
        {"image": Image(python="3.12", pip=["numpy"])},
    ],
)
def test_a_pool_that_is_up_with_another_image_is_refused(asked):
    up = spec(image=Image(python="3.12", pip=["numpy", "torch"]), env={"A_TOKEN": "hunter2"})
    with pytest.raises(PoolError, match=r"is up with image=Image\(python='3.12', pip=.*sky down"):
        check_fits(up, PoolOptions(**asked))


def test_packages_are_added_to_a_pool_that_is_up():
    up = spec(image=Image(pip=["numpy"], env={"A": "1"}), nodes=2)
    more = extended(up, PoolOptions(pip=("torch", "numpy"), apt=("git",), nodes=2))
    assert more == replace(up, image=Image(pip=["numpy", "torch"], apt=["git"], env={"A": "1"}))
    assert extended(more, PoolOptions(pip=("torch",))) is more
    with pytest.raises(PoolError, match="is up with nodes=2, and nodes=3"):
        extended(up, PoolOptions(pip=("torch",), nodes=3))
    with pytest.raises(PoolError, match="is up with image="):
        extended(up, PoolOptions(pip=("torch",), image=Image(pip=["numpy"])))


def test_a_differing_option_is_told_without_its_secrets():
    up = spec(env={"A_TOKEN": "hunter2"})
    with pytest.raises(PoolError, match=r"env=A_TOKEN=\*\*\*, and env=A_TOKEN=\*\*\*") as raised:
        check_fits(up, PoolOptions(env={"A_TOKEN": "hunter3"}))
    assert "hunter" not in str(raised.value)
    with pytest.raises(PoolError, match="up with pool=default, and pool=other"):
        check_fits(up, PoolOptions(pool="other"))


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"framework": ("torch",)}, "framework=torch joins all ranks"),
        ({"framework": ("jax",)}, "framework=jax joins all ranks"),
        ({"framework": ("tensorflow",)}, "framework=tensorflow joins all ranks"),
        ({"framework": ("keras",)}, "framework=keras joins all ranks"),
        ({"framework": ("keras:jax", "huggingface")}, "framework=keras:jax,huggingface joins"),
        ({"mesh": (("fsdp", 2),)}, "mesh=fsdp:2 joins all ranks"),
    ],
)
def test_what_joins_ranks_is_refused_where_nodes_stand_alone(asked, says):
    with pytest.raises(OptionError, match=rf"{says}.*Options\(cluster=False\)"):
        spec(cluster=False, nodes=2, **asked)


def test_slices_and_variables_are_had_by_nodes_that_stand_alone():
    made = spec(
        cluster=False,
        accelerator=Accelerator("A100"),
        mig="3g.40gb",
        simulate="yes",
        env={"A": "1"},
    )
    assert (made.cluster, made.world_size) == (False, 2)
