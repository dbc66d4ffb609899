/* SPDX-License-Identifier: Apache-2.0 */
// budget.js: a bar of what is used of a limit.

import { h } from './dom.js';
import { bytes, percent } from './words.js';

export function budgetBar(name, used, limit, kind, more) {
  const value = limit > 0 ? Math.min(used / limit, 1) : 0;
  const piece = h('span', { class: `piece ${kind}` });
  const words = `${bytes(used)} of ${bytes(limit)} (${percent(used, limit)})${more ? `, ${more}` : ''}`;
  piece.style.width = `${100 * value}%`;
  return h(
    'div',
    {
      class: 'bar-row',
      role: 'meter',
      'aria-label': name,
      'aria-valuemin': '0',
      'aria-valuemax': '100',
      'aria-valuenow': String(Math.round(100 * value)),
      'aria-valuetext': words,
    },
    h('span', { class: 'bar-name' }, name),
    h('span', { class: 'bar-lane' }, piece),
    h('span', { class: 'bar-value' }, words),
  );
}
