/* SPDX-License-Identifier: Apache-2.0 */
// theme.js: the colours that the reader chose, before anything is drawn. A plain script: modules come too late.
(function () {
  try {
    const chosen = localStorage.getItem('reprise-theme');
    if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
  } catch {
    /* storage is switched off: as the system */
  }
})();
