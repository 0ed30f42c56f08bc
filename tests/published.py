"""The folders of results/ whose plans are in config/."""

PUBLISHED = (
    *("ablation", "ladder", "lengths", "overnight", "paper", "precision"),
    *("two-digit-again", "two-digit-average", "two-digit-replaced", "two-digit-squeezed"),
)
