"""The report in a real browser, opened from the disk with the network off."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.processes import ROOT
from tests.support.reports import EVIL, EXAMPLES, FLAGS, copy_of, folder, payload, probabilities, report
from uiat.cli import main
from uiat.runs.run_folder import RunFolder

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed, so no browser is driven")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")
# Its event loop leaves files to the garbage collector.
FILES = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


class Opened:
    """A page, and its errors and warnings."""

    def __init__(self, browser: Any, path: Path, hash: str = "", **options: Any):
        self.context = browser.new_context(offline=True, **options)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.errors.append(request.url) if request.url[:4] == "http" else None)
        self.page.goto(f"{path.as_uri()}{hash}")

    def bars(self, network: int = 0) -> list[float]:
        """Return the probabilities shown for a network."""
        return [
            float(text) for text in self.page.locator(".network").nth(network).locator(".bars .value").all_inner_texts()
        ]

    def pixels(self, network: int = 0, picture: int = 0) -> torch.Tensor:
        """Return the picture shown, as a grey uint8 image (1, H, W)."""
        self.page.wait_for_timeout(200)
        found = (
            self.page.locator(".network")
            .nth(network)
            .locator("canvas")
            .nth(picture)
            .evaluate("c => [c.width, c.height, [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]]")
        )
        width, height, values = found
        return torch.tensor(values, dtype=torch.uint8).reshape(height, width, 4)[None, :, :, 0]

    def matches(self, run: Path, network: int) -> None:
        """Assert that the bars are the network's probabilities for the picture on the screen."""
        p = probabilities(run, self.pixels(network)[None])[0]
        assert torch.allclose(torch.tensor(self.bars(network)).double(), p, atol=1e-4)


@pytest.fixture
def opened(browser: Any) -> Iterator[Opened]:
    found = Opened(browser, report(), viewport={"width": 1280, "height": 900})
    yield found
    assert found.errors == []
    found.context.close()


@FILES
def test_slider_and_keyboard_change_image_and_probabilities(opened: Opened) -> None:
    data = payload(report())
    names = [data["runs"][0]["name"], data["runs"][data["right"]]["name"]]
    assert names == ["uiat", "natural"]
    slider = opened.page.locator("#eps")
    before, first = opened.pixels(), opened.bars()
    for network, name in enumerate(names):
        opened.matches(folder(name), network)
    slider.focus()
    for _ in range(5):
        opened.page.keyboard.press("ArrowRight")
    assert slider.input_value() == str(2 * data["zero"] + 5)
    assert not torch.equal(opened.pixels(), before)
    assert opened.bars() != first
    for network, name in enumerate(names):
        opened.matches(folder(name), network)
    opened.page.keyboard.press("Home")
    assert opened.page.locator("#status").inner_text().startswith("inverse adversarial, ε = −0.2")
    opened.matches(folder("uiat"), 0)
    box = opened.page.locator(".network canvas").first.bounding_box()
    opened.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 20, steps=4)
    opened.page.mouse.up()
    assert slider.input_value() == str(len(data["radii"]) - 1)
    opened.matches(folder("uiat"), 0)


@FILES
def test_a_deep_link_opens_example_and_eps(browser: Any) -> None:
    data, found = payload(report()), Opened(browser, report(), "#example=3&eps=-0.1")
    assert found.page.locator("#eps").input_value() == "4"
    assert found.page.locator("#thumbs button").nth(2).get_attribute("aria-current") == "true"
    found.matches(folder("uiat"), 0)
    expected = [value / 10_000 for value in data["runs"][0]["p"][2][4]]
    assert found.bars() == expected
    found.page.locator("#thumbs button").nth(4).click()
    assert found.page.url.endswith("#example=5&eps=-0.1")
    found.page.goto(f"{report().as_uri()}#example=1&eps=0.2")
    assert found.page.locator("#eps").input_value() == "16"
    found.matches(folder("uiat"), 0)
    assert found.errors == []
    found.context.close()


@FILES
def test_the_dot_follows_the_curve_of_the_chosen_half(opened: Opened) -> None:
    data = payload(report())
    curve = data["runs"][0]["curve"]
    dot, section = opened.page.locator("#curve circle.here").first, opened.page.locator("#curve-section")
    for half in ("all", "harder", "easier"):
        opened.page.locator(f"button[data-half={half}]").click()
        assert section.get_attribute("data-half") == half
        for eps in (-0.2, 0.0, 0.3):
            k = [round(value, 6) for value in data["grid"]].index(eps)
            opened.page.locator("#eps").fill(str(k))
            height = float(dot.get_attribute("cy"))
            accuracy = curve[half][[round(value, 6) for value in curve["grid"]].index(eps)]
            assert height == pytest.approx(216 - accuracy * 206, abs=0.1)
    shown = [button.is_visible() for button in opened.page.locator("#thumbs button").all()]
    assert shown == [example["easier"] for example in data["examples"]]


@FILES
def test_sorting_theme_guessing_and_names(opened: Opened) -> None:
    page = opened.page
    names = lambda: page.locator("#runs tbody th b").all_inner_texts()  # noqa: E731
    before = names()
    assert f"{EVIL} (SAT)" in before
    assert page.locator("img[src=x]").count() == 0
    heading = page.locator("#runs thead button", has_text="robust")
    cells = page.locator('#runs td[data-label="robust accuracy, %"]')
    values = lambda: cells.evaluate_all("cells => cells.map(cell => Number(cell.dataset.v))")  # noqa: E731
    heading.click()  # two runs may be equal, so compare the values
    assert values() == sorted(values())
    assert heading.locator("xpath=..").get_attribute("aria-sort") == "ascending"
    heading.click()
    assert values() == sorted(values(), reverse=True)
    assert sorted(names()) == sorted(before)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.locator("#theme").click()
    assert page.evaluate(ground) != light
    page.locator("#guess").click()
    assert page.locator(".network .bars").first.evaluate("e => getComputedStyle(e).visibility") == "hidden"
    page.locator("#guess-choices button").first.click()
    assert page.locator(".network .bars").first.is_visible()
    assert " of 1 guessed" in page.locator("#guess-text").inner_text()


@FILES
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_violation_and_nothing_too_wide(browser: Any, width: int, scheme: str) -> None:
    found = Opened(browser, report(), viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert found.page.evaluate("document.documentElement.scrollWidth") <= width
    by_class = found.page.locator(".scroll[aria-label^='Accuracy by class']").first
    assert by_class.evaluate("e => e.scrollWidth <= e.clientWidth"), "its last column is that under attack"
    if not AXE.is_file():
        pytest.skip("axe-core is not there: npm install --no-save axe-core")
    found.page.evaluate(AXE.read_text(encoding="utf-8"))
    violations = found.page.evaluate("axe.run().then(r => r.violations)")
    serious = [
        (each["id"], [node["html"][:120] for node in each["nodes"][:3]])
        for each in violations
        if each["impact"] in ("serious", "critical")
    ]
    assert serious == []
    assert found.errors == []
    found.context.close()


@FILES
def test_without_a_script_and_on_paper_the_strip_is_there(browser: Any) -> None:
    found = Opened(browser, report(), java_script_enabled=False)
    assert found.page.locator(".strip img").count() == 21
    assert found.page.locator(".strip img").first.is_visible()
    assert not found.page.locator("#explorer").is_visible()
    found.context.close()
    paper = Opened(browser, report())
    paper.page.emulate_media(media="print")
    assert paper.page.locator(".strip img").first.is_visible()
    assert not paper.page.locator("#explorer").is_visible()
    assert len(paper.page.pdf()) > 10_000
    paper.context.close()


@FILES
def test_pages_of_runs_that_lack_something(browser: Any, tmp_path: Path) -> None:
    going = copy_of("uiat", tmp_path / "going")
    for name in ("result.json", "metrics.jsonl", "best.safetensors", "last.safetensors"):
        (going / name).unlink()
    with RunFolder(going).lock():
        assert main(["report", str(going), *FLAGS, "-o", str(tmp_path / "page.html")]) == 0
    found = Opened(browser, tmp_path / "page.html")
    assert found.page.locator(".flag", has_text="still training: 0 of 4 epochs").count() >= 1
    assert found.page.locator(".flag", has_text="no epoch has finished yet").count() == 2
    assert found.errors == []
    found.context.close()
    assert len(payload(report())["examples"]) == EXAMPLES
