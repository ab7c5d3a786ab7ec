"""Inside torchrun or srun: who is found, and two processes that make one world, of which rank 0 alone writes."""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernels.sources import ROOT
from memory.fabric import FabricError
from memory.sealed_store import user_key
from runner.__main__ import main
from runner.request_error import RequestError
from runner.world import launched, launcher
from runner.world.launcher import Outer, find, first_node
from tests.golden import refused, same_text
from tests.patience import NEVER_S, PATIENCE_S, until
from tests.processes import ran
from tests.runner.conftest import record_files
from tests.runner.rank_programs import listening_addresses

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "gpu01", "MASTER_PORT": "29500"}
SRUN = {
    "SLURM_JOB_ID": "1000",
    "SLURM_STEP_ID": "2",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1",
}


def test_a_world_of_one_machine_is_known():
    assert found(TORCHRUN, LOCAL_WORLD_SIZE="8").is_local
    assert not found(TORCHRUN, LOCAL_WORLD_SIZE="4").is_local
    assert not found(TORCHRUN).is_local, "a launcher that does not say"
    assert found(TORCHRUN, MASTER_ADDR="localhost").is_local
    assert found(SRUN, MASTER_ADDR="127.0.0.1").is_local
    assert found(SRUN, SLURM_STEP_NUM_NODES="1").is_local
    assert not found(SRUN).is_local


@pytest.mark.parametrize("launcher", [TORCHRUN, SRUN], ids=["torchrun", "srun"])
def test_the_key_is_taken_from_the_environment_and_not_shown(launcher):
    text = "0123456789abcdef" * 2
    with_key = found(launcher, SYMLAB_KEY=text)
    assert with_key.key != found(launcher, SYMLAB_KEY=text[::-1]).key
    assert len(with_key.key) == 32
    assert "key" not in repr(with_key)
    with refused(RequestError):
        find({**launcher, "SYMLAB_KEY": text[1:]})
    assert found(launcher).key == b""


def test_the_key_of_a_user_is_made_once_and_theirs_alone(tmp_path):
    place = tmp_path / "home" / "world.key"
    with ThreadPoolExecutor(8) as pool:
        (key,) = set(pool.map(user_key, [place] * 8))
    assert len(key) == 32
    assert (place.stat().st_mode & 0o777, [*place.parent.iterdir()]) == (0o600, [place])
    place.chmod(0o640)
    with refused(FabricError):
        user_key(place)
    place.write_bytes(b"")
    place.chmod(0o600)
    with refused(FabricError):
        user_key(place)
    (tmp_path / "file").touch()
    with refused(FabricError):
        user_key(tmp_path / "file" / "world.key")


def test_a_rank_without_the_key_says_so(monkeypatch, capsys, tmp_path):
    (tmp_path / ".cache").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(Outer, "connect_unsigned", lambda outer: None)
    with ThreadPoolExecutor(1) as pool:  # signals are handled by the main thread
        assert pool.submit(launched.follow, Outer("torchrun", 1, 2, 1, "127.0.0.1", 29500)).result() == 1
    assert "rank 1" in capsys.readouterr().err


def test_a_pickle_of_what_is_not_here_is_a_failure():
    odd = base64.b64encode(b"cno_such_module\nthing\n.")
    outer, sent = Outer("torchrun", 1, 2, 1, "127.0.0.1", 29500), {}
    store = SimpleNamespace(get=lambda key: odd, set=sent.__setitem__, check=lambda keys: False)
    assert launched._Follower(outer, store)._carry_out(1) is None
    kind, *_ = launched._received(sent["answer/1/1"])
    assert kind == launched.JoinedWorld(outer, store)._received("answer/1/0")[0] == "failure"


def listens_at(outer):
    """Where this process listens at the world's port while rank 0 serves its store."""
    server = outer.serve()
    outer.connect().set("served", "")
    found = {place for place in listening_addresses("self") if place.endswith(f":{outer.port:04X}")}
    del server
    return {place.partition(":")[0] for place in found}


@pytest.mark.parametrize("address", ["gpu01.invalid", "127.0.0.1", "localhost"])
def test_rank_0_of_a_world_of_one_machine_serves_on_loopback_alone(address, free_port):
    assert listens_at(Outer("torchrun", 0, 2, 0, address, free_port, is_local=True)) == {"0100007F"}


def test_rank_0_of_a_larger_world_serves_at_the_address_that_it_has(free_port, monkeypatch):
    assert listens_at(Outer("torchrun", 0, 2, 0, "127.0.0.1", free_port)) == {"0100007F"}

    def resolved(found):
        place = (socket.AF_INET, socket.SOCK_STREAM, 6, "", (found, free_port))
        monkeypatch.setattr(launcher.socket, "getaddrinfo", lambda *given, **named: [place])

    # A name that /etc/hosts maps to loopback means another address on the other machines: all interfaces, as ever.
    resolved("127.0.1.1")
    listener, address = launcher._listener("gpu01", free_port)
    with listener:
        assert (listener.getsockname()[0], address) == ("::" if socket.has_dualstack_ipv6() else "0.0.0.0", "127.0.0.1")
    resolved("192.0.2.1")  # for documentation: no machine has it
    listener, address = launcher._listener("gpu01", free_port)
    with listener:
        assert address == "127.0.0.1"
    resolved("127.0.0.2")
    listener, address = launcher._listener("127.0.0.2", free_port)
    with listener:
        assert (listener.getsockname()[0], address) == ("127.0.0.2", "127.0.0.2")


def test_a_port_that_is_taken_and_a_name_that_is_unknown_are_one_line(free_port):
    with socket.create_server(("127.0.0.1", free_port)), refused(FabricError, r"(?<=port )\d+|\(while [^)]*\)\)?"):
        Outer("torchrun", 0, 2, 0, "127.0.0.1", free_port).serve()
    with pytest.raises(FabricError, match="at gpu01.invalid port"):
        Outer("torchrun", 0, 2, 0, "gpu01.invalid", free_port).serve()


@pytest.fixture
def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        return port


def test_srun_is_found():
    assert find(SRUN) == Outer("srun", 5, 8, 1, "gpu07", 10000 + (31000 + 2) % 20000, attempt="2.0")
    told = find({**SRUN, "MASTER_ADDR": "there", "MASTER_PORT": "1234"})
    assert told == Outer("srun", 5, 8, 1, "there", 1234, attempt="2.0")
    assert found(SRUN, SLURM_STEP_NUM_NODES="1").address == "127.0.0.1"
    without_list = {name: value for name, value in SRUN.items() if name != "SLURM_STEP_NODELIST"}
    assert found(without_list).address == "10.0.0.1"


@pytest.mark.parametrize(
    "change",
    [
        {"SLURM_STEP_ID": ""},
        {"SLURM_STEP_ID": "4294967291"},  # the batch script's
        {"SLURM_STEP_ID": "4294967290"},  # an interactive shell's
        {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},
        {"SLURM_STEP_NUM_TASKS": ""},
    ],
)
def test_an_allocation_alone_is_no_world(change):
    assert find({**SRUN, **change}) is None


@pytest.mark.parametrize(
    "change", [{"RANK": "x"}, {"RANK": "8"}, {"MASTER_PORT": "99999"}, {"MASTER_PORT": "0"}], ids=str
)
def test_variables_that_make_no_sense(change):
    with refused(RequestError):
        find({**TORCHRUN, **change})


def test_a_wrong_request_is_said_before_the_others_have_heard_of_it(monkeypatch, capsys):
    for name, value in {**TORCHRUN, "RANK": "0", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    said = []
    monkeypatch.setattr(launched.Leader, "end", lambda self, code: said.append((code, capsys.readouterr().err)))
    assert main(["dtype=bf16"]) == 2
    ((code, error),) = said
    assert code == 2
    same_text(error)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("gpu01", "gpu01"), ("gpu01,gpu02", "gpu01"), ("gpu[03-05,9]-x,b", "gpu03-x"), ("a[7,9]", "a7"), ("", "")],
)
def test_the_first_node_of_a_list(nodes, first):
    assert first_node(nodes) == first


SCRIPT = """
    import functools, hashlib, os, sys
    from pathlib import Path

    import runner.command.plan, runner.world.fabrics, runner.world.launched
    from memory.fabric import Executable
    from runner.__main__ import main
    from runner.command.means import Means
    from runner.command.running import Tools
    from tests.patience import Clock
    from tests.runner import rank_programs
    from tests.runner.conftest import GOOD, PTX

    folder, fault, *arguments = sys.argv[1:]
    machine = runner.world.fabrics.HostOffer(2, "", True)
    runner.command.plan.look = lambda: machine
    runner.world.fabrics.NvshmemOpener = lambda heap_bytes, joined, share_gpus: rank_programs.FileOpener(folder)
    told = os.path.join(folder, "told")
    runner.world.launched.time = clock = Clock()
    if os.environ["RANK"] == "1":
        clock.skip_when(lambda: os.path.exists(told))

    def ran(world, contestant, request):
        if request.fabric.name == "simulator":
            world.run(rank_programs.nothing, None, 600.0)
            return GOOD
        bad = fault and contestant.case.size_bytes == 16
        if fault == "wait":
            world.run(rank_programs.wait_in_a_barrier, folder, None)
        world.run(rank_programs.ring, rank_programs.Fault(fault, told=told) if bad else None, request.deadline_s)
        return GOOD

    def compiled(spec, case, arch, cache_dir):
        return Executable(spec.name, "kernel", arch, PTX, f"sha256:{hashlib.sha256(PTX.encode()).hexdigest()}")

    means = Means(lambda spec, collective, case, traits: None, compiled, ran)
    code = main([*arguments, "algorithms=[one_shot]", "track=none"], Tools(means=means))
    sys.stdout.flush()
    os._exit(code)  # as runner.__main__.command() does: a rank's thread may be in the middle of something
"""


class Launched:
    """The same command line as two ranks, as torchrun starts them; rank 0 serves the store.

    later: variables of rank 1 alone, environment: of both.
    """

    def __init__(self, folder, fault, *arguments, later=None, **environment):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder = folder
        line = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(folder), fault, *arguments]
        own = {"PYTHONPATH": str(ROOT), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "HOME": str(folder.parent)}
        common = {**os.environ, **own, **environment}
        self.ranks = [
            subprocess.Popen(
                line,
                cwd=folder,
                env={**common, "MASTER_PORT": str(self.port), "RANK": str(rank), "LOCAL_RANK": str(rank), **own},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank, own in enumerate(({}, later or {}))
        ]

    def end(self):
        """Exit codes, outputs and errors, by rank."""
        try:
            ended = [rank.communicate(timeout=PATIENCE_S) for rank in self.ranks]
        finally:
            for rank in self.ranks:
                rank.kill()
        return [rank.returncode for rank in self.ranks], [out for out, _ in ended], [err for _, err in ended]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "codes"), [(signal.SIGTERM, [143, 143]), (signal.SIGKILL, [-9, 1])])
def test_a_signal_to_rank_0_ends_both(tmp_path, number, codes):
    launched = Launched(tmp_path, "wait", "fabric=nvshmem", "baselines=none", "sizes=[8]")
    until(lambda: (tmp_path / "sleeping-1").exists())
    launched.ranks[0].send_signal(number)
    found, outs, _ = launched.end()
    assert found == codes
    assert number == signal.SIGKILL or "1 case: 1 not run" in outs[0]
    assert outs[1] == ""


def records(folder):
    """Status and reason of all records, in their order."""
    found = [json.loads(path.read_text()) for path in record_files(folder)]
    return [(one["status"], one["reason"]) for one in sorted(found, key=lambda one: str(one["started"]))]


@pytest.mark.slow
def test_a_failure_ends_both_ranks_and_says_why_the_rest_was_not_run(tmp_path):
    launched = Launched(
        tmp_path, "spin", "fabric=nvshmem", "baselines=none", "sizes=[8,16,32,64]", f"deadline_s={NEVER_S}"
    )
    codes, outs, errors = launched.end()
    assert codes == [1, 1], outs[0] + errors[0] + errors[1]
    assert outs[1] == ""
    found = records(tmp_path)
    assert [status for status, _ in found] == ["PASSED", "TIMEOUT", "FAILED", "FAILED"]
    assert found[1][1].startswith(f"rank 1: still running after {NEVER_S:.1f} s, at tests/runner/rank_programs.py:")
    assert found[2][1] == found[3][1]
    assert found[2][1].startswith("not run: the world that torchrun started was hurt before (rank 1: still running")
    assert "4 cases: 1 passed, 1 timeout, 2 failed" in outs[0]


@pytest.mark.slow
def test_another_world_size_is_refused_by_rank_0_for_all(tmp_path):
    codes, outs, errors = Launched(tmp_path, "", "fabric=nvshmem", "baselines=none", "world_size=4").end()
    assert codes == [2, 2]
    assert outs == ["", ""]
    assert errors[0] == "symlab: error: world_size is 4, but torchrun started 2 ranks (world_size), give 2\n"
    assert errors[1] == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_simulator_needs_rank_0_alone(tmp_path):
    codes, outs, _ = Launched(tmp_path, "", "fabric=simulator", "world_size=3", "sizes=[8]").end()
    assert codes == [0, 0]
    assert outs[1] == ""
    assert "1 case: 1 passed" in outs[0]


@pytest.mark.slow
def test_under_torchrun_itself(tmp_path):
    script = tmp_path / "ranks.py"
    script.write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    given = [str(script), str(tmp_path), "", "fabric=auto", "baselines=none", "sizes=[8,16]"]
    run = ran(*launcher, *given, cwd=tmp_path, env={"HOME": str(tmp_path / "home")})
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("2 cases: 2 passed") == 1
    assert "fabric: nvshmem (2 GPUs and the gpu extra found; torchrun started 2 ranks)" in run.stdout
    assert records(tmp_path) == [("PASSED", "")] * 2


class Told:
    """A store that holds what rank 0 has set; asked: for what a follower looked, in order."""

    def __init__(self, **held):
        self.held, self.asked = held, list[str]()

    def check(self, keys):
        self.asked += keys
        assert len(self.asked) < 100, "the follower never looks for the end"
        return all(key in self.held for key in keys)

    def get(self, key):
        return self.held[key]


@pytest.mark.parametrize("code", [0, 1, 130])
def test_a_rank_without_an_order_ends_with_rank_0s_exit_code(code, monkeypatch):
    monkeypatch.setattr(launched, "_RankThread", lambda *given: None)
    monkeypatch.setattr(launched.time, "sleep", lambda seconds: None)
    store = Told(**{launched.END: str(code)})
    outer = find({**TORCHRUN, "SYMLAB_KEY": "0123456789abcdef" * 2})
    follower = launched._Follower(outer, cast(Any, store))
    assert follower.follow() == code
    assert store.asked[0] == "order/1", "an order that is there comes before the end"


def test_torchrun_is_found_and_nothing_else_for_it():
    assert find(TORCHRUN) == Outer("torchrun", 5, 8, 1, "gpu01", 29500)
    agent = {**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "2"}
    assert find(agent) == Outer("torchrun", 5, 8, 1, "gpu01", 29500, served=True, attempt="2")
    for missing in TORCHRUN:
        assert find({name: value for name, value in TORCHRUN.items() if name != missing}) is None
    assert find({"RANK": "1", "WORLD_SIZE": "2"}) is None
    assert find({**TORCHRUN, "RANK": "0", "WORLD_SIZE": "1"}) is None, "one process is no world to join"


def found(of, **change):
    return find({**of, **change})
