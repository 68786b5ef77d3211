"""A page of HTML that stands alone: one file, no script from elsewhere, light and dark.

Everything that comes from data passes :func:`text`; only strings made here are put in as markup.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any, Final

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2126; --quiet: #5b6670; --paper: #fcfcfb; --raised: #f1f2f1;
  --line: #d9dcde; --warn: #8a4b00; --warn-paper: #fff1dc; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7ea; --quiet: #9aa5ae; --paper: #15181b;
  --raised: #1e2327; --line: #353c42; --warn: #ffce8a; --warn-paper: #3a2a12; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.5rem 4rem; max-width: 72rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; }
h1 { font-size: 1.7rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .5rem; padding-top: .9rem; border-top: 1px solid var(--line); }
p { max-width: 46rem; } .quiet, figcaption, caption { color: var(--quiet); font-size: .88rem; }
.banner { background: var(--warn-paper); color: var(--warn); border: 1px solid currentColor;
  border-radius: .4rem; padding: .7rem 1rem; margin: 1.2rem 0; font-weight: 600; }
.tiles { display: grid; gap: .8rem; margin: 1.2rem 0;
  grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); }
.tile { background: var(--raised); border-radius: .4rem; padding: .8rem 1rem; }
.tile b { display: block; font-size: 1.7rem; font-weight: 600; line-height: 1.25;
  font-variant-numeric: tabular-nums; }
.tile span { display: block; font-size: .85rem; color: var(--quiet); font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; margin: .6rem 0; font-size: .88rem; }
caption { text-align: left; padding-bottom: .3rem; caption-side: top; }
th, td { padding: .28rem 1rem .28rem 0; text-align: left; border-bottom: 1px solid var(--line); }
th { font-weight: 600; white-space: nowrap; } td.number, th.number { text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; } td.id { overflow-wrap: anywhere; min-width: 7rem; }
figure { margin: 1rem 0; } figure svg { display: block; }
pre { background: var(--raised); border-radius: .4rem; padding: .8rem 1rem; overflow-x: auto;
  font: .84rem/1.45 ui-monospace, Menlo, Consolas, monospace; }
summary { cursor: pointer; color: var(--quiet); } select { max-width: 100%; }
canvas { background: var(--raised); border-radius: .4rem;
  touch-action: none; cursor: grab; max-width: 100%; } .side { display: flex; flex-wrap: wrap; gap: 1.5rem; }
.side figure { flex: 1 1 24rem; } .side figure svg { max-width: none !important; }
.row { display: flex; flex-wrap: wrap; gap: 0 3.5rem; align-items: flex-start; }
"""


def text(value: Any) -> str:
    """Any value as text that cannot be markup; control characters are made visible."""
    shown = "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in str(value))
    return html.escape(shown)


def slug(name: str) -> str:
    """A name as part of an element's id: letters, digits and hyphens; different names stay different."""
    return "".join(c if c.isascii() and c.isalnum() else f"-{ord(c):x}-" for c in name)


def page(title: str, body: Iterable[str]) -> str:
    """The whole document. The policy forbids the page any request."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            "style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">",
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{text(title)}</title><style>{STYLE}</style></head><body>",
            *body,
            "</body></html>\n",
        ]
    )


def section(title: str, *body: str) -> str:
    """A heading and what stands under it; nothing if there is nothing."""
    content = "\n".join(part for part in body if part)
    return f"<section><h2>{text(title)}</h2>\n{content}\n</section>" if content else ""


def paragraph(words: str, kind: str = "") -> str:
    """A paragraph of plain text; kind "quiet" or "banner"."""
    return f'<p class="{kind}">{text(words)}</p>' if kind else f"<p>{text(words)}</p>"


def tiles(items: Sequence[tuple[str, str, str]]) -> str:
    """Headline figures: name, value, what to know beside it."""
    cells = (
        f'<div class="tile"><span>{text(name)}</span><b>{text(value)}</b><span>{text(note)}</span></div>'
        for name, value, note in items
    )
    return f'<div class="tiles">{"".join(cells)}</div>'


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "", words: int = 1) -> str:
    """A table whose first ``words`` columns are text and the others numbers; nothing without rows.

    Columns of numbers that are "-" in every row are left out.
    """
    if not rows:
        return ""
    kept = [i for i in range(len(head)) if i < words or any(row[i] != "-" for row in rows)]
    head, rows = [head[i] for i in kept], [[row[i] for i in kept] for row in rows]

    def cells(tag: str, values: Sequence[Any]) -> str:
        kinds = ["id" if i == 0 else "" if i < words else "number" for i in range(len(values))]
        return "".join(f'<{tag} class="{k}">{text(v)}</{tag}>' for k, v in zip(kinds, values, strict=True))

    title = f"<caption>{text(caption)}</caption>" if caption else ""
    body = "".join(f"<tr>{cells('td', row)}</tr>\n" for row in rows)
    return (
        f'<div class="scroll"><table>{title}<thead><tr>{cells("th", head)}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def row(*parts: str) -> str:
    """Small parts beside each other where there is room; nothing if there is none."""
    return f'<div class="row">{"".join(parts)}</div>' if any(parts) else ""


def side(*figures: str) -> str:
    """Figures of equal width beside each other where there is room."""
    return f'<div class="side">{"".join(figures)}</div>' if any(figures) else ""


def figure(svg: str, caption: str) -> str:
    """A picture made here, with its caption as plain text."""
    return f"<figure>{svg}<figcaption>{text(caption)}</figcaption></figure>" if svg else ""


def folded(title: str, body: str) -> str:
    """What a reader opens on demand."""
    return f"<details><summary>{text(title)}</summary>{body}</details>" if body else ""


def code(words: str) -> str:
    """Text as it was written."""
    return f"<pre>{text(words)}</pre>"
