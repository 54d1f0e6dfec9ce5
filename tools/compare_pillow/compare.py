"""See compare.sh."""
import argparse
import io
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
from PIL import Image

parser = argparse.ArgumentParser()
parser.add_argument("--program", required=True, help="Bindery's side")
parser.add_argument("--seconds", type=float, default=3, help="for each of the turns")
parser.add_argument("--turns", type=int, default=3)
options = parser.parse_args()
SIDE = 224


def draw(folder):
    """40 photographs, or nearly: waves and noise, 500 x 375 as ImageNet's mean size."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:375, 0:500]
    for i in range(40):
        waves = [127 + 90 * np.sin(x / rng.uniform(5, 60) + c) * np.cos(y / rng.uniform(5, 60)) for c in range(3)]
        noisy = np.stack(waves, axis=2) + rng.normal(0, 12, (375, 500, 3))
        image = Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))
        image.save(folder / f"{i:02}.jpg", quality=90)


def load(path):
    with open(path, "rb") as file:
        image = Image.open(io.BytesIO(file.read())).convert("RGB")
    pixels = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR), np.float32)
    return np.ascontiguousarray((pixels / 255).transpose(2, 0, 1))


def rate_of_pillow(paths):
    start, images = time.monotonic(), 0
    while time.monotonic() - start < options.seconds:
        for path in paths:
            load(path)
        images += len(paths)
    return images / (time.monotonic() - start)


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name) / "images" / "class"
    folder.mkdir(parents=True)
    draw(folder)
    paths = sorted(folder.iterdir())
    output = f"{name}/pixels"
    ours, theirs = [], []
    for _ in range(options.turns):
        command = [options.program, "--folder", folder.parent, "--output", output, "--seconds", str(options.seconds)]
        ours.append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        theirs.append(rate_of_pillow(paths))
    expected = np.stack([load(path) for path in paths])
    difference = np.abs(np.fromfile(output, np.float32).reshape(expected.shape) - expected).max() * 255
print(f"images a second on one core, JPEG of 500 x 375 to {SIDE} x {SIDE} floats, best of {options.turns}:")
print(f"  Bindery {max(ours):8.1f}\n  Pillow  {max(theirs):8.1f}   ({Image.__version__})")
print(f"largest difference of a pixel: {difference:.2f} of 255")
sys.exit(1 if difference > 1.01 else 0)
