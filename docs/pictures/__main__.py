"""Makes every picture of README and the documentation: `make pictures`."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cbe.report.page.render import render
from cbe.store.folder import Store
from docs.pictures.pages import SHOTS, browser, take
from docs.pictures.record import RECORD
from docs.pictures.terminals import TERMINALS, THEMES, svg

HERE = Path(__file__).parent


def main() -> None:
    """Writes the pictures, each in light and dark, and the list of what the pages show."""
    for old in (*HERE.glob("*.svg"), *HERE.glob("*.png")):
        old.unlink()
    for name in TERMINALS:
        for theme in THEMES:
            _write(f"{name}-{theme}.svg", svg(name, theme).encode())
    (HERE / "pages.json").write_text(json.dumps(_pages(), indent=2, ensure_ascii=False) + "\n", "utf-8")


def _pages() -> dict[str, Any]:
    """Takes the pages; returns what each of them shows."""
    shown = {}
    with TemporaryDirectory() as folder, browser() as started:
        report = Path(folder, "quickstart.html")
        report.write_text(render(Store.open(str(RECORD.parent)).study(RECORD.name)), "utf-8")
        for name, shot in SHOTS.items():
            for theme in THEMES:
                png, shown[name] = take(started, report, shot, theme)
                _write(f"{name}-{theme}.png", png)
    return shown


def _write(name: str, content: bytes) -> None:
    (HERE / name).write_bytes(content)
    print(f"docs/pictures/{name}: {len(content) / 1000:.0f} KB")


if __name__ == "__main__":
    main()
