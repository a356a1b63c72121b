"""`dataset`: the images."""

from typing import Annotated, Any

from pydantic import Field

from aces.params.section import NONE, Count, Section


class Dataset(Section):
    name: str = "cifar10"
    """`cifar10`, `imagenet`, `digits`, `folder`, `npz`, `torchvision/<Name>`, `hf/<name>`, or
    `package.module:function`."""
    stride: Count = 20
    """Every stride-th test image is evaluated."""
    path: str | None = None
    """Where the images of a `folder` or `npz` dataset lie."""
    size: Annotated[int, Field(gt=0, le=4096)] | None = None
    """The side in pixels of the images that the networks see; by default the dataset's own."""
    resize: Annotated[int, Field(gt=0, le=8192)] | None = None
    """The shorter side of an image file before its centre is cropped to `size`; by default
    `size`."""
    split: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """The share of the images that are test images, where the dataset has no test images of its
    own."""
    skip_unreadable: bool = False
    """Leave out image files that cannot be read, instead of stopping at them."""
    settings: dict[str, Any] = {}
    """Handed to the function that `name` names."""
    code: str = NONE
    """The file or folder of that function, if it lies in this project: DVC then watches it."""
