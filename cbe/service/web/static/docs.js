"use strict";
// Swagger UI has a dark style of its own, for a page that says it is dark.
(() => {
  const { theming, isDark, whenThemed } = globalThis.cbePage;
  const dress = () => document.documentElement.classList.toggle("dark-mode", isDark());
  whenThemed(dress);
  theming(document.getElementById("theme"));
  dress();
  SwaggerUIBundle({
    url: "/openapi.json", dom_id: "#docs", deepLinking: true, validatorUrl: null, defaultModelsExpandDepth: 0,
  });
})();
