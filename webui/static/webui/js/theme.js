/** Colour theme: automatic, light or dark; remembered in this browser. No module, so that a page is first drawn in its theme. */
"use strict";
{
  const ORDER = ["auto", "light", "dark"];
  const stored = localStorage.getItem("theme") ?? "auto";
  let current = ORDER.includes(stored) ? stored : "auto";

  /** Let the page and its button show the theme. */
  const show = () => {
    document.documentElement.dataset.theme = current;
    const name = document.getElementById("theme-name");
    if (name) name.textContent = current;
    document.dispatchEvent(new CustomEvent("themechange"));
  };

  show();
  addEventListener("DOMContentLoaded", () => {
    show();
    document.getElementById("theme")?.addEventListener("click", () => {
      current = ORDER[(ORDER.indexOf(current) + 1) % ORDER.length];
      localStorage.setItem("theme", current);
      show();
    });
  });
}
