"""A made-up release in the layout of the official one, with tables counted image by image as the
published analysis does.
"""

from pathlib import Path

import numpy as np

SIGMAS = {"0.25": 0.25, "0.50": 0.5, "1.00": 1.0}
CORES = {
    "cifar10": {"lanet": "lanet", "resnet110": None},
    "imagenet": {"efficientnet-b7": "enb7", "resnet50": None, "efficientnet-b0": None},
}
WHOLE = [
    (dataset, method, sigma, None)
    for dataset, methods in {
        "cifar10": ("gaussian", "smoothadv", "macer", "consistency"),
        "imagenet": ("gaussian", "smoothadv", "consistency"),
    }.items()
    for method in methods
    for sigma in SIGMAS
] + [("cifar10", "gaussian", "0.25", eta) for eta in ("050", "095")]
LOG = "idx\tlabel\tpredict\tradius\tcorrect\tunperturbed predict\tunperturbed correct\ttime"
TIME = "0:00:01.000000"


def write_release(root: Path, runs=WHOLE, *, images=12, seed=0) -> Path:
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 3, images)
    cores = {}
    for dataset in sorted({run[0] for run in runs}):
        for network in CORES[dataset]:
            cores[dataset, network] = np.where(
                rng.random(images) < 0.8, label, rng.integers(0, 3, images)
            )
            rows = [
                (
                    20 * i,
                    label[i],
                    cores[dataset, network][i],
                    int(cores[dataset, network][i] == label[i]),
                    TIME,
                )
                for i in range(images)
            ]
            _write(
                root / "data" / dataset / "core" / f"{network}_core_prediction",
                "idx\tlabel\tpredict\tcorrect\ttime",
                rows,
            )
    for dataset, method, sigma, eta in runs:
        write_run(root, dataset, method, sigma, eta, label, cores, rng)
    return root


def write_run(root, dataset, method, sigma, eta, label, cores, rng):
    images, digits = len(label), sigma.replace(".", "")
    prefix = (
        f"{dataset}_{method}_{digits}"
        if eta is None
        else f"selection_model_{method}_{digits}_binary_{eta}"
    )
    folder = root / "data" / dataset / method / f"noise_{sigma}"
    tables = root / "analysis" / "tables" / dataset / method / f"noise_{digits}"
    if eta is not None:
        folder = folder.with_name(f"noise_{sigma}_selection_model") / prefix
        tables = tables.with_name(f"noise_{sigma}_selection_model") / prefix
    answer = lambda p: np.where(
        rng.random(images) < p,
        np.where(rng.random(images) < 0.7, label, rng.integers(0, 3, images)),
        -1,
    )
    predict, natural = answer(0.8), answer(0.9)
    radius = np.where(
        predict >= 0, [float(f"{r:.3}") for r in rng.uniform(0.001, 4 * SIGMAS[sigma], images)], 0.0
    )
    rows = [
        (
            20 * i,
            label[i],
            predict[i],
            radius[i],
            int(predict[i] == label[i]),
            natural[i],
            int(natural[i] == label[i]),
            TIME,
        )
        for i in range(images)
    ]
    _write(folder / f"{prefix}_certification", LOG, rows)
    medians = rng.random(images)
    _write(
        folder / f"{prefix}_{'entropies' if eta is None else 'outputs'}",
        "idx\tmean\tstd\tmin\t25 percentile\t50 percentile\t75 percentile\tmax",
        [(20 * i, *[f"{medians[i]:.4}"] * 7) for i in range(images)],
    )
    selections = {}
    for step in range(101):
        theta = step / 100
        choose = lambda: np.where(rng.random(images) < 0.1, -1, (medians <= theta).astype(int))
        chosen, chosen_natural = choose(), choose()
        reach = np.where(
            chosen >= 0,
            [float(f"{r:.3}") for r in rng.uniform(0.001, 4 * SIGMAS[sigma], images)],
            0.0,
        )
        selections[theta] = chosen, reach, chosen_natural
        _write(
            folder / f"{prefix}_selection_{theta:.2f}",
            "idx\tpredict\tradius\tunperturbed predict\ttime",
            [(20 * i, chosen[i], reach[i], chosen_natural[i], TIME) for i in range(images)],
        )
    radii = [i * (0.5 if sigma == "1.00" else 0.25) for i in range(9)]
    for network, short in CORES[dataset].items():
        if short is not None:
            names = (
                f"ace_smoothing_table_{digits}_{short}_{method}",
                f"ace_smoothing_table_selection_{digits}_{short}_{method}",
            )
            if eta is not None:
                names = (
                    f"selection_net_{method}_{digits}_{eta}_{short}",
                    f"selection_net_{method}_{digits}_{eta}_selection_{short}",
                )
            for name, cell in zip(names, (_accuracy, _selected), strict=True):
                _write_table(
                    tables / name,
                    selections,
                    predict,
                    radius,
                    natural,
                    label,
                    cores[dataset, network],
                    radii,
                    cell,
                )


def _write_table(path, selections, predict, radius, natural, label, core, radii, cell):
    lines = [
        "& Threshold & NAC & ACR" + "".join(f" & {float(r)}" for r in radii) + "\\\\",
        "\\midrule",
    ]
    for step in range(0, 101, 10):
        chosen, reach, chosen_natural = selections[step / 100]
        images = range(len(label))
        nac = sum(
            _natural(chosen_natural[i], natural[i] == label[i], core[i] == label[i]) for i in images
        )
        acr = 0.0
        for i in images:
            acr += min(reach[i], radius[i]) if chosen[i] != 0 and predict[i] == label[i] else 0.0
        cells = [
            sum(
                cell(chosen[i], reach[i], radius[i], predict[i] == label[i], core[i] == label[i], r)
                for i in images
            )
            for r in radii
        ]
        percent = [f"{100 * count / len(label):.1f}" for count in cells]
        lines.append(
            " & ".join(
                [
                    f"& {step / 100:.2f}",
                    f"{100 * nac / len(label):.1f}",
                    f"{acr / len(label):.3f}",
                    *percent,
                ]
            )
            + "\\\\"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def _natural(chosen, certify_right, core_right):
    return {1: certify_right, 0: core_right, -1: certify_right and core_right}[int(chosen)]


def _accuracy(chosen, reach, radius, certify_right, core_right, r):
    if r == 0:  # the quirk: -1 is taken for 1
        return certify_right if chosen != 0 else core_right
    return chosen != 0 and certify_right and min(reach, radius) >= r


def _selected(chosen, reach, radius, certify_right, core_right, r):
    return chosen != 0 and reach >= r


def _write(path: Path, head: str, rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "\n".join([head, *("\t".join(str(cell) for cell in row) for row in rows)]) + "\n"
    )
