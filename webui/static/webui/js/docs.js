/** The pages of the REST description: a file of its own, because pages run no inline script. */

/* global SwaggerUIBundle */

const place = /** @type {HTMLElement} */ (document.querySelector("#doors"));
const prefersDark = matchMedia("(prefers-color-scheme: dark)");

/** Dark where the dashboard is: what draws the doors knows a class, not the page's colour scheme. */
function follow() {
  const theme = document.documentElement.dataset.theme;
  document.documentElement.classList.toggle("dark-mode", theme === "dark" || (theme !== "light" && prefersDark.matches));
}

document.addEventListener("themechange", follow);
prefersDark.addEventListener("change", follow);
follow();
SwaggerUIBundle({ url: place.dataset.description, dom_id: "#doors", deepLinking: true });
