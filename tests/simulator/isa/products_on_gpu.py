"""What a GPU of sm_90 leaves of the forms of products.py: `python -m tests.simulator.isa.products_on_gpu DIR`.

DIR gets h100.json.xz, the digests that hardware/ keeps, and outputs.npz with all words, for who looks for the first
wrong one.
"""

import json
import lzma
import sys
import time
from pathlib import Path

import numpy as np
import torch

from memory.driver import CudaDriver
from memory.fabric import Argument, Launch
from tests.simulator.harness import executable
from tests.simulator.isa.products import digest, forms, inputs_of, ptx_of


def on_gpu(driver, form, images, words):
    """The words (tiles, lanes, out) that a GPU leaves."""
    tiles = len(words)
    given = [torch.from_numpy(one.reshape(-1).view(np.uint8).copy()).to("cuda:0") for one in (images, words)]
    given = [one if one.numel() else torch.zeros(16, dtype=torch.uint8, device="cuda:0") for one in given]
    out = torch.full((tiles * form.lanes * form.out * 4,), 0xFF, dtype=torch.uint8, device="cuda:0")
    arguments = tuple(Argument("address", one.data_ptr()) for one in (*given, out))
    driver.launch(executable(ptx_of(form)), Launch(tiles, form.lanes), arguments)
    driver.wait(time.monotonic() + 20)
    return out.cpu().numpy().view("<u4").reshape(tiles, form.lanes, form.out)


def main(folder):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    driver = CudaDriver(0, 0)
    found, kept = {}, {}
    for number, form in enumerate(forms()):
        for category in form.categories:
            images, words = inputs_of(form, category)
            out = on_gpu(driver, form, images, words)
            found.setdefault(form.name, {})[category] = [digest(images, words), digest(out)]
            kept[f"{number} {category}"] = out
    made = {"gpu": driver.name, "torch": torch.__version__, "date": time.strftime("%Y-%m-%d %H:%M")}
    text = json.dumps({"made": made, "digests": found})
    (folder / "h100.json.xz").write_bytes(lzma.compress(text.encode()))
    np.savez_compressed(folder / "outputs.npz", names=np.array([one.name for one in forms()]), **kept)
    print(
        f"{len(found)} forms, {sum(map(len, found.values()))} digests, {sum(len(one) for one in kept.values())} tiles"
    )


if __name__ == "__main__":
    main(sys.argv[1])
