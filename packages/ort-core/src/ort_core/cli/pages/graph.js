'use strict';
// The picture: nodes in layers from top to bottom (Sugiyama's method: layers by longest path, order within them by
// barycenters, positions by their neighbors' medians), drawn anew whenever a group is folded or unfolded.

const facts = JSON.parse(document.getElementById('facts').textContent);
const COLORS = ['#2f5d8f', '#3f6b3e', '#a83f29', '#74526f', '#855510', '#1d6f66', '#4b5563']; // white text stands out on each
const HEIGHT = 42, GAP_X = 26, GAP_Y = 54, PAD = 14, FOLD_ABOVE = 60, ALONE = 260;
const READABLE = 0.85, LEAST = 0.6; // of full size: where the page begins, and the smallest that text can still be read at
const colors = new Map(facts.providers.map((name, index) => [name, COLORS[index % COLORS.length]]));
const svg = document.getElementById('picture'), view = document.getElementById('view');
const folded = new Set();
const state = { chosen: null, found: new Set(), x: 0, y: 0, scale: 1 };

const parentsOf = (group) => {
  const path = [];
  for (let at = group; at !== null && at !== undefined; at = facts.groups[at].parent) path.unshift(at);
  return path;
};
const paths = facts.nodes.map((node) => parentsOf(node.group));
const members = facts.groups.map(() => []);
paths.forEach((path, index) => path.forEach((group) => members[group].push(index)));
if (facts.nodes.length > FOLD_ABOVE) facts.groups.forEach((_, index) => folded.add(index));

const timeText = (ms) => (ms >= 1 ? ms.toPrecision(3) + ' ms' : (ms * 1000).toPrecision(3) + ' us');
const sumMs = (indices) => {
  const regions = new Map();
  indices.forEach((i) => {
    const node = facts.nodes[i];
    if (node.ms !== null) regions.set(node.region || 'node ' + i, node.ms);
  });
  return regions.size ? [...regions.values()].reduce((a, b) => a + b, 0) : null;
};

// What is seen: each node, or the outermost folded group around it.
function visible() {
  const boxes = [], boxOf = new Array(facts.nodes.length), byGroup = new Map();
  facts.nodes.forEach((node, index) => {
    const outer = paths[index].find((group) => folded.has(group));
    if (outer !== undefined) {
      if (!byGroup.has(outer)) {
        byGroup.set(outer, boxes.length);
        boxes.push(groupBox(outer));
      }
      boxOf[index] = byGroup.get(outer);
      return;
    }
    boxOf[index] = boxes.length;
    boxes.push(nodeBox(index));
  });
  return { boxes, boxOf, links: linksBetween(boxes, boxOf) };
}

function nodeBox(index) {
  const node = facts.nodes[index];
  const sub = node.kind === 'node' ? (node.ms !== null ? timeText(node.ms) : shortName(node.name)) : node.types[0];
  const title = node.kind === 'node' ? node.op : node.op + ' ' + node.name;
  return { index, title, sub, members: [index], width: widthOf(title, sub), path: paths[index],
           color: colors.get(node.provider), border: node.kind !== 'node', refused: node.reasons.length > 0, plain: node.plain };
}

function groupBox(group) {
  const inside = members[group], counts = new Map();
  inside.forEach((i) => counts.set(facts.nodes[i].provider, (counts.get(facts.nodes[i].provider) || 0) + 1));
  const most = [...counts].sort((a, b) => b[1] - a[1])[0][0], ms = sumMs(inside);
  const sub = inside.length + ' nodes' + (counts.size > 1 ? ', ' + counts.size + ' providers' : '') + (ms === null ? '' : ', ' + timeText(ms));
  const title = '+ ' + facts.groups[group].label;
  return { group, title, sub, members: inside, width: widthOf(title, sub), color: colors.get(most), border: false,
           path: parentsOf(facts.groups[group].parent), refused: inside.some((i) => facts.nodes[i].reasons.length > 0), plain: inside.some((i) => facts.nodes[i].plain) };
}

const shortName = (name) => (name.length > 22 ? '…' + name.slice(-21) : name);
const pen = document.createElement('canvas').getContext('2d'), family = getComputedStyle(document.body).fontFamily;
const textWidth = (text, size) => { pen.font = size + 'px ' + family; return pen.measureText(text).width; };
const cut = (text, width) => { // the whole text stands in the panel, and where the pointer rests on the line
  let shown = text;
  while (shown.length > 1 && textWidth(shown, 12) > width) shown = shown.slice(0, -2) + '…';
  return shown;
};
const widthOf = (title, sub) => Math.max(70, 18 + Math.max(textWidth(title, 14), textWidth(sub, 12)));

function linksBetween(boxes, boxOf) {
  const found = new Map();
  facts.edges.forEach(([from, to, label, back]) => {
    const a = boxOf[from], b = boxOf[to];
    if (a === b) return;
    const key = a + ',' + b;
    if (!found.has(key)) found.set(key, { a, b, labels: [], back: Boolean(back) });
    const link = found.get(key);
    link.back = link.back && Boolean(back);
    if (!link.labels.includes(label)) link.labels.push(label);
  });
  return [...found.values()];
}

function layout({ boxes, links }) {
  const down = links.filter((link) => !link.back);
  layers(boxes, down);
  const rows = [], nodes = boxes.slice(), segments = [];
  down.forEach((link) => { // long links pass through a point of their own in each layer
    let last = link.a;
    link.points = [];
    for (let layer = boxes[link.a].layer + 1; layer < boxes[link.b].layer; layer++) {
      nodes.push({ layer, width: 6, dummy: true });
      segments.push([last, nodes.length - 1]);
      last = nodes.length - 1;
      link.points.push(last);
    }
    segments.push([last, link.b]);
  });
  nodes.forEach((node, index) => (rows[node.layer] = rows[node.layer] || []).push(index));
  const above = nodes.map(() => []), below = nodes.map(() => []);
  segments.forEach(([a, b]) => { below[a].push(b); above[b].push(a); });
  const place = new Array(nodes.length).fill(0);
  const number = () => rows.forEach((row) => row.forEach((index, at) => (place[index] = at)));
  number();
  for (let sweep = 0; sweep < 8; sweep++) {
    const near = sweep % 2 ? below : above;
    (sweep % 2 ? [...rows].reverse() : rows).forEach((row) => {
      const weight = new Map(row.map((i) => [i, near[i].length ? near[i].reduce((s, j) => s + place[j] / rows[nodes[j].layer].length, 0) / near[i].length : place[i] / row.length]));
      row.sort((i, j) => weight.get(i) - weight.get(j));
      row.forEach((index, at) => (place[index] = at));
    });
  }
  positions(nodes, rows, above, below);
  return { nodes, down };
}

function layers(boxes, links) {
  const incoming = boxes.map(() => []), outgoing = boxes.map(() => []), open = boxes.map(() => 0);
  links.forEach((link) => { incoming[link.b].push(link.a); outgoing[link.a].push(link.b); open[link.b]++; });
  boxes.forEach((box) => (box.layer = 0));
  const ready = boxes.map((_, i) => i).filter((i) => open[i] === 0), order = [];
  while (ready.length) {
    const i = ready.shift();
    order.push(i);
    outgoing[i].forEach((j) => {
      boxes[j].layer = Math.max(boxes[j].layer, boxes[i].layer + 1);
      if (--open[j] === 0) ready.push(j);
    });
  }
  order.reverse().forEach((i) => { // sources stand right above their first reader
    if (!incoming[i].length && outgoing[i].length) boxes[i].layer = Math.min(...outgoing[i].map((j) => boxes[j].layer)) - 1;
  });
  const lowest = Math.min(0, ...boxes.map((box) => box.layer));
  boxes.forEach((box) => (box.layer -= lowest));
}

function positions(nodes, rows, above, below) {
  rows.forEach((row, layer) => {
    let at = 0;
    row.forEach((i) => { nodes[i].x = at + nodes[i].width / 2; at += nodes[i].width + GAP_X; nodes[i].y = layer * (HEIGHT + GAP_Y); });
    row.forEach((i) => (nodes[i].x -= at / 2));
  });
  const middle = (values) => { const s = [...values].sort((a, b) => a - b), h = s.length >> 1; return s.length % 2 ? s[h] : (s[h - 1] + s[h]) / 2; };
  for (let sweep = 0; sweep < 10; sweep++) {
    const near = sweep % 2 ? below : above;
    (sweep % 2 ? [...rows].reverse() : rows).forEach((row) => {
      const wanted = row.map((i) => (near[i].length ? middle(near[i].map((j) => nodes[j].x)) : nodes[i].x));
      const gap = (k) => (nodes[row[k]].width + nodes[row[k - 1]].width) / 2 + GAP_X;
      const right = [], left = [];
      row.forEach((_, k) => (right[k] = k ? Math.max(wanted[k], right[k - 1] + gap(k)) : wanted[k]));
      for (let k = row.length - 1; k >= 0; k--) left[k] = k < row.length - 1 ? Math.min(wanted[k], left[k + 1] - gap(k + 1)) : wanted[k];
      row.forEach((i, k) => (nodes[i].x = (left[k] + right[k]) / 2));
      row.forEach((i, k) => { if (k) nodes[i].x = Math.max(nodes[i].x, nodes[row[k - 1]].x + gap(k)); });
    });
  }
}

const element = (name, attributes, text) => {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
  if (text !== undefined) made.textContent = text;
  return made;
};

let drawn = null;
function draw() {
  const shown = visible(), { nodes } = layout(shown);
  const inRow = new Map();
  nodes.forEach((node) => inRow.set(node.y, (inRow.get(node.y) || 0) + 1));
  drawn = { ...shown, nodes, inRow, marks: [] };
  view.replaceChildren();
  drawPartitions(shown, nodes);
  drawGroups(shown.boxes);
  shown.links.forEach((link) => drawLink(link, nodes));
  shown.boxes.forEach((box, index) => drawBox(box, index));
  svg.dataset.boxes = shown.boxes.length;
  light();
}

// An outline around what one partition holds: wide strokes in its color, then narrower ones in the ground's.
function drawPartitions({ boxes, boxOf, links }, nodes) {
  const names = [...new Set(facts.nodes.map((node) => node.partition).filter(Boolean))];
  if (names.length < 2) return;
  const inside = boxes.map((box) => new Set(box.members.map((i) => facts.nodes[i].partition)));
  names.forEach((name) => {
    const mine = boxes.filter((_, i) => inside[i].has(name));
    const paths = links.filter((l) => inside[l.a].has(name) && inside[l.b].has(name)).map((l) => pathOf(l, nodes));
    const color = mine.length && mine[0].color || '#777';
    [[0, color, 26], [2.2, '#fff', 22]].forEach(([inset, stroke, width]) => {
      paths.forEach((d) => view.append(element('path', { d, fill: 'none', stroke, 'stroke-width': width, 'stroke-linecap': 'round' })));
      mine.forEach((b) => view.append(element('rect', { x: b.x - b.width / 2 - PAD + inset, y: b.y - PAD + inset, width: b.width + 2 * (PAD - inset), height: HEIGHT + 2 * (PAD - inset), rx: 12, fill: stroke, class: 'outline', 'data-partition': name })));
    });
  });
}

function drawGroups(boxes) {
  const bounds = new Map();
  boxes.forEach((box) => box.path.forEach((group) => {
    const b = bounds.get(group) || { x0: Infinity, y0: Infinity, x1: -Infinity, y1: -Infinity };
    bounds.set(group, { x0: Math.min(b.x0, box.x - box.width / 2), y0: Math.min(b.y0, box.y), x1: Math.max(b.x1, box.x + box.width / 2), y1: Math.max(b.y1, box.y + HEIGHT) });
  }));
  bounds.forEach((b, group) => {
    view.append(element('rect', { class: 'group', x: b.x0 - 20, y: b.y0 - 38, width: b.x1 - b.x0 + 40, height: b.y1 - b.y0 + 52, rx: 8 }));
    const title = element('text', { class: 'group-title', x: b.x0 - 14, y: b.y0 - 24, 'data-fold': group }, '- ' + facts.groups[group].label);
    title.addEventListener('click', () => { folded.add(group); draw(); });
    view.append(title);
  });
}

function pathOf(link, nodes) {
  const a = nodes[link.a], b = nodes[link.b];
  const stops = [[a.x, a.y + HEIGHT], ...(link.points || []).map((i) => [nodes[i].x, nodes[i].y + HEIGHT / 2]), [b.x, b.y]];
  if (link.back) return `M${a.x},${a.y + HEIGHT} C${a.x},${a.y + HEIGHT + 40} ${b.x + b.width},${b.y + HEIGHT / 2} ${b.x + b.width / 2},${b.y + HEIGHT / 2}`;
  let d = 'M' + stops[0];
  for (let i = 1; i < stops.length; i++) {
    const [x0, y0] = stops[i - 1], [x1, y1] = stops[i], half = (y0 + y1) / 2;
    d += ` C${x0},${half} ${x1},${half} ${x1},${y1}`;
  }
  return d;
}

function drawLink(link, nodes) {
  const path = element('path', { class: 'edge', d: pathOf(link, nodes) });
  path.append(element('title', {}, link.labels.join('\n')));
  const a = nodes[link.a], b = nodes[link.b];
  const type = link.labels[0].split('  ').pop() + (link.labels.length > 1 ? ` +${link.labels.length - 1}` : '');
  const alone = [drawn.links.filter((l) => l.b === link.b).length === 1, drawn.links.filter((l) => l.a === link.a).length === 1];
  const [x, y] = alone[0] || !alone[1] ? [b.x, b.y - 7] : [a.x, a.y + HEIGHT + 12];
  const crowded = alone[0] || alone[1] ? '' : ' crowded'; // shown when one of its ends is chosen
  const near = alone[0] || !alone[1] ? b : a, room = Math.max(near.width + GAP_X - 6, drawn.inRow.get(near.y) === 1 ? ALONE : 0);
  const label = element('text', { class: 'label' + crowded, x, y, 'text-anchor': 'middle' }, cut(type, room));
  view.append(path, label);
  drawn.marks.push({ link, path, label });
}

function drawBox(box, index) {
  const classes = ['node', box.border && 'border', box.group !== undefined && 'folded'].filter(Boolean).join(' ');
  const made = element('g', { class: classes, transform: `translate(${box.x - box.width / 2},${box.y})` });
  made.append(element('rect', { width: box.width, height: HEIGHT, rx: box.border ? 16 : 5, ...(box.border ? {} : { fill: box.color || '#777' }) }));
  made.append(element('text', { x: box.width / 2, y: 17, 'text-anchor': 'middle' }, box.title));
  made.append(element('text', { class: 'sub', x: box.width / 2, y: 33, 'text-anchor': 'middle' }, box.sub));
  if (box.refused) made.append(element('circle', { class: 'refused', cx: box.width - 3, cy: 4, r: 5 }));
  if (box.plain) made.append(element('circle', { class: 'plain', cx: box.width - 3, cy: box.height - 4, r: 5 }));
  made.append(element('title', {}, hoverText(box)));
  made.addEventListener('click', () => {
    if (moved) return;
    if (box.group !== undefined) { folded.delete(box.group); draw(); } else { state.chosen = box.index; details(box.index); light(); }
  });
  box.mark = made;
  if (box.group === undefined) made.dataset.name = facts.nodes[box.index].name;
  view.append(made);
}

function hoverText(box) {
  if (box.group !== undefined) {
    const reasons = new Set(box.members.flatMap((i) => facts.nodes[i].reasons.map(([p, r]) => `${p} left ${facts.nodes[i].op}: ${r}`)));
    box.members.map((i) => facts.nodes[i]).filter((node) => node.plain).forEach((node) => reasons.add(`${node.op} runs by ${node.how}: ${node.why}`));
    return [box.title, box.sub, ...reasons, 'click to unfold'].join('\n');
  }
  const node = facts.nodes[box.index];
  return [node.name, node.op, node.provider && `on ${node.provider}`, node.partition, ...node.types,
          ...node.reasons.map(([p, r]) => `${p} left it: ${r}`), howText(node), node.ms !== null && timeText(node.ms)].filter(Boolean).join('\n');
}

function howText(node) {
  return [node.how, node.step, node.why].filter(Boolean).join(': ');
}

function details(index) {
  const node = facts.nodes[index], side = document.getElementById('details');
  side.replaceChildren();
  const add = (name, text, cls) => { const made = document.createElement(name); made.textContent = text; if (cls) made.className = cls; side.append(made); };
  const list = (title, texts, cls) => { if (texts.length) { add('h3', title); texts.forEach((text) => add('p', text, cls)); } };
  add('h2', node.op);
  add('p', node.name);
  list('runs on', [node.provider, node.partition].filter(Boolean));
  list('how', [node.how && node.step ? `${node.how}, in step ${node.step}` : node.how].filter(Boolean));
  list(node.plain ? 'why not better' : 'why no step', [node.why].filter(Boolean), node.plain ? 'reason' : undefined);
  list('left by', node.reasons.map(([provider, reason]) => `${provider}: ${reason}`), 'reason');
  list('time', node.ms === null ? [] : [timeText(node.ms) + (node.region ? ` for the region ${node.region}` : '')]);
  list('attributes', node.attributes);
  list('reads', facts.edges.filter(([, to]) => to === index).map(([, , label]) => label));
  list('weights', node.weights);
  list('gives', node.types);
  side.hidden = false;
}

function light() {
  const on = state.chosen === null ? null : drawn.boxOf[state.chosen];
  drawn.marks.forEach(({ link, path, label }) => {
    const lit = on !== null && (link.a === on || link.b === on);
    path.classList.toggle('lit', lit); label.classList.toggle('lit', lit);
  });
  drawn.boxes.forEach((box, i) => {
    box.mark.classList.toggle('chosen', i === on);
    box.mark.classList.toggle('found', box.members.some((m) => state.found.has(m)));
  });
}

function search(text) {
  const wanted = text.trim().toLowerCase();
  state.found = new Set();
  if (wanted) facts.nodes.forEach((node, i) => {
    const where = [node.name, node.op, node.provider, node.partition, node.how, node.step, node.why, ...node.reasons.flat()].join('\n').toLowerCase();
    if (where.includes(wanted)) state.found.add(i);
  });
  document.getElementById('found').textContent = wanted ? `${state.found.size} found` : '';
  light();
  if (state.found.size) center(drawn.boxes[drawn.boxOf[[...state.found][0]]]);
}

function center(box) {
  const { width, height } = room();
  state.scale = Math.max(state.scale, READABLE);
  state.x = width / 2 - box.x * state.scale;
  state.y = height / 2 - (box.y + HEIGHT / 2) * state.scale;
  move();
}

const move = () => view.setAttribute('transform', `translate(${state.x},${state.y}) scale(${state.scale})`);

// What of the picture the panel does not cover.
function room() {
  const { width, height } = svg.getBoundingClientRect(), side = document.getElementById('details');
  return { width: side.hidden ? width : Math.max(width - side.offsetWidth, width / 4), height };
}

// Show all of the graph, however small; or, to begin with, as much as can be read: a long graph is scrolled.
function fit(readable) {
  const { width, height } = room();
  const xs = drawn.boxes.flatMap((b) => [b.x - b.width / 2, b.x + b.width / 2]), ys = drawn.boxes.map((b) => b.y);
  const [x0, x1] = [Math.min(...xs) - 40, Math.max(...xs) + 40], [y0, y1] = [Math.min(...ys) - 40, Math.max(...ys) + HEIGHT + 40];
  const whole = Math.min(width / (x1 - x0), height / (y1 - y0), 1.2);
  state.scale = readable ? Math.max(whole, LEAST, Math.min(READABLE, width / (x1 - x0))) : whole;
  state.x = width / 2 - (x0 + x1) / 2 * state.scale;
  state.y = whole === state.scale ? height / 2 - (y0 + y1) / 2 * state.scale : -y0 * state.scale;
  move();
}

let from = null, moved = false;
svg.addEventListener('pointerdown', (event) => { from = [event.clientX, event.clientY]; moved = false; });
window.addEventListener('pointermove', (event) => {
  if (!from) return;
  const [dx, dy] = [event.clientX - from[0], event.clientY - from[1]];
  if (!moved && Math.abs(dx) + Math.abs(dy) < 4) return;
  moved = true; from = [event.clientX, event.clientY]; state.x += dx; state.y += dy; move();
});
window.addEventListener('pointerup', () => { from = null; });
svg.addEventListener('wheel', (event) => {
  event.preventDefault();
  if (!event.ctrlKey && !event.metaKey) { state.x -= event.deltaX; state.y -= event.deltaY; move(); return; }
  const { left, top } = svg.getBoundingClientRect(), [px, py] = [event.clientX - left, event.clientY - top];
  const scale = Math.min(4, Math.max(0.01, state.scale * Math.exp(-event.deltaY / 300)));
  state.x = px - (px - state.x) * scale / state.scale; state.y = py - (py - state.y) * scale / state.scale; state.scale = scale; move();
}, { passive: false });

function legend() {
  const place = document.getElementById('legend');
  facts.providers.forEach((name) => {
    const mark = document.createElement('i'), made = document.createElement('span');
    mark.style.background = colors.get(name);
    const ways = Object.entries(facts.ways[name] || {}).map(([how, count]) => `${count} ${how}`).join(', ');
    made.append(mark, `${name}: ${facts.nodes.filter((node) => node.provider === name).length} nodes${ways && ` (${ways})`}`);
    place.append(made);
  });
  const dots = (count, color, text) => {
    if (!count) return;
    const made = document.createElement('span'), mark = document.createElement('i');
    mark.style.background = color; made.append(mark, `${count} ${text} (hover for the reason)`); place.append(made);
  };
  dots(facts.nodes.filter((node) => node.reasons.length).length, '#f59e0b', 'refused by a provider');
  dots(facts.nodes.filter((node) => node.plain).length, '#7c3aed', 'run in a plainer way than others');
  const notes = [...facts.unavailable.map(([name, reason]) => `${name} is not available: ${reason}`), ...facts.fallbacks];
  if (facts.foreseen) notes.unshift('nothing was compiled: where nodes would run if every provider named could run here');
  document.getElementById('notes').textContent = notes.join(' · ');
}

document.getElementById('search').addEventListener('input', (event) => search(event.target.value));
document.getElementById('search').addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || !state.found.size) return;
  const next = [...state.found][(([...state.found].indexOf(state.chosen) + 1) % state.found.size)];
  reveal(next);
});
document.getElementById('unfold').addEventListener('click', () => { folded.clear(); draw(); fit(true); });
document.getElementById('fold').addEventListener('click', () => { facts.groups.forEach((_, i) => folded.add(i)); draw(); fit(true); });
document.getElementById('fit').addEventListener('click', () => fit(false));

function reveal(index) {
  paths[index].forEach((group) => folded.delete(group));
  state.chosen = index;
  draw(); details(index); center(drawn.boxes[drawn.boxOf[index]]);
}

// A link to a part of the picture: #search=TEXT, #node=NAME, #unfold, #fit
function follow() {
  const wish = new URLSearchParams(location.hash.slice(1));
  if (wish.has('unfold')) { folded.clear(); draw(); fit(true); }
  if (wish.has('fit')) fit(false);
  if (wish.has('search')) { document.getElementById('search').value = wish.get('search'); search(wish.get('search')); }
  const index = wish.has('node') ? facts.nodes.findIndex((node) => node.name === wish.get('node')) : -1;
  if (index >= 0) reveal(index);
}

legend();
draw();
fit(true);
follow();
window.addEventListener('hashchange', follow);
