/* SPDX-License-Identifier: Apache-2.0 */
// treemap.js: rectangles with areas proportional to the items' sizes, as square as possible (Bruls, Huizing, van Wijk: Squarified treemaps, 2000).

import { s, rove } from './dom.js';

const CHARACTER = 6.8; // of a label, about

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

function label(item, rect) {
  const fits = Math.floor((rect.width - 10) / CHARACTER);
  if (rect.height < 20 || fits < 3) return null;
  const name = item.label.length > fits ? item.short : item.label;
  const text = name.length > fits ? `${name.slice(0, fits - 1)}…` : name;
  return s('text', { x: rect.x + 6, y: rect.y + 15, 'aria-hidden': 'true' }, text);
}

// items: {size, label, short (where that does not fit), words, kind (its class), key, chosen, pinned, choose()}, descending by size.
export function drawTreemap(items, width, height, name) {
  const rects = squarify(
    items.map((item) => item.size),
    width,
    height,
  );
  const boxes = items.map((item, i) => {
    const r = rects[i];
    const box = s(
      'g',
      {
        class: `tile ${item.kind}`,
        role: 'button',
        'aria-pressed': item.chosen ? 'true' : 'false',
        'aria-label': item.words,
        'data-key': item.key,
      },
      s('title', {}, item.words),
      s('rect', {
        class: 'body',
        x: r.x + 0.5,
        y: r.y + 0.5,
        width: Math.max(r.width - 1, 0.5),
        height: Math.max(r.height - 1, 0.5),
        rx: 2,
      }),
      label(item, r),
      item.pinned && r.width > 16 && r.height > 16 && s('circle', { class: 'pin', cx: r.x + r.width - 9, cy: r.y + 9, r: 3.5 }),
    );
    box.addEventListener('click', () => item.choose());
    box.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' && event.key !== ' ') return;
      event.preventDefault();
      item.choose();
    });
    return box;
  });
  rove(boxes);
  return s('svg', { class: 'treemap', viewBox: `0 0 ${width} ${height}`, width, height, role: 'group', 'aria-label': name }, boxes);
}
