"""What a command line of another form means in ours: a value without its key, a key as an option, nccl-tests' options.

Imported only once something is wrong.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from difflib import get_close_matches

from cases.dtypes import ALL
from cases.ops import OPS
from kernels.catalogue import NAMES
from runner.request.overrides import group_options
from runner.request.schema import SECTIONS
from runner.request_error import near
from runner.world.fabrics import FabricName

DTYPES_ELSEWHERE = {
    "half": "float16",
    "fp16": "float16",
    "f16": "float16",
    "bf16": "bfloat16",
    "float": "float32",
    "fp32": "float32",
    "f32": "float32",
    "double": "float64",
    "fp64": "float64",
    "f64": "float64",
    "fp8": "float8_e4m3fn",
    "fp8_e4m3": "float8_e4m3fn",
    "f8e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "f8e5m2": "float8_e5m2",
}
"""Names of dtypes in nccl-tests and elsewhere, with ours."""

_OF_NCCL_TESTS = {
    ("-b", "--minbytes"): "sizes.min",
    ("-e", "--maxbytes"): "sizes.max",
    ("-f", "--stepfactor"): "sizes.factor",
    ("-n", "--iters"): "timing.samples",
    ("-w", "--warmup_iters"): "timing.warmup",
    ("-d", "--datatype"): "dtype",
    ("-o",): "reduction",
    ("-g", "--ngpus"): "world_size",
    ("-t", "--nthreads"): "world_size",
    ("-u", "--unalign"): "offset",
    ("-T", "--timeout"): "deadline_s",
    ("-G", "--cudagraph"): "timing.mode",
}
"""Options of nccl-tests that symlab run does not have, with the key that does the same."""

_LISTS = ("algorithms", "baselines", "sizes", "sizes.list")
"""Keys that take a list."""


def near_dtype(name: str, known: Sequence[str]) -> str:
    """What to say after an unknown dtype: ours, if it is known under that name elsewhere; else as near() says it."""
    ours = DTYPES_ELSEWHERE.get(name.lower())
    return f"did you mean {ours}?" if ours in known else near(name, known)


def misread_override(text: str, arguments: Sequence[str]) -> str:
    """Return what is wrong with an argument that can't be read as key=value, and what it may mean. Inside hydra_over.

    arguments: all of the command line.
    """
    return f"can't read '{text}' (command line), {_meant(text, arguments)}"


def _meant(text: str, arguments: Sequence[str]) -> str:
    """What an argument may mean, as advice."""
    if with_spaces := _without_spaces(text, arguments):
        return f"write {with_spaces}, without spaces around the ="
    if "=" not in text:
        if text in _keys():
            return f"write overrides as key=value: {text}=.."
        if found := _overrides_of(text):
            return f"did you mean {' or '.join(found)}?"
    return "write overrides as key=value, with quotes where needed"


def _without_spaces(text: str, arguments: Sequence[str]) -> str:
    """ "world_size=4" for an argument of "world_size = 4", "world_size= 4" or "world_size =4"; "" for any other."""
    if text not in arguments:
        return ""
    at = list(arguments).index(text)
    before, _, after, following = ("", *arguments, "", "")[at : at + 4]
    if text in _keys() and after.startswith("="):
        return f"{text}={after.removeprefix('=') or following or '..'}"
    if before.endswith("=") and before.removesuffix("=") in _keys():
        return f"{before}{text}"
    return ""


def _overrides_of(text: str) -> list[str]:
    """The overrides that a lone word or the path of an experiment can mean; those of the nearest word if none does."""
    name = re.sub(r"^(.*/)?exp/|\.ya?ml$", "", text)
    known: dict[str, list[str]] = {}
    words = [
        *((one, f"+exp={one}") for one in group_options("exp")),
        *((one, f"op={one}") for one in OPS),
        *((one, f"dtype={one}") for one in ALL),
        *((other, f"dtype={one}") for other, one in DTYPES_ELSEWHERE.items()),
        *((one, f"algorithms=[{one}]") for one in dict.fromkeys(name.partition("/")[2] for name in NAMES)),
        *((str(one), f"fabric={one}") for one in FabricName),
    ]
    for word, override in words:
        known.setdefault(word, []).append(override)
    if name in known:
        return known[name]
    return [override for word in get_close_matches(name, known, n=1, cutoff=0.7) for override in known[word]]


def misread_option(option: str, arguments: Sequence[str]) -> str:
    """Return what an unknown option of `symlab run` means, and what is right; "" if that is unknown.

    arguments: all of the command line, with the option's value.
    """
    value = _value_of(option, arguments)
    name = option.lstrip("-").replace("-", "_")
    key = next((key for options, key in _OF_NCCL_TESTS.items() if option in options), "")
    if key:
        if key == "dtype":
            value = DTYPES_ELSEWHERE.get(value, value)
        elif key == "timing.mode":
            value = "eager" if value == "0" else "graph"
        return f"{option} is an option of nccl-tests ({option}), write {key}={value or '..'}"
    if option.startswith("--") and (name in _keys() or name == "exp"):
        written = f"+exp={value or '..'}" if name == "exp" else f"{name}={value or '..'}"
        if name in ("timing", "sizes") and not value:
            written = f"{name}.{dataclasses.fields(SECTIONS[name])[0].name}=.."
        return f"{option} is a key and not an option ({name}), write {written}"
    return ""


def _value_of(option: str, arguments: Sequence[str]) -> str:
    """The value that follows an option: behind it, or in the next argument; "" if there is none."""
    for at, argument in enumerate(arguments):
        if argument == option:
            following = arguments[at + 1] if at + 1 < len(arguments) else ""
            return "" if following.startswith("-") or "=" in following else following
        if argument.startswith(f"{option}="):
            return argument.partition("=")[2]
        if not option.startswith("--") and argument.startswith(option):
            return argument.removeprefix(option)
    return ""


def listed(key: str, line: str) -> str:
    """What to add where an override gives several values of a key that takes a list; "" if it takes none."""
    written = line.partition("=")[2]
    if key not in _LISTS or not re.fullmatch(r"[\w/.,]+", written):
        return ""
    return f"; for a list write {key}=[{written}]"


def _keys() -> set[str]:
    """All keys of the schema, and its sections."""
    return {
        f"{section}.{member.name}" if section else member.name
        for section, schema in SECTIONS.items()
        for member in dataclasses.fields(schema)
    }
