"""The launcher that may have started this process as one of many: torchrun, or srun with one task a GPU.

torchrun is known by RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and LOCAL_RANK: one of them alone is taken for a stray
variable. srun is known by a step that has several tasks: SLURM_STEP_ID, SLURM_PROCID, SLURM_LOCALID, and
SLURM_STEP_NUM_TASKS (SLURM_NTASKS where Slurm does not say it) above 1; a batch script or the shell of an allocation
has no step of its own, or one whose number marks it as no srun's. A launcher that started one process is none: there is
no world to join.

A world all of whose ranks are on one machine meets on its loopback interface. All messages are signed: with SYMLAB_KEY
where the launcher's environment has it, else with a key that this user has in a file.
"""

from __future__ import annotations

import errno
import hashlib
import ipaddress
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from memory.fabric import FabricError
from runner.request_error import RequestError

if TYPE_CHECKING:
    from memory.meeting import Store

TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")
SLURM = ("SLURM_STEP_ID", "SLURM_PROCID", "SLURM_LOCALID")

KEY = "SYMLAB_KEY"
"""The variable with the key of a world's messages. All ranks need the same, and no other user may know it."""

MIN_KEY = 32
"""Characters: 128 bits in hexadecimal."""

LOOPBACK = "127.0.0.1"

LOOPBACK_NAMES = (LOOPBACK, "localhost", "::1")
"""MASTER_ADDR is one of these only if all ranks are on one machine: the others would not find rank 0."""

SPECIAL_STEPS = 0xFFFFFFF0
"""From here on the numbers of steps are Slurm's own: the batch script, an interactive shell."""

FIRST_PORT, PORTS = 10000, 20000
"""Where the port lies that a Slurm job's number gives: below those that systems hand out."""

MAX_PORT = 65535

CONNECT_S = 120.0
"""How long a rank waits for the store: rank 0 looks at the whole command before it serves it."""


@dataclass(frozen=True, slots=True)
class Outer:
    """A world that was found. local_rank tells the ranks of one machine apart; address and port are the store's.

    served: a launcher's own process serves the store; else rank 0 does. attempt tells restarts apart. is_local: all
    ranks are on this machine. key signs all messages; b"": the launcher's environment has none, and user_key does.
    """

    launcher: str
    rank: int
    world_size: int
    local_rank: int
    address: str
    port: int
    served: bool = False
    attempt: str = "0"
    is_local: bool = False
    key: bytes = field(default=b"", repr=False)

    def serve(self) -> object:
        """Begin to serve the store of this world, until the object that is returned is gone.

        For rank 0, once, if no process of the launcher does. It listens on one address where that is possible. Raises
        FabricError if it can't.
        """
        from memory.meeting import tcp_store

        try:
            listener, address = _listener(LOOPBACK if self.is_local else self.address, self.port)
        except OSError as error:
            raise FabricError(
                f"rank 0 can't listen for the other ranks at {self.address} port {self.port}: {error.strerror} "
                "(MASTER_ADDR, MASTER_PORT), give an address of its machine and a free port"
            ) from error
        return tcp_store(address, self.port, CONNECT_S, listener)

    def connect(self) -> Store:
        """A new connection to the store of this world, which waits until it is served. FabricError without a key."""
        from memory.sealed_store import SealedStore, user_key

        return SealedStore(self.connect_unsigned(), self.key or user_key())

    def connect_unsigned(self) -> Store:
        """The same as a store of torch's own: torch's process group takes no other."""
        from torch.distributed import PrefixStore  # type: ignore[attr-defined]

        from memory.meeting import tcp_store

        address = LOOPBACK if self.is_local and not self.served else self.address
        store: Any = tcp_store(address, self.port, CONNECT_S)
        prefixed: Any = PrefixStore(f"symlab/{self.attempt}", store)
        return cast("Store", prefixed)


def find(environment: Mapping[str, str]) -> Outer | None:
    """The world that this process was started for, if it was. RequestError for variables that make no sense."""
    found = _torchrun(environment) or _srun(environment)
    if found is None:
        return None
    if not 0 <= found.rank < found.world_size:
        raise RequestError(
            f"{found.launcher} says rank {found.rank} of {found.world_size}, unset its variables or correct them"
        )
    if not 1 <= found.port <= MAX_PORT:
        raise RequestError(f"the launcher's MASTER_PORT is {found.port} (MASTER_PORT), it should be 1 to {MAX_PORT}")
    return found if found.world_size > 1 else None


def _torchrun(environment: Mapping[str, str]) -> Outer | None:
    if not all(environment.get(name) for name in TORCHRUN):
        return None
    return Outer(
        "torchrun",
        _number(environment, "RANK"),
        _number(environment, "WORLD_SIZE"),
        _number(environment, "LOCAL_RANK"),
        environment["MASTER_ADDR"],
        _number(environment, "MASTER_PORT"),
        environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        environment.get("TORCHELASTIC_RESTART_COUNT", "0"),
        is_local=environment.get("LOCAL_WORLD_SIZE") == environment["WORLD_SIZE"]
        or environment["MASTER_ADDR"] in LOOPBACK_NAMES,
        key=_key(environment),
    )


def _srun(environment: Mapping[str, str]) -> Outer | None:
    if not all(environment.get(name) for name in SLURM):
        return None
    tasks = "SLURM_STEP_NUM_TASKS" if environment.get("SLURM_STEP_NUM_TASKS") else "SLURM_NTASKS"
    step = _number(environment, "SLURM_STEP_ID")
    if step >= SPECIAL_STEPS or not environment.get(tasks):
        return None
    if environment.get("MASTER_PORT"):
        port = _number(environment, "MASTER_PORT")
    else:
        port = FIRST_PORT + (_number(environment, "SLURM_JOB_ID") * 31 + step) % PORTS
    return Outer(
        "srun",
        _number(environment, "SLURM_PROCID"),
        _number(environment, tasks),
        _number(environment, "SLURM_LOCALID"),
        _slurm_address(environment),
        port,
        attempt=f"{step}.{environment.get('SLURM_RESTART_COUNT', '0')}",
        is_local=environment.get("SLURM_STEP_NUM_NODES") == "1" or environment.get("MASTER_ADDR", "") in LOOPBACK_NAMES,
        key=_key(environment),
    )


def _slurm_address(environment: Mapping[str, str]) -> str:
    """Where rank 0 is: as told, else the step's first node; srun itself may run on another, so its address is last."""
    if environment.get("MASTER_ADDR"):
        return environment["MASTER_ADDR"]
    if environment.get("SLURM_STEP_NUM_NODES") == "1":
        return LOOPBACK
    nodes = environment.get("SLURM_STEP_NODELIST", "")
    address = first_node(nodes) or environment.get("SLURM_LAUNCH_NODE_IPADDR", "")
    if not address:
        raise RequestError("srun does not say where rank 0 is (MASTER_ADDR), set it to the first node's name")
    return address


def first_node(nodes: str) -> str:
    """The first name in Slurm's list of nodes: "gpu[03-05,9]-x,login" is "gpu03-x"."""
    match = re.match(r"([^\[,]*)(?:\[(\w+)[^\]]*\])?([^\[,]*)", nodes)
    assert match is not None
    return "".join(part or "" for part in match.groups())


def _key(environment: Mapping[str, str]) -> bytes:
    """The key of a world's messages; b"" if the environment has none. RequestError for one that is easily guessed."""
    text = environment.get(KEY, "")
    if text and len(text) < MIN_KEY:
        raise RequestError(
            f"{KEY} has {len(text)} characters ({KEY}), give it {MIN_KEY} random ones or more, as openssl rand -hex 32 "
            "prints them"
        )
    return hashlib.sha256(text.encode()).digest() if text else b""


def _listener(address: str, port: int) -> tuple[socket.socket, str]:
    """A socket that listens at one address of this machine, and the address.

    Where a name means this machine's loopback here and something else elsewhere, or an address that this machine does
    not have (behind a translation of addresses), the socket listens at all of them. OSError if the port is taken.
    """
    for family, _, _, _, place in socket.getaddrinfo(address, port, type=socket.SOCK_STREAM):
        found = str(place[0])
        if ipaddress.ip_address(found.partition("%")[0]).is_loopback and address not in (LOOPBACK, found):
            continue
        try:
            return socket.create_server((found, port), family=family, backlog=socket.SOMAXCONN), found
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
    both = socket.has_dualstack_ipv6()
    everywhere = socket.create_server(
        ("", port),
        family=socket.AF_INET6 if both else socket.AF_INET,
        backlog=socket.SOMAXCONN,
        dualstack_ipv6=both,
    )
    return everywhere, LOOPBACK


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    if not text.isdecimal():
        raise RequestError(f"the launcher's {name} is '{text}' ({name}), it should be a number")
    return int(text)
