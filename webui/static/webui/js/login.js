/** Counts down what is left to wait after too many logins; only then the button sends again. */

const TICK_MS = 250;
const banner = document.getElementById("wait");
const left = document.getElementById("left");
const button = /** @type {HTMLButtonElement} */ (document.getElementById("enter"));
const endMs = Date.now() + Number(banner.dataset.seconds) * 1000;

/** How long in words. @param {number} seconds */
function words(seconds) {
  const minutes = Math.floor(seconds / 60);
  const rest = `${seconds % 60} second${seconds % 60 === 1 ? "" : "s"}`;
  return minutes ? `${minutes} min ${seconds % 60} s` : rest;
}

function tick() {
  const seconds = Math.ceil((endMs - Date.now()) / 1000);
  button.disabled = seconds > 0;
  if (seconds > 0) {
    const text = words(seconds);
    if (left.textContent !== text) left.textContent = text;
    return;
  }
  clearInterval(timer);
  banner.classList.remove("error");
  banner.textContent = "You can try again now.";
}

const timer = setInterval(tick, TICK_MS);
tick();
