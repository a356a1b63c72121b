"""Train the accurate core network without noise, or take a published one."""

from torch import nn

from aces.data.reading import at_size as images_at_size
from aces.networks import at_size, check_arch
from aces.params import Params
from aces.tracking import StageRun
from aces.training import standard
from stages import networks
from stages.runner import run_stage


def train_core(params: Params, run: StageRun) -> dict:
    core = params.core
    if networks.is_published(core.checkpoint):
        network, summary = networks.take(params, core.checkpoint, role="core", arch=core.arch)
        origin = networks.checkpoint_name(core.checkpoint)
        network = at_own_size(network, core.size)
        networks.write_network(params, network, role="core", checkpoint=origin)
        return summary
    if core.weights == "pretrained":
        network, summary = networks.take_pretrained(params, role="core", arch=core.arch)
        networks.write_network(params, at_own_size(network, core.size), role="core")
        return summary
    training = networks.read_training(params)
    classes = training.num_classes
    if not networks.is_published(params.certify.checkpoint):
        # An architecture that cannot work is refused before this training, not after it.
        check_arch(params.certify.arch, num_classes=classes, shape=training.shape)
    if core.size is not None:
        training = images_at_size(training, core.size)
    networks.use_all_gpus("stages.train_core", run, settings=core.train, method=standard.method())
    network, summary = networks.train(
        params,
        run,
        role="core",
        arch=core.arch,
        settings=core.train,
        sigma=0.0,
        method=standard.method(),
        training=training,
        num_classes=classes,
    )
    networks.write_network(params, at_own_size(network, core.size), role="core")
    return summary


def at_own_size(network: nn.Module, size: int | None) -> nn.Module:
    """The network as it is deployed: with `core.size` it enlarges images that are not of that size.

    Image files are read at its size. Of an array it sees what the certification network sees,
    enlarged.
    """
    return network if size is None else at_size(network, size)


if __name__ == "__main__":
    run_stage("train_core", train_core)
