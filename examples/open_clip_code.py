"""The zero-shot code of open_clip's README, and the lines that make it fair-tta."""

import torch

from fair_tta import FairTPTClassifier, ZeroShot
from fair_tta.miniature import SCENES as task
from fair_tta.miniature import load_open_clip

# The embedded model stands in for
#   model, _, preprocess = open_clip.create_model_and_transforms("ViT-B-32", "openai")
#   tokenizer = open_clip.get_tokenizer("ViT-B-32")
model, preprocess, tokenizer = load_open_clip()

drawn = task.draw(6, seed=2)
sentences = [f"A small view {phrase}." for phrase in task.targets.values()]

# Before: what one finds in open_clip code.
with torch.no_grad():
    image_features = model.encode_image(
        torch.stack([preprocess(p.image) for p in drawn])
    )
    text_features = model.encode_text(tokenizer(sentences))
    image_features /= image_features.norm(dim=-1, keepdim=True)
    text_features /= text_features.norm(dim=-1, keepdim=True)
    before = (model.logit_scale.exp() * image_features @ text_features.T).softmax(
        dim=-1
    )

# After: the same three objects, and what should not matter, in words.
clf = FairTPTClassifier(
    (model, preprocess, tokenizer),
    targets=task.targets,
    sensitive=task.sensitive,  # two attributes: the time of day and the season
    template=task.template,
)
after = clf.predict([p.image for p in drawn])
zero_shot = clf.with_adapter(ZeroShot()).predict_proba([p.image for p in drawn])
print(
    f"zero-shot differs from open_clip's own code by {abs(zero_shot - before.numpy()).max():.1e}\n"
)

print(
    f"{'truth':22} {'open_clip':>14} {'FairTPT':>14}   entropy of time, season (1: blurred)"
)
for p, old, new in zip(drawn, before, after, strict=True):
    first = f"{clf.targets[int(old.argmax())]} {float(old.max()):.3f}"
    second = f"{new.label} {new.probabilities[new.label]:.3f}"
    blur = ", ".join(
        f"{new.sensitive_entropy_zero_shot[a]:.2f} -> {new.sensitive_entropy[a]:.2f}"
        for a in clf.sensitive
    )
    truth = ", ".join([p.target, *p.sensitive.values()])
    print(f"{truth:22} {first:>14} {second:>14}   {blur}")
