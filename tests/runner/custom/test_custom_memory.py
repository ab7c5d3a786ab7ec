"""What a custom case takes of the host and of the symmetric heap: refused before anything is made."""

import dataclasses
import subprocess
import sys
from types import SimpleNamespace

import pytest

from kernels.sources import ROOT
from memory.fabric import Launch
from runner.__main__ import main
from runner.custom.host_memory import check_memory, custom_heap_bytes, custom_host_bytes, register_bytes
from runner.custom.nouns import BufferSpec, CustomSpec, Fill, Tolerance
from runner.request_error import RequestError
from tests.golden import refused
from tests.runner.custom.own_ptx import ADD_PEERS, write_experiment

BUFFERS = (BufferSpec("input", "float32", (1 << 20,), fill=Fill.normal), BufferSpec("output", "float32", (1 << 20,)))
SPEC = CustomSpec("mine", Launch(64, 256), BUFFERS, ())
SIMULATED = SimpleNamespace(simulated=True, heap_bytes=1 << 28)
GPUS = SimpleNamespace(simulated=False, heap_bytes=1 << 33)
PTX = ADD_PEERS.read_text()


def asked(**changes):
    usual = {"check": True, "launches": 2, "world_size": 8, "host_memory": "check"}
    return SimpleNamespace(track=SimpleNamespace(name="none"), **usual | changes)


def bound(spec=SPEC, fabric=SIMULATED, ranks=8, ptx=PTX, **changes):
    return custom_host_bytes(spec, asked(**changes), fabric, ranks, ptx)


def test_each_part_of_the_bound_counts():
    larger = dataclasses.replace(SPEC, buffers=(*BUFFERS, BufferSpec("more", "float32", (1 << 20,))))
    wider = dataclasses.replace(SPEC, launch=Launch(64, 1024))
    near = dataclasses.replace(SPEC, tolerance=Tolerance(1e-6))
    more = [bound(larger), bound(wider), bound(near), bound(launches=3), bound(ranks=9), bound(ptx=PTX + PTX)]
    assert all(one > bound() for one in more), more
    less = [bound(check=False), bound(fabric=GPUS), bound(dataclasses.replace(SPEC, launch=None))]
    assert all(one < bound() for one in less), less


def test_registers_are_those_that_the_module_declares():
    text = ".reg .pred %p<3>;\n.reg .b32 \t%r<8>;\n.reg .f64 %fd<2>;\n.reg .b16 %rs<5>;"
    assert register_bytes(text) == 3 + 32 + 16 + 10


def test_what_does_not_fit_says_what_would():
    check_memory(SPEC, asked(), SIMULATED, bound(), PTX)
    check_memory(SPEC, asked(world_size=7), SIMULATED, bound() - 1, PTX)
    check_memory(SPEC, asked(host_memory="ignore"), SIMULATED, bound() - 1, PTX)
    check_memory(SPEC, asked(), SIMULATED, None, PTX)
    for fabric, available in ((SIMULATED, bound() - 1), (SIMULATED, 1 << 20), (GPUS, 1 << 20)):
        with refused(RequestError):
            check_memory(SPEC, asked(), fabric, available, PTX)


def test_a_heap_that_is_too_small_says_what_would_do():
    needed = custom_heap_bytes(SPEC, 8, is_simulated=True)
    exactly, small = (SimpleNamespace(simulated=True, heap_bytes=heap) for heap in (needed, needed - 1))
    check_memory(SPEC, asked(), exactly, None, PTX)
    with refused(RequestError):
        check_memory(SPEC, asked(), small, None, PTX)


@pytest.mark.parametrize("fabric", ["simulator", "simulator fabric.heap_bytes=900G"])
def test_a_case_beyond_the_host_ends_before_inputs_are_made(tmp_path, monkeypatch, capsys, fabric):
    """Its inputs alone would be 4 TB."""
    monkeypatch.chdir(tmp_path)
    input_ = {"dtype": "float32", "shape": [1 << 38], "fill": "normal"}
    write_experiment(tmp_path / "conf", buffers={"input": input_, "output": {"dtype": "float32", "shape": [1000]}})
    arguments = ["--config-dir", "conf", "+exp=mine", "track=none", *f"fabric={fabric}".split()]
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "fabric.heap_bytes" in line or "of host memory" in line
    assert not (tmp_path / "records").exists()


PEAK = """
import resource, subprocess, sys
subprocess.run([sys.executable, "-m", "runner", *sys.argv[1:]], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""Run from a small process: a child counts what its parent held when it was forked."""


@pytest.mark.slow
def test_a_custom_run_stays_below_its_bound(tmp_path, monkeypatch):
    shape = {"dtype": "float32", "shape": [1_000_000]}
    arguments = [{"peers": "input"}, {"address": "output"}, "world_size", {"u32": 1_000_000}]
    buffers = {"input": {**shape, "fill": "normal"}, "output": shape}
    write_experiment(tmp_path / "conf", buffers=buffers, arguments=arguments, launch={"grid": 977, "block": 1024})
    command = ["--config-dir", "conf", "+exp=mine", "fabric=simulator", "track=none"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    done = subprocess.run([sys.executable, "-c", PEAK, *command], capture_output=True, text=True, check=True)
    peak = int(done.stdout.split()[-1]) * 1024
    larger = tuple(dataclasses.replace(one, shape=(1_000_000,)) for one in BUFFERS)
    spec = CustomSpec("add_peers", Launch(977, 1024), larger, ())
    most = custom_host_bytes(spec, asked(world_size=4), SIMULATED, 4, PTX)
    assert peak <= most <= 4 * peak
