"""Why the key of an account's disks keeps machines from starting, in words: which key, and what it lacks.

Disks are encrypted with the key that the account has set for the region, or with AWS's own. Sources:
https://docs.aws.amazon.com/ebs/latest/userguide/ebs-encryption-requirements.html,
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/service-linked-roles-spot-instance-requests.html.
"""

from __future__ import annotations

from skyward_nb.providers.aws.api_errors import CLIENT_FAILED, WRONG_KEY, AWSError, spell_fault
from skyward_nb.providers.aws.client import AWSClient
from skyward_nb.words.offers import Offer

OF_KEYS = frozenset({CLIENT_FAILED, WRONG_KEY})
"""The ends of machines, and refusals, that are about keys of disks."""
_OWN = "alias/aws/ebs"
"""The key that AWS makes in each region, which every user of the account may use."""
_NEEDED = "kms:CreateGrant, kms:Decrypt, kms:DescribeKey, kms:GenerateDataKeyWithoutPlaintext and kms:ReEncrypt*"
_OPERATIONS = "Decrypt Encrypt GenerateDataKey GenerateDataKeyWithoutPlaintext CreateGrant DescribeKey ReEncryptFrom ReEncryptTo"


async def why(cloud: AWSClient, offer: Offer, account: str, fault: AWSError) -> str:
    """What EC2 said, with the key of the region's disks, and what to do about it."""
    try:
        said = await cloud.ask("GetEbsDefaultKmsKeyId", offer.region)
    except AWSError:  # without the permission, the command that names the key is shown
        return spell_fault(fault)
    key = str(said.get("KmsKeyId") or _OWN)
    told = f"{fault.message.rstrip('.')} ({fault.code})"
    if key.endswith(_OWN):
        return (
            f"{told}. Disks of {offer.region} are encrypted with AWS's own key ({_OWN}), which all may use: if ami= is "
            "yours, its snapshots may have another key, which these credentials must be allowed to use, too"
        )
    if fault.code == WRONG_KEY:
        return (
            f"{told}. The KMS key {key} encrypts the disks of {offer.region}, and is disabled or about to be deleted: "
            f"`aws kms describe-key --key-id {key} --region {offer.region} --query KeyMetadata.KeyState` tells; "
            f"`aws kms enable-key --key-id {key} --region {offer.region}`, or `aws kms cancel-key-deletion` first"
        )
    words = (
        f"{told}. The KMS key {key} encrypts the disks of {offer.region}, and its policy must let these credentials, "
        f"and EC2 for them, do {_NEEDED}"
    )
    if not offer.spot:
        return words
    partition = "aws"
    if key.startswith("arn:"):
        partition = key.split(":")[1]  # the key may be another account's, the role is the renter's
    role = f"arn:{partition}:iam::{account}:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
    return (
        f"{words}. Spot machines also take a grant: `aws kms create-grant --region {offer.region} --key-id {key} "
        f"--grantee-principal {role} --operations {_OPERATIONS}`"
    )
