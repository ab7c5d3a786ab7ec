"""CPU time of a GEMM of wgmma in the simulator, of small integers and of normal data. Prints a table; no test. The
results of integers are checked.

python tests/benchmarks/bench_products.py
"""

import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from tests.simulator.isa.gemm_program import brain, multiplied, widened

SIZES = (256, 512, 1024)
REPEATS = 3


def main():
    print("| size | data | CPU s | million products and sums a second |\n| ---: | --- | ---: | ---: |")
    for size in SIZES:
        made = np.random.default_rng(1)
        for name in ("integers", "normal"):
            drawn = [
                made.integers(-4, 5, (size, size)) if name == "integers" else made.standard_normal((size, size))
                for _ in "ab"
            ]
            a, b = (brain(one) for one in drawn)
            spent = []
            for _ in range(REPEATS):
                start = time.process_time()
                found, _ = multiplied(a, b)
                spent.append(time.process_time() - start)
            assert name == "normal" or np.array_equal(found, widened(a) @ widened(b).T)
            print(f"| {size} | {name} | {min(spent):.2f} | {size**3 / min(spent) / 1e6:,.0f} |")


if __name__ == "__main__":
    main()
