"""ptxas and nvcc of the locked packages, which take the PTX that CuTe DSL writes; a machine's own may be older."""

import importlib.util
from pathlib import Path


def folder():
    """Return the folder of the programs in this environment; None if the package (nvidia-cuda-nvcc) is missing."""
    spec = importlib.util.find_spec("nvidia")
    for place in spec.submodule_search_locations or () if spec is not None else ():
        for path in sorted(Path(place).glob("cu*/bin/ptxas")):
            return path.parent
    return None
