/** Colour theme: automatic, light or dark; remembered in this browser. */

const ORDER = ["auto", "light", "dark"];
const button = document.getElementById("theme");

/** @param {string} theme */
function show(theme) {
  document.documentElement.dataset.theme = theme;
  if (button) button.textContent = `Theme: ${theme}`;
  document.dispatchEvent(new CustomEvent("themechange"));
}

let current = localStorage.getItem("theme") ?? "auto";
if (!ORDER.includes(current)) current = "auto";
show(current);
button?.addEventListener("click", () => {
  current = ORDER[(ORDER.indexOf(current) + 1) % ORDER.length];
  localStorage.setItem("theme", current);
  show(current);
});
