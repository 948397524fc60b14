"""The page in a real browser: as people use it, and as people should not be able to."""

import json
import re
import shutil
import time

import pytest

from serve.small import NASTY, saved
from xmcascade.serve import Limits, Running

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("there is no Chromium here", allow_module_level=True)

expect = playwright.expect
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
KEY = "sesame"
PATIENCE = 20_000  # ms


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as own:
        browser = own.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("page") / "fruit")


@pytest.fixture(scope="module")
def server(folder):
    with Running(folder) as running:
        yield running


@pytest.fixture
def open_page(browser):
    """Opens pages; nothing may go wrong in them unseen."""
    contexts, faults = [], []

    def opened(url, expected=(), **how):
        context = browser.new_context(**how)
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        expect.set_options(timeout=PATIENCE)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: (faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on(
            "console",
            lambda said: (
                faults.append(said.text)
                if said.type == "error" and not any(re.search(one, said.text) for one in expected)
                else None
            ),
        )
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not faults


def labels(page):
    return page.locator("#labels b")


def typed(page, text):
    page.locator("#text").press_sequentially(text)


def test_labels_come_as_one_types(server, open_page):
    page = open_page(server.url)
    expect(page.locator("#facts")).to_have_text("fruit · 6 labels")
    expect(page.locator("#none")).to_have_text("No text yet.")
    typed(page, "a blue sky today!")
    expect(labels(page).first).to_have_text("weather")
    expect(page.locator("#count")).to_have_text("17 characters")
    expect(page.locator("#timing")).to_contain_text("ms in the model")
    page.locator("#clear").click()
    expect(labels(page)).to_have_count(0)
    expect(page.locator("#text")).to_be_focused()


def test_a_late_answer_to_an_older_text_is_dropped(server, open_page):
    page = open_page(server.url)

    def hold(route):
        if '"an apple' in (route.request.post_data or ""):
            time.sleep(1.0)
        route.continue_()

    expect(page.locator("#facts")).to_contain_text("labels")
    asked = []
    page.on(
        "request", lambda request: asked.append(request.post_data or "") if "predict" in request.url else None
    )
    page.route("**/v1/predict", hold)
    page.fill("#text", "an apple")
    page.wait_for_timeout(300)
    page.fill("#text", "grey sky")
    expect(labels(page).first).to_have_text("weather")
    page.wait_for_timeout(1500)
    expect(labels(page).first).to_have_text("weather")
    assert [json.loads(own)["texts"][0] for own in asked] == ["an apple", "grey sky"]


def test_fast_typing_asks_seldom_and_ends_with_the_whole_text(server, open_page):
    page = open_page(server.url)
    expect(page.locator("#facts")).to_contain_text("labels")
    asked = []
    page.on(
        "request", lambda request: asked.append(request.post_data or "") if "predict" in request.url else None
    )
    page.locator("#text").press_sequentially("green pear and sweet apple pie", delay=15)
    for _ in range(100):
        if asked and json.loads(asked[-1])["texts"] == ["green pear and sweet apple pie"]:
            break
        page.wait_for_timeout(100)
    expect(labels(page).first).to_have_text("fruit")
    assert len(asked) < 15
    assert json.loads(asked[-1])["texts"] == ["green pear and sweet apple pie"]


def test_the_words_behind_a_label_are_shown(server, open_page):
    page = open_page(server.url)
    page.fill("#text", "one apple in the storm")
    page.locator("#labels button", has_text="fruit").click()
    expect(page.locator("#why-label")).to_have_text("fruit")
    page.locator("#why-body .path button").first.click()
    strongest = page.locator("#why-body mark.s5")
    expect(strongest).to_have_text("apple")
    expect(page.locator("#why-body .bars b").first).to_have_text("apple")
    page.locator("#labels button", has_text="storm").click()
    expect(page.locator("#why-label")).to_have_text("storm")
    expect(strongest).to_have_text("storm")
    path = page.locator("#why-body .path button")
    expect(path.last).to_have_attribute("aria-pressed", "true")
    path.first.click()
    expect(path.first).to_have_attribute("aria-pressed", "true")
    expect(path.first).to_be_focused()


def test_what_is_seen_is_in_the_address(server, open_page):
    page = open_page(f"{server.url}/#/tag?text=a+storm+%26+wind&k=3&label=storm")
    expect(page.locator("#text")).to_have_value("a storm & wind")
    expect(page.locator("#why-label")).to_have_text("storm")
    expect(labels(page)).to_have_count(3)
    page.locator("#labels button", has_text="weather").click()
    page.locator("#k").select_option("10")
    expect(labels(page)).to_have_count(6)
    other = open_page(page.url)
    expect(other.locator("#text")).to_have_value("a storm & wind")
    expect(other.locator("#why-label")).to_have_text("weather")
    page.locator("#tab-tree").click()
    expect(page.locator("#view-tree")).to_be_visible()
    page.go_back()
    expect(page.locator("#view-tag")).to_be_visible()
    expect(page.locator("#text")).to_have_value("a storm & wind")


def test_the_tree_opens_branch_by_branch_and_can_be_searched(server, open_page):
    page = open_page(f"{server.url}/#/tree")
    items = page.locator("#tree > li")
    expect(items.first).to_be_visible()
    expect(page.locator("#tree-facts")).to_contain_text("6 labels")
    items.first.locator("> .row").click()
    expect(items.first).to_have_attribute("aria-expanded", "true")
    expect(items.first.locator("li").first).to_be_visible()
    items.first.locator("> .row").click()
    expect(items.first.locator("li").first).to_be_hidden()
    page.fill("#query", "PEA")
    page.locator("#hits button", has_text="pear").click()
    expect(page.locator(".here > .row > b")).to_have_text("pear")
    page.reload()
    expect(page.locator(".here > .row > b")).to_have_text("pear")
    page.fill("#query", "nothing like it")
    expect(page.locator("#hits")).to_have_text("No label has this in its name.")


def test_names_and_texts_that_look_like_code_are_only_text(server, open_page):
    page = open_page(server.url)
    page.fill("#text", f"green pear {NASTY}")
    nasty = page.locator("#labels b", has_text="<script>")
    expect(nasty).to_have_text(NASTY)
    nasty.click()
    expect(page.locator("#why-label")).to_have_text(NASTY)
    expect(page.locator("#why-body")).to_contain_text(NASTY)
    assert page.locator("main script, main img, main [onerror]").count() == 0
    page.locator("#tab-tree").click()
    page.fill("#query", "<script>")
    page.locator("#hits button").click()
    expect(page.locator(".here > .row > b")).to_have_text(NASTY)
    page.locator("#tab-bulk").click()
    upload(page, "x.jsonl", json.dumps({"text": NASTY}) + "\n")
    page.locator("#go").click()
    expect(page.locator("#preview td").first).to_have_text(NASTY)
    expect(page.locator("#results")).to_be_visible()


def upload(page, name, text):
    page.set_input_files("#file", files=[{"name": name, "mimeType": "text/plain", "buffer": text.encode()}])


def test_a_file_of_5000_rows_is_tagged_and_downloaded(server, open_page):
    page = open_page(f"{server.url}/#/bulk")
    rows = [f'{i},"Sweet ""apple"", number {i}\nsecond line"' for i in range(5000)]
    upload(page, "many.csv", "id,title\n" + "\n".join(rows) + "\n")
    expect(page.locator("#progress")).to_have_text("many.csv: 5,000 texts")
    expect(page.locator("#column option:checked")).to_have_text("title")
    page.locator("#go").click()
    expect(page.locator("#progress")).to_contain_text("5,000 of 5,000 texts", timeout=60_000)
    with page.expect_download() as download:
        page.locator("#as-csv").click()
    lines = download.value.path().read_bytes().decode().split("\r\n")
    assert download.value.suggested_filename == "many-labels.csv"
    assert lines[0] == "id,title,predicted_labels,probabilities,error"
    assert lines[1].startswith('0,"Sweet ""apple"", number 0\nsecond line","fruit; apple; ')
    assert len(lines) == 5002
    with page.expect_download() as download:
        page.locator("#as-jsonl").click()
    told = [json.loads(line) for line in download.value.path().read_text().splitlines()]
    assert len(told) == 5000
    assert told[4999]["id"] == "4999"
    assert told[4999]["predictions"][0]["label"] == "fruit"


def test_bulk_can_be_cancelled_and_what_is_done_is_kept(server, open_page):
    page = open_page(f"{server.url}/#/bulk")
    page.route("**/v1/predict", lambda route: (time.sleep(0.05), route.continue_()))
    upload(page, "many.txt", "\n".join(f"apple {i}" for i in range(5000)))
    page.locator("#go").click()
    expect(page.locator("#progress")).to_contain_text("s left")
    page.locator("#cancel").click()
    expect(page.locator("#progress")).to_contain_text("Cancelled after")
    expect(page.locator("#go")).to_be_enabled()
    with page.expect_download() as download:
        page.locator("#as-jsonl").click()
    told = [json.loads(line) for line in download.value.path().read_text().splitlines()]
    assert len(told) == 5000
    done = sum("error" not in own for own in told)
    assert 0 < done < 5000
    assert told[-1]["error"] == "not tagged"


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.csv", 'id,text\n1,"no end', "a quotation in this file has no end"),
        ("a.csv", "id,text\n1,2,3\n", "row 2 has 3 cells"),
        ("a.jsonl", '{"text": "a"}\n{broken\n', "line 2 is not JSON"),
        ("a.txt", "\n\n", "there is no text in it"),
    ],
)
def test_files_that_cannot_be_used_are_told_why(server, open_page, name, text, told):
    page = open_page(f"{server.url}/#/bulk")
    upload(page, name, text)
    expect(page.locator("#progress")).to_contain_text(told)
    expect(page.locator("#go")).to_be_disabled()


def test_a_file_that_is_not_utf8(server, open_page):
    page = open_page(f"{server.url}/#/bulk")
    page.set_input_files("#file", files=[{"name": "a.txt", "mimeType": "text/plain", "buffer": b"caf\xe9\n"}])
    expect(page.locator("#progress")).to_contain_text("not UTF-8")


def test_a_text_that_is_too_long_is_said_to_be_and_the_others_are_tagged(folder, open_page):
    with Running(folder, limits=Limits(text_characters=50)) as server:
        page = open_page(f"{server.url}/#/bulk", expected=["422"])
        upload(page, "a.txt", f"red apple\n{'long ' * 20}\ngreen pear")
        page.locator("#go").click()
        expect(page.locator("#preview tr").nth(2)).to_contain_text("longer than 50 characters")
        expect(page.locator("#preview tr").nth(3)).to_contain_text("pear")
        page.locator("#tab-tag").click()
        page.fill("#text", "long " * 20)
        expect(page.locator("#none")).to_contain_text("at most 50 characters")


def test_all_of_it_works_by_keyboard(server, open_page):
    page = open_page(server.url)
    expect(page.locator("#facts")).to_contain_text("labels")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.locator("#tab-tag").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-tree")).to_be_focused()
    expect(page.locator("#view-tree")).to_be_visible()
    first = page.locator("#tree > li").first
    expect(first).to_be_visible()
    first.focus()
    page.keyboard.press("ArrowRight")
    expect(first).to_have_attribute("aria-expanded", "true")
    expect(first.locator("li").first).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(first.locator("li").first).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(first).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(first).to_have_attribute("aria-expanded", "false")
    page.locator("#tab-tree").focus()
    page.keyboard.press("ArrowLeft")
    page.fill("#text", "an apple")
    expect(labels(page).first).to_have_text("fruit")
    page.locator("#labels button").first.focus()
    page.keyboard.press("ArrowDown")
    second = labels(page).nth(1).inner_text()
    expect(page.locator("#why-label")).to_have_text(second)


def test_everything_has_a_name_for_who_cannot_see_it(server, open_page):
    page = open_page(server.url)
    page.fill("#text", "an apple")
    expect(labels(page).first).to_be_visible()
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, textarea, a")].filter((own) =>
            !(own.getAttribute("aria-label") || own.textContent.trim() || own.title || own.labels?.length)
        ).map((own) => own.outerHTML)"""
    )
    assert nameless == []
    assert page.locator("html").get_attribute("lang") == "en"


@pytest.mark.parametrize("width", [320, 390, 820, 1600])
def test_nothing_is_wider_than_the_window(server, open_page, width):
    page = open_page(server.url, viewport={"width": width, "height": 800})
    page.fill("#text", "green pear " + "x" * 300)
    expect(labels(page).first).to_be_visible()
    for view in ("tag", "tree", "bulk"):
        page.locator(f"#tab-{view}").click()
        page.wait_for_timeout(150)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, view
    page.locator("#tab-tag").click()
    expect(page.locator("#text")).to_be_in_viewport()


def test_light_and_dark(server, open_page):
    page = open_page(server.url, color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.locator("#theme").click()
    assert page.evaluate(background) != dark
    page.reload()
    expect(page.locator("#facts")).to_contain_text("labels")
    assert page.evaluate(background) != dark


def test_a_server_that_is_gone_and_comes_back(folder, open_page):
    with Running(folder) as server:
        page = open_page(server.url, expected=["ERR_CONNECTION", "ERR_EMPTY", "Failed to load"])
        page.fill("#text", "an apple")
        expect(labels(page).first).to_have_text("fruit")
    page.fill("#text", "a blue sky today!")
    expect(page.locator("#notice")).to_contain_text("does not answer")
    expect(page.locator("#text")).to_have_value("a blue sky today!")
    with Running(folder, port=server.port):
        expect(labels(page).first).to_have_text("weather")
        expect(page.locator("#notice")).to_be_hidden()


def test_a_key_that_expires_is_asked_for_and_nothing_is_lost(folder, open_page):
    with Running(folder, key=KEY, limits=Limits(session_seconds=6.0)) as server:
        page = open_page(f"{server.url}/#/tag?text=green+pear", expected=["401", "Failed to load"])
        page.fill("#key", "wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_text("This is not the key.")).to_be_visible()
        page.fill("#key", KEY)
        page.get_by_role("button", name="Log in").click()
        expect(page.locator("#text")).to_have_value("green pear")  # a link outlives the form
        page.fill("#text", "an apple")
        expect(labels(page).first).to_have_text("fruit")
        page.wait_for_timeout(7000)
        page.fill("#text", "a blue sky today!")
        expect(page.locator("#login")).to_be_visible()
        page.fill("#key", "wrong")
        page.get_by_role("button", name="Go on").click()
        expect(page.locator("#login-wrong")).to_contain_text("this is not the key")
        page.fill("#key", KEY)
        page.keyboard.press("Enter")
        expect(page.locator("#login")).to_be_hidden()
        expect(labels(page).first).to_have_text("weather")
        expect(page.locator("#text")).to_have_value("a blue sky today!")


def test_several_models_can_be_chosen_from(tmp_path, open_page):
    saved(tmp_path / "a", labels=[["this"], ["that"]] * 12)
    saved(tmp_path / "b")
    with Running(tmp_path) as server:
        page = open_page(server.url)
        page.fill("#text", "an apple")
        expect(labels(page)).to_have_count(2)
        page.locator("#model").select_option("b")
        expect(labels(page).first).to_have_text("fruit")
        expect(page.locator("#facts")).to_have_text("b · 6 labels")
        page.wait_for_timeout(500)
        other = open_page(page.url)
        expect(other.locator("#facts")).to_have_text("b · 6 labels")
        expect(labels(other).first).to_have_text("fruit")
