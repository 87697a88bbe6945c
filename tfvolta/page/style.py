"""How the page looks: on a phone, on a screen, in print, light and dark. Contrast is that of WCAG 2.2 AA or better."""

from __future__ import annotations

# One colour each for text, its background and lines; four for curves; three for good, doubtful and bad.
LIGHT = {
    "ink": "#1b1f24",
    "quiet": "#57606a",
    "paper": "#ffffff",
    "panel": "#f6f8fa",
    "rule": "#d0d7de",
    "link": "#0550ae",
    "series-0": "#0969da",
    "series-1": "#bc4c00",
    "series-2": "#8250df",
    "series-3": "#116329",
    "good": "#116329",
    "doubt": "#7d4e00",
    "bad": "#a40e26",
}
DARK = {
    "ink": "#e6edf3",
    "quiet": "#9da7b3",
    "paper": "#0d1117",
    "panel": "#161b22",
    "rule": "#3d444d",
    "link": "#79b8ff",
    "series-0": "#58a6ff",
    "series-1": "#f0883e",
    "series-2": "#bc8cff",
    "series-3": "#56d364",
    "good": "#56d364",
    "doubt": "#e3b341",
    "bad": "#ff7b72",
}


def _variables(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


_RULES = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;color-scheme:light dark}
body{margin:0;background:var(--paper);color:var(--ink);
font:1rem/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
header,main,footer,nav{max-width:64rem;margin:0 auto;padding:0 1rem}
header{padding-top:1.5rem}
footer{padding-top:1rem;padding-bottom:2rem;color:var(--quiet);font-size:.875rem}
h1{font-size:1.5rem;line-height:1.25;margin:0 0 .5rem}
h2{font-size:1.25rem;line-height:1.3;margin:2.25rem 0 .75rem;padding-bottom:.25rem;
border-bottom:1px solid var(--rule)}
h3{font-size:1.05rem;margin:1.5rem 0 .5rem}
h1,h2,h3,p,li,dd,td,th,summary,figcaption,caption{overflow-wrap:anywhere}
p,ul,dl{margin:.5rem 0}
ul{padding-left:1.25rem}
a{color:var(--link)}
a:focus-visible,summary:focus-visible,.scroll:focus-visible{outline:3px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-999rem}
.skip:focus{left:1rem;top:.5rem;background:var(--paper);padding:.5rem;z-index:1}
nav ul{list-style:none;padding:0;margin:.75rem 0;display:flex;flex-wrap:wrap;gap:.25rem 1rem;font-size:.9375rem}
nav li a{display:inline-block;padding:.2rem 0}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.875em}
code{overflow-wrap:anywhere}
pre{overflow-x:auto;background:var(--panel);border:1px solid var(--rule);border-radius:6px;padding:.75rem;
margin:.5rem 0}
.verdict{font-size:1.125rem;line-height:1.45;background:var(--panel);border:1px solid var(--rule);
border-left:.4rem solid var(--quiet);border-radius:6px;padding:.75rem 1rem;margin:.75rem 0}
.verdict.good{border-left-color:var(--good)}.verdict.doubt{border-left-color:var(--doubt)}.verdict.bad{
border-left-color:var(--bad)}
.verdict p{margin:0}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.75rem;margin:1rem 0}
.tiles>div{background:var(--panel);border:1px solid var(--rule);border-radius:6px;padding:.6rem .8rem;min-width:0}
.tiles dt{color:var(--quiet);font-size:.8125rem}
.tiles dd{margin:0;font-size:1.25rem;font-weight:600;line-height:1.3}
.tiles dd small{display:block;font-size:.8125rem;font-weight:400;color:var(--quiet)}
dl:not(.tiles)>div{display:grid;grid-template-columns:minmax(7rem,11rem) 1fr;gap:.25rem 1rem;padding:.2rem 0}
dl:not(.tiles) dt{color:var(--quiet)}
dl:not(.tiles) dd{margin:0;min-width:0}
.scroll{overflow-x:auto;margin:.75rem 0}
table{border-collapse:collapse;width:100%;font-size:.9375rem}
caption{text-align:left;color:var(--quiet);padding:.25rem 0;font-size:.875rem}
th,td{text-align:left;vertical-align:top;padding:.35rem .9rem .35rem 0;border-bottom:1px solid var(--rule);
min-width:4.5rem;overflow-wrap:break-word}
th{font-weight:600}
table.prose th{min-width:8rem}
.prose .mark{white-space:nowrap}
thead th{color:var(--quiet);font-weight:500;font-size:.875rem}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
details{border:1px solid var(--rule);border-radius:6px;margin:.5rem 0;padding:0 .85rem}
summary{cursor:pointer;padding:.55rem 0;font-weight:500}
details[open]>summary{border-bottom:1px solid var(--rule);margin-bottom:.5rem}
details>:last-child{margin-bottom:.75rem}
details details{margin:.5rem 0}
.mark{font-weight:600}
.mark::before{content:"";display:inline-block;width:.6em;height:.6em;border-radius:50%;margin-right:.4em;
background:currentColor}
.mark.bad::before{border-radius:0;transform:rotate(45deg)}
.mark.doubt::before{background:none;border:.15em solid currentColor}
.good{color:var(--good)}.doubt{color:var(--doubt)}.bad{color:var(--bad)}.quiet{color:var(--quiet)}
.verdict.good,.verdict.doubt,.verdict.bad{color:var(--ink)}
.note{color:var(--quiet);font-size:.9375rem}
figure{margin:1rem 0}
figcaption{color:var(--quiet);font-size:.875rem;margin-top:.25rem}
figure svg{display:block;width:100%;height:auto;max-width:44rem}
figure svg text{fill:var(--ink);stroke:none;font-family:system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
.narrow{display:none}
@media (max-width:36rem){
.wide{display:none}.narrow{display:block}
dl:not(.tiles)>div{grid-template-columns:1fr;gap:0;padding:.3rem 0}
h1{font-size:1.3rem}h2{font-size:1.15rem}
th,td{padding-right:.7rem}
.scroll td:not(.number){min-width:7rem}
.scroll td:not(.number):last-child{min-width:12rem}
.prose,.prose caption,.prose tbody,.prose tr,.prose th,.prose td{display:block;width:auto}
.prose thead{position:absolute;clip-path:inset(50%);width:1px;height:1px;overflow:hidden}
.prose tr{padding:.4rem 0;border-bottom:1px solid var(--rule)}
.prose th,.prose td{border:0;padding:.1rem 0}
.prose td::before{content:attr(data-label) ": ";color:var(--quiet)}
}
@media print{
:root{COLOURS}
body{font-size:10pt}
nav,.skip{display:none}
header,main,footer{max-width:none;padding:0}
details:not(figure details)::details-content{content-visibility:visible;block-size:auto}
tr,figure,.tiles>div,.verdict{break-inside:avoid}
h2,h3,summary{break-after:avoid}
.scroll{overflow:visible}
pre{white-space:pre-wrap}
}
@media (prefers-reduced-motion:no-preference){html{scroll-behavior:smooth}}
"""


def stylesheet() -> str:
    """The whole style of a page."""
    dark = f"@media screen and (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}"
    return f":root{{{_variables(LIGHT)}}}{dark}{_RULES.replace('COLOURS', _variables(LIGHT))}"
