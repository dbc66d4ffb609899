/* SPDX-License-Identifier: Apache-2.0 */
// contrast.mjs: which text of a page has less contrast than WCAG 2 asks for (level AA: 4.5 to 1, 3 to 1 for large text).

// Runs in the page. Background: the nearest opaque one; text in SVG has its own stroke or a rectangle below it.
function find() {
  const context = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const rgba = (color, below = [255, 255, 255]) => {
    context.fillStyle = `rgb(${below})`;
    context.fillRect(0, 0, 1, 1);
    context.fillStyle = color;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  };
  const isOpaque = (color) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = color;
    context.fillRect(0, 0, 1, 1);
    return context.getImageData(0, 0, 1, 1).data[3] === 255;
  };
  const luminance = (color) => {
    const [r, g, b] = color.map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const backgroundOf = (node) => {
    if (node.tagName === 'text') {
      const body = [...node.parentNode.children].find((other) => other.matches('.body, .frame'));
      if (body) return rgba(getComputedStyle(body).fill);
    }
    for (let at = node; at; at = at.parentElement) {
      const { backgroundColor } = getComputedStyle(at);
      if (isOpaque(backgroundColor)) return rgba(backgroundColor);
    }
    return [255, 255, 255];
  };
  const opacityOf = (node) => (node ? Number(getComputedStyle(node).opacity) * opacityOf(node.parentElement) : 1);
  const low = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text; (text = walker.nextNode());) {
    const node = text.parentElement;
    if (!text.data.trim() || node.closest('title, :disabled, option, noscript, .unseen, .skip') || !node.checkVisibility()) continue;
    const style = getComputedStyle(node);
    const paint = node.namespaceURI.endsWith('svg') ? style.fill : style.color;
    if (paint === 'rgba(0, 0, 0, 0)') continue;
    const below = backgroundOf(node);
    const share = opacityOf(node);
    const above = rgba(paint, below).map((value, i) => value * share + below[i] * (1 - share));
    const [a, b] = [luminance(above), luminance(below)];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = Number.parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (contrast < (large ? 3 : 4.5)) low.add(`${node.tagName} ${node.getAttribute('class')} "${text.data.trim().slice(0, 30)}": ${contrast.toFixed(2)}`);
  }
  return [...low];
}

export const lowContrast = (page) => page.evaluate(find);
