"""python -m tests.mutants: weaken our kernels at every place, one at a time, and tell how each mutant is found."""

import argparse
import sys

from tests.matrix.running import cores
from tests.mutants.recorded import recorded
from tests.mutants.searching import NAMES, SEEDS, TABLE, all_results, gaps, page, record, table


def main(given=None):
    """Return the exit code: 0 if each mutant is found or argued, 1 if one is neither, 2 for a wrong request."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--kernel", default="", help="only this kernel, or those with this in their name")
    parser.add_argument("--list", action="store_true", help="print every mutant, and how it was found")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds of each way (%(default)s)")
    parser.add_argument("--jobs", type=int, default=cores(), help="processes (the cores: %(default)s)")
    parser.add_argument("--table", action="store_true", help="write results.json and table.md")
    options = parser.parse_args(given)
    chosen = [options.kernel] if options.kernel in NAMES else [name for name in NAMES if options.kernel in name]
    if not chosen:
        print(f"tests.mutants: error: no kernel has '{options.kernel}' in its name", file=sys.stderr)
        return 2
    found = []
    for part in all_results(chosen, options.seeds, min(options.jobs, len(chosen))):
        found += part
        for one in part:
            if options.list or one.kind == "open":
                print(f"{one.kernel}: {one.mutant.name}: {one.found or one.kind}", flush=True)
        if options.table:
            record(part)
    print("\n".join(table(found)))
    if options.table:
        TABLE.write_text(page(), encoding="utf-8")
        for line in (missing := gaps(recorded())):
            print(line)
        return int(bool(missing))
    return int(any(one.kind == "open" for one in found))


if __name__ == "__main__":
    sys.exit(main())
