"use strict";
(() => {
  const { theming, figures, copying, trialTable } = globalThis.cbePage;
  const find = (id) => document.getElementById(id);
  const table = trialTable(find("trial-table"), find("filter"), find("shown"));
  theming(find("theme"));
  copying();
  figures({ clicked: table.mark }).show(JSON.parse(find("data").textContent));
})();
