"""What makes the numbers of an evaluation doubtful. None of it is an error; each is a sentence.

The stage `combine` keeps them in results/summary.json under `concerns`; the report and
`aces summary` show them where they cannot be missed.
"""

import numpy as np

FEW_IMAGES = 100  # below this an accuracy is known to within ten points or worse
MOST_ONE_CLASS = 0.9  # a larger share of answers of one class is suspicious
MOST_ABSTENTIONS = 0.5


def evaluation_concerns(
    *,
    label: np.ndarray,
    core: np.ndarray,
    guess: np.ndarray,
    abstained: np.ndarray,
    invalid: int,
    num_classes: int,
) -> list[str]:
    """The concerns about an evaluation.

    label: (N,); core, guess: (N,) answers of the core network and, under noise, of the
    certification network; abstained: (N,) whether ACES abstains at the working point; invalid:
    draws with NaN or infinite logits, of all images.
    """
    found, count = [], len(label)
    if count < FEW_IMAGES:
        half = 100 * 0.98 / np.sqrt(count)  # half the width of a 95 % interval around one half
        found.append(
            f"Only {count} images are evaluated: an accuracy is uncertain by up to {half:.0f} "
            "points either way. Evaluate more images (a smaller dataset.stride)."
        )
    for name, answers in (("core", core), ("certification", guess)):
        found += _network_concerns(name, np.asarray(answers), label, num_classes=num_classes)
    share = float(np.mean(abstained))
    if share > MOST_ABSTENTIONS:
        found.append(
            f"ACES abstains on {share:.0%} of the images at the working point. Raise sample.n, or "
            "train the networks longer."
        )
    if invalid:
        found.append(
            f"{invalid:,} noise draws gave NaN or infinite logits. They count against every "
            "answer. Use a higher sample.precision, or check the network's weights."
        )
    return found


def _network_concerns(
    name: str, answers: np.ndarray, label: np.ndarray, *, num_classes: int
) -> list[str]:
    """Whether a network is hardly better than chance, or nearly always gives one class."""
    known = label >= 0
    if not known.any():
        return []
    answers, label = answers[known], label[known]
    found, count = [], len(label)
    accuracy = float((answers == label).mean())
    frequent = float(np.bincount(label, minlength=num_classes).max() / count)
    # Three standard deviations above what the most frequent label alone would reach.
    chance = frequent + 3 * np.sqrt(frequent * (1 - frequent) / count)
    if accuracy <= chance:
        found.append(
            f"The {name} network is hardly better than chance: it is right on {accuracy:.0%} of "
            f"the images, and always answering the most frequent of {num_classes} classes would "
            f"be right on {frequent:.0%}."
        )
    given = np.bincount(answers[answers >= 0], minlength=num_classes)
    most, usual = given.max() / count, float((label == given.argmax()).mean())
    if most > MOST_ONE_CLASS and most > 1.2 * usual:
        found.append(
            f"The {name} network gives class {given.argmax()} to {most:.0%} of the images; "
            f"{usual:.0%} of them have it."
        )
    return found
