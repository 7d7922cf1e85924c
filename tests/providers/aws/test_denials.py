"""Whose policy denied a call, in words. AWS's own: docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html."""

import pytest

from skyward_nb.providers.aws.api_errors import AWSError, spell_fault

USER = "arn:aws:iam::123456789012:user/team/ann"
ROLE = "arn:aws:sts::123456789012:assumed-role/Researcher/ann@example.com"
OWN = "docs/aws-policy.json of the project is the policy that grants it"


def said(why, who=USER, action="ec2:RunInstances"):
    message = (
        f"You are not authorized to perform this operation. User: {who} is not authorized to perform: {action} on "
        f"resource: arn:aws:ec2:us-east-1:123456789012:instance/* {why}. Encoded authorization failure message: AbC-1"
    )
    return spell_fault(AWSError("UnauthorizedOperation", message, "RunInstances"))


@pytest.mark.parametrize(
    ("who", "command"),
    [
        (USER, "aws iam get-user --user-name ann --query User.PermissionsBoundary"),
        (ROLE, "aws iam get-role --role-name Researcher --query Role.PermissionsBoundary"),
    ],
)
@pytest.mark.parametrize(
    ("why", "does"),
    [
        ("because no permissions boundary allows the ec2:RunInstances action", "does not allow"),
        ("with an explicit deny in a permissions boundary", "denies"),
    ],
)
def test_a_boundary_is_no_policy_of_the_users_own(who, command, why, does):
    text = said(why, who)
    assert f"a permissions boundary {does} ec2:RunInstances" in text
    assert "which no policy of your own widens" in text and command in text
    assert OWN not in text and "AbC-1" in text  # the command that decodes the rest


@pytest.mark.parametrize(
    ("why", "words"),
    [
        ("with an explicit deny in a service control policy", "a service control policy of the organization denies"),
        ("because no service control policy allows the ec2:RunInstances action", "of the organization does not allow"),
        ("with an explicit deny in a resource control policy", "a resource control policy of the organization denies"),
        ("because no session policy allows the ec2:RunInstances action", "Sign in without that policy"),
        ("because no VPC endpoint policy allows the ec2:RunInstances action", "the policy of the VPC endpoint"),
        ("with an explicit deny in an identity-based policy", "has to be changed first"),
        (
            "with an explicit deny in an identity-based policy: arn:aws:iam::123456789012:policy/NoBig",
            "(arn:aws:iam::123456789012:policy/NoBig) denies ec2:RunInstances",
        ),
        ("because no identity-based policy allows the ec2:RunInstances action", OWN),
        ("", OWN),
    ],
)  # fmt: skip
def test_each_kind_of_policy_has_its_own_words(why, words):
    text = said(why)
    assert words in text
    assert (OWN in text) is (words == OWN)


def test_the_older_words_are_known_too():
    message = "User: x is not authorized to perform: ssm:GetParameter due to an explicit deny in a Service Control Policy"
    text = spell_fault(AWSError("AccessDeniedException", message, "GetParameter"))
    assert "a service control policy of the organization denies ssm:GetParameter" in text
