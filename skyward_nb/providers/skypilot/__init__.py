"""Machines that SkyPilot rents: by its program `sky`, then SSH as to any host.

SkyPilot is never imported, and never installed beside this package: it has pins of its own. A record is written
before a cluster is asked for, and `sky down` follows always, verified by `sky status`. What its job runs on each
machine is a keeper, so that its autostop takes the machines down after the agents' end.
"""
