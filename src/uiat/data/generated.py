"""Generated images beside the original ones (Table 4): an .npz that stays on the disk."""

from pathlib import Path

import numpy as np
import torch

from uiat.data.fetch import data_folder
from uiat.data.files import is_file, reading, user_path
from uiat.data.images import Images
from uiat.data.mapped import map_array
from uiat.data.npz import labels, pixels
from uiat.errors import UserError


def load(given: str, data_dir: str | None, originals: Images) -> Images:
    """Return the generated images, mapped; only the labels are read. They have the originals' classes."""
    path = _find(given, data_dir)
    image = map_array(path, "image")
    if image.dtype != np.uint8:
        raise UserError(f"`image` of {path} is {image.dtype}: give uint8, so that it can stay on the disk.")
    x = torch.from_numpy(pixels(path, image))
    with reading(path, "an .npz file"), np.load(path, allow_pickle=False) as archive:
        if "label" not in archive:
            raise UserError(f"{path} has no array `label`: save it with np.savez(path, image=…, label=…).")
        y = labels(path, archive["label"], len(x))
    classes = len(originals.classes)
    if y.max() >= classes:
        raise UserError(f"{path} has label {y.max()}, but the training data has {classes} classes.")
    found = Images(x, torch.from_numpy(y.astype(np.int64)), originals.classes)
    found.check(str(path))
    if x.shape[1] != originals.x.shape[1]:
        raise UserError(f"{path} has images of {x.shape[1]} channels, the training data has {originals.x.shape[1]}.")
    return found


def _find(given: str, data_dir: str | None) -> Path:
    """Look for the file as it was named, then in the data folder."""
    path, inside = user_path(given), data_folder(data_dir) / given
    for place in (path, inside):
        if is_file(place):
            return place
    raise UserError(
        f"there are no generated images at {path} or {inside}: put the .npz (`image`, `label`) there, "
        "or name another with --data.generated.file."
    )
