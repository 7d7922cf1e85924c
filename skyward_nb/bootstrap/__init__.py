"""Preparation of a host: its facts, a Python environment, our package.

One round trip asks for the facts. An environment's folder is named by the digest of everything it is made
of: Python, platform, packages, index. `uv` makes it elsewhere under a lock and renames it, so it exists
whole or not at all. Packages get this machine's versions if it has them; other versions are noted here, so
that later hosts get the same. The package itself is sent under its own digest. Scripts and their secrets
are read from stdin.

No environment is half made. No index password is in an argv or in a file of a node.
"""
