"""What --help says: the usage, the named experiments, the ops and their algorithms, the keys, examples, exit codes."""

from __future__ import annotations

import textwrap
from enum import StrEnum
from pathlib import Path

from kernels.baselines import names_for
from kernels.catalogue import COLLECTIVES, SPECS
from kernels.numeric.dtypes import FLOATS, INTEGERS
from kernels.spec import Placement
from reports.record.timing import L2State, Window
from runner.request.compose import experiments
from runner.request.schema import Isolation, Limit, TimingMode, TrackName
from runner.world.fabrics import FabricName
from simulator.options import MultimemModel, Schedule

_WIDTH = 120

_HEAD = """\
symlab: collectives over symmetric memory, described in YAML, run on GPUs or in the simulator, checked against torch

usage: symlab [options] [key=value ...]          (or: python -m runner ...)
"""


def _others(words: type[StrEnum]) -> str:
    """All but the first of a key's words, which it has by default."""
    return ", ".join(list(words)[1:])


_KEYS = f"""\
keys (conf/config.yaml has the values they start from; symlab --cfg job shows the result; auto: what suits the op):
  op=all_reduce                   what to compute
  algorithms=[one_shot,two_shot]  names from above; auto, or all: also those whose needs the fabric doesn't have
  baselines=auto                  all on GPUs, none simulated; or none, or names from above
  dtype=auto                      {", ".join(FLOATS)},
                                  {", ".join(INTEGERS)}; moving data: uint8, too;
                                  dtype=bfloat16/native is short for dtype and accumulator
  accumulator=auto                of sums: native, the dtype itself; float32 for 16 and 8 bits; float16 for 8 bits;
                                  auto: float32 where that can be, else native
  reduction=auto                  sum, min, max, avg; of integers and, or, xor; auto: sum, or none where data only moves
  world_size=8                    ranks, 1 to 72
  sizes.min=1K sizes.max=1M sizes.factor=4     bytes, as in nccl-tests; or a list: sizes=[0,6,1K]
  placement=out_of_place          or {_others(Placement)}
  root=0                          the rank that gives (broadcast) or gets (reduce)
  offset=0                        elements after a 16-byte boundary at which both buffers begin
  inputs=normal                   or exact: every sum is exact, so all bits must agree; or edge: NaN, infinities, zeros,
                                  subnormals, the largest values, integers that wrap around
  seed=0   check=true   launches=2   deadline_s=120 (a case)   isolation=none   or {_others(Isolation)}: a new world a job
  timing.mode=graph               or {_others(TimingMode)} (GPUs only)      timing.window=kernel   or {_others(Window)}
  timing.l2=rotate                or {_others(L2State)}                          timing.limit=measured  or {_others(Limit)}
  timing.warmup=3 timing.samples=50 timing.calls=null              calls a sample; null: as many as suit the size
  fabric=auto                     {_others(FabricName)}; auto takes nvshmem where it can
  fabric.multimem=exact           or {_others(MultimemModel)}       fabric.multicast=true     fabric.arch=sm_90a   or sm_100a, ..
  fabric.schedule=fair            or {_others(Schedule)}, with fabric.seed=0             fabric.heap_bytes=null (256M; GPUs 8G)
  track=mlflow                    {_others(TrackName)}; track.uri=sqlite:///mlflow.db track.experiment=symlab
  records=records                 the folder for records      cache_dir=...  for compiled kernels
"""  # noqa: E501

_TAIL = """\
options:
  -m, --multirun      sweep: key=1,2,4 or 'key=range(1,5)', in every combination; an experiment may bring its own
                      sweep, and +exp=a,b runs each with its own
  --config-dir DIR    search DIR (laid out as conf/), too: for experiments of your own
  --plan              show the cases, what would be refused and why, the memory and the time, and run nothing
  --cfg job|hydra|all [--package KEY] [--resolve]   show the configuration instead of running it
  --info [TOPIC]      Hydra's view: searchpath, defaults, defaults-tree, config, plugins
  -h, --help          this      --version

your own experiment: a file conf/exp/NAME.yaml with '# @package _global_' on line 1; the first comment after it is
  its line in the list above.

examples:
  symlab +exp=allreduce_bf16
  symlab world_size=4 dtype=float16 sizes=[6,1K,1M] inputs=exact
  symlab op=broadcast algorithms=all root=1 dtype=uint8 sizes=[1K,4K]
  symlab op=reduce_scatter dtype=int32 reduction=max inputs=edge
  symlab +exp=allreduce_bf16 fabric=nvshmem world_size=8 baselines=[nccl] timing.samples=200
  symlab -m +exp=allreduce_bf16 world_size=2,4,8 accumulator=native,float32
  symlab fabric.schedule=random fabric.seed=7 algorithms=[two_shot]
  python -m kernels                            the matrix: what each algorithm takes, and where it is proven
  python -m runner replay records/<folder>     run records again in new worlds, and say whether it came out the same
  python -m runner.track records/<folder>      send records to MLflow later

exit codes: 0 all cases passed, or some passed and the others were refused (an algorithm or the fabric can't do them);
  1 a case was wrong or failed, every case was refused, or records could not be stored; 2 the request was wrong,
  nothing ran; 130 Ctrl-C, 143 SIGTERM, 129 a closed terminal: finished records are kept.
"""


def usage(config_dir: Path | None = None) -> str:
    """The help text, with the experiments that are there now and the algorithms of the catalogue."""
    named = experiments(config_dir)
    width = max((len(name) for name in named), default=0)
    lines = [f"  +exp={name:<{width}}  {text}" for name, text in named.items()]
    body = "experiments:\n" + "\n".join(lines) + "\n" if lines else ""
    return "\n".join(textwrap.dedent(part) for part in (_HEAD, body, _algorithms(), _KEYS, _TAIL) if part)


def _algorithms() -> str:
    """Each op with its algorithms and, on GPUs, its baselines."""
    lines = ["ops and their algorithms, ours and libraries' on GPUs (python -m kernels says what each of ours takes):"]
    width = max(len(collective.op) for collective in COLLECTIVES)
    for collective in COLLECTIVES:
        ours = ", ".join(spec.algorithm for spec in SPECS if spec.op == collective.op)
        theirs = ", ".join(names_for(collective.op))
        indent = " " * (width + 4)
        parts = [f"{ours};" if theirs else ours, *([f"baselines {theirs}"] if theirs else [])]
        for number, part in enumerate(parts):
            first = f"  {collective.op:<{width}}  " if number == 0 else indent
            lines += textwrap.wrap(part, _WIDTH, initial_indent=first, subsequent_indent=indent)
    return "\n".join(lines) + "\n"
