"""Answers to the questions of a unit, and what they cost.

**How time is charged**, here and nowhere else: an answer costs its share of what its method took
for the pictures of the unit, and its share of making and encoding what the method looks at, all
views or the picture alone. What several methods share is charged to each in full, so that the cost
of a method does not depend on its company. With a bank, the picture alone costs one view's share of
what encoding took, whenever that was. A method that needs the pictures themselves makes all that it
looks at on its own, also with a bank, and that is what it costs. Decoding is charged to nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import torch
from PIL.Image import Image
from torch import Tensor

from fair_tta._cache import Cache
from fair_tta._images.load import decoding_threads
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError, ImageError
from fair_tta.lab._runs.bank import AskedPicture, Bank, PictureFile, read_picture
from fair_tta.lab._runs.job import Job, WorkUnit
from fair_tta.lab._runs.store import Answer, Key, to_answer
from fair_tta.methods._base import Adapter

Answered = list[Answer] | str
"""The answers on a picture in the order of the questions, or why it cannot be used."""

_NOT_THE_PICTURE: tuple[type[Exception], ...] = (FairTTAError, MemoryError, torch.OutOfMemoryError)
if hasattr(torch, "AcceleratorError"):  # since torch 2.8
    _NOT_THE_PICTURE += (torch.AcceleratorError,)


@dataclass(frozen=True)
class LoadedPicture:
    """A picture, and the file that it was read from."""

    image: Image
    file: PictureFile


@dataclass(frozen=True)
class _Encoded:
    """Unit features ``[views, dim]`` of a picture, and what they took."""

    features: Tensor
    seconds: float


@dataclass(frozen=True)
class BegunUnit:
    """A unit whose pictures are on their way, those that have open questions: place by place."""

    unit: WorkUnit
    loading: Mapping[int, Future[LoadedPicture]]


class Worker:
    """Does units, one after another; threads decode the pictures of those that are begun.

    Args:
        job: what is common to all units.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._banks: dict[int, Bank] = {}
        self._classifiers: dict[tuple[int, int], FairTPTClassifier] = {}
        self._cache = None if job.alone else Cache()  # of all tasks together
        self._threads = decoding_threads()

    def __call__(self, unit: WorkUnit) -> list[Answered]:
        """See `finish`."""
        return self.finish(self.begin(unit))

    def close(self) -> None:
        """End the threads; what they have not begun to decode is left."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def begin(self, unit: WorkUnit) -> BegunUnit:
        """Let the threads decode, while another unit is worked on: this holds them in memory."""
        clf = self._classifier(*unit.questions[0], unit.seed)
        open_ = unit.open or (True,) * len(unit.pictures)
        places = [place for place, some in enumerate(open_) if some]
        loading = {
            place: self._threads.submit(load_picture, clf, unit.pictures[place]) for place in places
        }
        return BegunUnit(unit, loading)

    def finish(self, begun: BegunUnit) -> list[Answered]:
        """For each picture the answers, or why there are none.

        A picture that the model's own code fails on is left out alone. What fails with each of
        several pictures, or for want of memory, is no fault of a picture and is raised.
        """
        unit, loading = begun.unit, begun.loading
        clf = self._classifier(*unit.questions[0], unit.seed)
        loaded: dict[int, LoadedPicture] = {}
        problems: dict[int, str] = {}
        every = frozenset(unit.questions)
        open_ = unit.open or (every,) * len(unit.pictures)
        asked: set[tuple[int, int]] = set()
        for place in sorted(range(len(unit.pictures)), key=lambda i: not open_[i]):
            if not open_[place] and not asked:
                break  # nothing is missing that could be had
            try:
                if place not in loading:
                    loaded[place] = load_picture(clf, unit.pictures[place])
                else:
                    loaded[place] = loading[place].result()
                asked |= open_[place]
            except ImageError as error:
                problems[place] = str(error)
        loaded = dict(sorted(loaded.items()))
        answers: dict[int, list[Answer]] = {place: [] for place in range(len(unit.pictures))}
        if asked:
            looks = {_looks(self._job.settings[setting]) for _, setting in asked}
            encoded = {views: self._encode(clf, loaded, views, problems) for views in looks}
            usable = {place: one for place, one in loaded.items() if place not in problems}
            for task, setting in (q for q in unit.questions if q in asked and usable):
                of = encoded[_looks(self._job.settings[setting])]
                self._answer(unit, task, setting, usable, of, answers)
        clf.vision.forget()  # nobody asks for these pictures again
        return [problems.get(place) or made for place, made in answers.items()]

    def _answer(
        self,
        unit: WorkUnit,
        task: int,
        setting: int,
        usable: dict[int, LoadedPicture],
        encoded: dict[int, _Encoded],
        answers: dict[int, list[Answer]],
    ) -> None:
        model, tasks, settings = self._job.digests
        adapter = self._job.settings[setting]
        clf = self._classifier(task, setting, unit.seed).with_adapter(adapter)
        is_own = adapter.needs.pixels
        if is_own:
            clf.vision.forget()  # or it would cost less after others that look at the same
        start = time.perf_counter()
        if is_own:
            predictions = clf.predict([one.image for one in usable.values()])
        else:
            features = torch.stack([encoded[place].features for place in usable])
            predictions = clf.predict_encoded(features)
        own = (time.perf_counter() - start) / len(usable)
        for (place, one), prediction in zip(usable.items(), predictions, strict=True):
            answer = to_answer(
                prediction,
                Key(one.file.content, model, tasks[task], settings[setting], unit.seed),
                image=unit.pictures[place].name,
                file=one.file.stamp,
                seconds=own if is_own else own + encoded[place].seconds,
            )
            answers[place].append(answer)

    def _encode(
        self,
        clf: FairTPTClassifier,
        loaded: dict[int, LoadedPicture],
        views: bool,
        problems: dict[int, str],
    ) -> dict[int, _Encoded]:
        """What the model makes of the pictures; those that it cannot use become problems."""
        places = list(loaded)

        def encode(some: Sequence[int]) -> list[_Encoded]:
            if self._job.bank is not None:
                return self._from_bank(clf, [loaded[i] for i in some], views)
            return _timed(lambda: clf.encode([loaded[i].image for i in some], views=views))

        found, failed = {}, {}
        try:
            found = dict(zip(places, encode(places), strict=True))
        except _NOT_THE_PICTURE:
            raise
        except Exception:  # a picture of odd shape makes a model's own code fail
            for place in places:
                try:
                    (found[place],) = encode([place])
                except _NOT_THE_PICTURE:
                    raise
                except Exception as error:
                    failed[place] = f"{type(error).__name__}: {error}"
            if len(failed) == len(places) > 1:
                raise  # not the pictures but the program
        finite = {p: bool(one.features.isfinite().all()) for p, one in found.items()}
        if any(finite.values()):  # else the classifier says what to do
            failed |= {p: "its features are not finite" for p, good in finite.items() if not good}
        for place, why in failed.items():
            size = "{} x {}".format(*loaded[place].image.size)
            problems[place] = f"the model cannot use this picture of {size} pixels ({why})"
        return found

    def _from_bank(
        self, clf: FairTPTClassifier, some: Sequence[LoadedPicture], views: bool
    ) -> list[_Encoded]:
        seed = clf.vision.seed
        if seed not in self._banks:
            assert self._job.bank is not None
            self._banks[seed] = Bank(self._job.bank, self._job.facts, seed)
        banked = self._banks[seed].get(
            [one.file.content for one in some],
            lambda missing: clf.encode([some[i].image for i in missing]),
        )
        features = banked.features.to(self._job.backend.device)
        share = 1.0 if views else 1.0 / features.shape[1]
        return [_Encoded(f, share * s) for f, s in zip(features, banked.seconds, strict=True)]

    def _classifier(self, task: int, setting: int, seed: int) -> FairTPTClassifier:
        key = task, setting if self._job.alone else 0
        clf = self._classifiers.get(key)
        if clf is None:
            clf = self._job.classifier(task, self._cache)
            _ = clf.task.target_features, clf.task.sensitive_features  # before any clock runs
        if clf.vision.seed != seed:
            clf = clf.with_views(self._job.views, seed)
        self._classifiers[key] = clf
        return clf


def _looks(adapter: Adapter) -> bool:
    """Whether features of all views are to be made for a method."""
    return adapter.needs.views and not adapter.needs.pixels


def start_worker(
    job: Job, threads: int, device: str | None = None
) -> Callable[[WorkUnit], list[Answered]]:
    """A worker of another process. What keeps it from starting is told when it is asked to work:
    raised before, it would be lost.

    Args:
        job: what is common to all units.
        threads: of torch, unless the job says.
        device: of the model, unless the job says.
    """
    try:
        torch.set_num_threads(job.threads or threads)
        job.load_here(device)
        return Worker(job)
    except Exception as error:
        reason = (
            str(error) if isinstance(error, FairTTAError) else f"{type(error).__name__}: {error}"
        )

    def fail(_: WorkUnit) -> list[Answered]:
        raise FairTTAError(f"a worker process cannot start: {reason}")

    return fail


def load_picture(clf: FairTPTClassifier, picture: AskedPicture) -> LoadedPicture:
    """Read a picture once, for its content and its pixels.

    Raises:
        ImageError: it cannot be used.
    """
    try:
        file = read_picture(picture)
        return LoadedPicture(clf.vision.load(file.data), file)
    except (OSError, ImageError):
        clf.vision.load(picture.source)  # raises too, in words about the file
        raise


def _timed(encode: Callable[[], Tensor]) -> list[_Encoded]:
    start = time.perf_counter()
    features = encode()
    _ = float(features[0, 0, 0]) if len(features) else 0.0  # an accelerator is done when it answers
    seconds = (time.perf_counter() - start) / max(1, len(features))
    return [_Encoded(one, seconds) for one in features]
