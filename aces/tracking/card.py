"""The model card: what a registered model is, what it achieves, and what it does not promise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LIMITS = (
    "The certificate is about l2 changes of the image as the network receives it (after resizing), "
    "with probability at least 1 - alpha over the noise; it says nothing about other changes.",
    "The core network's answers, where ACES does not select the certification network, carry no "
    "radius of the certification network.",
    "The table is measured on the evaluation images named above; on other data it may differ.",
)


@dataclass(frozen=True)
class ModelCard:
    """What the card is made of. `rows`: theta -> metric -> value, in the order to be shown."""

    name: str
    data: str
    networks: Mapping[str, str]
    sigma: float
    theta: float
    theta_source: str
    alpha: float
    draws: int
    rule: str
    rows: Mapping[float, Mapping[str, float]]
    limits: Sequence[str] = LIMITS

    def markdown(self) -> str:
        """The card as Markdown, which MLflow's page shows."""
        columns = list(next(iter(self.rows.values()), {}))
        lines = [
            # MLflow's list of versions shows the first line.
            f"ACES at sigma = {self.sigma:g}, theta = {self.theta:g}",
            "",
            "A smoothed certification network answers with a certified l2 radius where it can; a "
            "core network answers elsewhere. Which of the two answers is decided per image.",
            "",
            f"- **Data:** {self.data}",
            *(f"- **{role} network:** {text}" for role, text in self.networks.items()),
            f"- **Noise:** sigma = {self.sigma:g}, {self.draws:,} draws per image",
            f"- **Working point:** theta = {self.theta:g} ({self.theta_source})",
            f"- **Rule:** {self.rule}, alpha = {self.alpha:g}",
            "",
            "| theta | " + " | ".join(columns) + " |",
            "|" + "---|" * (len(columns) + 1),
            *(self._row(theta, row, columns) for theta, row in self.rows.items()),
            "",
            "**Limits**",
            "",
            *(f"- {limit}" for limit in self.limits),
        ]
        return "\n".join(lines) + "\n"

    def _row(self, theta: float, row: Mapping[str, float], columns: list[str]) -> str:
        mark = "**" if theta == self.theta else ""
        values = " | ".join(f"{row[name]:.3f}" if name in row else "" for name in columns)
        return f"| {mark}{theta:g}{mark} | {values} |"
