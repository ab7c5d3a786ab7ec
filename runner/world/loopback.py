"""Keeps the libraries of a world of one machine on its loopback interface, where no other machine reaches them.

gloo, NCCL and NVSHMEM meet through sockets of their own, and each listens on the network's interface unless an
environment variable names another. They read it when they start, so it is set before.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path

NETWORK = Path("/sys/class/net")
LOOPBACK_TYPE = "772"
"""What Linux calls a loopback interface's hardware (ARPHRD_LOOPBACK)."""

ADDRESSES = ("NCCL_COMM_ID", "NVSHMEM_BOOTSTRAP_UID_SESSION_ID")
"""Variables that name an address to listen at, and so count more than an interface's name."""


def loopback_interface(network: Path = NETWORK) -> str:
    """Return the name of this machine's loopback interface: "lo", unless the kernel says otherwise."""
    for path in sorted(network.glob("*/type")):
        try:
            if path.read_text(encoding="ascii").strip() == LOOPBACK_TYPE:
                return path.parent.name
        except (OSError, UnicodeDecodeError):
            continue
    return "lo"


def keep_on_loopback(environment: MutableMapping[str, str], interface: str | None = None) -> None:
    """Change the environment of a rank's process so that its libraries listen on loopback only, whatever it said."""
    interface = interface or loopback_interface()
    environment["GLOO_SOCKET_IFNAME"] = interface
    environment["NCCL_SOCKET_IFNAME"] = f"={interface}"  # the name itself, not a prefix
    environment["NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME"] = interface
    for name in ADDRESSES:
        environment.pop(name, None)
