"""The cache that counts bytes, and what is kept in it."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import families
import pytest
import torch
from checks import SENSITIVE, TEMPLATE, picture
from internals import Task, TextFeatures, size_of

from fair_tta import FairTPTClassifier, FairTTAError, Templates
from fair_tta.extend import Cache
from fair_tta.models import TransformersBackend


def test_the_oldest_go_when_bytes_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fair_tta._cache._ENTRY_BYTES", 0)
    kept, me = Cache(limit=10), object()
    for i in range(4):
        kept._keep(me, i, str(i), 3)
    assert [kept._find(me, i) for i in range(4)] == [None, "1", "2", "3"]
    kept._find(me, 1)  # the most recent now
    kept._keep(me, 4, "4", 6)
    assert [kept._find(me, i) for i in range(5)] == [None, "1", None, None, "4"]
    kept._keep(me, 5, "5", 11)  # too large to be kept, and the others stay
    assert [kept._find(me, i) for i in (1, 4, 5)] == ["1", "4", None]
    kept._keep(me, 4, "four", 1)
    kept._keep(me, 6, "6", 6)
    assert [kept._find(me, i) for i in (1, 4, 6)] == ["1", "four", "6"]
    assert kept.bytes == 10
    kept.clear()
    assert len(kept) == kept.bytes == 0
    kept._keep(me, 0, "0", 10)
    assert kept._find(me, 0) == "0"


def test_each_owner_has_its_own() -> None:
    kept, me, you = Cache(10_000), object(), object()
    kept._keep(me, "key", "mine", 0)
    kept._keep(you, "key", "yours", 0)
    assert (kept._find(me, "key"), kept._find(you, "key")) == ("mine", "yours")
    kept.clear(me)
    assert (kept._find(me, "key"), kept._find(you, "key")) == (None, "yours")


@pytest.mark.parametrize("limit", [-1, 0.5, None])
def test_the_limit_is_a_number_of_bytes(limit: Any) -> None:
    with pytest.raises(FairTTAError, match="`limit` should be an integer >= 0"):
        Cache(limit)


def test_tensors_are_counted_wherever_they_are() -> None:
    two = torch.zeros(2)
    texts = TextFeatures(two, {"a": two}, lambda _: two)
    assert [size_of(x) for x in (two, [two, (two, "x")], {"a": two}, texts, None)] == [
        8, 16, 8, 16, 0,
    ]  # fmt: skip


def test_a_copy_is_empty() -> None:
    kept = Cache(10_000)
    kept._keep(
        kept, "key", torch.zeros(2, requires_grad=True).exp(), 8
    )  # cannot be copied
    for changed_view in (
        copy.copy(kept),
        copy.deepcopy(kept),
        pickle.loads(pickle.dumps(kept)),
    ):
        assert (changed_view.limit, changed_view.bytes, len(changed_view)) == (
            10_000,
            0,
            0,
        )


def test_threads_may_share_one() -> None:
    kept = Cache(50_000)

    def work(seed: int) -> None:
        for i in range(500):
            key = (i * seed) % 97
            assert kept._find(kept, key) in (None, key + 1)
            kept._keep(kept, key, key + 1, 8)
            if i % 50 == 0:
                kept.clear()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(1, 9)))
    assert kept.bytes == sum(size for _, size in kept._entries.values()) <= kept.limit


def test_what_a_task_remembers_is_bounded_in_bytes() -> None:
    backend = TransformersBackend(*families.seeded(families.clip))
    templates = Templates("a {target}")
    task = Task(backend, {"a": "cat", "b": "dog"}, {}, templates, cache=Cache(12_000))
    calls = []

    def make() -> Any:
        calls.append(1)
        return torch.zeros(1000)

    for i in (0, 1, 2, 2, 0):
        task.remember(i, make)
    assert len(calls) == 4


def test_embeddings_of_many_prompts_are_made_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = TransformersBackend(*families.seeded(families.clip))
    names = {f"{a} {b}": f"{a} {b}" for a in "abcdefghijklm" for b in "nopqrstuvwxyz"}
    task = Task(backend, names, SENSITIVE, Templates.from_sentence(TEMPLATE))
    context = task.context.repeat(3, 1, 1)
    cotangent = torch.ones(3, len(names), 16)

    def work() -> list[torch.Tensor]:
        return [
            task.encode_many(task.target_prompts, context),
            task._pull_back(task.target_prompts, context, cotangent),
        ]

    first = work()
    monkeypatch.setattr(backend, "embed_tokens", None)
    again = work()
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_what_was_begun_before_it_was_cleared_is_not_kept() -> None:
    cache = Cache()
    since = cache.times_cleared
    cache.clear()
    cache._keep("owner", "key", "of older weights", 1, since)
    assert len(cache) == 0
    cache._keep("owner", "key", "of these", 1, cache.times_cleared)
    assert cache._find("owner", "key") == "of these"


def test_without_a_cache_no_digest_of_an_image_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fair_tta.images._vision.image_digest", None)
    clf = FairTPTClassifier("miniature", ["circle", "square"], cache=Cache(0))
    assert len(clf.predict([picture(0), picture(0)])) == 2
