"""Train the certification network at sigma, or take a published one.

With a denoiser, the network is classifier(denoiser(z, sigma)): the classifier never needs to see
noise, and may be the core network itself (`certify.checkpoint: models/core.safetensors`).
"""

from torch import nn

from aces import extension, paths
from aces import networks as library
from aces.data import read_eval
from aces.params import Params
from aces.tracking import StageRun
from aces.training import methods
from aces.training.curve import CurveFile
from stages import networks
from stages.runner import run_stage


def train_certify(params: Params, run: StageRun) -> dict:
    certify = params.certify
    if networks.is_published(certify.checkpoint):
        network, summary = networks.take(
            params,
            certify.checkpoint,
            role="certify",
            arch=_named(params),
        )
        about: dict[str, object] = {"checkpoint": networks.checkpoint_name(certify.checkpoint)}
    elif certify.weights == "pretrained":
        network, summary = networks.take_pretrained(params, role="certify", arch=certify.arch)
        about = {"weights": certify.weights}
    else:
        network, summary = train_classifier(params, run)
        about = {"method": certify.method, "sigma": params.sigma}
    if certify.denoiser.arch != "none":
        network = library.before(denoiser(params, run, network), network, sigma=params.sigma)
        about |= {"denoiser": certify.denoiser.arch, "sigma": params.sigma}
        summary["parameters"] = networks.count(network)
    networks.write_network(params, network, role="certify", **about)
    return summary


def train_classifier(params: Params, run: StageRun) -> tuple[nn.Module, dict]:
    certify, training = params.certify, networks.read_training(params)
    method = methods.resolve(certify, params.sigma)
    networks.use_all_gpus("stages.train_certify", run, settings=certify.train, method=method)
    return networks.train(
        params,
        run,
        role="certify",
        arch=certify.arch,
        settings=certify.train,
        sigma=params.sigma,
        method=method,
        training=training,
        num_classes=training.num_classes,
    )


def denoiser(params: Params, run: StageRun, classifier: nn.Module) -> nn.Module:
    """The denoiser before the classifier: from a file, or trained at sigma."""
    from aces.training.denoiser import train_denoiser

    settings = params.certify.denoiser
    if networks.is_published(settings.checkpoint):
        evaluation = read_eval(paths.evaluation_images(params.dataset.name))
        channels = evaluation.shape[0]
        return library.load_denoiser(settings.checkpoint, channels=channels, arch=settings.arch)
    training = networks.read_training(params)
    fresh = library.build_denoiser(settings.arch, channels=training.shape[0])
    write_row = CurveFile(paths.training_curve("denoiser"))

    def on_epoch(epoch: int, metrics: dict) -> None:
        write_row(epoch, metrics)
        run.log_metrics({f"denoiser/{name}": value for name, value in metrics.items()}, step=epoch)

    return train_denoiser(
        fresh,
        classifier,
        training,
        settings=settings.train,
        sigma=params.sigma,
        seed=params.seed,
        objective=settings.objective,
        runtime=networks.training_runtime(),
        on_epoch=on_epoch,
    )


def _named(params: Params) -> str | None:
    """The architecture of the classifier in the file, which may be the core network's own file.

    That file says itself what it holds, but a function of the user's has to be named.
    """
    if params.certify.checkpoint != str(paths.network("core")):
        return params.certify.arch
    return params.core.arch if extension.is_reference(params.core.arch) else None


if __name__ == "__main__":
    run_stage("train_certify", train_certify)
