"""Configuration of the data of a run: data set, splits and augmentation."""

from dataclasses import dataclass

from uiat.fields import COUNT, SHARE, SIDE, Range, optional_in_key, require


@dataclass(frozen=True)
class Generated:
    """Generated images beside the original ones (Table 4)."""

    file: str = ""
    """Path of an .npz with `image` (uint8) and `label`, or its name in the data folder; empty: none."""
    original: float = 0.3
    """Share of original images in a batch; 0.3 means seven generated images for three original ones."""

    def __post_init__(self) -> None:
        require(self, original=SHARE)


@dataclass(frozen=True)
class DataConfig:
    """The data of a run, without the location of built-in data sets."""

    name: str = "digits"
    """A built-in data set (see `uiat list`), the path of custom data (a folder of images with a sub-folder for each
    class, a packed folder, or an .npz with `image`, `label`, `classes`), or `module:callable` for other data."""
    test: str = ""
    """Path of the test file for a custom .npz; empty: some images are held out as test."""
    test_fraction: float = 0.2
    """Share of custom data that is held out as test, stratified, if it has no test split."""
    subset: int | None = None
    """Use only this many training images, stratified, before validation images are held out."""
    test_subset: int | None = None
    """Use only this many test images, stratified."""
    size: int | tuple[int, int] | None = None
    """Resize images to HEIGHT WIDTH, or to a square of one number; `None`: unchanged (if they have several sizes, the
    most frequent one)."""
    validation: int | None = None
    """Number of training images held out to select the best epoch; `None`: a tenth, at most 1024."""
    crop: int = 4
    """Zero padding of the random crop, in pixels; 0 switches cropping off."""
    flip: bool = True
    """Flip each training image horizontally with probability 0.5."""
    generated: Generated = Generated()
    """Generated images to add to the training images; an epoch has as many steps as without them."""
    cutout: int = 0
    """Cutout: side of the black square in every training image, in pixels; 0 switches it off."""
    cutmix: float = 0.0
    """CutMix: probability that a window of a training image is filled from another image of its class; 0: off."""
    download: bool = True
    """Download the data set if it is not found."""
    rotation: float = optional_in_key(0.0)
    """Rotate each training image about its centre by a random angle up to this many degrees; 0 switches it off."""

    def __post_init__(self) -> None:
        require(
            self,
            test_fraction=Range(0, 1, inside=True),
            subset=COUNT,
            test_subset=COUNT,
            size=Range(1, SIDE.high, whole=True),
            validation=COUNT,
            crop=SIDE,
            cutout=SIDE,
            cutmix=SHARE,
            rotation=Range(0, 180),
        )
