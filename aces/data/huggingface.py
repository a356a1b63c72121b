"""Datasets of the Hugging Face hub: `dataset.name: hf/<name>`, through the library `datasets`.

`dataset.path` may name a folder of the same format instead (parquet files, for instance), which
needs no network. `dataset.settings` may name the configuration, the splits, and the columns.
"""

from pathlib import Path
from typing import Any

from aces import params, paths
from aces.data import places
from aces.data.collect import collect
from aces.data.options import options, path_of
from aces.data.splits import Part, Splits, divide
from aces.errors import InputError, one_line

PREFIX = "hf/"
TRAIN = ("train", "training")
TEST = ("test", "validation", "valid", "val")


def load(dataset: params.Dataset) -> Splits:
    settings = options(
        dataset, config=None, train=None, test=None, image=None, label=None, seed=0, mirror=None
    )
    name = dataset.name.removeprefix(PREFIX)
    found = _open(name, dataset, settings["config"])
    train = _split(found, TRAIN, settings["train"], dataset)
    test = _split(found, TEST, settings["test"], dataset)
    if train is None:
        raise InputError(
            f"{dataset.name} has no split {' or '.join(TRAIN)} (it has {', '.join(found)}): set "
            "dataset.settings.train to one of them"
        )
    folder = paths.datasets() / "hf" / name.replace("/", "--")
    parts = [
        _part(it, dataset, settings, folder / kind)
        for kind, it in (("train", train), ("test", test))
        if it is not None
    ]
    classes = _class_names(train, settings, parts)
    if len(parts) == 1:
        parts = list(divide(parts[0], classes, share=dataset.split, seed=settings["seed"]))
    train_part, test_part = parts
    return Splits(
        train_part, test_part, classes, mirror=settings["mirror"], root=places.describe(folder)
    )


def _open(name: str, dataset: params.Dataset, config: str | None) -> Any:
    """The splits of the dataset, by name."""
    try:
        import datasets
    except ImportError:
        raise InputError(
            f"dataset.name={dataset.name!r} needs the library `datasets`: `pip install datasets`"
        ) from None
    source = str(path_of(dataset)) if dataset.path is not None else name
    try:
        return datasets.load_dataset(
            source, config, cache_dir=str(paths.datasets() / "hf" / "cache")
        )
    except Exception as error:  # of the network, of the hub, of the files
        raise InputError(
            f"dataset.name={dataset.name!r}: {source} cannot be loaded ({one_line(error)}): check "
            "its name and the network, or name a folder with its files as dataset.path"
        ) from None


def _split(found: Any, names: tuple[str, ...], chosen: str | None, dataset: params.Dataset) -> Any:
    if chosen is not None:
        if chosen not in found:
            raise InputError(
                f"{dataset.name} has no split {chosen!r}: expected one of {', '.join(found)}"
            )
        return found[chosen]
    return next((found[name] for name in names if name in found), None)


def _part(data: Any, dataset: params.Dataset, settings: dict[str, Any], folder: Path) -> Part:
    import datasets

    image = _column(data, "Image", settings["image"], dataset, "image")
    label = _column(data, "ClassLabel", settings["label"], dataset, "label")
    # The content of the image file, not decoded: our one loader does that.
    raw = data.cast_column(image, datasets.Image(decode=False))
    labels = data.with_format("numpy", columns=[label])[label][:]

    def get(number: int) -> tuple[bytes, int]:
        held = raw[number][image]
        content = held["bytes"] if held["bytes"] is not None else Path(held["path"]).read_bytes()
        return content, int(labels[number])

    return collect(len(data), get, dataset, folder=folder, title=f"images of {dataset.name}")


def _column(data: Any, kind: str, chosen: str | None, dataset: params.Dataset, setting: str) -> str:
    """The column of this kind; by name where there are several, or where the kind is not said."""
    if chosen is not None and chosen in data.features:
        return chosen
    found = [name for name, feature in data.features.items() if type(feature).__name__ == kind]
    if chosen is None and len(found) == 1:
        return found[0]
    if chosen is None and setting in data.features:
        return setting
    raise InputError(
        f"{dataset.name}: which column is the {setting}? Set dataset.settings.{setting} to one of "
        f"{', '.join(data.features)}"
    )


def _class_names(data: Any, settings: dict[str, Any], parts: list[Part]) -> list[str]:
    for name, feature in data.features.items():
        if hasattr(feature, "names") and settings["label"] in (None, name):
            return list(feature.names)
    count = 1 + max(int(part.label.max(initial=-1)) for part in parts)
    return [str(number) for number in range(count)]
