"""PTX of a user's own, and the experiment that runs it, as files in a folder, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from kernels.sources import ROOT

ADD_PEERS = ROOT / "conf" / "exp" / "own" / "add_peers.ptx"
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
ADD_STRUCT = f"""{HEAD}
.visible .entry add_struct(.param .align 8 .b8 given[80])
{{
	.reg .pred %p<3>; .reg .b32 %r<8>; .reg .b64 %rd<10>; .reg .f32 %f<3>;
	ld.param.u64 %rd2, [given+64]; ld.param.u16 %r1, [given+72]; ld.param.u32 %r2, [given+76];
	mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x; mad.lo.s32 %r6, %r3, %r4, %r5;
	setp.ge.u32 %p1, %r6, %r2; @%p1 bra done;
	mul.wide.u32 %rd3, %r6, 4; mov.f32 %f1, 0f00000000;
ADDED
	add.s64 %rd6, %rd2, %rd3; st.global.f32 [%rd6], %f1;
done:
	ret;
}}
""".replace(
    "ADDED",
    "\n".join(
        f"""
	setp.le.u32 %p2, %r1, {rank}; @%p2 bra next{rank};
	ld.param.u64 %rd4, [given+{8 * rank}]; add.s64 %rd5, %rd4, %rd3;
	ld.global.f32 %f2, [%rd5]; add.rn.f32 %f1, %f1, %f2;
next{rank}:"""
        for rank in range(8)
    ),
)
"""The same with one struct: eight addresses, the output's, the number of ranks in 16 bits, and the elements in 32."""

_PARAMETERS = "(.param .u64 inputs, .param .u64 output, .param .u32 world_size, .param .u32 numel)"
LIMITS = f"""{HEAD}
.visible .entry most_threads{_PARAMETERS}
.maxntid 64
{{ ret; }}
.visible .entry most_bytes{_PARAMETERS}
{{ .shared .align 4 .b8 mine[50000]; ret; }}
"""

COUNT = f"""{HEAD}
.visible .entry count(.param .u64 output, .param .u32 launch)
{{
	.reg .b32 %r<4>; .reg .b64 %rd<3>;
	ld.param.u64 %rd1, [output]; ld.param.u32 %r1, [launch];
	ld.global.u32 %r2, [%rd1]; mad.lo.u32 %r3, %r2, 10, %r1; st.global.u32 [%rd1], %r3;
	ret;
}}
"""
"""Appends the launch's number to a decimal number."""

REFERENCE = """
import torch


def expected(inputs):
    total = torch.zeros_like(inputs[0]["input"])
    for contents in inputs:
        total = total + contents["input"]
    return [{"output": total.clone()} for _ in inputs]


def off_by_one(inputs):
    right = expected(inputs)
    right[1]["output"][5] += 1
    return right


def raises(inputs):
    raise KeyError("input")


def ramp(rank, world_size):
    return torch.arange(1000, dtype=torch.float32) * rank


def in_torch(inputs):
    return torch.nn.functional.linear(inputs[0]["input"], torch.zeros(3, 7))


def leaves(inputs):
    raise SystemExit(0)


def leaves_rank(rank, world_size):
    raise SystemExit(0)


async def asynchronous(inputs):
    return expected(inputs)


def spoils(inputs):
    total = expected(inputs)[0]["output"]
    for contents in inputs:
        contents["input"].fill_(7)
        contents.clear()
    return [{"output": total}] * len(inputs)


def given(inputs):
    return [{"output": contents["input"]} for contents in inputs]


def one(rank, world_size):
    return torch.ones(1, dtype=torch.int32)


def counted(inputs):
    return [{"output": torch.tensor([1012], dtype=torch.int32)} for _ in inputs]


def both(inputs):
    return [{"output": torch.tensor([10212], dtype=torch.int32)} for _ in inputs]


def seven(inputs):
    return [{"flag": torch.tensor([7, 0, 0, 0], dtype=torch.int32)}] * 4


LIMIT = 7
"""

WAITS = f"""{HEAD}
.visible .entry waits(.param .u64 flag)
{{
	.reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %rd<2>;
	ld.param.u64 %rd1, [flag];
again:
	ld.acquire.sys.global.u32 %r1, [%rd1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra again;
	ret;
}}
.visible .entry beyond(.param .u64 flag)
{{
	.reg .b32 %r<2>; .reg .b64 %rd<2>;
	ld.param.u64 %rd1, [flag]; mov.u32 %r1, 7; st.global.u32 [%rd1], %r1; st.global.u32 [%rd1+64], %r1;
	ret;
}}
"""

CUTE = """
import cutlass
import cutlass.cute as cute


@cute.kernel
def device(table: cute.Pointer, output: cute.Pointer, world_size: cutlass.Int32, numel: cutlass.Int64):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * 128 + thread
    if index < numel:
        peers = cute.make_tensor(table, cute.make_layout(64))
        total = cutlass.Float32(0)
        for peer in cutlass.range(world_size, unroll=1):
            source = cute.make_ptr(cutlass.Float32, peers[peer], cute.AddressSpace.gmem, assumed_align=4)
            total = total + cute.make_tensor(source, cute.make_layout(1024))[index]
        cute.make_tensor(output, cute.make_layout(1024))[index] = total


@cute.jit
def add(table: cute.Pointer, output: cute.Pointer, world_size: cutlass.Int32, numel: cutlass.Int64):
    device(table, output, world_size, numel).launch(grid=[8, 1, 1], block=[128, 1, 1])
"""

CUTE_ARGUMENTS = [{"peers": "input"}, {"address": "output"}, {"s32": "world_size"}, {"s64": 1000}]


def section(**changes: Any) -> dict[str, Any]:
    """The section `custom` that runs add_peers.ptx of this folder, with changes; None takes a key out."""
    values = {
        "kernel": "add_peers.ptx:add_peers",
        "launch": {"grid": 8, "block": 128},
        "buffers": {
            "input": {"dtype": "float32", "shape": [1000], "fill": "normal"},
            "output": {"dtype": "float32", "shape": [1000]},
        },
        "arguments": [{"peers": "input"}, {"address": "output"}, "world_size", {"u32": 1000}],
        "reference": "add_peers.py:expected",
        **changes,
    }
    return {key: value for key, value in values.items() if value is not None}


def write_experiment(folder: Path, name: str = "mine", keys: dict[str, Any] | None = None, **changes: Any) -> None:
    """Write exp/<name>.yaml with a section, and the files that it names, into a folder of configurations."""
    exp = folder / "exp"
    exp.mkdir(parents=True, exist_ok=True)
    text = ADD_PEERS.read_text()
    files = {"add_peers.ptx": text, "add_struct.ptx": ADD_STRUCT, "count.ptx": COUNT, "limits.ptx": LIMITS}
    files |= {"no_body.ptx": text.replace("{", "\n", 1), "cut_off.ptx": text[: len(text) // 2], "waits.ptx": WAITS}
    files |= {"sm_100a.ptx": text.replace("sm_80", "sm_100a"), "add_peers.py": REFERENCE, "cute.py": CUTE}
    files |= {"tensors.py": ADD_PEERS.with_name("add_tensors.py").read_text()}
    for file, content in files.items():
        if not (exp / file).exists():  # a process takes a file that was written again for one that changed
            (exp / file).write_text(content)
    text = yaml.safe_dump({"op": "custom", "world_size": 4, "custom": section(**changes), **(keys or {})})
    (exp / f"{name}.yaml").write_text(f"# @package _global_\n# my own\n{text}")


TENSOR_ARGUMENTS = [{"tensors": "input"}, {"address": "output"}, {"constexpr": 128}]
