"""`symlab export`: which consumers there are, which are refused and why, and writing a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from cases.record.record import Record
from reports.export.configs import sglang_configs
from reports.export.nccl import nccl_csv
from reports.export.thresholds import sglang_sizes, vllm_sizes
from reports.record import bundle

WRITERS: dict[str, Callable[[Sequence[Record]], str]] = {
    "nccl": nccl_csv,
    "vllm": vllm_sizes,
    "sglang": sglang_sizes,
    "sglang-configs": sglang_configs,
}

REFUSED = {
    "mscclpp": "its file chooses among mscclpp's own algorithms, blocks and threads, of which symlab has no record; "
    "run its bench_collective --autotune --write-config",
    "tensorrt-llm": "its table is keyed by fused op, hidden size and tokens, and records are keyed by bytes; run its "
    "allreduce_heuristic_code_gen.py",
    "flashinfer": "its file is keyed by FlashInfer's ops and shapes, and records are keyed by bytes; run its "
    "autotune(True, cache=..)",
}
"""Consumers whose tables no record here entitles to, with the reason and what to run instead."""

CONSUMERS = (*WRITERS, *REFUSED)


def exported(consumer: str, records: Sequence[Record]) -> str:
    """Return the text of a consumer's file. ValueError, in one line, if the records do not entitle to it."""
    if consumer in REFUSED:
        raise ValueError(f"no table for {consumer} (--to): {REFUSED[consumer]}; known: {', '.join(WRITERS)}")
    return WRITERS[consumer](records)


def export(consumer: str, records: Sequence[Record], output: Path | None) -> None:
    """Print a consumer's file; with an output write it, and print what its comments say."""
    text = exported(consumer, records)
    if output is None:
        print(text, end="")
        return
    bundle.write_file(output, text.encode("ascii"))
    for line in text.splitlines():
        if line.startswith("#"):
            print(line.removeprefix("# "))
    print(f"{output}: written")
