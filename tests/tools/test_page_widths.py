"""Pages that are too wide, silent or curious are found, in Chromium where it is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

import headless
import page_widths

PAGE = (
    "<!doctype html><meta name=viewport content='width=device-width'><title>t</title>"
)
PIXEL = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA="


@pytest.mark.skipif(bool(headless.missing()), reason=headless.missing() or "-")
def test_what_is_wrong_with_pages_is_told(tmp_path: Path) -> None:
    pages = {
        "good": f"<pre style='overflow:auto'>{'long ' * 99}</pre><img alt='a dot' src={PIXEL}>",
        "wide": "<div style='width:800px'>wide</div>",
        "silent": f"<img src={PIXEL}><img alt='not there' src=/gone.png>",
        "curious": "<script src=http://localhost:9/a.js></script>",
    }
    for name, body in pages.items():
        (tmp_path / f"{name}.html").write_text(PAGE + body)
    lines = page_widths.look(tmp_path, tmp_path / "shots")
    page_lines = [line.partition(" pixels: ") for line in lines]
    assert ("wide.html at 380", "it is 808 wide, because of DIV.") in [
        (a, c) for a, _, c in page_lines
    ]
    assert not [
        line for line in lines if line.startswith(("good.html", "wide.html at 1280"))
    ]
    silent = [line for line in lines if line.startswith("silent.html at 1280")]
    assert len(silent) == 2
    assert "gone.png is missing" in silent[0]
    assert "has no alt text" in silent[1]
    curious = [line for line in lines if line.startswith("curious.html at 380")]
    assert curious == [
        "curious.html at 380 pixels: it asks for http://localhost:9/a.js"
    ]
    assert (tmp_path / "shots" / "good.html-380.png").stat().st_size > 500


def test_without_a_browser_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["page_widths.py", str(tmp_path)])
    with pytest.raises(SystemExit, match="holds no pages: run `make docs` first"):
        page_widths.main()
    (tmp_path / "index.html").write_text(PAGE)
    monkeypatch.setattr(page_widths, "missing", lambda: "chromium is not installed")
    page_widths.main()
    assert capsys.readouterr().out == (
        "widths of pages: not checked, for chromium is not installed\n"
    )
