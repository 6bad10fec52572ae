"""The wrong answers of one group in FiftyOne, to look at them.

    pip install fiftyone && python examples/fiftyone_view.py

Drawn badges and the embedded model stand in for yours: put the paths of your images and your labels
in `images`, `labels` and `colours`. `fiftyone.launch_app(view=view)` opens the view in a browser.
"""

import tempfile
from pathlib import Path

import fiftyone  # type: ignore[import-not-found, unused-ignore]
from fiftyone import ViewField  # type: ignore[import-not-found, unused-ignore]

from fair_tta import FairTPTClassifier
from fair_tta.miniature import BADGES as task

folder = Path(tempfile.mkdtemp())
drawn = task.draw(90, seed=1)
images = [folder / f"{number}.png" for number in range(len(drawn))]
for path, drawn_image in zip(images, drawn, strict=True):
    drawn_image.image.save(path)
labels, colours = [d.target for d in drawn], [d.sensitive["colour"] for d in drawn]

clf = FairTPTClassifier("miniature", task.targets, task.sensitive, task.template)
answers = clf.with_adapter("zero-shot").predict(images)
dataset = fiftyone.Dataset()
for path, label, colour, answer in zip(images, labels, colours, answers, strict=True):
    sample = fiftyone.Sample(filepath=str(path), colour=colour)
    sample["truth"] = fiftyone.Classification(label=label)
    confidence = answer.probabilities[answer.label]
    sample["zero_shot"] = fiftyone.Classification(
        label=answer.label, confidence=confidence
    )
    dataset.add_sample(sample)
wrong = ViewField("zero_shot.label") != ViewField("truth.label")
view = dataset.match(wrong & (ViewField("colour") == "green"))
print(f"{len(view)} of {colours.count('green')} green badges are answered wrongly")
