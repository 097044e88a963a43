"""Which data a run uses, and how it is cut and augmented."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Generated:
    """Generated images beside the original ones (Table 4)."""

    file: str = ""
    """Path of an .npz with `image` (uint8) and `label`, from here or in the data folder; empty: none."""
    original: float = 0.3
    """Share of original images in a batch; 0.3 is seven generated for three original ones."""


@dataclass(frozen=True)
class DataConfig:
    """The data of a run; where its files lie is not part of it."""

    name: str = "digits"
    """A known data set (see `uiat list`), or the path of one's own .npz (`image`, `label`, `classes`)."""
    test: str = ""
    """Path of the test .npz for an .npz of one's own; empty: a stratified fifth is held out as test."""
    subset: int | None = None
    """Take only that many training images, each class in proportion, before validation is held out."""
    test_subset: int | None = None
    """Take only that many test images, each class in proportion."""
    size: int | None = None
    """Resize images to size × size."""
    validation: int | None = None
    """Training images held out to select the best model by; `None`: a tenth, at most 1024."""
    crop: int = 4
    """Zero padding of the random crop, in pixels; 0 switches cropping off."""
    flip: bool = True
    """Mirror each training image with probability one half."""
    generated: Generated = Generated()
    """Generated images to train with, too; an epoch has as many steps as without them."""
    download: bool = True
    """Download the data set when it is not found."""
