"""What pages of the command line share: the looks of tables and charts, the search in rows, the choice of a row."""

from __future__ import annotations

from html import escape

TABLE_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; max-width: 1280px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; } h2 { font-size: 1.05rem; margin-top: 1.8rem; }
p { margin: .3rem 0; } svg { width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: #555; }
.grid { stroke: #e4e4e4; } .roof { stroke: #333; stroke-width: 1.6; } circle { fill-opacity: .65; stroke: #fff; }
.legend span { margin-right: 1.2rem; white-space: nowrap; }
i { display: inline-block; width: .7em; height: .7em; border-radius: 2px; margin-right: .4em; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: left; padding: .25rem .5rem; border-bottom: 1px solid #eee; overflow-wrap: anywhere; }
td:first-child { padding-left: 1.6em; position: relative; } td i { position: absolute; left: .5em; top: .6em; }
td:nth-child(2) { min-width: 9em; } td:nth-child(3), td:nth-child(4) { white-space: nowrap; }
svg text.size { font-size: 9px; }
th { position: sticky; top: 0; background: #fff; } td.n, th.n { text-align: right; white-space: nowrap; }
tr.chosen { background: #fff3c4; } input { font: inherit; padding: .3rem .5rem; width: 18rem; margin: .4rem 0; }
[data-row] { cursor: pointer; }
@media (max-width: 900px) {
  table { display: block; overflow-x: auto; } th { position: static; }
  th:first-child, td:first-child { min-width: 8em; }
}
"""
"""CSS of a page with charts as SVG and tables."""

CHOICE_SCRIPT = """
const choose = (row) => {
  document.querySelectorAll('tr.chosen').forEach((each) => each.classList.remove('chosen'));
  const found = document.getElementById('row' + row);
  found.hidden = false; found.classList.add('chosen'); found.scrollIntoView({block: 'center'});
};
document.querySelectorAll('[data-row]').forEach((each) => {
  each.addEventListener('click', () => choose(each.dataset.row));
});
"""
"""Marks of a chart that have ``data-row="N"`` show the row with the id ``rowN``."""

SEARCH_SCRIPT = """
document.getElementById('search').addEventListener('input', (event) => {
  const wanted = event.target.value.toLowerCase();
  document.querySelectorAll('tbody tr').forEach((row) => {
    row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
});
"""
"""The field with the id ``search`` leaves only the rows of tables whose text has what is typed."""


def breakable(name: str) -> str:
    """Return a name as HTML whose lines may end behind the joints of a path and between fused nodes."""
    return escape(name).replace("/", "/<wbr>").replace("+", "+<wbr>")
