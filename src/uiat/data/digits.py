"""The 1,797 handwritten digits of 8×8 pixels that come with scikit-learn: nothing to download."""

from pathlib import Path

import numpy as np

from uiat.data.files import to_images
from uiat.data.images import Images, hold_out


def load(folder: Path, download: bool) -> tuple[Images, Images]:
    """Return (train, test), always the same; the arguments are not used, since the data is in the library."""
    from sklearn.datasets import load_digits  # slow to import, so only when asked for

    digits = load_digits()
    x = np.rint(digits.images * (255 / 16)).astype(np.uint8)[:, None]
    return hold_out(to_images(x, digits.target, tuple(str(k) for k in range(10))), 0.2, seed=0)
