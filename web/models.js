/* SPDX-License-Identifier: Apache-2.0 */
// models.js: the names of the server's models, and a field that chooses one.

import { h } from './dom.js';
import { ask } from './api.js';

// Those that generate text; the first one is the default.
export async function listModels() {
  const { data } = await ask('GET', '/v1/models');
  return data.filter((model) => !model.meta?.is_encoder).map((model) => model.id);
}

export const modelOptions = (names, chosen) => names.map((name) => h('option', { value: name, selected: name === chosen }, name));

export function modelChooser(names, chosen, onChange) {
  const field = h('select', { class: 'model-chooser' }, modelOptions(names, chosen));
  field.addEventListener('change', () => onChange(field.value));
  return h('label', { class: 'inline' }, 'Model ', field);
}
