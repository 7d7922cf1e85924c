"""Errors of botocore as ours: which mean that somebody has to log in, and the command that they type."""

import pytest

from skyward_nb.providers.aws.api_errors import OF_ACCOUNT, spell_fault
from skyward_nb.providers.aws.client import fault_of

errors = pytest.importorskip("botocore.exceptions", reason="boto3 is not installed")
WHY = {"error_msg": "it is over"}


@pytest.mark.parametrize(
    ("error", "command"),
    [
        (errors.UnauthorizedSSOTokenError(), "aws sso login"),
        (errors.SSOTokenLoadError(**WHY), "aws sso login"),
        (errors.TokenRetrievalError(provider="sso", **WHY), "aws sso login"),
        (errors.NoCredentialsError(), "aws configure sso"),
        (errors.PartialCredentialsError(provider="env", cred_var="secret"), "aws configure"),
        (errors.ProfileNotFound(profile="work"), "aws configure list-profiles"),
        (
            errors.CredentialRetrievalError(provider="custom-process", **WHY),
            "aws sts get-caller-identity",
        ),
        (errors.RefreshWithMFAUnsupportedError(), "aws sts get-session-token"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else "",
)
def test_who_has_to_log_in_is_told_what_to_type(error, command):
    fault = fault_of("RunInstances", error)
    assert f"`{command}" in spell_fault(fault)
    assert fault.code in OF_ACCOUNT and not fault.is_unknown


def test_a_login_that_is_over_is_renewed_by_the_command_that_made_it():
    if not hasattr(errors, "LoginTokenLoadError"):
        pytest.skip("this botocore has no `aws login`")
    for error in (errors.LoginRefreshRequired(), errors.LoginTokenLoadError(**WHY)):
        fault = fault_of("RunInstances", error)
        assert "`aws login`" in spell_fault(fault) and fault.code in OF_ACCOUNT


@pytest.mark.parametrize(
    ("error", "code", "is_unknown"),
    [
        (errors.EndpointConnectionError(endpoint_url="https://x"), "Unreachable", False),
        (errors.ConnectTimeoutError(endpoint_url="https://x"), "Unreachable", False),
        (errors.ReadTimeoutError(endpoint_url="https://x"), "Unreachable", True),
        (errors.ConnectionClosedError(endpoint_url="https://x"), "Unreachable", True),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else "",
)
def test_what_may_have_been_done_all_the_same_is_known(error, code, is_unknown):
    fault = fault_of("RunInstances", error)
    assert (fault.code, fault.is_unknown) == (code, is_unknown)


def test_an_error_of_ours_is_none_of_botocore():
    assert fault_of("RunInstances", ValueError("a mistake")) is None
