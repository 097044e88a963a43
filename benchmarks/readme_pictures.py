"""The pictures of the README, from finished runs: a strip from friend to enemy, and two screenshots of their report.

python benchmarks/readme_pictures.py runs/uiat runs/sat runs/natural --out docs/pictures
"""

import argparse
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from uiat.cli import main as uiat
from uiat.report.figure_style import GREEN, VERMILLION, in_levels, new_figure, save_figure, show_radius
from uiat.report.page.frames import INVERSE_FRAMES
from uiat.report.page.network_summary import NetworkSummary, SummaryOptions, chosen_runs, summarize_runs
from uiat.report.page.runs import read_runs
from uiat.report.page.story import STRIP, hero


def draw_strip(looks: list[NetworkSummary], example: int, label: int, out: Path) -> None:
    """Draw one image at seven ε, a row for each network."""
    figure = new_figure(8.4, 1.62 * len(looks))
    axes = figure.subplots(len(looks), len(STRIP), squeeze=False)
    for row, look in zip(axes, looks, strict=True):
        levels = in_levels(look.frames.grid)
        for place, k in zip(row, STRIP, strict=True):
            guess, p, right = look.verdict(example, INVERSE_FRAMES + k, label)
            pixels = look.frames.pixels[example, INVERSE_FRAMES + k].permute(1, 2, 0).squeeze()
            place.imshow(pixels.numpy(), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            place.set_xticks([])
            place.set_yticks([])
            for edge in place.spines.values():
                edge.set(color=GREEN if right else VERMILLION, linewidth=2.2, linestyle="-" if right else "--")
            color = GREEN if right else VERMILLION
            place.set_xlabel(f"{'✓' if right else '✗'} {guess}, {p:.2f}", fontsize=8, color=color, parse_math=False)
            if look is looks[0]:
                eps = show_radius(look.frames.grid[INVERSE_FRAMES + k], levels)
                side = "natural" if k == 0 else f"{'friend' if k < 0 else 'enemy'}\nε = {eps}"
                place.set_title(side, fontsize=8.5)
        row[0].set_ylabel(look.run.method, fontsize=9)
    save_figure(figure, out)


def take_screenshots(runs: list[str], out: Path) -> None:
    """Photograph the report at 1280 and 390 pixels, light and dark."""
    from playwright.sync_api import sync_playwright

    with TemporaryDirectory() as folder, sync_playwright() as driver:
        page = Path(folder) / "report.html"
        if code := uiat(["report", *runs, "-o", str(page)]):
            sys.exit(code)
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, width, height, scheme in (("slider", 1280, 860, "light"), ("phone", 390, 1180, "dark")):
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
            shown = context.new_page()
            shown.goto(page.as_uri())
            shown.locator("#explorer").scroll_into_view_if_needed()
            shown.locator("#explore-title").evaluate("e => e.scrollIntoView()")
            shown.wait_for_timeout(800)
            shown.screenshot(path=str(out / f"{name}.png"))
        browser.close()


def main() -> None:
    """Make all three."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("runs", nargs="+")
    words.add_argument("--out", type=Path, default=Path("docs/pictures"))
    given = words.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    runs = chosen_runs(read_runs(given.runs), 3)
    looks, places, _ = summarize_runs(runs, SummaryOptions(attack="fgsm", n=400))
    labels = looks[0].images.y[places].tolist()
    example = hero(looks, labels)
    draw_strip(looks, example, labels[example], given.out / "friend-to-enemy.png")
    take_screenshots(given.runs, given.out)


if __name__ == "__main__":
    main()
