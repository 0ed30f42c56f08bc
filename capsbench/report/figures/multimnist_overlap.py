"""Figure: classification and segmentation of two digits against how much they overlap."""

from __future__ import annotations

from capsbench.report.captions import conditions_in_words, pairs_drawn
from capsbench.report.figures import Drawing, NotDrawnError
from capsbench.report.figures.style import MUTED, key, looks, panel_grid, room_for_key, seeds_and_mean, tidy
from capsbench.report.readers import OVERLAP, read_all, scored
from capsbench.report.results import Results
from capsbench.report.tables import spec_for

PANELS = 4
COPY = "baseline_"  # the merged input itself, taken for each digit


def draw(results: Results) -> Drawing:
    """One panel a metric of the readable table, as far as overlap.csv has it; one line a variant."""
    frame = read_all(results, scored(results, "multimnist", "test"), "test/overlap.csv", OVERLAP)
    if frame is None:
        raise NotDrawnError("no finished run of task multimnist has an overlap.csv")
    frame["overlap"] = (frame["overlap_low"] + frame["overlap_high"]) / 2
    found = set(frame["metric"])
    shown = [m for m in spec_for("multimnist", results).main if m.name in found and not m.name.startswith(COPY)]
    metrics = {m.name: m.heading for m in shown[:PANELS]}
    metrics = metrics or {name: name for name in sorted(found)[:PANELS]}
    variants = list(dict.fromkeys(frame["variant"]))
    figure, panels = panel_grid(len(metrics), min(len(metrics), 2), 2.5, above=0.5 + room_for_key(results, variants))
    for axes, (metric, label) in zip(panels, metrics.items(), strict=True):
        for variant in variants:
            of = frame[(frame["metric"] == metric) & (frame["variant"] == variant)]
            seeds_and_mean(axes, looks(results)[variant], of, "overlap", "value")
        copied = frame[frame["metric"] == COPY + metric.removesuffix("_true")].groupby("overlap")["value"].mean()
        if len(copied):
            axes.plot(copied.index, copied, color=MUTED, linestyle=(0, (1, 1)), lw=1.2)
            end = (copied.index[-1], copied.iloc[-1])
            rises = copied.iloc[-1] > copied.iloc[0]  # at its end there is room above it, at a falling line's below
            axes.annotate(
                "copied input",
                end,
                (0, 2 if rises else -4),
                textcoords="offset points",
                fontsize=7.5,
                color=MUTED,
                ha="right",
                va="bottom" if rises else "top",
            )
        axes.set_ylabel(label)
        axes.set_xlabel("overlap of the two digits")
        tidy(axes)
    key(figure, results, looks(results), variants)
    words = ["Against the share of one digit's box that the other's covers. Thick lines are means, thin ones seeds."]
    words += [*conditions_in_words(results, "multimnist"), *pairs_drawn(results)]
    return Drawing(figure, "Two digits, by how much they overlap", " ".join(words), ("multimnist",))
