"""Every method on four drawn birds, with the embedded model."""

from fair_tta import (
    TPT,
    FairTPT,
    FairTPTClassifier,
    FairTPTMO,
    OrthCali,
    Zero,
    ZeroShot,
    miniature,
)

task = miniature.BIRDS
drawn = task.draw(4, seed=1)  # a water and a land bird, each on water and on land
clf = FairTPTClassifier("miniature", task.targets, task.sensitive, task.template)

print(
    "entropy: 0 is certain, 1 is indifferent; step: how far the prompt's context moved\n"
)
print(
    f"{'method':10} {'image':20} {'answer':11} {'p':>5} {'place entropy':>16} {'step':>6}"
)
for adapter in (ZeroShot(), Zero(), TPT(), OrthCali(), FairTPT(), FairTPTMO()):
    predictions = clf.with_adapter(adapter).predict(
        [drawn_image.image for drawn_image in drawn]
    )
    for drawn_image, p in zip(drawn, predictions, strict=True):
        name = f"{drawn_image.target} on {drawn_image.sensitive['background']}"
        before, after = p.sensitive_entropy_zero_shot, p.sensitive_entropy
        step = "" if p.relative_step is None else f"{p.relative_step:.2f}"
        print(
            f"{type(adapter).__name__:10} {name:20} {p.label:11} {p.probabilities[p.label]:5.2f} "
            f"{before['background']:7.2f} -> {after['background']:.2f} {step:>7}"
        )
