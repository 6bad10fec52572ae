"""Zero-shot answers of a tiny random CLIP, wrapped: no download, and no meaning in the numbers."""

import open_clip
import torch
from PIL import Image, ImageDraw

from fair_tta import FairTPTClassifier

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


print(f"prompts: {', '.join(clf.task.target_prompts.texts)}")
print(f"context: {len(clf.task.context)} vectors of width {clf.task.context.shape[1]}\n")
print(f"{'picture':10} {'answer':12} {'p(water)':>8} {'p(land)':>8} {'p(on water)':>12}")
for ground, prediction in zip(
    ("blue", "green"), clf.predict([draw("blue"), draw("green")]), strict=True
):
    water, land = prediction.probabilities.values()
    on_water = prediction.sensitive["sensitive"]["on water"]
    print(f"{ground:10} {prediction.label:12} {water:8.3f} {land:8.3f} {on_water:12.3f}")
