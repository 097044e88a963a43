"""`uiat.images`: the images of a data set or of a run."""

from dataclasses import replace
from pathlib import Path

from uiat.data import Splits, load_splits
from uiat.data.data_config import DataConfig
from uiat.paths import user_path
from uiat.runs.identity import check_same, choose_data, find_data, identity, known_data
from uiat.runs.run_folder import RunFolder


def images(source: str | Path, *, data: str = "", data_dir: str | None = None) -> Splits:
    """Return the training, validation and test images of a data set, or those that a run was trained and tested on.

    >>> import uiat
    >>> found = uiat.images("digits")
    >>> found.test.x.shape, found.test.x.dtype, found.test.y[:4].tolist()
    (torch.Size([359, 1, 8, 8]), torch.uint8, [2, 1, 4, 6])
    >>> len(found.train), len(found.validation), found.test.classes[:3]
    (1295, 143, ('0', '1', '2'))
    >>> of_run = uiat.images("runs/b")  # with the subsets, size and splits of the run
    >>> result = uiat.evaluate(uiat.load("runs/b"), of_run.test.x, of_run.test.y)

    Args:
        source: a run folder; else a data set as for `uiat train --data`: a built-in name, or the path of a folder of
            images or of an .npz.
        data: of a run on custom data: its new path if it was moved, or its `module:callable`, which is imported only if
            it is named here.
        data_dir: the folder of data sets and downloads; by default $UIAT_DATA, or a cache folder.

    Returns:
        `train`, `validation` and `test`, each with `x` (bytes, (N, C, H, W)), `y` (int64) and `classes` (names). Divide
        x by 255 for a network; `uiat.evaluate` takes it as it is stored. Sample indices count within `train`.

    Raises:
        UserError: if the training or validation images have changed since the run was created.
    """
    run = RunFolder(user_path(str(source)))
    if not run.config.is_file():
        return load_splits(DataConfig(name=data or str(source)), data_dir)
    config = run.read_config().data
    config = replace(config, name=choose_data(config.name, data or None, run.path))
    splits = load_splits(find_data(run, config), data_dir)
    check_same(run.path, {**known_data(run), "generated": None}, identity(splits), config.name)
    return splits
