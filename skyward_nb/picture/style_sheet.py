"""How a page looks: its style sheet, and the colours that are put in place besides. Pure."""

from __future__ import annotations

LEFT = 'style="text-align:left"'
"""Of cells: also where the style sheet is gone, and a site's own would move them."""
LINE = 1.45
"""The height of a line, in its letters' size."""
EDGE = "1px solid var(--jp-border-color2,rgba(128,128,128,.35))"
_STYLE = f"""
.sky-run{{border:{EDGE};border-radius:6px;overflow:hidden;max-width:960px;font-size:13px;line-height:{LINE};font-variant-numeric:tabular-nums}}
.sky-run .bar{{display:flex;gap:4px 10px;align-items:baseline;padding:6px 12px;background:rgba(128,128,128,.1)}}
.sky-run .ti{{display:flex;gap:10px;align-items:baseline;min-width:0}}
.sky-run .ti>div{{min-width:0;overflow-wrap:anywhere}}
.sky-run .ti .m{{margin-left:6px}}
.sky-run.live{{border:0;border-radius:0;max-width:none}}
.sky-live{{width:auto;max-width:min(960px,100%)!important;box-sizing:border-box}}
.sky-live>*{{min-width:0;max-width:100%}}
.sky-live .widget-html,.sky-live .widget-html-content{{width:auto;max-width:none;margin:0;line-height:inherit;color:inherit!important}}
.cell-output-ipywidget-background:has(.sky-live){{background:transparent!important;color:var(--vscode-editor-foreground)!important;padding:0!important;--jp-border-color2:rgba(128,128,128,.35)}}
.output.cell-output-ipywidget-background:has(.sky-live){{padding:9px!important;box-sizing:border-box}}
.cell-output-ipywidget-background .sky-live{{color:inherit!important}}
.vscode-dark .sky-run,.vscode-high-contrast .sky-run{{--jp-border-color2:rgba(128,128,128,.35)}}
.sky-run .m{{opacity:.7}}
.sky-run .r{{margin-left:auto;flex:none}}
.sky-run .sec{{padding:5px 12px;border-top:{EDGE}}}
.sky-run .small{{font-size:12px}}
.sky-run table{{border-collapse:collapse;margin:4px 0;font-size:13px;border:0;color:inherit}}
.sky-run table th,.sky-run table td{{padding:2px 9px;text-align:left;vertical-align:top;white-space:nowrap;line-height:{LINE};border:0;background:none}}
.sky-run table td.w{{white-space:normal;min-width:24em}}
.sky-run table th{{font-weight:500;font-size:12px;opacity:.7}}
.sky-run table tr>:first-child{{padding-left:12px!important}}
.sky-run table th[scope=row]{{font-size:inherit;opacity:1}}
.sky-run tr{{background:none!important}}
.sky-run .lp{{display:flex;align-items:center}}
.sky-run .t{{flex:none;border-radius:4px;overflow:hidden}}
.sky-run .tag{{display:inline-block;font-size:11px;line-height:1.4;border-radius:9px;padding:1px 7px;border:1px solid #bf8700;color:inherit;background:rgba(191,135,0,.15)}}
.sky-run .wide{{overflow-x:auto}}
.sky-run .curves{{display:flex;flex-wrap:wrap;gap:6px 24px;padding:6px 12px;border-top:{EDGE}}}
.sky-run .tabs{{margin:0;border-top:{EDGE}}}
.sky-run .who{{display:block!important}}
.sky-run fieldset{{display:flex;flex-wrap:wrap;gap:2px;margin:0;padding:6px 12px 0;border:0;min-width:0}}
.sky-run label{{padding:2px 10px;margin:0;font-size:12.5px;border:1px solid transparent;border-bottom:0;border-radius:5px 5px 0 0;cursor:pointer;opacity:.7}}
.sky-run label:has(:checked){{border-color:rgba(128,128,128,.5);opacity:1;font-weight:600}}
.sky-run label:has(:focus-visible){{outline:2px solid #2f81f7;outline-offset:-2px}}
.sky-run label input{{position:absolute;opacity:0;width:1px;height:1px;margin:0}}
.sky-run .out{{max-height:32em;overflow:auto;padding:6px 12px;display:flex;flex-direction:column-reverse}}
.sky-run .out>div{{min-width:0}}
.sky-run .out:has(.fig){{max-height:64em}}
.sky-run pre{{margin:0;padding:0;border:0;background:none;color:inherit;font:12.5px/1.45 var(--jp-code-font-family,ui-monospace,SFMono-Regular,Menlo,Consolas,monospace);white-space:pre-wrap;overflow-wrap:anywhere}}
.sky-run .out b{{color:#8957e5;color:color-mix(in srgb,#8957e5 70%,currentColor);font-weight:400}}
.sky-run .e{{color:#b35900;color:color-mix(in srgb,#b35900 70%,currentColor)}}
.sky-run .fig{{padding:4px 0;min-width:0;overflow-x:auto}}
.sky-run .fig img{{max-width:100%;vertical-align:top}}
.sky-run summary{{cursor:pointer}}
.sky-run .each>summary{{padding:4px 12px 0}}
@media (max-width:640px){{.sky-run table th,.sky-run table td{{padding:2px 6px}}.sky-run .t{{width:48px!important}}.sky-run table td.w{{min-width:9em}}.sky-run .bar{{flex-wrap:wrap}}.sky-run .r{{flex:initial}}}}
"""
STYLE = "<style>" + "".join(line.strip() for line in _STYLE.splitlines()) + "</style>"

_CHILD = ".jp-OutputArea-child"


def live_alone(name: str) -> str:
    """The style by which JupyterLab hides the kept picture of this class while the widgets after it are there."""
    return f"<style>{_CHILD}:has(.{name}):has(~{_CHILD} .sky-live){{display:none}}</style>"


def dead_hidden(name: str) -> str:
    """The style by which JupyterLab hides, after the kept picture of this class, widgets that are not there.

    Of all outputs, widgets alone name no MIME type there.
    """
    dead = f"{_CHILD}:not(:has(.sky-live)):not(:has([data-mime-type]))"
    return f"<style>{_CHILD}:has(.{name})+{dead}{{display:none}}</style>"


TONES = {
    "starting": "#2f81f7",
    "running": "#2f81f7",
    "finished": "#2da44e",
    "failed": "#d1242f",
    "interrupted": "#bf8700",
}
