"""The pictures of the README, from finished runs such as those of the demo: a strip, and two screenshots of a report.

python benchmarks/readme_pictures.py runs/demo/natural runs/demo/sat runs/demo/uiat --out docs/pictures
"""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import tyro

from uiat.report.figure_style import GREEN, VERMILLION, in_levels, new_figure, save_figure, show_radius
from uiat.report.page.comparison import compare_runs
from uiat.report.page.frames import INVERSE_FRAMES
from uiat.report.page.network_summary import NetworkSummary, SummaryOptions, chosen_runs, summarize_runs
from uiat.report.page.page import render
from uiat.report.page.runs import read_runs
from uiat.report.page.story import hero, opponent

STRIP = {-8: "friend", 0: "natural image", 4: "enemy", 8: "enemy", 16: "enemy"}
"""Radii in eighths of ε, and what they are called: few and large, for a phone."""
FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-sync"


def draw_strip(networks: list[NetworkSummary], example: int, label: int, out: Path) -> None:
    """Draw one image at five ε, a row for each network."""
    figure = new_figure(5.6, 1.48 * len(networks) + 0.2)
    rows = figure.subplots(len(networks), len(STRIP), squeeze=False)
    for row, network in zip(rows, networks, strict=True):
        levels = in_levels(network.frames.grid)
        for place, (k, side) in zip(row, STRIP.items(), strict=True):
            guess, p, right = network.verdict(example, INVERSE_FRAMES + k, label)
            pixels = network.frames.pixels[example, INVERSE_FRAMES + k].permute(1, 2, 0).squeeze()
            place.imshow(pixels.numpy(), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            place.set_xticks([])
            place.set_yticks([])
            color = GREEN if right else VERMILLION
            for edge in place.spines.values():
                edge.set(color=color, linewidth=2.2, linestyle="-" if right else "--")
            place.set_xlabel(f"{'✓' if right else '✗'} {guess}, p {p:.2f}", fontsize=9, color=color, parse_math=False)
            if network is networks[0]:
                eps = show_radius(network.frames.grid[INVERSE_FRAMES + k], levels)
                place.set_title(f"{side}\nε = {eps}", fontsize=9)
        row[0].set_ylabel(network.run.method, fontsize=9)
    save_figure(figure, out)


def take_screenshots(page: Path, out: Path) -> None:
    """Photograph the examples of a report at 1280 and 390 pixels, light and dark."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS.split())
        for name, width, height, scheme in (("slider", 1280, 860, "light"), ("phone", 390, 1180, "dark")):
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
            shown = context.new_page()
            shown.goto(page.as_uri())
            shown.locator("#explore-title").evaluate("e => e.scrollIntoView()")
            shown.wait_for_timeout(800)
            shown.screenshot(path=str(out / f"{name}.png"))
        browser.close()


def main(runs: tyro.conf.Positional[tuple[str, ...]], out: Path = Path("docs/pictures")) -> None:
    """Make all three."""
    out.mkdir(parents=True, exist_ok=True)
    comparison, options = compare_runs(read_runs(runs)), SummaryOptions()
    networks, places, easier = summarize_runs(chosen_runs([row.run for row in comparison.rows], 3), options)
    labels = networks[0].images.y[places].tolist()
    example, other = hero(networks, labels), opponent(networks)
    shown = [networks[k] for k in (0, other) if k is not None]
    draw_strip(shown, example, labels[example], out / "friend-to-enemy.png")
    with TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(render(comparison, networks, places, easier, options, reason=""), encoding="utf-8")
        take_screenshots(page, out)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
