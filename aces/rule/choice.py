"""Theta is chosen with few draws: an image is drawn only as long as it can matter.

PREDICT looks at the draws of an image at moments fixed beforehand, up to n draws. The first look
that answers decides, and later ones change nothing (`aces.rule.confident`, `aces.rule.paper`). The
calibration's promise is about this PREDICT (`aces.rule.calibration`; its notation is used here).

After each look the answer for an image at a theta is known, or still open.
- The p-value grows with s, as a probability of values up to s, and with the number of images that
  change, w + g, which enlarges M (gamma where M < loss, 1 where a condition is not met: the same
  order). So two p-values enclose all those that the open answers may lead to: with s and w + g as
  small as they can become, and with both as large.
- So it is certain that H(theta) will be rejected, certain that it will not, or open. The search ends
  at the first H(theta) that is not rejected, at the latest at the first for which this is certain.
  It depends on the open thetas before that one. The theta that is chosen is an open one, or the one
  just below an open one or below the end of the search.
- An image whose answers are known at all of these thetas draws no more. What does not matter now
  never will, because the possible answers only become fewer.

Hence the theta chosen and its measured loss are those of all draws of all images: the losses that
decide do not depend on the stopping, and the promise's proof holds as it stands.

Measured on the default network, 2,000 images and a loss of 0.02: with n = 2,000 an image takes 218
draws in the mean, after the 100 that guess its class, and theta is 0.47. 250 draws of every image
choose 0.44, because more of them abstain.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from aces.rule.calibration import Calibration, calibrate, check, p_value_of
from aces.rule.outcomes import ABSTAIN
from aces.rule.sequential import Evidence

# The looks at some images, their guessed classes and the core's -> (N, T) answers of PREDICT.
Predict = Callable[[Evidence, np.ndarray, np.ndarray], np.ndarray]


class Choice:
    """The choice of theta while images are drawn, and which of them are worth more draws.

        choice = Choice(predict, core, label, thetas=thetas, loss=0.02, confidence=0.95)
        sample(..., enough=choice.settled)
        choice.calibration()

    core: (N,) classes of the core network; label: (N,); thetas: (T,) growing.
    """

    def __init__(
        self,
        predict: Predict,
        core: np.ndarray,
        label: np.ndarray,
        *,
        thetas: Sequence[float] | np.ndarray,
        loss: float,
        confidence: float,
    ):
        self.predict, self.core, self.label = predict, core, label
        self.thetas, self.loss, self.confidence = np.asarray(thetas, float), loss, confidence
        cells = (len(label), len(self.thetas))
        self.right, self.open = np.zeros(cells, dtype=bool), np.ones(cells, dtype=bool)
        check(core, self.right, self.thetas, loss=loss, confidence=confidence)

    def settled(self, evidence: Evidence, guess: np.ndarray, images: np.ndarray) -> np.ndarray:
        """(M,) whether each of these images needs no more draws, after a look at all of them.

        guess: (M,) guessed classes; images: (M,) places of the images among all N.
        """
        answers = self.predict(evidence, guess, self.core[images])
        self.open[images] = answers == ABSTAIN
        self.right[images] = (answers == self.label[images, None]) & ~self.open[images]
        return np.asarray(~self.open[images][:, self._matters()].any(axis=1))

    def calibration(self) -> Calibration:
        """The choice, once all images are settled or have all their draws."""
        return calibrate(
            self.core == self.label,
            self.right,
            thetas=self.thetas,
            loss=self.loss,
            confidence=self.confidence,
        )

    def _matters(self) -> np.ndarray:
        """(T,) the thetas at which open answers may still change the choice or its loss."""
        matters = np.zeros(self.open.shape[1], dtype=bool)
        for theta, outlook in enumerate(self._outlooks()):
            if outlook != "rejected":
                matters[theta] = outlook == "open"
                matters[max(theta - 1, 0)] = True
            if outlook == "not rejected":
                return matters
        matters[-1] = True
        return matters

    def _outlooks(self) -> Iterator[str]:
        """For one theta after the other: H will be `rejected`, `not rejected`, or this is `open`."""
        images, core_right = len(self.label), self.core == self.label
        lost = (core_right[:, None] & ~self.right & ~self.open).sum(axis=0)
        won = (~core_right[:, None] & self.right & ~self.open).sum(axis=0)
        may_lose = (core_right[:, None] & self.open).sum(axis=0)
        may_win = (~core_right[:, None] & self.open).sum(axis=0)
        delta = 1 - self.confidence
        for w, g, x, y in zip(lost, won, may_lose, may_win, strict=True):
            least = p_value_of(int(w - g - y), int(w + g), images, loss=self.loss, delta=delta)
            most = p_value_of(
                int(w + x - g), int(w + x + g + y), images, loss=self.loss, delta=delta
            )
            yield "rejected" if most <= delta else "not rejected" if least > delta else "open"
