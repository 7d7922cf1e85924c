"""Machines that end at once for the key of their disks: the error names the key, and what it lacks.

Reasons of ended machines: docs.aws.amazon.com/AWSEC2/latest/UserGuide/troubleshooting-launch.html, "Instance
terminates immediately", and docs.aws.amazon.com/autoscaling/ec2/userguide/ts-as-ami.html for those of keys.
"""

from __future__ import annotations

import pytest
from cloud.renter import offer

from skyward_nb.words.errors import LaunchError

KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
FAILED = ("Client.InternalError", "Client.InternalError: Client error on launch")
STATE = ("Client.InvalidKMSKey.InvalidState", "The KMS key provided is in an incorrect state")


@pytest.mark.parametrize(
    ("reason", "key", "spot", "words"),
    [
        (FAILED, KEY, False, (KEY, "kms:CreateGrant", "Client error on launch")),
        (FAILED, KEY, True, (KEY, "aws kms create-grant", "AWSServiceRoleForEC2Spot")),
        (FAILED, KEY.replace(":aws:", ":aws-cn:"), True, ("arn:aws-cn:iam::123456789012:role",)),
        (FAILED, KEY.replace("123456789012", "210987654321"), True, ("iam::123456789012:role",)),
        (FAILED, "alias/aws/ebs", False, ("AWS's own key", "if ami= is")),
        (STATE, KEY, False, ("is disabled or about to be deleted", f"enable-key --key-id {KEY}")),
    ],
)
def test_the_key_is_named(api, renter, reason, key, spot, words):
    api.ends_at_once(*reason)
    api.disk_key(key)
    made = renter(nodes=1)
    made.entry.note(account="123456789012")
    with pytest.raises(LaunchError) as caught:
        made.launch(offer(spot=spot))
    assert all(each in caught.value.message for each in words), caught.value.message
    assert ("create-grant" in caught.value.message) is spot
    assert "Other ways" not in caught.value.message
    assert len([call for call in api.calls if call.action == "RunInstances"]) == 1
    assert not made.end()
    assert api.left() == {}


@pytest.mark.parametrize("reason", [FAILED, STATE])
def test_who_may_not_ask_for_the_key_is_told_the_command(api, renter, reason):
    api.ends_at_once(*reason)
    api.fail("GetEbsDefaultKmsKeyId", "UnauthorizedOperation")
    made = renter(nodes=1)
    with pytest.raises(LaunchError, match="aws ec2 get-ebs-default-kms-key-id"):
        made.launch(offer())
    assert not made.end()
