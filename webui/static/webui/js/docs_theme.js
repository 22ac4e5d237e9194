/** Dark where the dashboard is: what draws the doors knows a class, not the page's colour scheme. No module, so that it is there before anything is drawn. */
"use strict";
{
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");

  /** Give the page the class that fits its theme. */
  const follow = () => {
    const theme = document.documentElement.dataset.theme;
    document.documentElement.classList.toggle("dark-mode", theme === "dark" || (theme !== "light" && prefersDark.matches));
  };

  document.addEventListener("themechange", follow);
  prefersDark.addEventListener("change", follow);
  follow();
}
