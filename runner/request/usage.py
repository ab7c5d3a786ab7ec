"""What `symlab run --help` says: the experiments, the ops and their algorithms, the keys with their defaults, the
options, examples, exit codes.
"""

from __future__ import annotations

import dataclasses
import textwrap
import typing
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from cases.dtypes import FLOATS, INTEGERS
from cases.ops import COLLECTIVES
from kernels.baselines import names_for
from kernels.catalogue import ALL_SPECS
from kernels.tuning import MAX_WORLD_SIZE
from runner.gpu.names import offered_gpu_names
from runner.request.experiments import CONF, experiments
from runner.request.schema import SECTIONS
from runner.request.sizes import USUAL

WIDTH = 100
_KEYS_WIDTH = 30

_HEAD = """\
usage: symlab run [options] [key=value ...]

Collectives over symmetric memory, described in YAML, run on GPUs or in the simulator, checked
against torch. Each argument key=value changes a value of the experiment; +exp=NAME chooses one.
"""

_MEANINGS: dict[str, str] = {
    "op": "what to compute, see above",
    "algorithms": "names from above: [one_shot,two_shot], and kernels of your own: [two_shot,my/ring.py:SPEC]; auto: "
    "all that the fabric can run; all: the others, too, each refused with the reason; best, alone or in a list: at "
    "each size what a table has (tuned); [best,auto]: beside all that auto is; two_shot@t512b64l8p: with 512 threads, "
    "64 blocks, 8 loads in flight, pushed",
    "baselines": "names from above: [nccl]; none; auto: all on GPUs, none simulated",
    "dtype": f"{', '.join(FLOATS)}, {', '.join(INTEGERS)}; where data only moves uint8, too. dtype=bfloat16/native "
    "gives dtype and accumulator",
    "accumulator": "of sums: native, the dtype itself; float32 for 32, 16 and 8 bits; float16 for 8 bits; auto: "
    "float32 where that exists, otherwise native",
    "reduction": "sum, min, max, avg; of integers and, or, xor, too; auto: sum, or none where data only moves",
    "world_size": f"number of ranks, 1 to {MAX_WORLD_SIZE}",
    "sizes.min": f"bytes as nccl-tests counts them: min, min x factor, .. up to max; auto: {USUAL['min']}",
    "sizes.max": f"auto: {USUAL['max']}",
    "sizes.factor": "",
    "sizes.list": "in place of min, max and factor: sizes=[0,8,1K]",
    "placement": "whether the output is where the input is; both: each case in both",
    "root": "the rank that gives (broadcast) or gets (reduce)",
    "offset": "number of elements after a 16-byte boundary at which both buffers begin",
    "counts": "all_to_all_v's: how many elements ranks send to each other, the same total; zeros: one rank sends "
    "nothing, one gets nothing",
    "stress": "what launches run under, several joined by +, such as late_rank+alternating_sizes: none, late_rank, "
    "no_host_barrier, alternating_sizes, two_streams, graph_out_of_step, dead_rank; what a kernel's spec does not "
    "promise is refused with the reason",
    "stress_seeds": "the simulator's: number of random orders, from fabric.seed on, that a case runs in under stress",
    "inputs": "exact: every sum is exact, so all bits must agree; edge: NaN, infinities, zeros, subnormals, the "
    "largest values, integers that wrap around",
    "seed": "of the inputs",
    "check.results": "compare every output with the reference; check=false is short for check.results=false",
    "check.races": "the simulator's: look for unordered accesses; a case with a race is WRONG; null: of brought ones",
    "launches": "number of checked launches of a case",
    "deadline_s": "maximum seconds for a case",
    "records": "the folder for records",
    "cache_dir": "the folder for compiled kernels",
    "isolation": "whether each job has a new world",
    "custom": "of op=custom: a kernel of your own with its buffers, see conf/exp/custom_{ptx,cute}.yaml",
    "tuned": "of algorithms=best: a table that symlab tune wrote; auto: the project's for this type of GPU",
    "host_memory": "the simulator's: refuse what may take more memory than the host has available; that bound may be "
    "too high",
    "library.nccl": "GPUs only; an NCCL by its path or installed version, such as 2.28.9; null: what torch brings",
    "library.nccl_algo": "GPUs only; the one algorithm that NCCL may take, for the baseline nccl; null: its own choice",
    "library.nccl_proto": "the same for its protocol",
    "library.nccl_channels": "the same for its channels, which are blocks: 1 to 64",
    "library.nccl_graph_mixing": "GPUs only; false: NCCL adds no nodes of its own to graphs, with which graphs and "
    "other calls could be under way at once; null: NCCL's default, true",
    "timing.mode": "GPUs only, as all of timing; graph: replayed CUDA graphs; eager: calls from Python",
    "timing.window": "what is in the time of a call: the kernel alone, or barriers over all ranks, too",
    "timing.l2": "rotate: calls go through several buffers in turn; hot: one buffer, left in the L2 cache",
    "timing.warmup": "number of samples that do not count",
    "timing.samples": "number of samples that count",
    "timing.calls": "number of calls in a sample; null: what suits the size",
    "timing.limit": "whether the links' own limit is measured beside",
    "timing.shared": "whether a launcher's workers may time jobs beside others on one machine, whose links they share",
    "timing.predict": "whether each time gets the model's prediction beside it, made once its samples are taken",
    "timing.lead_in_calls": "number of calls right before each sample that are not timed",
    "timing.min_busbw_gbps": "exit code 1 if the average bus bandwidth of our kernels is below it, in GB/s",
    "timing.precision": "take samples until half the 95 % interval of each median is at most this share of it, such as "
    "0.01; 10 times timing.samples at most; null: take timing.samples",
    "timing.dependent_launch": "whether our kernels begin before the launch before them ends; they wait before they "
    "touch memory",
    "fabric": "auto: nvshmem where that is possible, otherwise the simulator",
    "fabric.heap_bytes": "symmetric memory of a rank; null: 256M in the simulator, 8G on a GPU; auto: half of "
    "what the GPUs have free",
    "fabric.share_gpus": "the GPUs': whether ranks may share them: results with fewer GPUs than ranks, untimed",
    "fabric.arch": "the simulator's; also sm_100a, ..; the GPU's where fabric.gpu names one and this is not given",
    "fabric.multicast": "the simulator's: whether it has multicast",
    "fabric.multimem": "the simulator's: exact sums as hardware does; stated: in the precision that PTX states",
    "fabric.schedule": "the simulator's: which lanes run next; random, adversarial, priority: by fabric.seed",
    "fabric.granularity": "the simulator's: what runs at once: an access, a block; null: access, of fair block",
    "fabric.memory": "the simulator's: weak: each thread sees a store at a time of its own, as far as PTX lets it",
    "fabric.seed": "the simulator's: which random or adversarial order, and what weak memory shows",
    "fabric.step_budget": "the simulator's: maximum number of steps of a launch; null: no maximum",
    "fabric.gpu": "the simulator's: whose limits hold, {gpus}; blocks that do not fit at "
    "once wait; null: all blocks are there at once; with timing.predict: the type that predictions are of",
    "track": "where records are mirrored to",
    "track.uri": "MLflow's tracking URI",
    "track.experiment": "MLflow's experiment",
}
"""What each key means, in the order of --help; "" if its name says it."""

_TAIL = """\
options:
  -m, --multirun          sweep: key=1,2,4 or 'key=range(1,5)', in every combination; +exp=a,b runs
                          each experiment with its own sweep
  -cd, --config-dir DIR   take configurations from DIR (laid out as conf/), too
  --plan                  show the cases, what would be refused and why, the memory and the
                          time, and run nothing
  -c, --cfg PART          show the configuration in place of running it: job, hydra or all;
      -p, --package KEY   only that part of it, and --resolve: with interpolations resolved
  -i, --info [TOPIC]      what Hydra composes from: all, config, defaults, defaults-tree, plugins,
                          searchpath
  -q, --quiet             say only errors, warnings, and the last lines: the summary and where the
                          records are
  -h, --help              this text
  --version               the versions of symlab and Hydra

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


def usage(config_dir: Path | None = None) -> str:
    """The help text, with the experiments that are there now and the algorithms of the catalogue.

    config_dir: a folder of configurations beside conf/.
    """
    parts = (_HEAD, _experiments(config_dir), _algorithms(), _keys(config_dir), _TAIL)
    return "\n".join(part for part in parts if part)


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
    width = max(len(collective.op) for collective in COLLECTIVES)
    for collective in COLLECTIVES:
        ours = ", ".join(spec.algorithm for spec in ALL_SPECS if spec.op == collective.op)
        theirs = ", ".join(names_for(collective.op))
        lines.append(_hanging(f"  {collective.op:<{width}}  ", f"{ours};" if theirs else ours))
        if theirs:
            lines.append(_hanging(" " * (width + 4), f"baselines {theirs}"))
    return "\n".join(lines) + "\n"


def _keys(config_dir: Path | None) -> str:
    """Each key with its default, its words and its meaning."""
    lines = ["keys, with their defaults (symlab run --cfg job shows a whole configuration):"]
    defaults = dict(_defaults())
    gpus = ", ".join(offered_gpu_names([CONF, *([config_dir] if config_dir else [])]))
    for name, text in _MEANINGS.items():
        meaning = text.format(gpus=gpus) if name == "fabric.gpu" else text
        default, words = defaults[name]
        others = [word for word in words if word != default]
        parts = [part for part in (f"or {', '.join(others)}" if others else "", meaning) if part]
        lines.append(_hanging(f"  {f'{name}={default}':<{_KEYS_WIDTH}}  ", "; ".join(parts)))
    return "\n".join(lines) + "\n"


def _defaults() -> Iterator[tuple[str, tuple[str, list[str]]]]:
    """Each key of the schema with its default and the words that it takes, if it takes only these."""
    for section, schema in SECTIONS.items():
        kinds = typing.get_type_hints(schema)
        for member in dataclasses.fields(schema):
            if member.name in SECTIONS:
                continue
            kind = kinds[member.name]
            words = [str(word) for word in kind] if isinstance(kind, type) and issubclass(kind, Enum) else []
            name = f"{section}.{member.name}" if section else member.name
            default = None if name == "fabric.granularity" else member.default  # the schema's is for older records
            yield (section if name in ("fabric.name", "track.name") else name), (_written(default), words)


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
