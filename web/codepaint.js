/* SPDX-License-Identifier: Apache-2.0 */
// codepaint.js: colours for code: strings, comments, numbers and keywords of a few languages. Other code stays plain.

import { h } from './dom.js';

const MOST = 50000; // characters that are coloured

const words = (text) => new Set(text.split(' '));
const C = words(
  'auto bool break case catch char class const constexpr continue default delete do double else enum extern false final float for goto if include ' +
    'inline int long namespace new null nullptr override private protected public register return short signed sizeof static struct switch ' +
    'template this throw true try typedef union unsigned using virtual void volatile while define ifdef ifndef endif',
);
const JS = words(
  'as async await break case catch class const continue default delete do else enum export extends false finally for from function if implements ' +
    'import in instanceof interface let new null of private public readonly return static super switch this throw true try type typeof undefined ' +
    'var void while yield',
);
const PYTHON = words(
  'and as assert async await break class continue def del elif else except False finally for from global if import in is lambda match None ' +
    'nonlocal not or pass raise return self True try while with yield',
);
const GO = words(
  'break case chan const continue default defer else fallthrough false for func go goto if import interface map nil package range return select ' +
    'struct switch true type var',
);
const RUST = words(
  'as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self ' +
    'static struct super trait true type unsafe use where while',
);
const JAVA = words(
  'abstract boolean break byte case catch char class const continue default do double else enum extends false final finally float for if ' +
    'implements import instanceof int interface long new null package private protected public return short static super switch this throw ' +
    'throws true try var void while',
);
const SHELL = words('case do done elif else esac export fi for function if in local return set then unset until while cd echo exit source');
const SQL = words(
  'all alter and as asc between by case create delete desc distinct drop else end exists foreign from group having in index inner insert into is ' +
    'join key left like limit not null on or order outer primary references right select set table then union update values view when where with',
);
const JSON_WORDS = words('true false null');

const SLASH = String.raw`\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`;
const HASH = String.raw`#[^\n]*`;
const STRING = String.raw`"(?:[^"\\\n]|\\[\s\S])*"?|'(?:[^'\\\n]|\\[\s\S])*'?`;
const BACKTICK = '`(?:[^`\\\\]|\\\\[\\s\\S])*`?';
const TRIPLE = String.raw`"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)`;
const NUMBER = String.raw`\b(?:0[xX][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\w*`;
const WORD = String.raw`[A-Za-z_$][\w$]*`;

const language = (comment, string, keywords, folds) => ({
  pattern: new RegExp(`(?<comment>${comment})|(?<string>${string})|(?<number>${NUMBER})|(?<word>${WORD})`, 'g'),
  keywords,
  folds,
});

const NEVER = '(?!)';
const c = language(SLASH, STRING, C);
const js = language(SLASH, `${STRING}|${BACKTICK}`, JS);
const python = language(HASH, `${TRIPLE}|${STRING}`, PYTHON);
const shell = language(String.raw`(?<![\w$&{])#[^\n]*`, STRING, SHELL);
const go = language(SLASH, `${STRING}|${BACKTICK}`, GO);
const rust = language(SLASH, String.raw`"(?:[^"\\]|\\[\s\S])*"?`, RUST);
const java = language(SLASH, STRING, JAVA);
const sql = language(String.raw`--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`, STRING, SQL, true);
const json = language(NEVER, STRING, JSON_WORDS);
const yaml = language(HASH, STRING, JSON_WORDS);
const markup = language(String.raw`<!--[\s\S]*?(?:-->|$)`, String.raw`"[^"<>]*"|'[^'<>]*'`, new Set());

const LANGUAGES = {
  c, h: c, cc: c, cpp: c, 'c++': c, cxx: c, cs: java, csharp: java, java, kotlin: java,
  js, javascript: js, jsx: js, mjs: js, ts: js, tsx: js, typescript: js,
  py: python, python, python3: python, sh: shell, bash: shell, shell, zsh: shell, console: shell,
  go, golang: go, rs: rust, rust, sql, json, jsonc: js, yaml, yml: yaml, toml: yaml, ini: yaml, html: markup, xml: markup, svg: markup,
}; // prettier-ignore

// Nodes of a code's text.
export function paint(text, name) {
  const used = LANGUAGES[name.toLowerCase()];
  if (!used || text.length > MOST) return [text];
  const nodes = [];
  let at = 0;
  for (const found of text.matchAll(used.pattern)) {
    const { comment, string, number, word } = found.groups;
    const kind = comment ? 'comment' : string ? 'string' : number ? 'number' : used.keywords.has(used.folds ? word.toLowerCase() : word) ? 'keyword' : '';
    if (!kind) continue;
    if (found.index > at) nodes.push(text.slice(at, found.index));
    nodes.push(h('span', { class: `code-${kind}` }, found[0]));
    at = found.index + found[0].length;
  }
  if (at < text.length) nodes.push(text.slice(at));
  return nodes;
}
