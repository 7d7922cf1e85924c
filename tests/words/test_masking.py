"""Values of secret variables are in no words of ours."""

import pytest

from skyward_nb.protocol.commands import Fork, PluginUse
from skyward_nb.words.masking import is_secret, masked, masked_setting, masked_text
from skyward_nb.words.spec import PoolSpec

SECRET = "HF_TOKEN", "WANDB_API_KEY", "aws_secret_access_key", "DB_PASSWORD", "TOKEN", "token"
PLAIN = "TOKENIZERS_PARALLELISM", "OMP_NUM_THREADS", "HOME", "NCCL_DEBUG"


@pytest.mark.parametrize("name", SECRET)
def test_secret_names(name):
    assert is_secret(name)
    assert masked({name: "s3"}) == {name: "***"}


@pytest.mark.parametrize("name", PLAIN)
def test_names_of_no_secret(name):
    assert not is_secret(name)
    assert masked({name: "s3"}) == {name: "s3"}


@pytest.mark.parametrize(
    ("written", "shown"),
    {
        "A=1,HF_TOKEN=s3,B=2": "A=1,HF_TOKEN=***,B=2",
        "HF_TOKEN=s3,4,A=1": "HF_TOKEN=***,***,A=1",
        "HF_TOKEN=s3=4": "HF_TOKEN=***",
        "A=1,2": "A=1,2",
        "A": "A",
    }.items(),
)
def test_variables_as_they_were_written(written, shown):
    assert masked_text(written) == shown


def test_no_repr_shows_them():
    secret = {"HF_TOKEN": "s3", "A": "1"}
    use = PluginUse("huggingface", {"token": "s3"})
    for shown in (PoolSpec(env=secret), use, Fork(1, (), (use,), secret)):
        assert "s3" not in repr(shown)
        assert "***" in repr(shown)
    assert "'A': '1'" in repr(PoolSpec(env=secret))


def test_an_option_is_shown_without_its_secrets():
    assert masked_setting("env", "A=1,HF_TOKEN=x") == "A=1,HF_TOKEN=***"
    address = "--extra-index-url=https://me:pw@host/simple"
    assert masked_setting("pip", address) == "--extra-index-url=https://***@host/simple"
    assert masked_setting("nodes", "4") == "4"
