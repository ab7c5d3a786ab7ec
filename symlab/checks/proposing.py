"""`symlab check FILE.ptx`: what a kernel's arguments are, the YAML of op=custom that gives them, and a first run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import yaml

from cases.assumptions import ASSUMPTIONS, checked_assumptions
from kernels.own.arguments import WORDS
from reports.table.text import counted
from simulator.ptx.ir import Kernel, KernelParameter
from simulator.ptx.parse import entries_of, parse_kernel
from symlab.checks.checked_forms import checked
from symlab.checks.uses import Field, fields_of

RANKS = 2
THREADS = 32
ELEMENTS = 4096
"""Of each proposed buffer: a guess, as the values of numbers are (1)."""
MOST_STEPS = 20_000
MOST_SECONDS = 20.0
UNCHECKED = "check: {results: false}  # leave it out with a custom.reference"
SHOWN = 4
"""Maximum number of kernels of a file to tell of."""

_DTYPES = {"f64": "float64", "f32": "float32", "f16": "float16", "64": "int64", "16": "bfloat16", "8": "uint8"}


@click.command(
    "check",
    epilog="Exit codes: 0 nothing is missing or refused; 1 something is; 2 the request is wrong.",
)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.ptx")
@click.option("--arch", metavar="ARCH", help="Assemble for this architecture, such as sm_90a; default: the .target.")
@click.option(
    "--assumption",
    "assumptions",
    multiple=True,
    metavar="NAME",
    help=f"What the kernels rely on beyond PTX, of {', '.join(ASSUMPTIONS)}; repeatable.",
)
def check(file: Path, arch: str | None, assumptions: tuple[str, ...]) -> int:
    """Check which forms of a PTX file the simulator does not have, and propose its YAML.

    It lists all of them with their lines, also in code that may never run: in the simulator only a thread that gets
    there stops. Where ptxas is installed it assembles the file as well, which says what hardware refuses. Then it
    says what each kernel's arguments are, as far as the code tells, as YAML for op=custom, and launches the kernel once
    on 2 ranks with these arguments, under the race checker. They are guesses, so how that ends changes no exit code.
    """
    declared = checked_assumptions(list(assumptions))
    text, code = checked(file, arch)
    if code:
        return code
    entries = entries_of(text)
    for entry in entries[:SHOWN]:
        section = proposed(parse_kernel(text, entry), str(file))
        section["launch"] |= {"assumptions": list(declared)} if declared else {}
        print(f"\n# {entry}: guesses are dtypes, shapes, fills and numbers")
        print(f"op: custom\nworld_size: {RANKS}\n{UNCHECKED}\ncustom:\n{_as_yaml(section)}")
        print(f"# a launch of it: {smoke_test(text, entry, section)}")
    if len(entries) > SHOWN:
        print(f"\nand {len(entries) - SHOWN} more kernels")
    return 0


def _as_yaml(section: dict[str, Any]) -> str:
    """The section, a line for each buffer and each argument."""

    def line(value: Any) -> str:
        return str(yaml.safe_dump(value, sort_keys=False, default_flow_style=True, width=1 << 20)).strip()

    buffers = [f"    {line({name: one})[1:-1]}" for name, one in section["buffers"].items()]
    arguments = [f"    - {line(one)}" for one in section["arguments"]]
    head = [f"  kernel: {section['kernel']}", f"  launch: {line(section['launch'])}"]
    lists = [f"  buffers:{'' if buffers else ' {}'}", *buffers, f"  arguments:{'' if arguments else ' []'}", *arguments]
    return "\n".join([*head, *lists])


def proposed(kernel: Kernel, file: str) -> dict[str, Any]:
    """Return the section `custom` that runs a kernel of a file, as far as its code tells."""
    buffers: dict[str, Any] = {}
    fields = fields_of(kernel)
    arguments = [_argument(one, fields[one.name], buffers) for one in kernel.parameters]
    block = kernel.required_block or min(THREADS, kernel.most_threads or THREADS)
    launch: dict[str, Any] = {"grid": 1, "block": list(block) if isinstance(block, tuple) else block}
    if cluster := kernel.required_cluster or ((2, 1, 1) if kernel.is_explicit_cluster else None):
        launch = {"grid": list(cluster), "block": launch["block"], "cluster": list(cluster)}
    return {
        "kernel": f"{file}:{kernel.entry}",
        "launch": launch,
        "buffers": buffers,
        "arguments": arguments,
    }


def _argument(parameter: KernelParameter, fields: tuple[Field, ...], buffers: dict[str, Any]) -> Any:
    """What to give for a parameter; the buffers that it needs are added."""
    if parameter.type != "b8":
        field = fields[0] if fields else Field(0, parameter.type)
        return _value(parameter.name, field if field.kind != "number" else Field(0, parameter.type), buffers, 0)
    if not fields:
        return {"bytes": "00" * parameter.size_bytes}
    ends = [*(one.offset_bytes for one in fields[1:]), parameter.size_bytes]
    members: dict[Any, Any] = {}
    taken = 0
    for field, end in zip(fields, ends, strict=True):
        if field.offset_bytes < taken:  # of an array that an index runs through
            continue
        later = [one for one in ends if one > field.offset_bytes + 8 * RANKS] or [end]
        length = (later[0] - field.offset_bytes) // 8 if field.is_array else 0
        members[field.offset_bytes] = _value("", field, buffers, length)
        taken = field.offset_bytes + (8 * length if length else 1)
    return {"struct": members | {"size": parameter.size_bytes}}


def _value(name: str, field: Field, buffers: dict[str, Any], length: int) -> Any:
    """The argument, or the member, that a field is. length: of an array of addresses; 0: it is none."""
    if field.kind == "number":
        kind = field.type.replace("b", "u")
        return {kind: name if name in WORDS and kind[0] != "f" else 1}
    buffer = name if name.isidentifier() and name not in WORDS and len(name) < 30 else f"data{len(buffers)}"
    dtype = next((dtype for end, dtype in _DTYPES.items() if field.element.endswith(end)), "int32")
    buffers[buffer] = {"dtype": dtype, "shape": [ELEMENTS], "fill": "zeros"}
    if length >= RANKS and field.type.endswith("64"):
        return {"addresses": [buffer, length]}
    return {field.kind: buffer}


def smoke_test(text: str, entry: str, section: dict[str, Any]) -> str:
    """Return in one line how a launch of a kernel with the proposed section ends."""
    from runner.world.world import WorldFailure
    from symlab.simulating import simulate

    buffers = {name: (one["shape"], one["dtype"], 0) for name, one in section["buffers"].items()}
    shape = {name: tuple(one) if isinstance(one, list) else one for name, one in section["launch"].items()}
    how: dict[str, Any] = {"ranks": RANKS, "entry": entry, "schedule": "fair", **shape}
    how |= {"buffers": buffers, "arguments": section["arguments"], "races": True}
    try:
        done = simulate(text, **how, step_budget=MOST_STEPS, deadline_s=MOST_SECONDS)
    except (ValueError, WorldFailure) as error:
        said = re.sub(r"^rank \d+: ", "", str(error).splitlines()[0])  # all ranks ran into it
        return f"it stops: {said.removeprefix(f'{entry} ')}"
    found = "".join(f"; {one.sentence()}" for one in (done.findings or ())[:1]) or "; no race was found"
    return f"it ends after {counted(done.counts['steps'], 'step')} on {RANKS} ranks{found}"
