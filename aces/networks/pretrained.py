"""Networks with the weights that torchvision, timm and Hugging Face publish: in params.yaml,
`weights: pretrained`.
"""

from aces.errors import InputError
from aces.networks import huggingface, libraries
from aces.networks.normalization import Classifier, Normalize, plain


def pretrained(arch: str, *, num_classes: int, channels: int = 3) -> Classifier:
    """The network `arch` with its published weights, in evaluation mode: [0, 1] pixels -> logits.

    Its own normalisation is part of it. The weights are fetched once and kept by their library.
    """
    library, _, name = arch.partition("/")
    if library == "hf" and name:
        return _huggingface(arch, name, num_classes=num_classes)
    if library == "timm" and name:
        found = libraries.timm_pretrained(name, channels=channels)
    elif libraries.is_torchvision(name if library == "torchvision" else arch):
        found = libraries.torchvision_pretrained(name if library == "torchvision" else arch)
    else:
        raise InputError(
            f"arch={arch!r} has no pretrained weights: expected torchvision/<name>, timm/<name> or "
            "hf/<repository>; or name a checkpoint"
        )
    _check_outputs(arch, found.num_classes, num_classes)
    module = Classifier(Normalize(found.mean, found.std), found.network).eval()
    module.recipe = {
        "arch": arch,
        "num_classes": num_classes,
        "mean": found.mean,
        "std": found.std,
    }
    return module


def _huggingface(arch: str, name: str, *, num_classes: int) -> Classifier:
    network, options = huggingface.pretrained(name)
    _check_outputs(arch, network.model.config.num_labels, num_classes)  # type: ignore
    module = Classifier(Normalize((0.0,), (1.0,)), network).eval()
    module.recipe = {
        "arch": arch,
        "num_classes": num_classes,
        "mean": (0.0,),
        "std": (1.0,),
        "options": plain(options),
    }
    return module


def _check_outputs(arch: str, found: int, expected: int) -> None:
    if found != expected:
        raise InputError(
            f"the pretrained {arch} has {found} outputs, and the dataset {expected} classes: train "
            "it on this dataset, or name a network for these classes"
        )
