"""report.html in a real Chromium: opens from disk, asks for nothing, fits phone and screen, sorts, links and prints."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import toy
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait
from tools import tool

PATIENCE = 60  # seconds for what a page does some moments after a click
SWITCHES = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = tool("chromium", "google-chrome")
    for switch in (*SWITCHES, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(tool("chromedriver")))
    yield driver
    driver.quit()


def open_page(browser: webdriver.Chrome, page: Path, width: int = 1440, height: int = 900) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get("about:blank")
    browser.get_log("performance")
    browser.get(page.as_uri())


def names(table: WebElement) -> list[str]:
    """The first line of each row's heading, as shown."""
    return [row.text.split("\n")[0] for row in table.find_elements(By.CSS_SELECTOR, "tbody th")]


def test_it_opens_from_disk_asks_for_nothing_and_complains_of_nothing(
    browser: webdriver.Chrome, judged_page: Path
) -> None:
    open_page(browser, judged_page)
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert judged_page.as_uri() in asked
    assert {url.split(":")[0] for url in asked} <= {"file", "data"}
    assert [url for url in asked if url.startswith("file")] == [judged_page.as_uri()]
    assert browser.get_log("browser") == []
    pictures = browser.execute_script("return [...document.images].map((picture) => picture.naturalWidth)")
    assert len(pictures) > 10
    assert all(pictures)


def test_the_console_is_really_read(browser: webdriver.Chrome, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text("<!DOCTYPE html><link rel=icon href=data:,><img src='https://example.invalid/x.png'>")
    open_page(browser, page)
    assert browser.get_log("browser")
    assert "example.invalid" in str(browser.get_log("performance"))


@pytest.mark.parametrize("width", [390, 768, 1440])
def test_nothing_is_wider_than_the_screen(browser: webdriver.Chrome, judged_page: Path, width: int) -> None:
    open_page(browser, judged_page, width)
    opened = "document.querySelectorAll('details').forEach((part) => { part.open = true; });"
    shown, needed = browser.execute_script(
        f"{opened} const root = document.documentElement; return [root.clientWidth, root.scrollWidth];"
    )
    assert needed <= shown <= width
    beyond = browser.execute_script(
        "return [...document.querySelectorAll('.top *')].filter((part) => part.getBoundingClientRect().right > "
        "document.documentElement.clientWidth + 1).map((part) => part.outerHTML.slice(0, 80));"
    )
    assert beyond == []


def test_the_first_screen_answers(browser: webdriver.Chrome, judged_page: Path) -> None:
    open_page(browser, judged_page)

    def bottom(selector: str) -> float:
        return float(browser.find_elements(By.CSS_SELECTOR, selector)[-1].rect["y"]) + float(
            browser.find_elements(By.CSS_SELECTOR, selector)[-1].rect["height"]
        )

    for selector in (".counts", ".answers", ".experiment"):
        assert bottom(selector) <= 900, selector
    words = browser.find_element(By.CSS_SELECTOR, ".top").text
    for said in ("Does CapsNet beat the best fair CNN?", "Does routing matter?", "What is not judged?"):
        assert said in words
    counts = [part.text.split("\n") for part in browser.find_elements(By.CSS_SELECTOR, ".counts div")]
    assert counts == [
        ["claims", "6"],
        ["reproduced", "1"],
        ["not reproduced", "1"],
        ["undecided", "2"],
        ["not run", "2"],
    ]
    assert len(browser.find_elements(By.CSS_SELECTOR, ".experiment")) == len(toy.TASKS)


def test_tables_sort_by_number_both_ways(browser: webdriver.Chrome, judged_page: Path) -> None:
    open_page(browser, judged_page)
    table = browser.find_element(By.CSS_SELECTOR, "#task-0 table.sortable")
    titles = [toy.TITLES[variant] for variant in toy.TASKS["mnist"]]
    assert names(table) == titles
    button = next(b for b in table.find_elements(By.CSS_SELECTOR, "thead button") if b.text.startswith("paper"))
    button.click()
    rising = [titles[i] for i in (4, 2, 1, 3, 0)]  # 0.25, 0.29, 0.34, 0.35, 0.39
    assert names(table) == rising
    button.click()
    assert names(table) == rising[::-1]
    claims = browser.find_element(By.CSS_SELECTOR, "table.claims")
    next(b for b in claims.find_elements(By.CSS_SELECTOR, "thead button") if b.text.startswith("verdict")).click()
    verdicts = [part.text for part in claims.find_elements(By.CSS_SELECTOR, "tbody .verdict")]
    assert verdicts == ["reproduced", "not reproduced", "undecided", "undecided"]


def test_claims_that_were_not_run_are_folded_and_a_link_to_one_opens_them(
    browser: webdriver.Chrome, judged_page: Path
) -> None:
    open_page(browser, judged_page)
    folded = browser.find_element(By.CSS_SELECTOR, "#untested")
    assert folded.text == "2 claims that were not run, and why"
    browser.execute_script("location.hash = document.querySelector('#untested tbody tr').id")
    WebDriverWait(browser, PATIENCE).until(lambda _: folded.get_attribute("open") is not None)
    assert [part.text for part in folded.find_elements(By.CSS_SELECTOR, "tbody .verdict")] == ["not run", "not run"]


def test_a_claim_has_room_and_tables_use_a_wide_screen(browser: webdriver.Chrome, judged_page: Path) -> None:
    open_page(browser, judged_page, 1440)
    assert float(browser.find_element(By.CSS_SELECTOR, "table.claims tbody th").rect["width"]) >= 230
    text, card = (
        float(browser.find_element(By.CSS_SELECTOR, part).rect["width"]) for part in ("#claims .lead", "#task-0")
    )
    assert card > 1.2 * text


def test_a_cell_and_a_claim_lead_to_their_runs(browser: webdriver.Chrome, judged_page: Path) -> None:
    open_page(browser, judged_page)
    cell = browser.find_element(By.CSS_SELECTOR, "details.cell")
    assert cell.get_attribute("open") is None
    browser.find_element(By.CSS_SELECTOR, "#task-0 tbody th a").click()
    at_the_event = WebDriverWait(browser, PATIENCE)  # not at the click
    at_the_event.until(lambda _: cell.get_attribute("open") is not None)
    assert abs(float(browser.execute_script("return arguments[0].getBoundingClientRect().top", cell))) < 60
    link = cell.find_element(By.LINK_TEXT, "manifest").get_attribute("href")
    assert link == (judged_page.parent / "runs/mnist/cnn/seed-0/manifest.json").as_uri()
    open_page(browser, judged_page)
    browser.find_element(By.CSS_SELECTOR, "#claim-mnist-capsnet-beats-fair-cnn td:last-child a").click()
    at_the_event.until(lambda _: browser.current_url.endswith("#cell-0-4"))


def test_it_prints_with_everything_unfolded(browser: webdriver.Chrome, judged_page: Path) -> None:
    open_page(browser, judged_page)
    printed = base64.b64decode(browser.print_page())
    assert printed.startswith(b"%PDF")
    assert printed.count(b"/Type /Page\n") > 5
    folded = browser.execute_script("return [...document.querySelectorAll('details')].filter((d) => !d.open).length")
    assert folded == 0
