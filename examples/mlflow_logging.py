"""An audit in MLflow: figures with their intervals as metrics, audit and report as artifacts.

    pip install mlflow && python examples/mlflow_logging.py

Drawn badges and the embedded model stand in for yours.
"""

import tempfile
from pathlib import Path

import mlflow  # type: ignore[import-not-found, unused-ignore]

from fair_tta import FairTPTClassifier, compare
from fair_tta.miniature import BADGES as task

drawn = task.draw(360, seed=1)
clf = FairTPTClassifier("miniature", task.targets, task.sensitive, task.template)
images, labels = [d.image for d in drawn], [d.target for d in drawn]
colours = {"colour": [d.sensitive["colour"] for d in drawn]}
methods = ("zero-shot", "association-correction")
audit = compare(
    [clf.audit(images, labels, colours, adapter=method) for method in methods]
)

for run in audit.runs:
    with mlflow.start_run(run_name=run):
        mlflow.log_param("method", run)
        for metric in ("accuracy", "worst_group_accuracy", "typical_gap"):
            figure = audit.estimate(metric, run)
            mlflow.log_metric(metric, figure.value)
            for end, value in zip(
                ("low", "high"), (figure.low, figure.high), strict=True
            ):
                mlflow.log_metric(f"{metric}_{end}", value)
        with tempfile.TemporaryDirectory() as folder:
            audit.save(Path(folder) / "audit.json")
            audit.save_html(Path(folder) / "report.html")
            mlflow.log_artifacts(folder)
