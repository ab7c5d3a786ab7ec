"""Keeps the libraries of a world of one machine on its loopback interface, where no other machine reaches them.

gloo, NCCL and NVSHMEM meet through sockets of their own, and each listens on the network's interface unless an
environment variable names another. They read it when they start, so it is set before.
"""

from __future__ import annotations

from collections.abc import MutableMapping

LOOPBACK = "lo"
"""Linux' name of the interface."""

ADDRESSES = ("NCCL_COMM_ID", "NVSHMEM_BOOTSTRAP_UID_SESSION_ID")
"""Variables that name an address to listen at, and so count more than an interface's name."""


def keep_on_loopback(environment: MutableMapping[str, str]) -> None:
    """Change the environment of a rank's process so that its libraries listen on loopback only, whatever it said."""
    environment["GLOO_SOCKET_IFNAME"] = LOOPBACK
    environment["NCCL_SOCKET_IFNAME"] = f"={LOOPBACK}"  # the name itself, not a prefix
    environment["NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME"] = LOOPBACK
    for name in ADDRESSES:
        environment.pop(name, None)
