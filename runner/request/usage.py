"""What `symlab run --help` says: the experiments, the ops and their algorithms, the keys with their defaults, the
options, examples, exit codes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cases.ops import COLLECTIVES, MATMULS
from kernels.baselines import names_for
from kernels.catalogue import ALL_SPECS
from runner.gpu.names import gpu_names
from runner.request.experiments import CONF, experiments
from runner.request.schema import KEYS, Key

WIDTH = 100
_KEYS_WIDTH = 30

_HEAD = """\
usage: symlab run [options] [key=value ...]

Collectives over symmetric memory, described in YAML, run on GPUs or in the simulator, checked
against torch. Each argument key=value changes a value of the experiment; +exp=NAME chooses one.
"""

_PAGE = (
    "Every key of an experiment; `symlab run --help --all` prints the same. This page is made from "
    "`runner/request/schema.py` by `python -m runner.request.usage`."
)

_TAIL = """\
options:
  -m, --multirun          sweep: key=1,2,4 or 'key=range(1,5)', in every combination; +exp=a,b runs
                          each experiment with its own sweep
  -cd, --config-dir DIR   take configurations from DIR (laid out as conf/), too
  --plan                  show the cases, what would be refused and why, and the memory,
                          and run nothing
  -c, --cfg job           show the configuration in place of running it
  -q, --quiet             say only errors, warnings, and the last lines: the summary and where the
                          records are
  -h, --help              this text; --help --all has every key

your own experiment: a file conf/exp/NAME.yaml with '# @package _global_' on line 1. The first
  comment after that line is its line in the list above.

examples (in zsh put quotes around an argument with brackets):
  symlab run +exp=allreduce_bf16
  symlab run world_size=4 dtype=float16 sizes=[8,1K,1M] inputs=exact
  symlab run op=broadcast algorithms=all root=1 dtype=uint8 sizes=[1K,4K]
  symlab run op=reduce_scatter dtype=int32 reduction=max inputs=edge
  symlab run +exp=allreduce_bf16 fabric=nvshmem world_size=8 baselines=[nccl] timing.samples=200
  symlab run -m +exp=allreduce_bf16 world_size=2,4,8 accumulator=native,float32
  symlab run fabric.schedule=random fabric.seed=7 algorithms=[two_shot]

exit codes: 0 all cases passed, or some passed and the others were refused (an algorithm or the
  fabric can't do them) or libraries that did not finish; 1 a case was wrong or failed, GPUs
  refused every case while it ran, or records could not be stored; 2 the request was wrong, or it
  is known before the start that every case would be refused: nothing ran; 130 Ctrl-C, 143 SIGTERM,
  129 a closed terminal: finished records are kept.
"""


def usage(config_dir: Path | None = None, shows_all: bool = False) -> str:
    """The help text, with the experiments that are there now and the algorithms of the catalogue.

    config_dir: a folder of configurations beside conf/. shows_all: rare keys, too.
    """
    parts = (_HEAD, _experiments(config_dir), _algorithms(), _keys(config_dir, shows_all), _TAIL)
    return "\n".join(part for part in parts if part)


def page() -> str:
    """The page of all keys, runner/KEYS.md."""
    rows = (f"| `{name}` | {text} |" for _, name, text in _rows(None))
    return "\n".join(["# Keys", "", _PAGE, "", "| key and default | meaning |", "| --- | --- |", *rows, ""])


def _experiments(config_dir: Path | None) -> str:
    named = experiments(config_dir)
    if not named:
        return ""
    width = max(map(len, named))
    lines = [_hanging(f"  +exp={name:<{width}}  ", text) for name, text in named.items()]
    return "\n".join(["experiments:", *lines]) + "\n"


def _algorithms() -> str:
    """Each op with its algorithms and, on GPUs, its baselines."""
    lines = ["ops, our algorithms and, on GPUs, the libraries' (symlab kernels says what each of ours takes):"]
    width = max(len(collective.op) for collective in (*COLLECTIVES, *MATMULS))
    for collective in (*COLLECTIVES, *MATMULS):
        ours = ", ".join(spec.algorithm for spec in ALL_SPECS if spec.op == collective.op)
        theirs = ", ".join(names_for(collective.op))
        lines.append(_hanging(f"  {collective.op:<{width}}  ", f"{ours};" if theirs else ours))
        if theirs:
            lines.append(_hanging(" " * (width + 4), f"baselines {theirs}"))
    return "\n".join(lines) + "\n"


def _keys(config_dir: Path | None, shows_all: bool) -> str:
    """Each key with its default, its words and its meaning."""
    lines = ["keys, with their defaults (symlab run --cfg job shows a whole configuration):"]
    for key, name, text in _rows(config_dir):
        if shows_all or not key.rare:
            lines.append(_hanging(f"  {name:<{_KEYS_WIDTH}}  ", text))
    rest = sum(key.rare for key in KEYS.values())
    if not shows_all:
        lines.append(f"  {rest} more keys, such as timing.limit and fabric.arch: symlab run --help --all")
    return "\n".join(lines) + "\n"


def _rows(config_dir: Path | None) -> Iterator[tuple[Key, str, str]]:
    """Each key, its name with its default, and what is said of it."""
    gpus = ", ".join(gpu_names([CONF, *([config_dir] if config_dir else [])]))
    for key in KEYS.values():
        name = f"{key.name.removesuffix('.name')}={_written(key.default)}"
        others = [word for word in key.words if word != _written(key.default) and key.kind is not bool]
        parts = [f"or {', '.join(others)}" if others else "", f"{key.of} only" if key.of else ""]
        yield key, name, "; ".join(part for part in (*parts, key.meaning.format(gpus=gpus)) if part)


def _written(value: Any) -> str:
    """A value as the command line has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _hanging(first: str, text: str) -> str:
    """The text behind its first column, further lines below each other."""
    indent = " " * len(first)
    if not text:
        return first.rstrip()
    if not first.endswith("  "):
        return "\n".join([first, _hanging(indent, text)])
    lines = textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)
    return "\n".join(lines)


if __name__ == "__main__":
    (CONF.parent / "runner" / "KEYS.md").write_text(page(), encoding="utf-8")
