"""Answers as HTML: every method, escaped names, a certificate that says what is true."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from internals import (
    ADAPTERS,
    Classifiers,
    FormFields,
    answers_html,
    certificate,
    chosen_methods,
    content_generator,
    draw_examples,
    draw_folder,
    fit_on_folder,
    form_fields_of,
    kept_views,
    sandboxed,
    why_unusable,
)

from fair_tta import FairTPTClassifier, OrthCali, Zero
from fair_tta.extend import AugMix
from fair_tta.miniature import BIRDS


@pytest.fixture(scope="module")
def birds() -> FairTPTClassifier:
    classifiers = Classifiers(views=8)
    return classifiers.get(form_fields_of(BIRDS))


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> str:
    paths, _ = draw_folder(tmp_path_factory.mktemp("drawn"), BIRDS, 3)
    return paths[2]


@pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")
def test_every_method_answers(
    birds: FairTPTClassifier, picture: str, tmp_path: Path
) -> None:
    draw_folder(tmp_path, BIRDS, 12)
    usable = [name for name in ADAPTERS if not why_unusable(name)]
    methods = fit_on_folder(birds, chosen_methods(usable), tmp_path).adapters
    html = answers_html(birds, methods, picture)
    assert re.findall(r'data-method="([^"]+)"', html) == usable
    assert 'role="alert"' not in html
    for words in (
        "before",
        "after",
        "perceived: background",
        "a change takes at least",
    ):
        assert words in html


def test_html_shows_what_predict_says(birds: FairTPTClassifier, picture: str) -> None:
    (method,) = chosen_methods(["fair-tpt"]).values()
    prediction = birds.with_adapter(method).predict(picture)
    html = answers_html(birds, {"fair-tpt": method}, picture)
    assert prediction._repr_html_() in html
    assert f"{prediction.views_kept} of 8 views were kept" in html
    assert html.count("<figure>") == prediction.views_kept


def test_what_a_method_needs_is_told_beside_what_others_answer(picture: str) -> None:
    plain = Classifiers(views=4).get(FormFields("water bird, land bird"))
    html = answers_html(
        plain, chosen_methods(["zero-shot", "fair-tpt", "umfc"]), picture
    )
    assert "FairTPT needs sensitive attribute values" in html
    assert "UMFC has not been fitted" in html
    assert 'data-method="zero-shot"' in html


def test_names_are_text_and_not_markup(picture: str) -> None:
    evil = "<img src=x onerror=alert(1)>"
    hostile = Classifiers(views=4).get(
        FormFields(f"{evil.replace('=', chr(92) + '=')}\ncat")
    )
    html = answers_html(hostile, chosen_methods(["zero"]), picture)
    assert "<img src=x" not in html
    assert "&lt;img src=x onerror=alert(1)&gt;" in html


def test_kept_views_are_those_with_the_most_certain_answers(
    birds: FairTPTClassifier, picture: str
) -> None:
    image, method = birds._vision.load(picture), Zero(rho=0.5)
    prediction = birds.with_adapter(method).predict(image)
    kept = kept_views(birds, method, image, prediction)
    assert len(kept) == prediction.views_kept == 4
    # an independent way: each view as a picture of its own
    views = AugMix(8)(image, (64, 64), content_generator(image, birds._vision.seed))
    rendered = [np.asarray(image), *views.round().clip(0, 255).astype(np.uint8)]
    log_p = birds._task.log_probabilities(
        birds.encode([image]), birds._task.target_features
    )
    p = log_p.exp()[0].numpy()
    entropy = -(p * np.log(p)).sum(1)
    assert [view.number for view in kept] == np.argsort(entropy, kind="stable")[
        :4
    ].tolist()
    for view in kept:
        assert np.array_equal(np.asarray(view.image), rendered[view.number])
        assert view.probability == pytest.approx(p[view.number].max(), abs=1e-6)
        assert view.label == birds.targets[p[view.number].argmax()]
    assert kept_views(birds, OrthCali(), image, prediction) == []


def test_the_certificate_says_which_of_the_three_it_is(
    birds: FairTPTClassifier, picture: str
) -> None:
    (method,) = chosen_methods(["zero-shot"]).values()
    unchanged = birds.with_adapter(method).predict(picture)
    assert certificate(unchanged).startswith("Certified: the answer could not change.")
    open_ = replace(unchanged, certified_unchanged=False, distance=0.4, flip_margin=0.1)
    assert (
        "not certified. The probabilities moved by 0.400, and a change takes at least 0.100"
        in certificate(open_)
    )
    answer = next(name for name in birds.targets if name != unchanged.label)
    flipped = replace(open_, label=answer)
    assert f"The answer changed from {unchanged.label} to {answer}" in certificate(
        flipped
    )


def test_pages_inside_may_do_nothing() -> None:
    html = sandboxed('<p title="a">\'</p><script>1</script>', 'A "report"')
    assert 'sandbox=""' in html
    assert "<script>" not in html
    assert "&quot;a&quot;" in html


def test_examples_are_of_every_world_and_of_different_groups(tmp_path: Path) -> None:
    examples = draw_examples(tmp_path / "examples")
    assert len(set(examples.values())) == 3
    assert len({Path(path).read_bytes() for path in examples}) == len(examples) == 13
    path, fields = next(iter(examples.items()))
    clf = Classifiers(views=4).get(fields).with_adapter("association-correction")
    assert clf.predict(path).flipped, "the first one shows a change"
