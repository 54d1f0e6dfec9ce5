"""Makes the files beside it that other programs wrote, for the tests that read them. Needs numpy, ml_dtypes, Pillow,
tfrecord (PyPI)."""
import io
import os
import tarfile

import ml_dtypes
import numpy as np
import tfrecord
from PIL import Image

here = os.path.dirname(os.path.abspath(__file__))
counted = np.arange(24).reshape(2, 3, 4)
arrays = {}
for name in ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]:
    for order, mark in [("little", "<"), ("big", ">")]:
        arrays[f"{name}_{order}"] = counted.astype(mark + name)
        arrays[f"{name}_{order}_fortran"] = np.asfortranarray(counted.astype(mark + name))
arrays["b1"] = counted % 2 == 1
arrays["bfloat16"] = counted.astype(ml_dtypes.bfloat16)
arrays["scalar"] = np.float64(2.5)
arrays["empty"] = np.zeros((0, 5), np.float32)
np.savez_compressed(f"{here}/numpy_all.npz", **arrays)
np.savez(f"{here}/numpy_stored.npz", x=counted.astype(np.float32), y=np.arange(2))
np.save(f"{here}/numpy_version1.npy", counted.astype(">i2"))

# Images, with what Pillow makes of them: soft waves and a little noise, 37 x 53.
rng = np.random.default_rng(1)
y, x = np.mgrid[0:37, 0:53]
waves = np.stack([127 + 100 * np.sin(x / 9 + c) * np.cos(y / (5 + c)) for c in range(3)], axis=2)
photo = Image.fromarray(np.clip(waves + rng.normal(0, 8, waves.shape), 0, 255).astype(np.uint8))
files = {
    "rgb.jpg": (photo, {"quality": 80}),
    "progressive.jpg": (photo, {"quality": 70, "progressive": True, "subsampling": 0}),
    "grey.jpg": (photo.convert("L"), {}),
    "rgb.png": (photo, {}),
    "grey.png": (photo.convert("L"), {}),
    "palette.png": (photo.quantize(16), {}),
    "bits.png": (photo.convert("1"), {}),
}
with_alpha = photo.copy()
with_alpha.putalpha(Image.fromarray((x * 4).astype(np.uint8)))
files["alpha.png"] = (with_alpha, {})
expected = {}
for name, (image, options) in files.items():
    buffer = io.BytesIO()
    image.save(buffer, "JPEG" if name.endswith("jpg") else "PNG", **options)
    with open(f"{here}/pillow_{name}", "wb") as file:
        file.write(buffer.getvalue())
    read = Image.open(buffer)
    rgb = Image.fromarray(np.asarray(read.convert("RGBA"))[:, :, :3].copy())
    expected[name + "_rgb"] = np.asarray(rgb)
    if name.endswith(".png"):
        expected[name + "_grey"] = np.asarray(rgb.convert("L"))
for rows, columns in [(16, 16), (74, 53), (37, 20), (100, 91), (1, 1)]:
    for mode in ["RGB", "L"]:
        resized = photo.convert(mode).resize((columns, rows), Image.Resampling.BILINEAR)
        expected[f"{mode}_{rows}_{columns}"] = np.asarray(resized)
np.savez_compressed(f"{here}/pillow_expected.npz", **expected)

# As WebDataset writes them, in the three forms that Python's tarfile knows.
for form, number in [("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)]:
    with tarfile.open(f"{here}/python_{form}.tar", "w", format=number) as tar:
        folder = "shard" if form == "ustar" else "a" * 120  # longer than a header has room for
        for i in range(3):
            for extension, content in [("txt", b"text %d" % i), ("cls", b"%d" % (i % 2))]:
                info = tarfile.TarInfo(f"{folder}/{i:04}.{extension}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))

writer = tfrecord.TFRecordWriter(f"{here}/python.tfrecord")
for i in range(4):
    writer.write({"x": ([i + 0.5, -i, 1e-3], "float"), "label": (i % 3, "int"), "name": (b"sample %d" % i, "byte")})
writer.close()
