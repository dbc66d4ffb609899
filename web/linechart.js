/* SPDX-License-Identifier: Apache-2.0 */
// linechart.js: a line over time, small: the last value large, least and most at the axis.

import { h, s } from './dom.js';
import { plain } from './words.js';

const HEIGHT = 120;
const LEFT = 48;
const BOTTOM = 18;
const TOP = 8;

function niceCeiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((m) => m * power).find((most) => most >= value);
}

// Stretches of values that are there, as path data; a value alone is a dot.
function lines(values, x, y) {
  const paths = [];
  const dots = [];
  for (let i = 0; i < values.length; i++) {
    if (values[i] === null) continue;
    const first = i;
    while (i + 1 < values.length && values[i + 1] !== null) i++;
    if (i === first) dots.push(s('circle', { cx: x(i), cy: y(values[i]), r: 2 }));
    else
      paths.push(
        Array.from(
          { length: i - first + 1 },
          (_, k) => `${k ? 'L' : 'M'}${x(first + k).toFixed(1)} ${y(values[first + k]).toFixed(1)}`,
        ).join(''),
      );
  }
  return [s('path', { class: 'line', d: paths.join('') }), ...dots];
}

// values: numbers or null, oldest first; overall: since the server began, or null; capacity: of the time axis; show: a value in
// words; most: of the axis, else what fits.
export function lineChart({ name, values, overall, capacity, show, most, span, width, kind }) {
  const there = values.filter((v) => v !== null);
  const top = most ?? niceCeiling(Math.max(...there, 0));
  const x = (i) => LEFT + ((width - LEFT - 4) * (capacity - values.length + i)) / (capacity - 1);
  const y = (v) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - Math.min(v / top, 1));
  const last = there.length ? show(there[there.length - 1]) : overall !== null ? `${show(overall)} since start` : '–';
  const words = there.length
    ? `${name}: last ${last}, least ${show(Math.min(...there))}, most ${show(Math.max(...there))}`
    : `${name}: nothing yet`;
  const grid = [0, top / 2, top].map((v) => [
    s('path', { class: 'grid', d: `M${LEFT} ${y(v)}H${width - 4}` }),
    s('text', { x: LEFT - 6, y: y(v) + 4, 'text-anchor': 'end' }, plain(show(v))),
  ]);
  return h(
    'figure',
    { class: `chart ${kind}` },
    h('figcaption', {}, h('span', {}, name), h('strong', {}, last)),
    s(
      'svg',
      { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: 'img', 'aria-label': words },
      s('title', {}, words),
      grid,
      lines(values, x, y),
      s('text', { x: LEFT, y: HEIGHT - 3 }, `${span} ago`),
      s('text', { x: width - 4, y: HEIGHT - 3, 'text-anchor': 'end' }, 'now'),
    ),
  );
}
