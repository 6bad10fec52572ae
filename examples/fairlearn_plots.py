"""fairlearn's own metrics and plots on our output: drawn birds, the embedded model, offline."""

import warnings

import matplotlib.pyplot as plt
from fairlearn.metrics import (  # type: ignore[import-untyped]
    equalized_odds_difference,
    false_negative_rate,
    plot_model_comparison,
    selection_rate,
)
from sklearn.metrics import accuracy_score  # type: ignore[import-untyped]

from fair_tta import FairTPT, FairTPTClassifier, OrthCali, ZeroShot, compare
from fair_tta.extend import Adapter
from fair_tta.miniature import BIRDS as task

plt.switch_backend("Agg")  # no window
warnings.simplefilter("ignore")  # groups of 10 images are small

drawn = task.draw(40, seed=1)
clf = FairTPTClassifier("miniature", task.targets, task.sensitive, task.template)
images = [p.image for p in drawn]
labels = [p.target for p in drawn]
background = {"background": [p.sensitive["background"] for p in drawn]}

methods: list[Adapter] = [
    ZeroShot(),
    OrthCali(),
    FairTPT(),
    FairTPT() >> OrthCali(lam=0),
]
audit = compare(
    [clf.with_adapter(method).audit(images, labels, background) for method in methods]
)

# A MetricFrame of each run, with any metric of fairlearn or scikit-learn, and its bar plot.
metrics = {
    "accuracy": accuracy_score,
    "water birds missed": lambda t, p: false_negative_rate(
        t, p, pos_label="water bird"
    ),
    "called water bird": lambda t, p: selection_rate(t, p, pos_label="water bird"),
}
for run in audit.runs:
    frame = audit.to_metric_frame(run, metrics)
    print(run, frame.by_group.round(3), "", sep="\n")
    axes = frame.by_group.plot.bar(subplots=True, figsize=(5, 8), rot=0, legend=False)
    axes[0].figure.savefig(f"{run}.png")

# Accuracy against a gap, each run a point: fairlearn's comparison of models.
rows = audit.to_dataframe()
plot_model_comparison(
    y_preds={
        run: (rows[f"y_pred: {run}"] == "water bird").astype(int) for run in audit.runs
    },
    y_true=(rows["y_true"] == "water bird").astype(int),
    sensitive_features=rows["sensitive: background"],
    x_axis_metric=accuracy_score,
    y_axis_metric=equalized_odds_difference,
    point_labels=True,
    ax=plt.figure(layout="constrained").subplots(),
).figure.savefig("comparison.png")
print("written: comparison.png,", ", ".join(f"{run}.png" for run in audit.runs))
