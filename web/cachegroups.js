/* SPDX-License-Identifier: Apache-2.0 */
// cachegroups.js: cache entries as a tree of groups: schema > module > member, by the path of a label; other text by the time of its
// last use, because it has no label.
//
//   root -- cities ------- plan -- entry, entry ...
//        |          +----- entry (the only one of its label)
//        +- prefix cache - used in the last hour -- entry ...
//
// A group: {id, name, label, children (groups and entries, the largest first), bytes, n (entries)}. An entry is the API's object.

import { DOCUMENT, count, documentName } from './words.js';

const TEXT = ':text'; // ids that no label has
const MORE = ':more:';
const DOCUMENTS = 'parts'; // the server's schema of the documents in requests
const AGES = [
  [600, 'used in the last 10 minutes'],
  [3600, 'used in the last hour'],
  [86400, 'used in the last day'],
  [Infinity, 'used earlier'],
];

export const isGroup = (node) => Boolean(node.children);
export const newGroup = (id, name, label = '') => ({ id, name, label, children: [], bytes: 0, n: 0, groups: new Map() });

function childOf(group, id, name, label) {
  let child = group.groups.get(id);
  if (!child) {
    child = newGroup(id, name, label);
    group.groups.set(id, child);
    group.children.push(child);
  }
  return child;
}

function groupOfText(root, entry, now) {
  const i = AGES.findIndex(([seconds]) => now - (entry.last_use ?? 0) < seconds);
  return childOf(childOf(root, TEXT, 'Prefix cache'), `${TEXT}${i}`, AGES[i][1]);
}

function groupOfLabel(root, label) {
  let group = root;
  let path = '';
  for (const word of label.split('/')) {
    path = path ? `${path}/${word}` : word;
    if (DOCUMENT.test(word) && group.label === DOCUMENTS) group.name = 'Documents of requests';
    group = childOf(group, word, documentName(word), path);
  }
  return group;
}

// A group of one group is that group, with both names.
function join(group) {
  const [only] = group.children;
  if (group.children.length !== 1 || !isGroup(only)) return;
  if (group.label) group.name = `${group.name}/${only.name}`;
  group.label = only.label;
  group.children = only.children;
}

// Sums and sorts; a label with one entry is that entry.
function settle(group) {
  group.children = group.children.map((child) => {
    if (!isGroup(child)) return child;
    settle(child);
    join(child);
    return child.label && child.n === 1 ? child.children[0] : child;
  });
  group.children.sort((a, b) => b.bytes - a.bytes);
  for (const child of group.children) {
    group.bytes += child.bytes;
    group.n += child.n ?? 1;
  }
}

// now: seconds since 1970.
export function groupsOf(entries, now) {
  const root = newGroup('', 'All entries');
  for (const entry of entries) {
    const group = entry.label ? groupOfLabel(root, entry.label) : groupOfText(root, entry, now);
    group.children.push(entry);
  }
  settle(root);
  return root;
}

// The children of a group from the n-th on, as a group.
export function restOf(group, n) {
  const rest = newGroup(`${MORE}${n}`, '');
  rest.children = group.children.slice(n);
  for (const child of rest.children) {
    rest.bytes += child.bytes;
    rest.n += child.n ?? 1;
  }
  rest.name = `${count(rest.children.length)} more`;
  rest.label = group.label;
  return rest;
}

// The groups along a path of ids, from the root, as far as they exist.
export function groupsAlong(root, path) {
  const along = [root];
  for (const id of path) {
    const last = along.at(-1);
    const next = id.startsWith(MORE)
      ? restOf(last, Number(id.slice(MORE.length)))
      : last.children.find((child) => isGroup(child) && child.id === id);
    if (!next || next.n === 0) break;
    along.push(next);
  }
  return along;
}

// All entries below a group.
export const entriesOf = (group) => group.children.flatMap((child) => (isGroup(child) ? entriesOf(child) : child));
