"""What boto3 reads before a call: the models of services, some MB of JSON, which a process need read once only."""

from __future__ import annotations

from skyward_nb.providers.aws.client import AWSClient

SERVICES = ("ec2", "pricing", "scheduler", "service-quotas", "ssm", "sts")


def read() -> None:
    """Read the models of the services that are called, for processes that are forked from this one."""
    cloud = AWSClient()
    for each in SERVICES:
        cloud._client(each, "us-east-1", once=False)
