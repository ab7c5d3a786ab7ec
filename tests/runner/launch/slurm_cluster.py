"""A Slurm of its own for a test: munged, slurmctld and several slurmd on this machine, on free ports, in one folder.

It needs Debian's slurmctld, slurmd, munge and slurm-client, and root. Nodes are processes: `slurmd -N node1` has a port
of its own. All of it ends with the block.
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.patience import PATIENCE_S, until

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "scancel", "srun", "sinfo", "scontrol")

NODE = "SYMLAB_TEST_NODE"
"""Variable of a slurmd and of its step daemons, which have none of Slurm's."""

CONFIGURATION = """\
ClusterName=symlab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_min_interval=100000,batch_sched_delay=0,sched_interval=1,bf_interval=1
SlurmdTimeout=300
SlurmctldTimeout=300
BatchStartTimeout=120
MessageTimeout=60
UnkillableStepTimeout=300
InactiveLimit=0
KillWait=2
MinJobAge=300
ReturnToService=2
MpiDefault=none
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
"""No daemon of a busy machine is slow enough for one of these times, so that no node and no step fails by itself.
Jobs that Slurm starts again need not wait for its credentials' end."""

STARTS = 3
"""Number of times that a Slurm is started: another process may take a port before its daemon does."""


def why_not():
    """Return why a Slurm can't be started here; "" if it can."""
    if missing := [name for name in PROGRAMS if _program(name) is None]:
        return f"{', '.join(missing)} missing: apt-get install slurmctld slurmd munge slurm-client"
    return "" if os.geteuid() == 0 else "slurmd needs root"


@dataclass(slots=True)
class Cluster:
    """A running Slurm. environment has the variable by which its programs find it; daemons are those of no node."""

    folder: Path
    environment: dict[str, str]
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def said(self, *command):
        """Return what one of Slurm's programs says."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
        return done.stdout.strip()

    def queue(self, with_completing=False):
        """Return the jobs that wait or run, as "12_0 RUNNING node1"; with_completing: also those that end just now."""
        found = []

        def has_answered():
            try:
                found[:] = self.said("squeue", "--noheader", "--array", "--format=%i %T %N").splitlines()
            except subprocess.SubprocessError:
                return False
            return True

        until(has_answered, "an answer of squeue")
        return [line.strip() for line in found if with_completing or "COMPLETING" not in line]

    def start_requeued(self):
        """Let jobs that were requeued start at once: Slurm makes them wait until credentials of their first start have
        expired, which is minutes."""
        until(lambda: not any("COMPLETING" in line for line in self.queue(with_completing=True)), "the jobs' end")
        for line in self.queue():
            job, state, *_ = line.split()
            if state == "PENDING":
                self.said("scontrol", "update", f"JobId={job}", "StartTime=now")

    def start_node(self, name):
        """Start a node's slurmd."""
        program = _program("slurmd")
        self._nodes[name] = subprocess.Popen(
            [program, "-D", "-N", name],
            env={**self.environment, NODE: name},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def kill_node(self, name):
        """Kill a node: its slurmd and all that it runs."""
        slurmd = self._nodes.pop(name)
        slurmd.kill()
        slurmd.wait()
        deadline_s = time.monotonic() + PATIENCE_S
        while processes := self.processes_of(name):  # also those that others started meanwhile
            for process in processes:
                with contextlib.suppress(OSError):
                    os.kill(process, signal.SIGKILL)
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"processes of {name} can't be killed: {processes}")
            time.sleep(0.05)

    def processes_of(self, node):
        """Return the processes that a node's slurmd started: its step daemons, by the variable that they have from it,
        and theirs, by the one that Slurm gives them."""
        mine = f"SLURM_CONF={self.environment['SLURM_CONF']}".encode()
        names = {f"{variable}={node}".encode() for variable in (NODE, "SLURMD_NODENAME")}
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = set(path.joinpath("environ").read_bytes().split(b"\0"))
                if mine in words and words & names:
                    found.append(int(path.name))
        return found

    def wait_until_idle(self):
        """Wait until all nodes are there and no job is left on them. RuntimeError, with Slurm's log, if that fails, or
        if a daemon has ended."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s and all(
            one.poll() is None for one in (*self.daemons, *self._nodes.values())
        ):
            with contextlib.suppress(subprocess.SubprocessError):
                states = self.said("sinfo", "--noheader", "--Node", "--format=%T").split()
                if states == ["idle"] * len(self._nodes):
                    return
            time.sleep(0.3)
        logs = [path.read_text(errors="replace")[-1500:] for path in sorted(self.folder.glob("*.log"))]
        raise RuntimeError("Slurm did not start:\n" + "\n".join(logs))

    def end(self):
        """End all nodes."""
        for name in list(self._nodes):
            self.kill_node(name)


def gpu_files(count, folder=Path("/dev")):
    """Return the devices of the first GPUs of this machine: of a container's GPUs the numbers need not begin with 0."""
    found = [path for path in folder.glob("nvidia[0-9]*") if path.name.removeprefix("nvidia").isdigit()]
    return [str(path) for path in sorted(found, key=lambda path: int(path.name.removeprefix("nvidia")))[:count]]


@contextlib.contextmanager
def cluster(folder, nodes=2, cores=2, gpus=0):
    """Within, there is a Slurm with nodes of some cores each. RuntimeError, with its log, if it does not start.

    With gpus, the first node has that many GPUs of this machine, and the others have none.
    """
    for start in range(1, STARTS + 1):
        with contextlib.ExitStack() as stack:
            try:
                made = _started(stack, folder / str(start), nodes, cores, gpus)
            except RuntimeError:
                if start == STARTS:
                    raise
                continue
            yield made
            return


def _started(stack, folder, nodes, cores, gpus):
    """A Slurm whose nodes are all there. It ends with the stack."""
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    (folder / "state").mkdir()
    ports = _free_ports(nodes + 1)
    host = socket.gethostname().partition(".")[0]
    names = [f"node{number + 1}" for number in range(nodes)]
    lines = [
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cores} State=UNKNOWN"
        for name, port in zip(names, ports[1:], strict=True)
    ]
    if gpus:
        lines[0] = f"GresTypes=gpu\n{lines[0]} Gres=gpu:{gpus}"
        files = ",".join(gpu_files(gpus))
        (folder / "gres.conf").write_text(f"NodeName={names[0]} Name=gpu File={files}\n", encoding="utf-8")
    text = CONFIGURATION.format(host=host, controller=ports[0], folder=folder, nodes="\n".join(lines))
    (folder / "slurm.conf").write_text(text, encoding="utf-8")
    # Of cgroups nothing is used; without this, slurmd does not start where they are version 2 and there is no systemd.
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n", encoding="utf-8")
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    environment["PATH"] = f"{environment.get('PATH', '')}:/usr/sbin"
    made = Cluster(folder, environment)
    munged = _munged(folder)
    stack.callback(_end_daemon, munged)
    until(lambda: (folder / "munge.socket").exists() or munged.poll() is not None, "the start of munged")
    controller = _program("slurmctld")
    daemon = subprocess.Popen(
        [controller, "-D", "-i"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    stack.callback(_end_daemon, daemon)
    stack.callback(made.end)
    made.daemons += [munged, daemon]
    for name in names:
        made.start_node(name)
    made.wait_until_idle()
    return made


def _munged(folder):
    """A munge daemon with a key of its own."""
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    program = _program("munged")
    names = ("key", "socket", "pid", "seed", "log")
    options = [f"--{option}-file={folder / f'munge.{option}'}" for option in names if option != "socket"]
    return subprocess.Popen(
        [program, "--foreground", "--force", f"--socket={folder / 'munge.socket'}", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _end_daemon(process):
    process.terminate()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _program(name):
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def _free_ports(count):
    """Ports that nothing has now, outside the range from which Linux gives connections theirs.

    The search begins at a random one, so that two processes that look at the same time find different ones.
    """
    first_given, last_given = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    all_ports = range(10_000, 1 << 16)
    ports = [port for port in all_ports if not first_given <= port <= last_given] or list(all_ports)
    begin = secrets.randbelow(len(ports))
    found = []
    for port in (*ports[begin:], *ports[:begin]):
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("", port))
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError(f"{count} ports are not free")
