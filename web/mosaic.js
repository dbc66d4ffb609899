/* SPDX-License-Identifier: Apache-2.0 */
// mosaic.js: a prompt as tiles along its positions, by where each part's states came from.
//
//   0        |100        |200     rows with enough pixels for each token; a tile continues in the next row
//   [system][ plan ][ miami  ▾  ]   ▾: the first cache miss
//   [ miami ][?][ prompt ]          hatched: not exact
//   [ ▒▓░ ▒ ]                       lower edge of a module of reduced KV: which slots are kept, as intensity

import { s, rove } from './dom.js';
import { SOURCES, count, moduleName, rate, reasonWords, shortName, sourceOf, tokens } from './words.js';

const ROW = 34; // of tiles
const TICKS = 18; // below each row
const TOP = 6; // space for the mark
const PER_TOKEN = 3; // pixels that a token should have
const MAX_ROWS = 8;
const NARROW = 480; // pixels, of a phone: there the mosaic leaves space for the conversation
const NARROW_ROWS = 3;
const SLOTS = 13; // height of the cells of kept slots, in a tile
const PER_CELL = 2; // pixels that a cell should have
const CHARACTER = 6.8; // of a label, about
const LABEL = 40; // pixels at the beginning of a piece that an argument must leave to the label

let drawn = 0; // names of hatches are unique in the document

// Which slots the reduced KV of a part has: {from, to, share} in positions, share: of all heads that keep the slots. Empty: all of
// them have all, or the request did not ask.
function keptSteps(part, step) {
  return (part.kept_shares ?? []).map((share, i) => ({
    from: part.position + i * step,
    to: part.position + (i + 1) * step,
    share,
  }));
}

// What is drawn: {source, name, at, end, tokens, part, kept}, by position.
export function tilesOf(report) {
  const tiles = [];
  let end = 0;
  let told = 0;
  for (const part of report.parts) {
    const kept = keptSteps(part, report.kept_step);
    const tile = {
      source: sourceOf(part),
      name: part.module,
      at: part.position,
      end: Math.max(part.position + part.tokens, kept.at(-1)?.to ?? 0), // with the places of its parameters
      tokens: part.tokens,
      part,
      kept,
    };
    tiles.push(tile);
    end = Math.max(end, tile.end);
    told += part.tokens;
  }
  const rest = report.prompt_tokens - told;
  if (rest > 0) tiles.push({ source: 'rest', name: `${count(rest)} more tokens`, at: end, end: end + rest, tokens: rest });
  return tiles;
}

// A module of reduced KV: how much of it, and how evenly.
function keptWords(tile) {
  const { part } = tile;
  const shares = tile.kept.map((step) => step.share);
  const words = `keeps ${rate(part.kept)} of its KV (${part.kept_by})`;
  if (shares.length === 0) return words;
  return `${words}, each slot in ${rate(Math.min(...shares))} to ${rate(Math.max(...shares))} of heads`;
}

const stepWords = ({ from, to, share }) =>
  `${to - from === 1 ? `token at ${count(from)}` : `tokens at ${count(from)} to ${count(to - 1)}`}: kept by ${rate(share)} of heads`;

export function tileWords(tile) {
  if (!tile.part) return `${tokens(tile.tokens)} in parts omitted from the report`;
  const { part } = tile;
  const words = [`${moduleName(part.module)}: ${tokens(part.tokens)} at ${count(part.position)}, ${SOURCES[tile.source]}`];
  if (part.reason) words.push(reasonWords(part.reason));
  if (part.shift) words.push(`shift ${part.shift > 0 ? '+' : '−'}${count(Math.abs(part.shift))}`);
  if (!part.exact) words.push('not exact');
  if (part.kept < 1) words.push(keptWords(tile));
  return words.join('; ');
}

// The position of the prompt's n-th token.
function positionOf(tiles, token) {
  for (const tile of tiles) {
    if (token < tile.tokens) return tile.at + token;
    token -= tile.tokens;
  }
  return tiles.length ? tiles[tiles.length - 1].end : 0;
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  return [1, 2, 5, 10].map((m) => m * power).find((step) => step >= rough);
}

// {perRow, rows, step, end}: how positions are laid out in this width.
function layoutOf(tiles, width) {
  const end = tiles.reduce((most, tile) => Math.max(most, tile.end), 1);
  const rows = Math.min(width < NARROW ? NARROW_ROWS : MAX_ROWS, Math.max(1, Math.ceil((end * PER_TOKEN) / width)));
  const step = niceStep(Math.max(end / rows / 6, 1));
  const perRow = rows === 1 ? end : Math.ceil(end / rows / step) * step;
  return { perRow, rows: Math.ceil(end / perRow), step, end };
}

function labelOf(tile, width) {
  const name = shortName(tile.name);
  const full = `${name} ${count(tile.tokens)}`;
  const label = [full, name].find((text) => text.length * CHARACTER + 10 <= width);
  if (label) return label;
  const fits = Math.floor((width - 10) / CHARACTER);
  return fits >= 4 ? `${name.slice(0, fits - 1)}…` : '';
}

// Steps that are wide enough to be seen: neighbours together, with their mean.
function joinSteps(steps, scale) {
  const n = Math.max(1, Math.ceil(PER_CELL / ((steps[0].to - steps[0].from) * scale)));
  const joined = [];
  for (let i = 0; i < steps.length; i += n) {
    const group = steps.slice(i, i + n);
    const share = group.reduce((sum, step) => sum + step.share, 0) / group.length;
    joined.push({ from: group[0].from, to: group.at(-1).to, share });
  }
  return joined;
}

// The cells of kept slots along the lower edge of a tile. onStep(words, or null).
function drawKept(tile, pieces, scale, onStep) {
  const edge = (piece, attributes) => ({ y: piece.y + ROW - SLOTS, height: SLOTS, ...attributes });
  return pieces.flatMap((piece) => [
    s('rect', { class: 'slots', ...edge(piece, { x: piece.x, width: piece.width }) }),
    joinSteps(tile.kept, scale)
      .map((step) => ({ ...step, low: Math.max(step.from, piece.from), high: Math.min(step.to, piece.to) }))
      .filter(({ low, high }) => low < high)
      .map((step) => {
        const x = piece.x + (step.low - piece.from) * scale;
        const width = Math.min((step.high - step.low) * scale, piece.x + piece.width - x);
        const cell = s('rect', { class: 'slot', ...edge(piece, { x, width }), 'fill-opacity': step.share }, s('title', {}, stepWords(step)));
        cell.addEventListener('pointerenter', () => onStep(stepWords(step)));
        return cell;
      }),
  ]);
}

// Where the label of a piece begins: after the arguments that are drawn over its first pixels.
function labelAt(tile, tiles, piece, scale) {
  let from = piece.from;
  for (const other of tiles) {
    const covers = other !== tile && other.at > tile.at && other.at < tile.end && other.end > from;
    if (covers && (other.at - from) * scale < LABEL) from = other.end;
  }
  return Math.min((from - piece.from) * scale, piece.width);
}

// The pieces of a tile in its rows; the longest has the label.
function drawTile(tile, tiles, layout, width, hatch, onStep) {
  const scale = width / layout.perRow;
  const pieces = [];
  for (let row = Math.floor(tile.at / layout.perRow); row * layout.perRow < tile.end; row++) {
    const from = Math.max(tile.at - row * layout.perRow, 0);
    const to = Math.min(tile.end - row * layout.perRow, layout.perRow);
    const gap = tile.end - row * layout.perRow <= layout.perRow && (to - from) * scale > 3 ? 1 : 0;
    const first = row * layout.perRow;
    pieces.push({ x: from * scale, y: TOP + row * (ROW + TICKS), width: Math.max((to - from) * scale - gap, 0.75), from: first + from, to: first + to });
  }
  const longest = pieces.reduce((a, b) => (b.width > a.width ? b : a));
  const before = labelAt(tile, tiles, longest, scale);
  const label = labelOf(tile, longest.width - before);
  const shown = tile.kept?.length > 0 ? ROW - SLOTS : ROW; // height of hatch and label
  const box = (piece, attributes) => s('rect', { x: piece.x, y: piece.y, width: piece.width, height: ROW, rx: 2, ...attributes });
  return s(
    'g',
    { class: `tile ${tile.source}`, role: 'listitem', 'aria-label': tileWords(tile) },
    s('title', {}, tileWords(tile)),
    pieces.map((piece) => box(piece, { class: 'body' })),
    tile.part && !tile.part.exact && pieces.map((piece) => box(piece, { fill: `url(#${hatch})`, class: 'hatch', height: shown })),
    tile.kept?.length > 0 && drawKept(tile, pieces, scale, onStep),
    label && s('text', { x: longest.x + before + 5, y: longest.y + shown / 2 + 4, 'aria-hidden': 'true' }, label),
  );
}

function drawTicks(layout, width) {
  const scale = width / layout.perRow;
  const ticks = [];
  for (let at = 0; at <= layout.end; at += layout.step) {
    const row = Math.floor(at / layout.perRow);
    const x = (at - row * layout.perRow) * scale;
    const y = TOP + row * (ROW + TICKS) + ROW;
    if (row >= layout.rows || x > width - 22) continue;
    ticks.push(s('path', { d: `M${x + 0.5} ${y + 1}v4` }), s('text', { x: x + 2, y: y + 13 }, count(at)));
  }
  return s('g', { class: 'ticks', 'aria-hidden': 'true' }, ticks);
}

function drawMark(tiles, report, layout, width) {
  if (!report.mismatch) return null;
  const at = positionOf(tiles, report.mismatch.token);
  const row = Math.min(Math.floor(at / layout.perRow), layout.rows - 1);
  const x = (at - row * layout.perRow) * (width / layout.perRow);
  const y = TOP + row * (ROW + TICKS);
  return s('path', { class: 'mark', 'aria-hidden': 'true', d: `M${x} ${y + ROW + 3}V${y - 1}m-5 -5h10l-5 6z` });
}

function hatching(id) {
  return s(
    'defs',
    {},
    s(
      'pattern',
      { id, width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
      s('rect', { width: 2, height: 6, class: 'hatch-line' }),
    ),
  );
}

// onTile(tile or null, words): what the reader points at or has the focus; words: of a place in it, or none.
export function drawMosaic(report, width, onTile) {
  const tiles = tilesOf(report);
  const layout = layoutOf(tiles, width);
  const height = TOP + layout.rows * (ROW + TICKS);
  const hatch = `hatch-${++drawn}`;
  const boxes = tiles.map((tile) => drawTile(tile, tiles, layout, width, hatch, (words) => onTile(tile, words)));
  boxes.forEach((box, i) => {
    box.addEventListener('pointerenter', () => onTile(tiles[i]));
    box.addEventListener('pointerdown', () => onTile(tiles[i]));
  });
  rove(boxes, (i) => onTile(tiles[i]));
  const svg = s(
    'svg',
    {
      class: 'mosaic',
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: 'list',
      'aria-label': `The prompt in ${boxes.length} parts over ${count(layout.end)} positions. Use the arrow keys to move between parts.`,
    },
    hatching(hatch),
    drawTicks(layout, width),
    boxes,
    drawMark(tiles, report, layout, width),
  );
  svg.addEventListener('pointerleave', () => onTile(null));
  return svg;
}

// A line of it without words, for lists.
export function drawStrip(report) {
  const tiles = tilesOf(report);
  const end = tiles.reduce((most, tile) => Math.max(most, tile.end), 1);
  return s(
    'svg',
    { class: 'strip', viewBox: `0 0 ${end} 6`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    tiles.map((tile) => s('rect', { class: `body ${tile.source}`, x: tile.at, y: 0, width: tile.end - tile.at, height: 6 })),
  );
}
