"""What a source of one's own gives: training and test images, and perhaps validation images."""

from dataclasses import dataclass

from uiat.data.images import Images


@dataclass(frozen=True, eq=False)
class Parts:
    """The images of a source before a run takes its subsets."""

    train: Images
    test: Images
    validation: Images | None = None
    """The source's own validation split, if it has one."""
    drawn: int = 0
    """How many images at the end of `train` were drawn as validation when the source was packed."""
    where: str = ""
    """The files that hold them."""

    def cut(self) -> tuple[Images, Images]:
        """Return (train, the validation images that were drawn), without copying a pixel."""
        at = len(self.train) - self.drawn
        return self.train.part(0, at), self.train.part(at, len(self.train))
