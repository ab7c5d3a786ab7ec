"""`symlab export`: which consumers there are, and writing a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from cases.record.record import Record
from reports.export.nccl import nccl_csv
from reports.export.sglang_configs import sglang_configs
from reports.export.thresholds import sglang_sizes, vllm_sizes
from reports.record.writing import write_file

WRITERS: dict[str, Callable[[Sequence[Record]], str]] = {
    "nccl": nccl_csv,
    "vllm": vllm_sizes,
    "sglang": sglang_sizes,
    "sglang-configs": sglang_configs,
}


def export(consumer: str, records: Sequence[Record], output: Path | None) -> None:
    """Print a consumer's file; with an output write it, and print what its comments say."""
    text = WRITERS[consumer](records)
    if output is None:
        print(text, end="")
        return
    write_file(output, text.encode("ascii"))
    for line in (one.strip(' ",') for one in text.splitlines()):
        if line.startswith("#"):
            print(line.removeprefix("# "))
    print(f"{output}: written")
