"""Muon: momentum whose direction is orthogonalised, for the filters of convolutions.

The momentum of a layer is a matrix with one row per filter. A few of its singular values are large
and dominate the step of SGD; Muon sets all of them to about 1, so that the rare directions are
learned as fast as the frequent ones (Jordan et al., 2024: Muon; modded for CIFAR-10 in airbench).
A Newton-Schulz iteration does this with products of matrices alone.

Each step changes the filters by the share `lr` of their norm, and the norm then stays what it was
at the start. A batch norm behind the convolution ignores the norm, so nothing is lost, the learning
rate means the same for every layer, and a decay of the filters would have no effect.

Everything else (biases, batch norms, the last linear layer) is trained by SGD with momentum, at
five times the learning rate of the filters.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

# Part of the definition of Muon, as published: x -> a x + b x^3 + c x^5 brings a singular value in
# (0, 1] near 1 in few iterations.
QUINTIC = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
OTHERS = 5.0  # the learning rate of SGD over that of the filters; between 1 and 8 little changes


class Muon(Optimizer):
    """Muon for the parameters of four dimensions, SGD with Nesterov momentum for the others.

    `weight_decay` applies to the others only. One optimiser for both: one state to keep.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], *, lr: float, momentum: float, weight_decay: float
    ):
        parameters = list(parameters)
        filters = [weight for weight in parameters if weight.ndim == 4]
        others = [weight for weight in parameters if weight.ndim != 4]
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        groups = [
            {"params": filters, "orthogonal": True},
            {"params": others, "orthogonal": False},
        ]
        super().__init__([group for group in groups if group["params"]], defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update(weight, group)

    def _update(self, weight: Tensor, group: dict) -> None:
        state, gradient = self.state[weight], weight.grad
        assert gradient is not None
        if not state:
            state["momentum"] = torch.zeros_like(weight)
            if group["orthogonal"]:
                state["norm"] = weight.norm()
        if not group["orthogonal"]:
            gradient = gradient.add(weight, alpha=group["weight_decay"])
        momentum = state["momentum"].mul_(group["momentum"]).add_(gradient)
        direction = gradient.add(momentum, alpha=group["momentum"])
        if group["orthogonal"]:
            direction = orthogonalize(direction.flatten(1)).view_as(weight)
            length = state["norm"] / direction.norm().clamp_min(1e-12)
            weight.sub_(direction * (group["lr"] * length))
            weight.mul_(state["norm"] / weight.norm().clamp_min(1e-12))
        else:
            weight.sub_(direction, alpha=OTHERS * group["lr"])


def orthogonalize(matrix: Tensor, iterations: int = ITERATIONS) -> Tensor:
    """The matrix (m, n) with its singular vectors kept and its singular values brought near 1.

    The iteration X <- (a I + b X X' + c (X X')^2) X multiplies X from the left only. So it runs on
    the small matrix X X', and X itself is multiplied once, by the product of all factors.
    """
    if len(matrix) > matrix.shape[1]:
        return orthogonalize(matrix.T, iterations).T
    a, b, c = QUINTIC
    matrix = matrix / matrix.norm().clamp_min(1e-12)
    gram, product = matrix @ matrix.T, None
    for iteration in range(iterations):
        factor = torch.addmm(gram, gram, gram, beta=b, alpha=c)  # b X X' + c (X X')^2
        factor.diagonal().add_(a)
        product = factor if product is None else factor @ product
        if iteration < iterations - 1:
            gram = factor @ gram @ factor
    return matrix if product is None else product @ matrix
