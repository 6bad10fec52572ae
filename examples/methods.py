"""Every method on two drawn birds with a tiny random CLIP: the numbers mean nothing."""

import open_clip
import torch
from PIL import Image, ImageDraw

from fair_tta import TPT, FairTPT, FairTPTClassifier, FairTPTMO, OrthCali, Zero, ZeroShot

torch.manual_seed(0)
model = open_clip.CLIP(
    embed_dim=32,
    vision_cfg={"image_size": 64, "layers": 2, "width": 64, "patch_size": 16, "head_width": 16},
    text_cfg={"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 4, "layers": 2},
).eval()
preprocess = open_clip.image_transform(64, is_train=False)

clf = FairTPTClassifier(
    (model, preprocess, open_clip.SimpleTokenizer()),
    targets={"water bird": "of a water bird", "land bird": "of a land bird"},
    sensitive=["on water", "on land"],
    template="This is a picture {target} {sensitive}.",
)


def draw(ground: str) -> Image.Image:
    """A dark bird on blue or green ground."""
    image = Image.new("RGB", (96, 72), "lightblue")
    pen = ImageDraw.Draw(image)
    pen.rectangle((0, 45, 96, 72), fill=ground)
    pen.ellipse((30, 25, 66, 48), fill="black")
    pen.polygon([(62, 30), (80, 26), (64, 38)], fill="orange")
    return image


print("entropy: 0 is certain, 1 is indifferent; step: how far the prompt's context moved\n")
print(
    f"{'method':10} {'picture':8} {'answer':11} {'p(water)':>8} {'place entropy':>20} {'step':>6}"
)
for adapter in (ZeroShot(), Zero(), TPT(), OrthCali(), FairTPT(), FairTPTMO()):
    pictures = {"on blue": draw("blue"), "on green": draw("green")}
    for name, p in zip(
        pictures, clf.with_adapter(adapter).predict(list(pictures.values())), strict=True
    ):
        before, after = (
            entropy["sensitive"] for entropy in (p.sensitive_entropy_zero_shot, p.sensitive_entropy)
        )
        step = "" if p.relative_step is None else f"{p.relative_step:.2f}"
        print(
            f"{type(adapter).__name__:10} {name:8} {p.label:11} "
            f"{p.probabilities['water bird']:8.3f} {before:10.3f} -> {after:.3f}  {step:>6}"
        )
