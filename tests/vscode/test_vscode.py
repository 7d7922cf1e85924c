"""What VS Code shows of a run and does with it: live, finished, light and dark, completed, stopped."""

from __future__ import annotations

import re

import pytest
from picture import views
from waiting import until

from skyward_nb.show.canvas import bundle
from vscode.code_servers import code_server
from vscode.windows import NotebookWindow, write_notebook

# Of a window on a busy machine: half a minute until it is loaded, and as long until its kernel is there.
pytestmark = [pytest.mark.extensive, pytest.mark.timeout(600)]

LOAD = "%load_ext skyward_nb"
TRAIN = """%%sky_remote nodes=2
import pathlib, time
import skyward_nb as sky
print("it has begun on", sky.rank())
for step in sky.progress(range(10), desc="epoch"):
    for at in (4, 6, 8):
        while step == at and not pathlib.Path(f"GO{at}").exists():
            time.sleep(0.02)
    print("step", step)
    sky.log(loss=(1 + sky.rank()) / (step + 1))
sky.rank()
"""
LIVE, FINAL = ".sky-live", ".output_html .sky-run"

# The least contrast of a text with what is behind it, as WCAG reckons, opacity of what is around it included; and
# whether the colour behind the picture is that of the editor.
CONTRAST = """selector => {
  const picture = document.querySelector(selector);
  const canvas = Object.assign(document.createElement('canvas'), {width: 1, height: 1});
  const pen = canvas.getContext('2d', {willReadFrequently: true});
  const laid = (below, ...colours) => {
    pen.globalAlpha = 1;
    for (const [colour, alpha] of [[below, 1], ...colours]) {
      pen.globalAlpha = alpha;
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
    }
    return `rgb(${[...pen.getImageData(0, 0, 1, 1).data].slice(0, 3)})`;
  };
  const light = colour => {
    const parts = colour.match(/[\\d.]+/g).map(each => each / 255);
    const linear = parts.map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const up = element => element ? [...up(element.parentElement), element] : [];
  const editor = getComputedStyle(document.documentElement).getPropertyValue('--vscode-editor-background').trim();
  const behind = element => laid(editor, ...up(element).map(e => [getComputedStyle(e).backgroundColor, 1]));
  const texts = [...picture.querySelectorAll('*')].filter(each =>
    each.checkVisibility() && !each.closest('style, svg')
    && [...each.childNodes].some(child => child.nodeType === 3 && /\\w/.test(child.textContent)));
  const contrasts = texts.map(each => {
    const ground = behind(each);
    const alpha = up(each).reduce((all, e) => all * getComputedStyle(e).opacity, 1);
    const [a, b] = [light(ground), light(laid(ground, [getComputedStyle(each).color, alpha]))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), each.textContent.slice(0, 40)];
  }).sort((a, b) => a[0] - b[0]);
  return {least: contrasts[0], texts: texts.length, onEditor: behind(picture) === laid(editor)};
}"""
PLACE = """selector => {
  const {x, y, width} = document.querySelector(selector).getBoundingClientRect();
  const cell = document.querySelector(selector).closest('.output_container').getBoundingClientRect();
  return [x - cell.x, y - cell.y, width].map(Math.round);
}"""


def legible(frame, selector):
    """Every text of this picture can be read, on the editor's own ground."""
    seen = frame.evaluate(CONTRAST, selector)
    assert seen["onEditor"], seen
    assert seen["texts"] > 5
    assert seen["least"][0] >= 4.5, seen


def shows(frame, selector, text):
    """Wait until this picture shows this text."""
    frame.locator(selector).get_by_text(text).first.wait_for()


def chosen(frame, selector):
    """The label of the tab that is chosen, and the lines below it."""
    picture = frame.locator(selector)
    tab = picture.locator("label:has(:checked)").inner_text()
    return tab, picture.locator(".out:visible").inner_text().splitlines()


def test_the_pictures_are_right_in_dark_and_light_and_tabs_stay_chosen(vscode, window):
    opened = window("train.ipynb", LOAD, TRAIN)
    opened.run_all()
    frame = opened.outputs
    shows(frame, LIVE, "it has begun on 1")
    shows(frame, LIVE, "step 3")
    legible(frame, LIVE)
    opened.screenshot("live-dark")
    live_place = frame.evaluate(PLACE, LIVE)

    frame.locator(f"{LIVE} label", has_text=re.compile("^1$")).click()
    (vscode.root / "GO4").touch()
    until(lambda: any(line.endswith("step 5") for line in chosen(frame, LIVE)[1]))
    assert chosen(frame, LIVE)[0] == "1"
    opened.prefer("light")
    frame.locator("body.vscode-light").wait_for(state="attached")
    legible(frame, LIVE)
    opened.screenshot("live-light")
    (vscode.root / "GO6").touch()
    until(lambda: any(line.endswith("step 7") for line in chosen(frame, LIVE)[1]))
    tab, said = chosen(frame, LIVE)
    assert tab == "1"
    assert not any(line.endswith("begun on 0") for line in said)

    (vscode.root / "GO8").touch()
    shows(frame, FINAL, "2 ranks finished")
    legible(frame, FINAL)
    opened.screenshot("final-light")
    assert frame.evaluate(PLACE, FINAL) == live_place
    frame.locator(f"{FINAL} label", has_text=re.compile("^1$")).click()
    opened.prefer("dark")
    frame.locator("body.vscode-dark").wait_for(state="attached")
    legible(frame, FINAL)
    opened.screenshot("final-dark")
    assert chosen(frame, FINAL)[0] == "1"


def test_cells_are_told_apart_by_their_requests(window):
    ask = "print('asked by', present_front_end(get_ipython()).name, get_ipython().kernel.get_parent()['metadata']['cellId'])"
    opened = window(
        "asked.ipynb", f"from skyward_nb.show.front_ends import present_front_end\n{ask}", ask
    )
    opened.run_all()
    frame = opened.outputs
    until(lambda: frame.locator("body").inner_text().count("asked by") == 2)
    said = re.findall(r"asked by (\w+) (\S+)", frame.locator("body").inner_text())
    assert [name for name, _ in said] == ["VSCODE", "VSCODE"]
    assert all(cell.startswith("vscode-notebook-cell:") for _, cell in said)
    assert len({cell for _, cell in said}) == 2


def test_options_and_names_of_ranks_are_completed(window):
    bound = "%%sky_remote nodes=2\nglobals()['pear' + 'tree'] = {}\nprint('bound')"
    opened = window("names.ipynb", LOAD, bound, "")
    opened.run_all()
    shows(opened.outputs, FINAL, "bound")
    assert "nodes=" in opened.completed("%%sky_remote nod")
    assert "torch" in opened.completed("%%sky_remote framework=to")
    assert "peartree" in opened.completed("%%sky_remote\npear")
    assert "setdefault" in opened.completed("%%sky_remote\npeartree.setd")


def test_the_stop_button_ends_a_run_and_names_are_kept(window):
    kept = "%%sky_remote nodes=2\nkept = 'kept on ranks'\nprint('it sleeps')\nimport time\ntime.sleep(600)"
    opened = window("stopped.ipynb", LOAD, kept, "%%sky_remote\nprint(kept)")
    opened.run_all()
    frame = opened.outputs
    shows(frame, LIVE, "it sleeps")
    opened.press("Interrupt")
    shows(frame, FINAL, "interrupted")
    opened.cell("it sleeps").locator(".codicon-notebook-state-error").wait_for()
    opened.screenshot("stopped")
    # VS Code drops what was to run after the cell.
    opened.run("print(kept)")
    shows(frame, FINAL, "kept on ranks")


def test_restricted_mode_shows_nothing_until_the_folder_is_trusted(apart, browser, tmp_path):
    settings = {
        "security.workspace.trust.enabled": True,
        "security.workspace.trust.startupPrompt": "never",
        "security.workspace.trust.banner": "never",
    }
    with code_server(tmp_path / "restricted", apart, settings) as server:
        context = browser.new_context(viewport={"width": 1000, "height": 900})
        write_notebook(server, "kept.ipynb", "run", shown=bundle(views.finished()))
        opened = NotebookWindow(server, context, "kept.ipynb")
        opened.page.get_by_text("Restricted Mode").first.wait_for()
        assert opened.outputs
        assert not opened.drawn().strip()
        opened.screenshot("restricted")
        opened.page.get_by_text("Restricted Mode").first.click()
        opened.page.get_by_role("button", name="Trust", exact=True).first.click()
        status = opened.page.locator(".statusbar")
        status.get_by_text("Restricted Mode").wait_for(state="detached")
        opened.page.keyboard.press("Escape")
        until(lambda: "4 ranks finished" in opened.drawn(), 90)
        opened.screenshot("trusted")
        context.close()
