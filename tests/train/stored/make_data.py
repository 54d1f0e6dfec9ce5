"""Makes the files beside it that other programs wrote, for the tests that read them. Needs numpy, ml_dtypes."""
import os

import ml_dtypes
import numpy as np

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
