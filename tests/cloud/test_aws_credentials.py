"""Whose credentials are used is boto3's own affair: profiles, variables, SSO, processes; none: what to type."""

from __future__ import annotations

import asyncio
import json

import pytest
from cloud.sky import Cloud

import skyward_nb as sky
from skyward_nb.options.arguments import spec_for
from skyward_nb.providers.aws import client
from skyward_nb.providers.aws.api_errors import AWSError, spell_fault

_OWN = "AKIAIOSFODNN7EXAMPLE"
_WORK = "AKIAI44QH8DHBEXAMPLE"
_KEYS = "aws_access_key_id = {}\naws_secret_access_key = je7MtGbClwBF/2Zp9Utk/h3yCo8nvbEXAMPLEKEY\n"
_SSO = """\
[profile work]
sso_session = my
sso_account_id = 123456789012
sso_role_name = ML
region = us-east-1
[sso-session my]
sso_start_url = https://example.awsapps.com/start
sso_region = us-east-1
"""


@pytest.fixture
def configured(api: Cloud, monkeypatch, tmp_path):
    """Write AWS's own files; what is not said here is not found anywhere else."""
    monkeypatch.setenv("HOME", str(tmp_path))

    def write(credentials="", config=""):
        (tmp_path / "aws_credentials").write_text(credentials)
        (tmp_path / "aws_config").write_text(config)
        return tmp_path

    return write


@pytest.fixture
def without_keys(monkeypatch):
    """The environment has none."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)


def account(**named: str) -> str:
    """Whose credentials those are that a pool of these arguments is rented with."""
    spec = spec_for("default", provider=sky.AWS(region="us-east-1", **named))
    return asyncio.run(client.AWSClient.of(spec.aws).account("us-east-1"))


def test_the_environment_has_them(api):
    assert account() == "123456789012"
    assert api.calls[-1].key == _OWN


def test_a_profile_that_is_named_comes_before_the_environment(api, configured):
    configured(f"[work]\n{_KEYS.format(_WORK)}")
    assert account(profile="work") == "123456789012"
    assert api.calls[-1].key == _WORK


def test_a_profile_that_the_environment_names(api, configured, without_keys, monkeypatch):
    configured(f"[default]\n{_KEYS.format(_OWN)}\n[work]\n{_KEYS.format(_WORK)}")
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert account() == "123456789012"
    assert api.calls[-1].key == _WORK
    monkeypatch.delenv("AWS_PROFILE")
    account()
    assert api.calls[-1].key == _OWN


def test_a_process_that_gives_some(api, configured, without_keys):
    own = configured()
    said = {"Version": 1, "AccessKeyId": _WORK, "SecretAccessKey": "je7MtGbClwBF/EXAMPLE"}
    (own / "said").write_text(json.dumps(said))
    configured(config=f"[profile work]\ncredential_process = cat {own}/said\n")
    account(profile="work")
    assert api.calls[-1].key == _WORK


@pytest.mark.parametrize(
    ("config", "profile", "words"),
    [
        ("", None, ["no AWS credentials", "`aws configure sso`"]),
        ("", "wrok", ["(wrok) could not be found", "`aws configure list-profiles`"]),
        (_SSO, "work", ["`aws sso login --profile work`"]),
        (
            "[profile work]\ncredential_process = false\n",
            "work",
            ["custom-process: ", "`aws sts get-caller-identity --profile work`"],
        ),
    ],
)
def test_without_any_it_says_what_to_type(api, configured, without_keys, config, profile, words):
    configured(config=config)
    with pytest.raises(AWSError) as caught:
        account(**{"profile": profile} if profile else {})
    said = spell_fault(caught.value)
    assert [each for each in words if each not in said] == [], said
    assert api.calls == []
