/* SPDX-License-Identifier: Apache-2.0 */
// treemap.js: rectangles with areas proportional to the items' sizes, as square as possible (Bruls, Huizing, van Wijk: Squarified
// treemaps, 2000). A group is a frame with a head and, in it, its own items.

import { s, rove } from './dom.js';

const CHARACTER = 6.8; // of a label, about
const BOLD = 7.4; // of a group's
const HEAD = 20; // height of a group's name
const EDGE = 4; // of a group, around its items
const MIN_AREA = 26 * 26; // of a tile: a finger finds it
const MIN_INNER_AREA = 64; // of a tile in a group, which is only looked at
const MOST = 150; // tiles of a level
const REST = 1 / 3; // size of the rest, compared with the shown: it may be drawn smaller than it is

// The worst ratio of sides in a row of areas along a side.
function worst(row, sum, side) {
  const thickness = sum / side;
  return Math.max(...row.map((area) => Math.max((thickness * thickness) / area, area / (thickness * thickness))));
}

// sizes: descending, above 0. Gives {x, y, width, height} for each.
export function squarify(sizes, width, height) {
  const total = sizes.reduce((sum, size) => sum + size, 0);
  const rects = [];
  const areas = sizes.map((size) => (size / total) * width * height);
  const box = { x: 0, y: 0, width, height };
  for (let i = 0; i < areas.length;) {
    const side = Math.min(box.width, box.height);
    let n = 1;
    let sum = areas[i];
    while (i + n < areas.length && worst(areas.slice(i, i + n + 1), sum + areas[i + n], side) <= worst(areas.slice(i, i + n), sum, side))
      sum += areas[i + n++];
    layRow(areas.slice(i, i + n), sum, box, rects);
    i += n;
  }
  return rects;
}

// Lays a row along the shorter side, and takes it off the box.
function layRow(row, sum, box, rects) {
  const upright = box.width >= box.height;
  const thickness = sum / (upright ? box.height : box.width);
  let at = upright ? box.y : box.x;
  for (const area of row) {
    const length = area / thickness;
    rects.push(upright ? { x: box.x, y: at, width: thickness, height: length } : { x: at, y: box.y, width: length, height: thickness });
    at += length;
  }
  if (upright) {
    box.x += thickness;
    box.width = Math.max(box.width - thickness, 1e-9);
  } else {
    box.y += thickness;
    box.height = Math.max(box.height - thickness, 1e-9);
  }
}

// How many of the sizes (descending) get a tile that is large enough, and the size of the tile for the rest (0: there is none).
export function fitting(sizes, width, height, minArea = MIN_AREA) {
  const total = sizes.reduce((sum, size) => sum + size, 0);
  let n = Math.min(sizes.length, MOST);
  let shown = sizes.slice(0, n).reduce((sum, size) => sum + size, 0);
  for (; n > 1; shown -= sizes[--n]) {
    if (n === sizes.length - 1) continue; // a rest of one is no rest
    const rest = n < sizes.length ? restSize(total - shown, shown, width * height) : 0;
    if ((sizes[n - 1] / (shown + rest)) * width * height >= minArea) return { n, rest };
  }
  return { n: 1, rest: sizes.length > 1 ? restSize(total - sizes[0], sizes[0], width * height) : 0 };
}

const restSize = (bytes, shown, area) => Math.max(Math.min(bytes, shown * REST), (shown * MIN_AREA) / area);

const cut = (text, fits) => (text.length > fits ? `${text.slice(0, fits - 1)}…` : text);

// The first of the words that fit in a width, or the last of them, cut.
function label(words, x, y, width, character = CHARACTER) {
  const fits = Math.floor((width - 10) / character);
  if (fits < 3) return null;
  const text = words.find((word) => word.length <= fits) ?? words.at(-1);
  return s('text', { x: x + 6, y: y + 15, 'aria-hidden': 'true' }, cut(text, fits));
}

const body = (kind, r) =>
  s('rect', {
    class: `body ${kind}`,
    x: r.x + 0.5,
    y: r.y + 0.5,
    width: Math.max(r.width - 1, 0.5),
    height: Math.max(r.height - 1, 0.5),
    rx: 2,
  });

function drawEntry(item, r) {
  return [
    body('', r),
    r.height >= 20 && label([item.label, item.short], r.x, r.y, r.width),
    item.pinned && r.width > 16 && r.height > 34 && s('circle', { class: 'pin', cx: r.x + r.width - 9, cy: r.y + r.height - 9, r: 3.5 }),
  ];
}

// others: {n, size} of the children that are not among the items.
function drawInner(items, others, box) {
  const { n } = fitting(items.map((item) => item.size), box.width, box.height, MIN_INNER_AREA);
  const shown = items.slice(0, n);
  const sum = (list) => list.reduce((size, item) => size + item.size, 0);
  const hidden = items.length - n + others.n;
  if (hidden > 0) {
    const size = restSize(sum(items.slice(n)) + others.size, sum(shown), box.width * box.height);
    shown.push({ size, kind: 'rest', short: `${hidden} more` });
  }
  shown.sort((a, b) => b.size - a.size);
  return squarify(shown.map((item) => item.size), box.width, box.height).map((r, i) => {
    const at = { ...r, x: r.x + box.x, y: r.y + box.y };
    return s('g', { class: shown[i].kind }, body('', at), r.height >= 20 && r.width > 44 && label([shown[i].short], at.x, at.y, r.width));
  });
}

function drawGroup(item, r) {
  const box = { x: r.x + EDGE, y: r.y + HEAD, width: r.width - 2 * EDGE, height: r.height - HEAD - EDGE };
  const frame = s('rect', {
    class: 'frame',
    x: r.x + 1,
    y: r.y + 1,
    width: Math.max(r.width - 2, 0.5),
    height: Math.max(r.height - 2, 0.5),
    rx: 3,
  });
  const inner = item.children && box.width > 12 && box.height > 12;
  return [frame, label(item.heads, r.x, r.y, r.width, BOLD), inner && drawInner(item.children, item.others, box)];
}

// items: {size, label, short (where that does not fit), words, kind (its class), id, chosen, pinned, act()}, descending by size. A group
// has `group`, heads (its name with size and count, the longest first), children (items) and others instead of label, short and kind.
// leave(): Escape or Backspace.
export function drawTreemap(items, width, height, name, leave) {
  const rects = squarify(
    items.map((item) => item.size),
    width,
    height,
  );
  const boxes = items.map((item, i) => {
    const box = s(
      'g',
      {
        class: item.group ? 'tile group' : `tile ${item.kind}`,
        role: 'button',
        'aria-pressed': item.group ? null : String(Boolean(item.chosen)),
        'aria-label': item.words,
        'data-id': item.id,
      },
      s('title', {}, item.words),
      item.group ? drawGroup(item, rects[i]) : drawEntry(item, rects[i]),
    );
    box.addEventListener('click', () => item.act());
    box.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' || event.key === ' ') item.act();
      else if (event.key === 'Escape' || event.key === 'Backspace') leave();
      else return;
      event.preventDefault();
    });
    return box;
  });
  rove(boxes);
  return s('svg', { class: 'treemap', viewBox: `0 0 ${width} ${height}`, width, height, role: 'group', 'aria-label': name }, boxes);
}
