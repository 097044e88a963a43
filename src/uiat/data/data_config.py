"""Which data a run uses, and how it is cut and augmented."""

from dataclasses import dataclass

from uiat.fields import COUNT, SHARE, SIDE, Range, optional_in_key, require


@dataclass(frozen=True)
class Generated:
    """Generated images beside the original ones (Table 4)."""

    file: str = ""
    """Path of an .npz with `image` (uint8) and `label`, from here or in the data folder; empty: none."""
    original: float = 0.3
    """Share of original images in a batch; 0.3 is seven generated for three original ones."""

    def __post_init__(self) -> None:
        require(self, original=SHARE)


@dataclass(frozen=True)
class DataConfig:
    """The data of a run; where its files lie is not part of it."""

    name: str = "digits"
    """A known data set (see `uiat list`), the path of one's own (a folder of images with a sub-folder for each class, a
    packed one, or an .npz with `image`, `label`, `classes`), or `module:callable` for any other data set."""
    test: str = ""
    """Path of the test file for an .npz of one's own; empty: some images are held out as test."""
    test_fraction: float = 0.2
    """How much of one's own data is held out as test, stratified, where it has no test split."""
    subset: int | None = None
    """Take only that many training images, each class in proportion, before validation is held out."""
    test_subset: int | None = None
    """Take only that many test images, each class in proportion."""
    size: int | tuple[int, int] | None = None
    """Resize images to HEIGHT WIDTH, or to a square of one number; `None`: as they are (of several sizes the one that
    most images have)."""
    validation: int | None = None
    """Training images held out to select the best model by; `None`: a tenth, at most 1024."""
    crop: int = 4
    """Zero padding of the random crop, in pixels; 0 switches cropping off."""
    flip: bool = True
    """Mirror each training image with probability one half."""
    generated: Generated = Generated()
    """Generated images to train with, too; an epoch has as many steps as without them."""
    cutout: int = 0
    """Cutout: side of the square that is blackened in every training image, in pixels; 0 switches it off."""
    cutmix: float = 0.0
    """CutMix: probability that a window of a training image is filled from another image of its class; 0 is off."""
    download: bool = True
    """Download the data set when it is not found."""
    rotation: float = optional_in_key(0.0)
    """Rotate each training image about its centre by up to so many degrees either way; 0 switches it off."""

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
